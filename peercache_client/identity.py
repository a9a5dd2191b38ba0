"""What may share pages: a namespace for the model, and a tag for each host pool.

SGLang's page hash covers the tokens and nothing else. Everything else that decides what the bytes
mean is added here; one field left out means wrong tokens, silently (docs/sglang.md, "Keys").
No sglang is imported: what is read are attributes of its pools.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any, Final, NamedTuple
from urllib.parse import quote

# Raised when the same fields begin to mean other bytes.
FORMAT_VERSION: Final = 1
_NAMESPACE_BYTES_MAX: Final = 512  # half of what the daemon takes
_TAG_HEX_DIGITS: Final = 24

# Attributes of SGLang's host pools that say how a page is laid out; absent ones are left out.
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
    """Which part of a page this rank has. DP ranks are not in it: they share everything."""

    tp_rank: int
    tp_size: int
    pp_rank: int
    pp_size: int
    cp_rank: int
    cp_size: int
    dcp_rank: int
    dcp_size: int
    replicated: bool  # SGLang's is_mla_model: every TP rank has the same KV
    tp_lcm_size: int  # 0, or into how many parts the heads of a page_head pool are cut

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
            config.dcp_rank,
            config.dcp_size,
            bool(config.is_mla_model),
            int(config.tp_lcm_size or 0),
        )


def check_text(name: str, text: object) -> None:
    """ValueError unless it is printable text. Such text goes into namespaces, which operators read
    and type, and into tags, whose fields end with a line."""
    if not isinstance(text, str) or not text.isprintable():
        raise ValueError(f"{name} is {text!r}: printable text without line breaks is wanted")


def make_namespace(model: str | None, model_revision: str, namespace: str, tenant: str) -> str:
    """`clear` empties this much. Readable, for operators; hashed where it would be too long."""
    parts = [
        quote(part, safe=" +,:@~=()") for part in (model or "", model_revision, namespace, tenant)
    ]
    text = "/".join((f"sglang{FORMAT_VERSION}", *parts))
    if len(text) > _NAMESPACE_BYTES_MAX:
        text = f"sglang{FORMAT_VERSION}/sha256/{hashlib.sha256(text.encode()).hexdigest()}"
    return text


def rank_fields(topology: Topology, *, shared_by_tp_ranks: bool, split: bool) -> list[str]:
    """`split`: heads are named by their number among all, whatever the rank that has them."""
    if shared_by_tp_ranks:
        tp = "all"
    elif split:
        tp = f"of{topology.tp_lcm_size}"
    else:
        tp = f"{topology.tp_rank}of{topology.tp_size}"
    fields = [
        f"tp={tp}",
        f"pp={topology.pp_rank}of{topology.pp_size}",
        f"cp={topology.cp_rank}of{topology.cp_size}",
    ]
    if topology.dcp_size > 1:
        # Which tokens of a page a rank has follows from the size of TP, too.
        fields.append(f"dcp={topology.dcp_rank}of{topology.dcp_size},tp{topology.tp_size}")
    return fields


def pool_fields(name: str, pool: Any, heads: int | None, logical_dtype: str) -> list[str]:
    """What the pool itself says. `heads`: of one piece, where the pool has heads."""
    fields = [
        f"pool={name}",
        f"class={type(pool).__name__}",
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
    """Behind every page hash. `form` and `sizes_bytes`: how the page is cut into pages of ours."""
    sizes = ",".join(map(str, sizes_bytes))
    text = "\n".join((f"format={FORMAT_VERSION}", f"form={form}", f"sizes={sizes}", *fields))
    return hashlib.sha256(text.encode()).hexdigest()[:_TAG_HEX_DIGITS]
