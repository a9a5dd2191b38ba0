"""Consistent hashing: the positions of a view's owners (owner_choice.py) on the ring.

A node of median weight has VNODES positions on the ring. Heavier nodes have more and lighter nodes
have fewer, in proportion to their weight, within 1/8 to 8 times VNODES (`vnodes_of`).
Position i of a node is BLAKE2b-64("<node id>#<i>"), read as a big-endian number. Nodes at the same
position are ordered by node id.

The place of a digest is its last 8 bytes, read as a little-endian number. The owners of a digest
are the first `replicas` distinct nodes at or after this place, clockwise around the ring. The ring
is computed from the view alone, so nodes with the same view agree without exchanging messages.

The daemon's lookups run in native code (native/directory/ring.h) on the packed form that `build`
returns. The tests have the same rule in Python (tests/harness/ring_owners.py).
"""

from __future__ import annotations

import hashlib
import itertools
import operator
import sys
from array import array
from collections.abc import Mapping

# More spread the records more evenly, but enlarge the rings of thousands of nodes. Equal on all
# nodes, or they ask the wrong owners: a release that changes it needs a new protocol version.
VNODES = 160

# A node has at most this many times the positions of the median node, and at least that fraction.
WEIGHT_FACTOR_MAX = 8

_SLOT_BITS = 16
_SLOT_MASK = (1 << _SLOT_BITS) - 1


def positions(node_id: str, count: int) -> list[int]:
    """A node's positions, ascending: 64-bit numbers."""
    return sorted(
        int.from_bytes(hashlib.blake2b(f"{node_id}#{i}".encode(), digest_size=8).digest(), "big")
        for i in range(count)
    )


def vnodes_of(weights: Mapping[str, int]) -> dict[str, int]:
    """The number of positions of each node. Integer arithmetic, so that all nodes agree.

    The weight is the node's pool in bytes: a node with more pages keeps more records. It is
    measured against the lower median. That is the weight of some node, so it seldom changes, and
    then nodes only gain or lose some positions. Weight 0 is unknown, and counts as the median.
    """
    known = sorted(weight for weight in weights.values() if weight > 0)
    if not known:
        return dict.fromkeys(weights, VNODES)
    median = known[(len(known) - 1) // 2]
    least, most = max(VNODES // WEIGHT_FACTOR_MAX, 1), VNODES * WEIGHT_FACTOR_MAX
    return {
        node_id: min(max((VNODES * (weight or median) + median // 2) // median, least), most)
        for node_id, weight in weights.items()
    }


class Ring:
    """Builds packed rings. Keeps the last one, so that a new view costs only its differences.

    One sorted list has all standings as numbers, `position << 16 | slot`; a slot is a local number
    for a node id. Numbers sort many times faster than pairs, and a sorted list with a few more at
    its end sorts in one pass. The result does not depend on earlier views. Not thread safe.
    """

    def __init__(self) -> None:
        self._vnodes: dict[str, int] = {}
        self._slots: dict[str, int] = {}
        self._standings: list[int] = []

    def build(
        self,
        members: Mapping[str, int],
        weights: Mapping[str, int] | None = None,
    ) -> tuple[bytes, bytes]:
        """Returns packed u64 positions, ascending, and the packed u16 holder index of each.

        `members`: node id -> holder index. `weights`: by node id, see `vnodes_of`; without them all
        nodes are equal. Both results are little-endian, as Engine.set_ring takes them. Raises
        ValueError for more than 65 536 members.
        """
        if len(members) > _SLOT_MASK + 1:
            raise ValueError(f"a view of {len(members)} nodes: a ring has room for 65536")
        before, self._vnodes = (
            self._vnodes,
            vnodes_of({node_id: (weights or {}).get(node_id, 0) for node_id in members}),
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
        """Sorts equal positions by node id: slot numbers differ from daemon to daemon."""
        places = [standing >> _SLOT_BITS for standing in self._standings]
        if any(map(operator.eq, places, itertools.islice(places, 1, None))):
            node_ids = {slot: node_id for node_id, slot in self._slots.items()}
            self._standings.sort(key=lambda s: (s >> _SLOT_BITS, node_ids[s & _SLOT_MASK]))
