"""The settings of a connector."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Final

from peercache_client.client import DEFAULT_SOCKET_PATH
from peercache_client.identity import check_text

# Text fields that become part of the keys.
_TEXTS: Final = (
    "model_name",
    "kv_cache_dtype",
    "layout",
    "model_revision",
    "namespace",
    "tenant",
)


@dataclass(frozen=True)
class ConnectorMetadata:
    """`kv_cache_dtype`, `layout`, and every rank and size are part of the keys. Ranks that differ
    in one of them share no pages. DP ranks share all pages, so they have no field.

    The dtype names the meaning of the bytes ("bfloat16", "fp8_e4m3"), not their storage type.
    """

    model_name: str
    page_size: int  # tokens
    kv_cache_dtype: str
    layout: str = ""  # byte layout of one page in one buffer, if the engine has several layouts
    socket_path: str = DEFAULT_SOCKET_PATH
    model_revision: str = ""
    namespace: str = ""  # separates deployments
    tenant: str = ""  # separates tenants: no tenant reads another tenant's pages
    tp_rank: int = 0
    tp_size: int = 1
    pp_rank: int = 0
    pp_size: int = 1
    attn_cp_rank: int = 0
    attn_cp_size: int = 1
    dcp_rank: int = 0
    dcp_size: int = 1
    is_mla_model: bool = False  # every TP rank has the same KV
    is_eagle: bool = False  # hash token pairs, as SGLang does with EAGLE
    timeout_s: float = 5.0  # per chunk of a store or retrieve
    match_timeout_s: float = 0.05  # for num_external_matched_tokens, which blocks the scheduler
    hold_s: float = 0.0  # how long matched pages are pinned against eviction; at most 30
    chunk_pages: int = 128  # pages per request to the daemon
    threads: int = 2  # for stores, and the same number for retrieves
    calls_max: int = 1024  # limit of unfinished calls; more are refused

    # The connector does not split heads: see docs/vllm.md.
    tp_lcm_size: ClassVar[int] = 0

    @property
    def boundary_tokens(self) -> int:
        """How many tokens after a page its hash also covers."""
        return int(self.is_eagle)

    def __post_init__(self) -> None:
        for name in _TEXTS:
            check_text(name, getattr(self, name))
        for name in ("model_name", "kv_cache_dtype"):
            if not getattr(self, name):
                raise ValueError(f"{name} is empty: it keeps the pages of different models apart")
        for name in ("page_size", "chunk_pages", "threads", "calls_max"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}: at least 1")
        if not 0 <= self.hold_s <= 30:
            raise ValueError(f"hold_s is {self.hold_s}: 0 to 30 seconds")
        for kind in ("tp", "pp", "attn_cp", "dcp"):
            rank, size = getattr(self, f"{kind}_rank"), getattr(self, f"{kind}_size")
            if not 0 <= rank < size:
                raise ValueError(f"{kind}_rank is {rank} of {size}: 0 to {size - 1}")
