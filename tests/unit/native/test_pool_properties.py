"""The pool against a model dict: it returns the right bytes or nothing, and reports every page that
it evicts."""

import hashlib
import time

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from peercached import _native

_OK = 0
_POOL_BYTES = 2 << 20
_KEYS = st.integers(min_value=0, max_value=60)
_SIZES = st.sampled_from([1, 63, 64, 4095, 4096, 4097, 16_384, 70_001, 131_072, 600_000])


def digest(number: int) -> bytes:
    return hashlib.blake2b(number.to_bytes(4, "little"), digest_size=16).digest()


def content(number: int, size_bytes: int) -> bytes:
    return hashlib.shake_128(f"{number}/{size_bytes}".encode()).digest(size_bytes)


class PoolMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.pool = _native.PoolTable(_POOL_BYTES)
        self.held: dict[bytes, bytes] = {}
        self.sizes: dict[int, int] = {}

    def forget_evicted(self) -> None:
        evicted = self.pool.evicted()
        for at in range(0, len(evicted), 16):
            # The batch that evicted the page may have set it again.
            gone = evicted[at : at + 16]
            if self.pool.contains(gone) == b"\0":
                self.held.pop(gone, None)

    @rule(numbers=st.lists(_KEYS, min_size=1, max_size=12, unique=True), size_bytes=_SIZES)
    def set_pages(self, numbers: list[int], size_bytes: int) -> None:
        # A key identifies its content, so each key keeps its length.
        sizes = [self.sizes.setdefault(number, size_bytes) for number in numbers]
        pages = [content(n, size) for n, size in zip(numbers, sizes, strict=True)]
        packed = b"".join(map(digest, numbers))
        outcomes = self.pool.set(packed, pages)
        for number, page, outcome in zip(numbers, pages, outcomes, strict=True):
            if outcome == _OK:
                self.held[digest(number)] = page
        self.forget_evicted()

    @rule(numbers=st.lists(_KEYS, min_size=1, max_size=20))
    def get_pages(self, numbers: list[int]) -> None:
        packed = b"".join(map(digest, numbers))
        for number, page in zip(numbers, self.pool.get(packed), strict=True):
            # None is valid here; `counts_agree` checks that the page was really removed or evicted.
            assert page is None or page == self.held[digest(number)]

    @rule(number=_KEYS)
    def remove_page(self, number: int) -> None:
        if self.pool.remove(digest(number)):
            del self.held[digest(number)]
        assert self.pool.contains(digest(number)) == b"\0"

    @invariant()
    def counts_agree(self) -> None:
        # The evictor runs concurrently, so retry until the counts are stable.
        until = time.monotonic() + 10
        while True:
            self.forget_evicted()
            stats = self.pool.stats()
            if stats["keys"] == len(self.held) or time.monotonic() > until:
                break
        assert stats["keys"] == len(self.held)
        assert stats["payload_bytes"] == sum(map(len, self.held.values()))
        assert stats["used_bytes"] <= stats["capacity_bytes"]
        assert stats["reserved"] == 0
        assert stats["pins"] == 0


PoolMachine.TestCase.settings = settings(
    max_examples=40, stateful_step_count=40, deadline=None, print_blob=True
)
TestPool = PoolMachine.TestCase
