"""Chooses a host pool's page form, and the identity in its keys."""

from __future__ import annotations

import logging
from typing import Any, Final

import torch
from sglang.srt.mem_cache.hicache_storage import PoolName
from sglang.srt.runtime_context import get_model, get_spec

from peercache_client import identity
from peercache_client.notes import say
from peercache_client.sglang.page_addresses import PieceFinder
from peercache_client.sglang.page_forms import Flattened, InPlace, PageForm, head_groups
from peercache_client.sglang.placement import Sharing

_DRAFTS: Final = frozenset({PoolName.DRAFT, PoolName.DRAFT_INDEXER, PoolName.DRAFT_SWA})


def make_form(
    name: str, pool: Any, topology: identity.Topology, sharing: Sharing, *, zero_copy: bool
) -> PageForm:
    """Raises the pool's own exceptions if the pool cannot be stored at all."""
    indices_per_page = _indices_per_page(pool)
    dtype = _logical_dtype(name, pool)

    if zero_copy and name == PoolName.KV:
        parts = _head_parts(pool, topology)
        if parts:
            return _split_heads(name, pool, topology, parts, dtype, sharing)
    if zero_copy:
        try:
            return InPlace(
                name,
                _finder(pool),
                indices_per_page,
                _indices(pool),
                lambda sizes: piece_suffixes(name, pool, topology, sizes),
                sharing,
            )
        except (NotImplementedError, ValueError) as error:
            say(
                logging.WARNING,
                "SGLang's host pool %r cannot be stored in place (%s): its pages are copied",
                str(name),
                error,
            )
    flat = pool.get_dummy_flat_data_page()
    size_bytes = flat.numel() * flat.element_size()
    tag = _plain_tag("flat", name, pool, topology, [size_bytes])
    return Flattened(pool, indices_per_page, f".{tag}")


def piece_suffixes(
    name: str,
    pool: Any,
    topology: identity.Topology,
    sizes_bytes: list[int],
    *,
    form: str = "pieces",
    pool_class: str = "",
) -> tuple[str, ...]:
    """The suffixes of a page's pieces if no piece is a part of a rank's heads. `pool`: a host pool,
    or an object with its attributes for the class `pool_class`."""
    tag = _plain_tag(form, name, pool, topology, sizes_bytes, pool_class)
    return tuple(f".{tag}.{piece}" for piece in range(len(sizes_bytes)))


def is_logical(pool: Any) -> bool:
    """Whether the pool only numbers pages and holds no bytes (DeepSeek V4's anchor)."""
    return getattr(pool, "kv_buffer", pool) is None


def unwrapped(pool: Any) -> Any:
    """The pool that holds the KV, if `pool` is a HostPoolGroup."""
    anchor = getattr(pool, "anchor_entry", None)
    return pool if anchor is None else anchor.host_pool


def _indices_per_page(pool: Any) -> int:
    return int(getattr(pool, "logical_page_size", None) or pool.page_size)


def _finder(pool: Any) -> PieceFinder:
    """Finds the pieces of pages. SGLang's page_unified pools cannot find theirs."""
    if _is_unified(pool):
        return head_groups(pool)
    find: PieceFinder = pool.get_page_buffer_meta
    return find


def _is_unified(pool: Any) -> bool:
    return getattr(pool, "layout", "") == "page_unified"


def _indices(pool: Any) -> int:
    """The pool's size in indices; 0 if it does not report one."""
    size = getattr(pool, "size", 0)
    return size if isinstance(size, int) else 0


def _plain_tag(
    form: str,
    name: str,
    pool: Any,
    topology: identity.Topology,
    sizes_bytes: list[int],
    pool_class: str = "",
) -> str:
    fields = identity.rank_fields(
        topology, shared_by_tp_ranks=shared_by_tp_ranks(name, pool, topology), parts=0
    ) + identity.pool_fields(
        name, pool, getattr(pool, "head_num", None), _logical_dtype(name, pool), pool_class
    )
    return identity.make_tag(form, sizes_bytes, fields)


def shared_by_tp_ranks(name: str, pool: Any, topology: identity.Topology) -> bool:
    """If SGLang replicates the KV, only rank 0 writes and all ranks read. Even then Mamba's state
    is split over the ranks, and so is every pool with heads, such as the draft of another model
    kind."""
    return topology.replicated and name != PoolName.MAMBA and not hasattr(pool, "head_num")


def _logical_dtype(name: str, pool: Any) -> str:
    """SGLang stores both kinds of fp8 as uint8. The requested dtype tells them apart."""
    dtype = getattr(pool, "dtype", None)
    if isinstance(dtype, torch.dtype) and dtype.itemsize > 1:
        return str(dtype)
    asked = [f"kv_cache_dtype={get_model().kv_cache_dtype}"]
    if name in _DRAFTS:
        asked.append(f"draft={get_spec().speculative_draft_kv_cache_dtype}")
    # float8_e4m3fnuz of ROCm equals none of NVIDIA's formats.
    asked.append("hip" if torch.version.hip else "")
    return ",".join(asked)


def _head_parts(pool: Any, topology: identity.Topology) -> int:
    """How many parts this rank's heads are split into, so that other TP sizes find them; 0:
    none."""
    if topology.replicated:
        return 0
    if _is_unified(pool):
        return int(pool.head_group_num)
    lcm = topology.tp_lcm_size
    if not lcm or getattr(pool, "layout", "") != "page_head":
        return 0
    parts = lcm // topology.tp_size
    if pool.head_num % parts:
        say(
            logging.WARNING,
            "tp_lcm_size is %d, but the %d KV heads of a rank cannot be cut into %d parts: "
            "pages are shared with ranks of the same TP size only",
            lcm,
            pool.head_num,
            parts,
        )
        return 0
    return parts


def _split_heads(
    name: str,
    pool: Any,
    topology: identity.Topology,
    parts: int,
    dtype: str,
    sharing: Sharing,
) -> PageForm:
    # The tag has the heads of a part and the number of parts of all ranks. If there are more ranks
    # than heads, SGLang copies heads to several ranks. Then these numbers exceed the model's heads,
    # so such ranks share with no other TP size: the pool does not say which heads are copies.
    fields = identity.rank_fields(
        topology, shared_by_tp_ranks=False, parts=parts
    ) + identity.pool_fields(name, pool, pool.head_num // parts, dtype)

    def suffixes(sizes: list[int]) -> tuple[str, ...]:
        pieces_per_part = len(sizes) // parts
        tag = identity.make_tag("heads", sizes[:pieces_per_part], fields)
        first = topology.tp_rank * parts
        return tuple(
            f".{tag}.h{first + part}.{piece}"
            for part in range(parts)
            for piece in range(pieces_per_part)
        )

    def split(indices: Any) -> tuple[list[int], list[int]]:
        found: tuple[list[int], list[int]] = pool.get_split_heads_page_buffer_meta(indices, parts)
        return found

    find = _finder(pool) if parts == 1 or _is_unified(pool) else split
    return InPlace(name, find, _indices_per_page(pool), _indices(pool), suffixes, sharing)
