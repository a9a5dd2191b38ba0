"""The HiCache storage backend of SGLang: what `--hicache-storage-backend dynamic` loads.

    --hicache-storage-backend dynamic --hicache-storage-backend-extra-config '{
        "backend_name": "peercache", "module_path": "peercache_client.sglang",
        "class_name": "PeerCacheStorage", "interface_v1": 1, "allocator": "shm"}'

Importing it needs sglang and torch, which this distribution does not depend on: whoever loads it
has them. docs/sglang.md tells what to set, and how keys are made.

- `storage`: the methods that SGLang calls
- `settings`: our part of the extra config
- `placement`: from a pool's page indices to places in shared memory
- `page_forms`: a page of a pool as pages of ours, in place or flattened
- `hits`: from what exists to how long a prefix can be restored
- `transfer_metrics`: the figures that SGLang asks for
"""

from peercache_client.sglang.storage import PeerCacheStorage

__all__ = ["PeerCacheStorage"]
