"""Removal state that a restart needs, beside the journal (native/removals/journal.h).

One JSON file, replaced as a whole:

  {"format": 3,
   "cluster": hash of the cluster secret,
   "start": incarnation of the last start,
   "life": incarnation of the last start that vouched (had missed no removal),
   "waits for": [node id, ...],
   "lives": [[node id, incarnation, host, peer port, presence, owed from, reached],
             ...],
   "open": [[incarnation, number, digests in hex], ...]}

`waits for`: nodes that may know removals which this node missed. `open`: removals begun here that
were incomplete when the worker was answered. A file that is missing, unreadable or of another
secret counts as empty. Then pages of earlier starts are dropped if other nodes know of removals.
The file survives kill -9, but it is not synced, so a power cut may lose it. A sync would cost time
whenever a node goes, and the other nodes can tell us the lost state.
"""

from __future__ import annotations

import hashlib
import json
import logging
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from peercached.removals.ledger import RemovalId
from peercached.removals.lives import Life, Presence

log = logging.getLogger(__name__)

FORMAT = 3


@dataclass(frozen=True, slots=True)
class Remembered:
    is_known: bool = False  # a usable file was found
    start: int = 0
    life: int = 0
    waits_for: set[str] = field(default_factory=set)
    lives: list[Life] = field(default_factory=list)
    open: dict[RemovalId, bytes] = field(default_factory=dict)
    is_of_another_cluster: bool = False  # the file belongs to another cluster secret


class RemovalStore:
    """Reads and writes the file. An empty `folder` keeps nothing. `cluster_key` comes from the
    cluster secret; a file of another secret is ignored, since its pages cannot be found. Not thread
    safe. load() and save() block on file I/O."""

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
            log.warning(
                "cannot read %s (%s: %s): ignoring it, so this node forgets the removals and "
                "starts recorded there",
                self.path,
                type(error).__name__,
                error,
            )
            return Remembered()
        if document.get("cluster") != self._cluster:
            log.warning(
                "the cluster secret has changed since the last start: pages set under the previous "
                "one are not served"
            )
            return Remembered(is_of_another_cluster=True)
        return remembered

    def save(self, state: Remembered) -> bool:
        if self.path is None:
            return True
        text = json.dumps(
            {
                "format": FORMAT,
                "cluster": self._cluster,
                "start": state.start,
                "life": state.life,
                "waits for": sorted(state.waits_for),
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
                    for one in state.lives
                ],
                "open": [[id.incarnation, id.number, d.hex()] for id, d in state.open.items()],
            }
        )
        draft = self.path.with_suffix(".new")
        try:
            draft.write_text(text)
            draft.replace(self.path)
        except OSError as error:
            if not self.problem:
                log.warning(
                    "cannot write the removals file %s: %s (the next change tries again; a restart "
                    "before that loses removal records)",
                    self.path,
                    error,
                )
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
