"""What must be known of removals after a restart, beside the journal (native/removals/journal.h).

One JSON file, replaced as a whole:

  {"format": 3,
   "cluster": which cluster secret it was written under,
   "start": incarnation of the last start,
   "life": of the last start that served workers and had missed nothing,
   "waits for": [node id, ...],
   "lives": [[node id, incarnation, host, peer port, presence, owed from, reached],
             ...],
   "open": [[incarnation, number, digests in hex], ...]}

`waits for`: who may know what was removed from the pages that this node holds back. `open` are
removals that this node began and that were not sure when it answered. A file that is not there,
cannot be read or was written under another secret is one that knows nothing: pages of earlier
starts are dropped if others know of removals. It is written for a kill -9, not for a power cut:
that would cost a sync for each node that goes, and what it may lose is told by the others.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from peercached.removals.ledger import RemovalId
from peercached.removals.lives import Life, Presence

log = logging.getLogger(__name__)

FORMAT = 3


@dataclass(frozen=True, slots=True)
class Remembered:
    is_known: bool = False  # there was a file
    start: int = 0
    life: int = 0
    waits_for: set[str] = field(default_factory=set)
    lives: list[Life] = field(default_factory=list)
    open: dict[RemovalId, bytes] = field(default_factory=dict)


class RemovalStore:
    """`folder` empty: nothing is kept. `cluster_key`: of the cluster secret, under which nobody
    finds what was set under another. Not thread safe; both calls wait for the file."""

    def __init__(self, folder: str, node_id: str, cluster_key: bytes = b"") -> None:
        self._cluster = hashlib.blake2b(cluster_key, digest_size=8, person=b"removals").hexdigest()
        self.path = Path(folder) / f"removals-{node_id}.json" if folder else None
        self.problem = ""  # why the last save failed

    def load(self) -> Remembered:
        if self.path is None:
            return Remembered()
        try:
            document = json.loads(self.path.read_text())
            remembered = _remembered(document)
        except FileNotFoundError:
            return Remembered()
        except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
            log.warning("%s is not used: %s: %s", self.path, type(error).__name__, error)
            return Remembered()
        if document.get("cluster") != self._cluster:
            log.warning(
                "the cluster secret is another one than at the last start: nothing that was set "
                "under that one is served"
            )
            return Remembered()
        return remembered

    def save(
        self,
        start: int,
        life: int,
        waits_for: Iterable[str],
        lives: Iterable[Life],
        open: dict[RemovalId, bytes],
    ) -> bool:
        if self.path is None:
            return True
        text = json.dumps(
            {
                "format": FORMAT,
                "cluster": self._cluster,
                "start": start,
                "life": life,
                "waits for": sorted(waits_for),
                "lives": [
                    [
                        one.node_id,
                        one.incarnation,
                        one.host,
                        one.peer_port,
                        one.presence.value,
                        one.owed_from,
                        one.reached,
                    ]
                    for one in lives
                ],
                "open": [[id.incarnation, id.number, d.hex()] for id, d in open.items()],
            }
        )
        draft = self.path.with_suffix(".new")
        try:
            draft.write_text(text)
            draft.replace(self.path)
        except OSError as error:
            if not self.problem:
                log.warning("what is known of removals cannot be kept: %s", error)
            self.problem = str(error)
            return False
        self.problem = ""
        return True


def _remembered(document: Any) -> Remembered:
    if document["format"] != FORMAT:
        raise ValueError(f"format {document['format']} is not {FORMAT}")
    lives = [
        Life(
            str(node_id),
            int(incarnation),
            str(host),
            int(port),
            Presence(presence),
            int(owed),
            int(reached),
        )
        for node_id, incarnation, host, port, presence, owed, reached in document["lives"]
    ]
    open = {
        RemovalId(int(incarnation), int(number)): bytes.fromhex(digests)
        for incarnation, number, digests in document["open"]
    }
    waits_for = {str(node_id) for node_id in document["waits for"]}
    start, life = int(document["start"]), int(document["life"])
    return Remembered(True, start, life, waits_for, lives, open)
