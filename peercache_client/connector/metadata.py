"""What a connector is told when it is made."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Final

from peercache_client.client import DEFAULT_SOCKET_PATH
from peercache_client.identity import check_text

# Parts of the keys.
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
    """`kv_cache_dtype` and `layout` are part of the keys, and so is every rank and size: pages of
    ranks that differ in one of them are other pages. DP ranks share, so there is no such field.

    `dtype` says what the bytes mean ("bfloat16", "fp8_e4m3"), not how they are stored.
    """

    model_name: str
    page_size: int  # tokens
    kv_cache_dtype: str
    layout: str = ""  # of the bytes of one page in one buffer, where there are several
    socket_path: str = DEFAULT_SOCKET_PATH
    model_revision: str = ""
    namespace: str = ""  # separates deployments
    tenant: str = ""  # separates tenants: nobody reads pages of another one's
    tp_rank: int = 0
    tp_size: int = 1
    pp_rank: int = 0
    pp_size: int = 1
    attn_cp_rank: int = 0
    attn_cp_size: int = 1
    dcp_rank: int = 0
    dcp_size: int = 1
    is_mla_model: bool = False  # the KV is the same on every TP rank
    is_eagle: bool = False  # hashes of token pairs, as SGLang makes them with EAGLE
    timeout_s: float = 5.0  # for one chunk of a store or retrieve
    match_timeout_s: float = 0.05  # of num_external_matched_tokens, which the scheduler waits for
    hold_s: float = 0.0  # what is matched is kept from eviction for so long; 30 at most
    chunk_pages: int = 128  # per request to the daemon
    threads: int = 2  # for stores, and as many for retrieves
    calls_max: int = 1024  # stores and retrieves that are not done; more are refused

    # Heads are not cut into parts here: see docs/connector.md.
    tp_lcm_size: ClassVar[int] = 0

    @property
    def boundary_tokens(self) -> int:
        """How many tokens behind a page its hash covers, too."""
        return int(self.is_eagle)

    def __post_init__(self) -> None:
        for name in _TEXTS:
            check_text(name, getattr(self, name))
        for name in ("model_name", "kv_cache_dtype"):
            if not getattr(self, name):
                raise ValueError(f"{name} is empty: it is part of what keeps models apart")
        for name in ("page_size", "chunk_pages", "threads", "calls_max"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}: at least 1")
        if not 0 <= self.hold_s <= 30:
            raise ValueError(f"hold_s is {self.hold_s}: 0 to 30 seconds")
        for kind in ("tp", "pp", "attn_cp", "dcp"):
            rank, size = getattr(self, f"{kind}_rank"), getattr(self, f"{kind}_size")
            if not 0 <= rank < size:
                raise ValueError(f"{kind}_rank is {rank} of {size}: 0 to {size - 1}")
