"""Keeps the last view on disk, so that a cold start can ask former masters, beside the heads.

One JSON file, replaced as a whole: {"format": 4, "number": ..., "members": [...],
"since": ...}. It is only a hint: a missing, torn or foreign-version file counts as none.
"""

from __future__ import annotations

import logging
from dataclasses import asdict
from typing import Any

from peercached.membership.view import MEMBERS_MAX, Member, NodeAddress, State, View
from peercached.state_file import StateFile, Unreadable

log = logging.getLogger(__name__)

FORMAT = 4


class Store:
    """Stores nothing if `folder` is empty. Not thread safe; save() blocks on the disk."""

    def __init__(self, folder: str, node_id: str) -> None:
        self._file = StateFile(folder, f"view-{node_id}.json", FORMAT)
        self.path = self._file.path

    def load(self) -> View | None:
        try:
            return self._file.load(_view_of)
        except Unreadable as error:
            log.warning("%s: this node starts without its last view", error)
            return None

    def save(self, view: View) -> None:
        self._file.save(
            {
                "number": view.number,
                "members": [asdict(member) for member in view.members],
                "since": dict(view.since),
            },
            "a restart may begin with an older view, or none",
            durable=True,
        )


def _view_of(document: Any) -> View:
    if len(document["members"]) > MEMBERS_MAX:
        raise ValueError(f"{len(document['members'])} members")
    members = [_member_of(entry) for entry in document["members"]]
    since = {str(node_id): int(since) for node_id, since in document["since"].items()}
    view = View.of(int(document["number"]), members, since)
    if len(view.by_id) != len(members) or not view.is_what_it_says:
        raise ValueError("its mark is not that of its members")
    return view


def _member_of(entry: Any) -> Member:
    fields = entry["address"]
    transports = tuple((name, bytes.fromhex(told)) for name, told in fields["transports"])
    key = bytes.fromhex(fields["key"])
    address = NodeAddress(**{**fields, "transports": transports, "key": key})
    return Member(address, int(entry["sequence"]), State(entry["state"]), int(entry["head_rank"]))
