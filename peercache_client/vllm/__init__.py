"""The secondary tier for vLLM's `TieringOffloadingSpec`, which loads it by its module path.

    --kv-transfer-config '{"kv_connector": "OffloadingConnector", "kv_role": "kv_both",
        "kv_connector_extra_config": {
            "spec_name": "TieringOffloadingSpec", "cpu_bytes_to_use": 8589934592,
            "secondary_tiers": [
                {"type": "PeerCacheTier", "module_path": "peercache_client.vllm"}]}}'

Importing it needs vllm. This distribution does not depend on it, because only vLLM imports this
package. docs/vllm.md explains the settings and the namespace.

- `tier`: the methods that vLLM calls, all on its scheduler's thread
- `settings`: our keys of the tier's entry
- `identity`: the namespace, made of all that gives the bytes their meaning
- `shared_slots`: the slots of vLLM's host memory as pages of the daemon
- `lookups`: asks the daemon for many chunks at once, on a thread
- `mover`: the threads that run loads and stores
"""

from peercache_client.engine_fit import importing

with importing("vllm", __name__):
    from peercache_client.vllm.tier import PeerCacheTier

__all__ = ["PeerCacheTier"]
