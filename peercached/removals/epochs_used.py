"""The namespace epochs that removals were made in.

Digests depend on the epoch. A process that was away may know of a clear that the members did not
know when they removed pages. Then its pages have other digests than those that they can name, and
it cannot tell which of them were removed. Not thread safe.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable

from peercached.removals.ledger import NamespaceEpoch

USED_MAX = 1024  # each is a row in state_dir and in the answer to a node that was away


class EpochsUsed:
    def __init__(self, known: Iterable[NamespaceEpoch], unknown_upto: int, last: int) -> None:
        """`known` and `unknown_upto` are from the last start. `last`: our journal's position."""
        self._last: OrderedDict[NamespaceEpoch, int] = OrderedDict.fromkeys(known, last)
        # Removals up to this position of our journal may have used others, too.
        self.unknown_upto = unknown_upto

    def note(self, used: NamespaceEpoch | None, position: int) -> bool:
        """Removals up to `position` may have used this epoch; None: it is not known. Returns
        whether that is news for the file."""
        if used is None:
            self.unknown_upto = position
            return True
        is_new = used not in self._last
        self._last[used] = position
        self._last.move_to_end(used)
        if len(self._last) > USED_MAX:
            _, forgotten = self._last.popitem(last=False)
            self.unknown_upto = max(self.unknown_upto, forgotten)
        return is_new

    def since(self, position: int) -> list[NamespaceEpoch] | None:
        """Those of removals from `position` on. None: not all are known."""
        if position <= self.unknown_upto:
            return None
        return [used for used, last in self._last.items() if last >= position]

    def all(self) -> list[NamespaceEpoch]:
        return list(self._last)
