"""The identity of vLLM engines that may share pages: the namespace of an engine.

vLLM's block hash covers the tokens, the seed of the hash, and what a request adds (LoRA, images,
cache_salt). This file adds everything else that determines the meaning of a chunk's bytes. A
missing field silently gives wrong tokens (docs/vllm.md, "The namespace").
"""

from __future__ import annotations

from typing import Any, Final

from peercache_client.identity import join_namespace, make_tag
from peercache_client.vllm.settings import Settings

# Increase it when the same fields come to mean other bytes.
_FORMAT_VERSION: Final = 1


def make_engine_namespace(
    settings: Settings,
    config: Any,
    *,
    chunk_bytes: int,
    root_hash: bytes,
    vllm_version: str,
    device: str,
) -> str:
    """`config`: vLLM's OffloadingConfig. `chunk_bytes`: the size of a slot of the host memory.
    `root_hash`: the hash before the first block (NONE_HASH), which tells the algorithm and the
    seed. `device`: the kind of accelerator. vLLM's choice of kernels depends on it."""
    parallel = config.parallel
    fields = [
        f"vllm={vllm_version}",
        f"device={device}",
        f"root_hash={root_hash.hex()}",
        f"dtype={config.model.dtype}",
        f"layout={config.kv_cache_layout}",
        f"canonical={config.canonical_layout}",
        f"replicated={config.replicated_layout}",
        f"tokens_per_hash={config.cache.tokens_per_hash}",
        f"blocks_per_chunk={config.cache.blocks_per_chunk}",
        f"worker_bytes_per_block={config.worker_kv_bytes_per_block}",
        # A slot has the bytes of all ranks of these, side by side. DP replicas share all chunks.
        f"tp={parallel.tp_size}",
        f"pp={parallel.pp_size}",
        f"pcp={parallel.pcp_size}",
        f"dcp={parallel.dcp_size}",
        f"world={parallel.world_size}",
    ]
    # The last bytes of a chunk's key are the number of its group.
    fields += [
        f"group={group.group_id},{group.tokens_per_block},{','.join(group.layer_names)}"
        for group in config.groups
    ]
    return join_namespace(
        f"vllm{_FORMAT_VERSION}",
        (
            config.model.name,
            settings.model_revision,
            settings.namespace,
            settings.tenant,
            make_tag("vllm", [chunk_bytes], fields),
        ),
    )
