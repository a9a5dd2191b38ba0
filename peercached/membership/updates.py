"""Views on the wire: whole, or as the difference to a base view that the receiver has."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from peercached.membership.flapping import SharedJoins
from peercached.membership.table import Table
from peercached.membership.view import Gone, Member, View

# A node that missed more views than this gets a whole one.
VIEWS_KEPT = 32


@dataclass(frozen=True, slots=True)
class ViewUpdate:
    number: int
    members: tuple[Member, ...]  # all, or those that the base lacks or has otherwise
    base: int = 0  # number of the base view; 0: this update is whole
    without: tuple[str, ...] = ()  # node ids of the base that are not in this view
    gone: tuple[Gone, ...] = ()
    joins: tuple[SharedJoins, ...] = ()  # only in a whole update: recent joins (flapping.py)
    since: Mapping[str, int] = field(default_factory=dict)  # of `members`: View.since

    @staticmethod
    def whole(view: View, gone: tuple[Gone, ...] = ()) -> ViewUpdate:
        return ViewUpdate(view.number, view.members, gone=gone, since=view.since)


class History:
    """The last views, as bases for differences. Not thread safe."""

    def __init__(self) -> None:
        self.newest = View.nothing()
        # With table.last_serial then.
        self._views: OrderedDict[int, tuple[View, int]] = OrderedDict()
        self._differences: dict[int, ViewUpdate] = {}  # by base, to the newest

    def add(self, view: View, last_serial: int) -> None:
        """`last_serial`: Table.last_serial when this view was adopted."""
        self.newest = view
        self._views[view.number] = (view, last_serial)
        self._differences.clear()
        while len(self._views) > VIEWS_KEPT:
            self._views.popitem(last=False)

    def update_for(self, number: int, table: Table, now: float) -> ViewUpdate:
        """The newest view, for a receiver that has view `number`."""
        newest = self.newest
        if number not in self._views or number == newest.number:
            return ViewUpdate.whole(newest, table.tombstones(now))
        base, last_serial = self._views[number]
        found = self._differences.get(number)
        if found is None:
            changed = tuple(
                m
                for m in newest.members
                if base.by_id.get(m.address.node_id) != m
                or base.since.get(m.address.node_id) != newest.since.get(m.address.node_id)
            )
            without = tuple(n for n in base.by_id if n not in newest.by_id)
            since = {n: newest.since[n] for n in (m.node_id for m in changed) if n in newest.since}
            found = ViewUpdate(newest.number, changed, number, without, since=since)
            self._differences[number] = found
        # The receiver got earlier tombstones with its base. Another master may have made that base
        # and not know that one of its members is dead. It must hear so, to confirm or refute it.
        gone = table.tombstones(now, last_serial, frozenset(found.without))
        return replace(found, gone=gone)

    def resolve(self, update: ViewUpdate) -> View | None:
        """The whole view; None if its base is unknown here or its mark does not match."""
        if update.base == 0:
            view = View.of(update.number, update.members, update.since)
        else:
            if update.base not in self._views:
                return None
            base, _ = self._views[update.base]
            members = dict(base.by_id)
            for node_id in update.without:
                members.pop(node_id, None)
            members.update((m.address.node_id, m) for m in update.members)
            since = {**base.since, **update.since}
            ages = {node_id: since[node_id] for node_id in members if node_id in since}
            view = View.of(update.number, members.values(), ages)
        return view if view.is_what_it_says else None
