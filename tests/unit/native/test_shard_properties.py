"""The shard's table against a model dict: conditional updates, at most three holders in a lookup,
and instant removal of a node."""

import hashlib
import struct

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from peercached import _native

_ROW = struct.Struct("<16sQQIIHB5x")
_RESIDENT, _WITHDRAW = 1, 2
ROWS_PER_DIGEST_MAX = 3  # native/shard/shard.h
_HOLDERS = (1, 2, 3, 4, 5)
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
        # digest -> holder -> generation
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
                records[holder] = generation

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
        stats = self.shard.stats()
        for digest in _DIGESTS:
            found, all_holders = self.found(digest), self.model[digest]
            assert found.items() <= all_holders.items()
            # Dead holders that are not swept yet use up places.
            least = 1 if stats["dead_entries"] else ROWS_PER_DIGEST_MAX
            assert min(least, len(all_holders)) <= len(found) <= ROWS_PER_DIGEST_MAX
        assert stats["entries"] == sum(map(len, self.model.values()))


ShardMachine.TestCase.settings = settings(
    max_examples=40, stateful_step_count=30, deadline=None, print_blob=True
)
TestShard = ShardMachine.TestCase
