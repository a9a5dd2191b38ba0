"""Consistent hashing: where the nodes of a view stand on the ring.

A node of the view's median weight stands at `vnodes` positions, the others at more or fewer in
proportion (`vnodes_of`); each is the first 8 bytes, big-endian, of
BLAKE2b-64("<node id>#<i>"); equal positions are ordered by node id. The owners of a digest are the
first distinct nodes at or clockwise from its second word (little-endian), wrapping around. All of
it is a pure function of the view, so every node that has the same view agrees without asking.

The lookups of the daemon run in native code (native/shard/ring.h) over what `build` packs; `owners`
here is the same rule in Python, for the simulator and the tests.
"""

from __future__ import annotations

import bisect
import hashlib
import itertools
import operator
import sys
from array import array
from collections.abc import Mapping, Sequence

VNODES = 160

# A node has at most so many times the positions of the median one, and at least such a part.
WEIGHT_FACTOR_MAX = 8

_SLOT_BITS = 16
_SLOT_MASK = (1 << _SLOT_BITS) - 1


def positions(node_id: str, vnodes: int = VNODES) -> list[int]:
    """Where a node stands, ascending: 64-bit numbers."""
    return sorted(
        int.from_bytes(hashlib.blake2b(f"{node_id}#{i}".encode(), digest_size=8).digest(), "big")
        for i in range(vnodes)
    )


def vnodes_of(weights: Mapping[str, int], vnodes: int = VNODES) -> dict[str, int]:
    """How many positions each node has. Integers only, so that all nodes come to the same.

    The weight is the size of the node's pool: who holds more pages keeps more records. Measured
    against the lower median, which is some node's own weight: it changes seldom, and then nodes
    only get more positions or lose some. Weight 0 is unknown, and counts as the median.
    """
    known = sorted(weight for weight in weights.values() if weight > 0)
    if not known:
        return dict.fromkeys(weights, vnodes)
    median = known[(len(known) - 1) // 2]
    least, most = max(vnodes // WEIGHT_FACTOR_MAX, 1), vnodes * WEIGHT_FACTOR_MAX
    return {
        node_id: min(max((vnodes * (weight or median) + median // 2) // median, least), most)
        for node_id, weight in weights.items()
    }


class Ring:
    """Builds packed rings. Remembers the last one, so that a new view costs only its differences.

    All standings are in one sorted list of numbers, `position << 16 | slot`, where a slot is a
    local number for a node id: sorting numbers is many times faster than sorting pairs, and a
    sorted list with a few more at its end is sorted in one pass. The result is the same whatever
    views came before. Not thread safe.
    """

    def __init__(self) -> None:
        self._vnodes: dict[str, int] = {}
        self._slots: dict[str, int] = {}
        self._standings: list[int] = []

    def build(
        self,
        members: Mapping[str, int],
        vnodes: int = VNODES,
        weights: Mapping[str, int] | None = None,
    ) -> tuple[bytes, bytes]:
        """Node id -> holder index; gives packed u64 positions, ascending, and packed u16 indices.

        `weights`: of each member, see `vnodes_of`; without them all are alike.
        Both little-endian, as Engine.set_ring takes them. ValueError for more than 65 536 members.
        """
        if len(members) > _SLOT_MASK + 1:
            raise ValueError(f"a view of {len(members)} nodes: a ring has room for 65536")
        before, self._vnodes = (
            self._vnodes,
            vnodes_of({node_id: (weights or {}).get(node_id, 0) for node_id in members}, vnodes),
        )
        self._leave(
            [
                node_id
                for node_id in self._slots
                if node_id not in members or before[node_id] != self._vnodes[node_id]
            ]
        )
        self._join([node_id for node_id in members if node_id not in self._slots])

        index_of_slot = array("H", bytes(2 * (max(self._slots.values(), default=-1) + 1)))
        for node_id, slot in self._slots.items():
            index_of_slot[slot] = members[node_id]
        places = array("Q", [standing >> _SLOT_BITS for standing in self._standings])
        nodes = array("H", [index_of_slot[standing & _SLOT_MASK] for standing in self._standings])
        if sys.byteorder == "big":
            places.byteswap()
            nodes.byteswap()
        return places.tobytes(), nodes.tobytes()

    def _leave(self, node_ids: list[str]) -> None:
        if node_ids:
            gone = {self._slots.pop(node_id) for node_id in node_ids}
            self._standings = [s for s in self._standings if s & _SLOT_MASK not in gone]

    def _join(self, node_ids: list[str]) -> None:
        if not node_ids:
            return
        taken = set(self._slots.values())
        free = (slot for slot in itertools.count() if slot not in taken)
        for node_id, slot in zip(node_ids, free, strict=False):
            self._slots[node_id] = slot
            self._standings += [
                p << _SLOT_BITS | slot for p in positions(node_id, self._vnodes[node_id])
            ]
        self._standings.sort()
        self._order_coincidences()

    def _order_coincidences(self) -> None:
        """Slots tell nothing about node ids: where positions are equal, sorts again by those."""
        places = [standing >> _SLOT_BITS for standing in self._standings]
        if any(map(operator.eq, places, itertools.islice(places, 1, None))):
            node_ids = {slot: node_id for node_id, slot in self._slots.items()}
            self._standings.sort(key=lambda s: (s >> _SLOT_BITS, node_ids[s & _SLOT_MASK]))


def owners(digest: bytes, places: Sequence[int], nodes: Sequence[int], replicas: int) -> list[int]:
    """The holder indices that own a digest, in ring order: `replicas`, or all there are."""
    if not places:
        return []
    start = bisect.bisect_left(places, int.from_bytes(digest[8:16], "little"))
    found: list[int] = []
    for step in range(len(places)):
        node = nodes[(start + step) % len(places)]
        if node not in found:
            found.append(node)
            if len(found) == replicas:
                break
    return found
