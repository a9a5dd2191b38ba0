"""Keeps the last view on disk, so that a cold start can ask former masters, beside the heads.

One JSON file, replaced as a whole: {"format": 2, "number": ..., "members": [...]}. It is only a
hint: a missing, torn or foreign-version file counts as none.
"""

from __future__ import annotations

import json
import logging
import os
from dataclasses import asdict
from pathlib import Path
from typing import Any

from peercached.membership.view import MEMBERS_MAX, Member, NodeAddress, State, View

log = logging.getLogger(__name__)

FORMAT = 2


class Store:
    """Stores nothing if `folder` is empty. Not thread safe; save() blocks on the disk."""

    def __init__(self, folder: str, node_id: str) -> None:
        self.path = Path(folder) / f"view-{node_id}.json" if folder else None
        self.problem = ""  # why the last save failed; empty: it did not

    def load(self) -> View | None:
        if self.path is None:
            return None
        try:
            return _view_of(json.loads(self.path.read_text()))
        except FileNotFoundError:
            return None
        except (OSError, ValueError, TypeError, KeyError) as error:
            log.warning(
                "cannot read the saved view %s (%s: %s): this node starts without it",
                self.path,
                type(error).__name__,
                error,
            )
            return None

    def save(self, view: View) -> None:
        if self.path is None:
            return
        text = json.dumps(
            {"format": FORMAT, "number": view.number, "members": [asdict(m) for m in view.members]},
            default=bytes.hex,
        )
        draft = self.path.with_suffix(".new")
        try:
            with draft.open("w") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            draft.replace(self.path)
        except OSError as error:
            if not self.problem:
                log.warning(
                    "cannot save the view to %s: %s (a restart may begin with an older view, or "
                    "none)",
                    self.path,
                    error,
                )
            self.problem = str(error)
        else:
            self.problem = ""


def _view_of(document: Any) -> View:
    if document["format"] != FORMAT:
        raise ValueError(f"format {document['format']} is not {FORMAT}")
    if len(document["members"]) > MEMBERS_MAX:
        raise ValueError(f"{len(document['members'])} members")
    members = [_member_of(entry) for entry in document["members"]]
    view = View.of(int(document["number"]), members)
    if len(view.by_id) != len(members) or not view.is_what_it_says:
        raise ValueError("its mark is not that of its members")
    return view


def _member_of(entry: Any) -> Member:
    fields = entry["address"]
    address = NodeAddress(**{**fields, "key": bytes.fromhex(fields["key"])})
    return Member(address, int(entry["sequence"]), State(entry["state"]), int(entry["head_rank"]))
