"""The interface of SGLang's RFC 7746, for code that is written against it.

https://github.com/sgl-project/sglang/issues/7746
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any

from peercache_client.connector.metadata import ConnectorMetadata
from peercache_client.connector.plan import PageToTokens


class Moved(int):
    """The result of a store or a retrieve. It is true if the whole call succeeded.

    As a number it is an index of the request's tokens: all pages of the call before it are stored,
    or in place. So a call that failed in part is false, and its number says what can be used.
    """

    is_all: bool

    def __new__(cls, end: int, is_all: bool) -> Moved:
        moved = super().__new__(cls, end)
        moved.is_all = is_all
        return moved

    def __bool__(self) -> bool:
        return self.is_all

    def __repr__(self) -> str:
        return f"Moved({int(self)}, is_all={self.is_all})"


class RemoteKVConnectorBase(ABC):
    """The RFC's methods. Errors of a store or a retrieve are the exceptions of its future."""

    @abstractmethod
    def __init__(self, metadata: ConnectorMetadata) -> None: ...

    @abstractmethod
    def register_kv_buffers(self, kv_args: Any) -> None:
        """`kv_args`: SGLang's KVArgs."""

    @abstractmethod
    def store_kv_async(
        self,
        req_id: str,
        page_to_tokens_mapping: PageToTokens,
        tokens_list: Sequence[int],
        **kwargs: Any,
    ) -> tuple[Future[Moved], int]:
        """Returns a future, and the index of `tokens_list` where the pages to be stored end."""

    @abstractmethod
    def retrieve_kv_async(
        self,
        req_id: str,
        page_to_tokens_mapping: PageToTokens,
        tokens_list: Sequence[int],
        **kwargs: Any,
    ) -> Future[Moved]:
        """The future's result is true if the KV of all tokens of the mapping is in place."""

    @abstractmethod
    def num_external_matched_tokens(
        self,
        req_id: str,
        tokens: Sequence[int],
        num_local_computed_tokens: int = 0,
        **kwargs: Any,
    ) -> int:
        """Counts the tokens after the first `num_local_computed_tokens` that can be retrieved."""

    @abstractmethod
    def finish_req(self, req_id: str, **kwargs: Any) -> Future[None]:
        """Ends a request, and frees its state. Its stores go on, its other calls stop. The future
        is done when no call reads or writes the request's pages any more."""

    @abstractmethod
    def close(self) -> None:
        """Ends all calls. When it returns, none of them reads or writes a page any more, except if
        it was called in a callback of a future. Later calls fail."""
