"""The identity of vLLM engines that may share pages: the namespace of an engine.

vLLM's block hash covers the tokens, the seed of the hash, and what a request adds (LoRA, images,
cache_salt). This file adds everything else that determines the meaning of a chunk's bytes. A
missing field silently gives wrong tokens (docs/vllm.md, "The namespace").
"""

from __future__ import annotations

import re
from typing import Any, Final

from vllm.distributed.kv_transfer.kv_connector.v1.offloading.canonical_mapping import (
    canonical_format_id,
)

from peercache_client.identity import join_namespace, make_tag
from peercache_client.vllm.settings import Settings

# Increase it when the same fields come to mean other bytes, also by a new version of vLLM.
_FORMAT_VERSION: Final = 1
# The releases of vLLM that write the same bytes for the same fields. A version that was not
# compared with these shares pages only with itself.
_SAME_BYTES: Final = re.compile(r"0\.(32|33)\.\d+(\.post\d+)?(\+.*)?")


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
    canonical = config.canonical_layout and canonical_format_id(config.kv_cache_layout)
    copies = 1 if config.replicated_layout else parallel.world_size
    # DP replicas share all chunks.
    fields = [
        f"vllm={'' if _SAME_BYTES.fullmatch(vllm_version) else vllm_version}",
        f"device={device}",
        f"root_hash={root_hash.hex()}",
        f"dtype={config.model.dtype}",
        f"layout={config.kv_cache_layout}",
        f"canonical={canonical}",
        f"replicated={config.replicated_layout}",
        f"tokens_per_hash={config.cache.tokens_per_hash}",
        f"blocks_per_chunk={config.cache.blocks_per_chunk}",
        f"bytes_per_block={config.worker_kv_bytes_per_block * copies}",
        f"pcp={parallel.pcp_size}",
        f"dcp={parallel.dcp_size}",
    ]
    if not _is_same_for_all_tp_sizes(config):
        # A slot has the bytes of all ranks of these, side by side, or one copy for all.
        fields += [
            f"tp={parallel.tp_size}",
            f"pp={parallel.pp_size}",
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


def _is_same_for_all_tp_sizes(config: Any) -> bool:
    """Whether a chunk has the same bytes with any number of TP ranks: those of the whole model,
    layer by layer.

    `is_parallelism_agnostic` alone is not enough. vLLM sets it also for ranks side by side, where a
    chunk has all layers of one rank before those of the next. With the canonical layout, vLLM's
    workers refuse to start if it is set and a layer's page is not that of the whole model.

    MLA (`replicated_layout`) is left out: vLLM on a CPU cannot prove it (docs/vllm.md).
    """
    parallel = config.parallel
    return (
        config.canonical_layout
        and parallel.is_parallelism_agnostic
        and not config.replicated_layout
        and parallel.world_size == parallel.tp_size
    )
