"""A rank of an inference engine in tests: KV buffers with bytes made from the tokens."""

import mmap
import os
import random
import threading
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from harness.clock import seconds
from peercache_client import _ipc
from peercache_client.connector import ConnectorMetadata, RemoteKVConnector

PAGE_SIZE = 16  # tokens
BLANK = 0xA5


def tokens_of(name: str, pages: int, more: int = 0) -> list[int]:
    """Tokens that follow from the name. A longer row begins with a shorter one."""
    chosen = random.Random(name)
    return [chosen.randrange(150_000) for _ in range(PAGE_SIZE * pages + more)]


class Engine:
    """K and V of each layer have a buffer of their own, as in SGLang's `layer_first` pools."""

    def __init__(
        self,
        socket_path: Path,
        *,
        shared: bool = True,
        pages: int = 64,
        layers: int = 2,
        page_bytes: int = 4096,
        **metadata: Any,
    ) -> None:
        self.buffers = 2 * layers
        self.page_bytes = page_bytes
        self.buffer_bytes = pages * page_bytes
        size = self.buffers * self.buffer_bytes
        self._fd = os.memfd_create("kv-buffers") if shared else -1
        if shared:
            os.ftruncate(self._fd, size)
        flags = mmap.MAP_SHARED if shared else mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
        self.memory = memoryview(mmap.mmap(self._fd, size, flags))
        self.rank = metadata.get("tp_rank", 0)
        self.connector = RemoteKVConnector(
            ConnectorMetadata(
                **{
                    "model_name": "acme/model",
                    "page_size": PAGE_SIZE,
                    "kv_cache_dtype": "bfloat16",
                    "socket_path": str(socket_path),
                    "match_timeout_s": seconds(2.0),  # a busy machine must not cause misses
                    **metadata,
                }
            )
        )
        self.blank()

    def __enter__(self) -> "Engine":
        return self

    def __exit__(self, *_: object) -> None:
        self.connector.close()
        if self._fd >= 0:
            os.close(self._fd)

    def register(self) -> "Engine":
        self.connector.register_kv_buffers(self.kv_args)
        return self

    @property
    def kv_args(self) -> SimpleNamespace:
        start = _ipc.address_of(self.memory)
        return SimpleNamespace(
            kv_data_ptrs=[start + i * self.buffer_bytes for i in range(self.buffers)],
            kv_data_lens=[self.buffer_bytes] * self.buffers,
            kv_item_lens=[self.page_bytes] * self.buffers,
        )

    # --- the pages -------------------------------------------------------------------------

    def blank(self) -> None:
        self.memory[:] = bytes([BLANK]) * len(self.memory)

    def is_blank(self) -> bool:
        return bytes(self.memory).count(BLANK) == len(self.memory)

    def compute(self, tokens: Sequence[int], pages: Sequence[int], first: int = 0) -> None:
        """Writes the KV of a forward pass: page `first` of the request and the pages after it."""
        for i, page in enumerate(pages):
            for buffer in range(self.buffers):
                self._piece(buffer, page)[:] = self._kv(tokens, first + i, buffer)

    def right_pages(self, tokens: Sequence[int], pages: Sequence[int], first: int = 0) -> int:
        """The number of leading pages that hold exactly their KV."""
        for i, page in enumerate(pages):
            for buffer in range(self.buffers):
                if self._piece(buffer, page) != self._kv(tokens, first + i, buffer):
                    return i
        return len(pages)

    def _piece(self, buffer: int, page: int) -> memoryview:
        start = buffer * self.buffer_bytes + page * self.page_bytes
        return self.memory[start : start + self.page_bytes]

    def _kv(self, tokens: Sequence[int], number: int, buffer: int) -> bytes:
        """Depends on all tokens up to the page's end, as real KV does, on buffer and rank."""
        before = bytes(str(list(tokens[: PAGE_SIZE * (number + 1)])), "ascii")
        seed = before + bytes((buffer, self.rank))
        return random.Random(seed).randbytes(self.page_bytes)

    # --- whole requests --------------------------------------------------------------------

    def store(self, req_id: str, tokens: Sequence[int], pages: Sequence[int]) -> int:
        """Computes and stores a request. Returns the end of the stored tokens."""
        self.compute(tokens, pages)
        future, _ = self.connector.store_kv_async(req_id, mapping_of(pages), tokens)
        return future.result()

    def retrieve(self, req_id: str, tokens: Sequence[int], pages: Sequence[int]) -> int:
        """Retrieves into blank pages and checks every byte. Returns the end of the tokens."""
        self.blank()
        future = self.connector.retrieve_kv_async(req_id, mapping_of(pages), tokens)
        end = int(future.result())
        assert self.right_pages(tokens, pages) >= end // PAGE_SIZE, "wrong bytes were retrieved"
        return end


def mapping_of(pages: Sequence[int], first: int = 0) -> list[tuple[int, slice]]:
    starts = range(first * PAGE_SIZE, (first + len(pages)) * PAGE_SIZE, PAGE_SIZE)
    return [
        (page, slice(start, start + PAGE_SIZE)) for page, start in zip(pages, starts, strict=True)
    ]


def future_of(answer: Any) -> Any:
    """The future that a store (with its end index) or a retrieve returns. A refused store's end
    index is 0."""
    if not isinstance(answer, tuple):
        return answer
    future, end = answer
    assert (end == 0) == (future.done() and future.exception() is not None)
    return future


class Agreement:
    """The minimum over ranks that are threads of this process. Real ranks use gloo."""

    def __init__(self, ranks: int) -> None:
        self._given: list[list[int]] = [[] for _ in range(ranks)]
        self._barrier = threading.Barrier(ranks, timeout=seconds(30))
        self.rounds = 0

    def of_rank(self, rank: int) -> Any:
        def minimum(values: list[int]) -> list[int]:
            self._given[rank] = values
            self._barrier.wait()
            assert len(set(map(len, self._given))) == 1, "the queues of the ranks differ"
            agreed = [min(column) for column in zip(*self._given, strict=True)]
            self._barrier.wait()
            self.rounds += rank == 0
            return agreed

        return minimum
