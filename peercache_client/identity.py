"""The identity of workers that may share pages: the model's namespace, a tag for each host pool.

SGLang's page hash covers only the tokens. This file adds everything else that determines the
meaning of the bytes. A missing field silently gives wrong tokens (docs/sglang.md, "Keys"). This
file reads attributes of SGLang's pools, and imports no sglang. vLLM's tier makes its namespace with
the same functions (`vllm/identity.py`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any, Final, NamedTuple
from urllib.parse import quote

# Increase it when the same fields come to mean other bytes.
FORMAT_VERSION: Final = 1
_NAMESPACE_BYTES_MAX: Final = 512  # half of the daemon's limit
_TAG_HEX_DIGITS: Final = 24

# Attributes of SGLang's host pools that define a page's layout. Missing ones are skipped.
_GEOMETRY: Final = (
    "layout",
    "page_size",
    "logical_page_size",
    "layer_num",
    "start_layer",
    "end_layer",
    "head_dim",
    "v_head_dim",
    "kv_cache_dim",
    "kv_lora_rank",
    "qk_rope_head_dim",
    "index_head_dim",
    "indexer_dtype",
    "indexer_page_stride_size",
    "item_bytes",
    "target_layer_num",
    "num_mamba_layers",
    "temporal_dtype",
    "conv_dtype",
    "conv_state_shapes",
    "temporal_state_shape",
    "storage_format_tag",
)


class Topology(NamedTuple):
    """The part of each page that this rank holds. DP ranks share all pages, so they are absent."""

    tp_rank: int
    tp_size: int
    pp_rank: int
    pp_size: int
    cp_rank: int
    cp_size: int
    dcp_rank: int
    dcp_size: int
    replicated: bool  # SGLang's is_mla_model: every TP rank has the same KV
    tp_lcm_size: int  # 0, or the number of parts into which the heads of a page_head pool are split

    @property
    def is_first(self) -> bool:
        """Rank 0 in every dimension. One rank counts the tokens that all of them look up."""
        return not (self.tp_rank or self.pp_rank or self.cp_rank or self.dcp_rank)

    @classmethod
    def of(cls, config: Any) -> Topology:
        """From a HiCacheStorageConfig."""
        return cls(
            config.tp_rank,
            config.tp_size,
            config.pp_rank,
            config.pp_size,
            config.attn_cp_rank,
            config.attn_cp_size,
            getattr(config, "dcp_rank", 0),  # sglang 0.5.22 has no DCP
            getattr(config, "dcp_size", 1),
            bool(config.is_mla_model),
            int(config.tp_lcm_size or 0),
        )


def check_text(name: str, text: object) -> None:
    """ValueError unless it is printable text. Operators read and type namespaces, and a line break
    ends a field of a tag."""
    if not isinstance(text, str) or not text.isprintable():
        raise ValueError(f"{name} is {text!r}: printable text without line breaks is wanted")


def make_namespace(model: str | None, model_revision: str, namespace: str, tenant: str) -> str:
    """The namespace that one `clear` empties. Readable for operators, or hashed if it is too
    long."""
    return join_namespace(
        f"sglang{FORMAT_VERSION}", (model or "", model_revision, namespace, tenant)
    )


def join_namespace(head: str, parts: Sequence[str]) -> str:
    """`head` is the engine, which never shares pages with another. Each part is escaped."""
    text = "/".join((head, *(quote(part, safe=" +,:@~=()") for part in parts)))
    if len(text) > _NAMESPACE_BYTES_MAX:
        text = f"{head}/sha256/{hashlib.sha256(text.encode()).hexdigest()}"
    return text


def rank_fields(topology: Topology, *, shared_by_tp_ranks: bool, parts: int) -> list[str]:
    """`parts`: of a rank's heads. Keys name them by their number in the whole model, not by the
    rank that has them. 0: they do not."""
    if shared_by_tp_ranks:
        tp = "all"
    elif parts:
        tp = f"of{topology.tp_size * parts}"
    else:
        tp = f"{topology.tp_rank}of{topology.tp_size}"
    fields = [
        f"tp={tp}",
        f"pp={topology.pp_rank}of{topology.pp_size}",
        f"cp={topology.cp_rank}of{topology.cp_size}",
    ]
    if topology.dcp_size > 1:
        # The tokens that a rank holds of a page depend on the TP size, too.
        fields.append(f"dcp={topology.dcp_rank}of{topology.dcp_size},tp{topology.tp_size}")
    return fields


def pool_fields(
    name: str, pool: Any, heads: int | None, logical_dtype: str, pool_class: str = ""
) -> list[str]:
    """The fields that the pool itself determines. `heads`: heads per piece, if the pool has any.
    `pool_class`: by default that of `pool`."""
    fields = [
        f"pool={name}",
        f"class={pool_class or type(pool).__name__}",
        f"dtype={getattr(pool, 'dtype', None)}",
        f"logical_dtype={logical_dtype}",
        f"heads={heads}",
    ]
    fields += [
        f"{attribute}={getattr(pool, attribute)}"
        for attribute in _GEOMETRY
        if getattr(pool, attribute, None) is not None
    ]
    return fields


def make_tag(form: str, sizes_bytes: Sequence[int], fields: Sequence[str]) -> str:
    """The tag that follows every page hash in a key. `form` and `sizes_bytes` say how a page of the
    pool is split into pages of ours."""
    sizes = ",".join(map(str, sizes_bytes))
    text = "\n".join((f"format={FORMAT_VERSION}", f"form={form}", f"sizes={sizes}", *fields))
    return hashlib.sha256(text.encode()).hexdigest()[:_TAG_HEX_DIGITS]
