"""The identity of LMCache servers that may share pages: a model's namespace, an object's key.

LMCache's chunk hash covers the tokens from the start of the prompt. This file adds everything else
that determines the meaning of an object's bytes, as far as LMCache tells it to an adapter. A
missing field silently gives wrong tokens (docs/lmcache.md, "The namespace").
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from math import prod
from typing import Any, Final

from peercache_client.engine_settings import EngineSettings
from peercache_client.identity import join_namespace, make_tag

# Increase it when the same fields come to mean other bytes.
_FORMAT_VERSION: Final = 1


def make_model_namespace(settings: EngineSettings, model: str, lmcache_version: str) -> str:
    """The version of LMCache decides how it lays out a chunk's tensors."""
    return join_namespace(
        f"lmcache{_FORMAT_VERSION}",
        (
            model,
            settings.model_revision,
            settings.namespace,
            settings.tenant,
            make_tag("lmcache", [], [f"lmcache={lmcache_version}"]),
        ),
    )


def make_layout_tag(shapes: Sequence[Sequence[int]], dtypes: Sequence[Any]) -> str:
    """Of an object's tensors: layers, tokens of a chunk, heads, and `torch.dtype`s."""
    return _make_layout_tag(tuple(map(tuple, shapes)), tuple(dtypes))


@lru_cache(maxsize=64)
def _make_layout_tag(shapes: tuple[tuple[int, ...], ...], dtypes: tuple[Any, ...]) -> str:
    sizes_bytes = [
        prod(shape) * dtype.itemsize for shape, dtype in zip(shapes, dtypes, strict=True)
    ]
    fields = [
        f"tensor={','.join(map(str, shape))} {dtype}"
        for shape, dtype in zip(shapes, dtypes, strict=True)
    ]
    return make_tag("lmcache", sizes_bytes, fields)


def make_key(object_key: Any, layout_tag: str) -> bytes:
    """`object_key`: LMCache's ObjectKey. Its rank has the world size, too. The salt comes last,
    because it may contain any text."""
    text = (
        f"{object_key.chunk_hash.hex()}.{object_key.kv_rank:08x}.{object_key.object_group_id}"
        f".{layout_tag}.{object_key.cache_salt}"
    )
    return text.encode(errors="surrogatepass")
