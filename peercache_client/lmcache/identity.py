"""The identity of LMCache servers that may share pages: a model's namespace, an object's key.

LMCache's chunk hash covers the tokens from the start of the prompt. This file adds everything else
that determines the meaning of an object's bytes, as far as LMCache tells it to an adapter. A
missing field silently gives wrong tokens (docs/lmcache.md, "The namespace").

The layout in a key is that of the object that is stored or loaded. So objects with other layouts
never meet. LMCache's lookups have no objects, and their layouts are hints: see `adapter.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Final

from peercache_client.engine_settings import EngineSettings
from peercache_client.identity import join_namespace, make_tag

# Increase it when the same fields come to mean other bytes, such as when a new LMCache lays out the
# tensors of a chunk in another way. LMCache's version is not part of a namespace: an upgrade would
# lose the cache. Its sources for GPUs lay out a chunk alike in 0.5.5, 0.5.6 and 0.5.7rc2.
_FORMAT_VERSION: Final = 1
# The layout of flat bytes, which LMCache's serializers make. It has no length, so that a lookup can
# name it. The daemon loads no page of another length.
FLAT: Final = "flat"


def make_model_namespace(settings: EngineSettings, model: str) -> str:
    return join_namespace(
        f"lmcache{_FORMAT_VERSION}",
        (model, settings.model_revision, settings.namespace, settings.tenant),
    )


def layout_of(memory_object: Any) -> str:
    """The layout tag of one of LMCache's MemoryObjs. Those of LMCache's own tools have one shape
    and dtype, and not the newer lists."""
    meta = memory_object.meta
    if meta.shapes is None or meta.dtypes is None:
        return make_layout_tag([meta.shape], [meta.dtype])
    return make_layout_tag(meta.shapes, meta.dtypes)


def make_layout_tag(shapes: Sequence[Sequence[int]], dtypes: Sequence[Any]) -> str:
    """Of an object's tensors: layers, tokens of a chunk, heads, and `torch.dtype`s."""
    return _make_layout_tag(tuple(map(tuple, shapes)), tuple(map(str, dtypes)))


@lru_cache(maxsize=64)
def _make_layout_tag(shapes: tuple[tuple[int, ...], ...], dtypes: tuple[str, ...]) -> str:
    if dtypes == ("torch.uint8",) and len(shapes[0]) == 1:
        return FLAT
    fields = [
        f"tensor={','.join(map(str, shape))} {dtype}"
        for shape, dtype in zip(shapes, dtypes, strict=True)
    ]
    return make_tag("lmcache", [], fields)


def make_key(object_key: Any, layout_tag: str) -> bytes:
    """`object_key`: LMCache's ObjectKey. Its rank has the world size, too. The salt comes last,
    because it may contain any text."""
    text = (
        f"{object_key.chunk_hash.hex()}.{object_key.kv_rank:08x}.{object_key.object_group_id}"
        f".{layout_tag}.{object_key.cache_salt}"
    )
    return text.encode(errors="surrogatepass")
