"""The shard's table against a dictionary: conditional updates, at most three holders, instant
removal of a node."""

import hashlib
import struct

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from peercached import _native

_ROW = struct.Struct("<16sQQIIHB5x")
_RESIDENT, _WITHDRAW = 1, 2
_HOLDERS = (1, 2, 3, 4, 5)
_HOLDERS_PER_DIGEST = 3
_DIGESTS = [hashlib.blake2b(bytes([n]), digest_size=16).digest() for n in range(40)]

Update = tuple[int, int, bool]  # digest number, generation, withdraw
_UPDATES = st.lists(
    st.tuples(st.integers(0, 39), st.integers(1, 200), st.booleans()), min_size=1, max_size=30
)


def row(digest: bytes, generation: int, withdraw: bool) -> bytes:
    flags = _WITHDRAW if withdraw else _RESIDENT
    return _ROW.pack(digest, generation * 64, generation, generation & 0xFF, 4096, 0xFFFF, flags)


class ShardMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.shard = _native.ShardTable(100_000)
        # digest -> holder -> generation, in the order of their last change
        self.model: dict[bytes, dict[int, int]] = {digest: {} for digest in _DIGESTS}
        for holder in _HOLDERS:
            self.shard.add_holder(holder)
        self.dropped: set[int] = set()

    @rule(holder=st.sampled_from(_HOLDERS), updates=_UPDATES)
    def apply(self, holder: int, updates: list[Update]) -> None:
        if holder in self.dropped:
            return
        self.shard.apply(holder, b"".join(row(_DIGESTS[d], g, w) for d, g, w in updates))
        for number, generation, withdraw in updates:
            records = self.model[_DIGESTS[number]]
            stored = records.get(holder)
            if withdraw:
                if stored is not None and stored <= generation:
                    del records[holder]
            elif stored is None or generation > stored:
                if stored is None and len(records) == _HOLDERS_PER_DIGEST:
                    # Any of the others may have given way: see which.
                    self.settle(_DIGESTS[number], holder, generation)
                else:
                    records[holder] = generation

    def settle(self, digest: bytes, holder: int, generation: int) -> None:
        """A fourth holder took the place of one of three; the table says whose."""
        found = self.found(digest)
        assert len(found) <= _HOLDERS_PER_DIGEST
        before = self.model[digest]
        # Later updates of the same batch may have changed the new one again.
        survivors = {h: g for h, g in before.items() if h in found}
        self.model[digest] = {**survivors, holder: generation}
        if holder not in found:
            self.model[digest].pop(holder)

    def found(self, digest: bytes) -> dict[int, int]:
        packed = self.shard.lookup(digest)
        rows = [_ROW.unpack_from(packed, at) for at in range(0, len(packed), _ROW.size)]
        for found_digest, offset, generation, check, length, _, flags in rows:
            assert found_digest == digest
            assert (offset, check, length) == (generation * 64, generation & 0xFF, 4096)
            assert flags == _RESIDENT
        return {holder: generation for _, _, generation, _, _, holder, _ in rows}

    @rule(holder=st.sampled_from(_HOLDERS))
    def drop(self, holder: int) -> None:
        if holder in self.dropped:
            return
        self.shard.drop_holder(holder)
        self.dropped.add(holder)
        for records in self.model.values():
            records.pop(holder, None)

    @rule()
    def sweep_and_return(self) -> None:
        while self.shard.sweep(1 << 20):
            pass
        for holder in self.dropped:
            self.shard.add_holder(holder)
        self.dropped.clear()

    @invariant()
    def lookups_agree(self) -> None:
        for digest in _DIGESTS:
            assert self.found(digest) == self.model[digest]
        assert self.shard.stats()["entries"] == sum(map(len, self.model.values()))


ShardMachine.TestCase.settings = settings(
    max_examples=40, stateful_step_count=30, deadline=None, print_blob=True
)
TestShard = ShardMachine.TestCase
