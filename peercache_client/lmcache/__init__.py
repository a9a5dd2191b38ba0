"""The L2 adapter for LMCache's multi-process server, which loads it as a plugin:

    --l2-adapter '{"type": "plugin", "module_path": "peercache_client.lmcache",
        "class_name": "PeerCacheAdapter"}'

Importing it needs lmcache. This distribution does not depend on it, because only LMCache imports
this package. docs/lmcache.md explains the settings, the namespace, and what is copied.

- `adapter`: the methods that LMCache calls, on its controllers' threads
- `event_hashes`: the hashes of objects, for routers
- `identity`: namespaces and keys, made of all that gives the bytes their meaning
- `l1_pages`: the objects in LMCache's L1 memory as pages of the daemon
"""

from peercache_client.engine_fit import importing

with importing("lmcache", __name__):
    from peercache_client.lmcache.adapter import PeerCacheAdapter

__all__ = ["PeerCacheAdapter"]
