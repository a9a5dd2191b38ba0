"""A pool of blocks of one size, with the eviction order of the daemon's (native/pool/recency.h)."""

from __future__ import annotations

from collections import OrderedDict

# A block that is set again counts as used again if, since its eviction, not more blocks were
# evicted than so many pools have.
_REMEMBERED_POOLS = 3


class Pool:
    """`blocks`: how many it keeps; None: all."""

    def __init__(self, blocks: int | None) -> None:
        self._blocks = blocks
        # Block -> its last use, in blocks touched. Both ascend.
        self._once: OrderedDict[int, int] = OrderedDict()
        self._reused: OrderedDict[int, int] = OrderedDict()
        self._clock = 0
        self._evicted: dict[int, int] = {}  # block -> number of its eviction
        self._evictions = 0

    def __contains__(self, block: int) -> bool:
        return block in self._once or block in self._reused

    def __len__(self) -> int:
        return len(self._once) + len(self._reused)

    def use(self, block: int) -> None:
        """Notes a use of a block that is in the pool."""
        self._clock += 1
        self._once.pop(block, None)
        self._reused[block] = self._clock
        self._reused.move_to_end(block)

    def set(self, block: int) -> list[int]:
        """Sets a block. Returns the blocks evicted for it."""
        if block in self:
            self.use(block)
            return []
        self._clock += 1
        (self._reused if self._was_evicted_lately(block) else self._once)[block] = self._clock
        evicted: list[int] = []
        while self._blocks is not None and len(self) > self._blocks:
            evicted.append(self._evict(self._blocks))
        return evicted

    def _was_evicted_lately(self, block: int) -> bool:
        number = self._evicted.pop(block, None)
        if number is None or self._blocks is None:
            return False
        return self._evictions - number < _REMEMBERED_POOLS * self._blocks

    def _evict(self, blocks: int) -> int:
        once = next(iter(self._once.values()), None)
        reused = next(iter(self._reused.values()), None)
        from_once = reused is None or (once is not None and once <= reused + blocks)
        block, _ = (self._once if from_once else self._reused).popitem(last=False)
        self._evictions += 1
        self._evicted[block] = self._evictions
        return block
