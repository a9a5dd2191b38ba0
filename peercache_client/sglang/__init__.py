"""The HiCache storage backend for SGLang, loaded with `--hicache-storage-backend dynamic`.

    --hicache-storage-backend dynamic --hicache-storage-backend-extra-config '{
        "backend_name": "peercache", "module_path": "peercache_client.sglang",
        "class_name": "PeerCacheStorage", "interface_v1": 1, "allocator": "shm"}'

Importing it needs sglang and torch. This distribution does not depend on them, because only SGLang
imports this package. docs/sglang.md explains the settings and the keys.

- `storage`: the methods that SGLang calls
- `settings`: our keys of the extra config
- `placement`: regions, offsets and views of a pool's pages
- `page_forms`: stores a pool's pages in place, or flattened
- `hits`: from the existing pages to the restorable prefix lengths
- `transfer_metrics`: the transfer figures that SGLang collects

`linker` is another way into SGLang, without a host tier. SGLang imports it by its module path.
"""

from peercache_client.engine_fit import importing

with importing("sglang", __name__):
    from peercache_client.sglang.storage import PeerCacheStorage

__all__ = ["PeerCacheStorage"]
