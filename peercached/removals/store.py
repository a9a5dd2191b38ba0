"""Removal state that a restart needs, beside the journal (native/removals/journal.h).

One JSON file, replaced as a whole:

  {"format": 3,
   "cluster": hash of the cluster secret,
   "start": incarnation of the last start,
   "life": incarnation of the last start that did not owe (had missed no removal),
   "ended at": our journal's position when that start ended; 0: it has not ended,
   "waits for": [node id, ...],
   "lives": [[node id, incarnation, host, peer port, "here" or as Waits, missed from, reached,
              is unclear, node key in hex], ...],
   "open": [[incarnation, number, digests in hex, namespace id in hex, epoch], ...],
   "claims": [[node id, incarnation, node id, incarnation, host, peer port], ...],
   "epochs used": [[namespace id in hex, epoch], ...], "epochs unknown upto": journal position}

`waits for`: nodes that may know removals which this node missed. `open`: removals begun here that
were incomplete when the worker was answered. `claims`: a member, and a process that owes it. A
file that is missing, unreadable or of another
secret counts as empty. Then pages of earlier starts are dropped if other nodes know of removals.
The file survives kill -9, but it is not synced, so a power cut may lose it. A sync would cost time
whenever a node goes, and the other nodes can tell us the lost state.
"""

from __future__ import annotations

import hashlib
import logging
from dataclasses import dataclass, field
from typing import Any

from peercached.removals.claims import Name
from peercached.removals.ledger import NamespaceEpoch, RemovalId, Wanted
from peercached.removals.processes import Process, Waits
from peercached.state_file import StateFile, Unreadable

log = logging.getLogger(__name__)

FORMAT = 3
HERE = "here"
WAITS = {waits.value: waits for waits in Waits}


@dataclass(frozen=True, slots=True)
class Remembered:
    is_known: bool = False  # a usable file was found
    start: int = 0
    last_settled: int = 0
    ended_at: int = 0
    waits_for: set[str] = field(default_factory=set)
    processes: list[Process] = field(default_factory=list)
    open: dict[RemovalId, Wanted] = field(default_factory=dict)
    epochs_used: list[NamespaceEpoch] = field(default_factory=list)
    epochs_unknown_upto: int | None = None  # None: all that the journal has now
    claims: list[tuple[Name, Process]] = field(default_factory=list)
    is_of_another_cluster: bool = False  # the file belongs to another cluster secret


class RemovalStore:
    """Reads and writes the file. An empty `folder` keeps nothing. `cluster_key` comes from the
    cluster secret; a file of another secret is ignored, since its pages cannot be found. Not thread
    safe. load() and save() block on file I/O."""

    def __init__(self, folder: str, node_id: str, cluster_key: bytes = b"") -> None:
        self._cluster = hashlib.blake2b(cluster_key, digest_size=8, person=b"removals").hexdigest()
        self._file = StateFile(folder, f"removals-{node_id}.json", FORMAT)
        self.path = self._file.path

    @property
    def problem(self) -> str:
        """Why the last save failed; empty if it did not."""
        return self._file.problem

    def load(self) -> Remembered:
        try:
            found = self._file.load(self._remembered)
        except Unreadable as error:
            log.warning("%s: this node forgets the removals and starts recorded there", error)
            return Remembered()
        if found is not None and found.is_of_another_cluster:
            log.warning(
                "the cluster secret has changed since the last start: pages set under the previous "
                "one are not served"
            )
        return found or Remembered()

    def save(self, state: Remembered) -> bool:
        return self._file.save(
            {
                "cluster": self._cluster,
                "start": state.start,
                "life": state.last_settled,
                "ended at": state.ended_at,
                "waits for": sorted(state.waits_for),
                "lives": [
                    [
                        one.node_id,
                        one.incarnation,
                        one.host,
                        one.peer_port,
                        HERE if one.here else one.waits.value,
                        one.missed_from,
                        one.reached,
                        one.is_unclear,
                        one.key.hex(),
                    ]
                    for one in state.processes
                ],
                "claims": [
                    [*by, one.node_id, one.incarnation, one.host, one.peer_port]
                    for by, one in state.claims
                ],
                "open": [_row_of(id, wanted) for id, wanted in state.open.items()],
                "epochs used": [[id.hex(), epoch] for id, epoch in state.epochs_used],
                "epochs unknown upto": state.epochs_unknown_upto,
            },
            "the next change tries again; a restart before that loses removal records",
        )

    def _remembered(self, document: Any) -> Remembered:
        remembered = _remembered(document)
        is_ours = document.get("cluster") == self._cluster
        return remembered if is_ours else Remembered(is_of_another_cluster=True)


def _row_of(id: RemovalId, wanted: Wanted) -> list[Any]:
    namespace_id, epoch = wanted.epoch or (b"", 0)
    return [id.incarnation, id.number, wanted.digests.hex(), namespace_id.hex(), epoch]


def _open_of(row: list[Any]) -> tuple[RemovalId, Wanted]:
    incarnation, number, digests, *epoch = row
    used = (bytes.fromhex(epoch[0]), int(epoch[1])) if epoch and epoch[0] else None
    return RemovalId(int(incarnation), int(number)), Wanted(bytes.fromhex(digests), used)


def _remembered(document: Any) -> Remembered:
    processes = [
        Process(
            str(node_id),
            int(incarnation),
            str(host),
            int(port),
            here=found == HERE,
            waits=WAITS.get(found, Waits.YES),
            missed_from=int(missed),
            reached=int(reached),
            is_unclear=any(rest[:1]),
            key=bytes.fromhex("".join(rest[1:2])),
        )
        for node_id, incarnation, host, port, found, missed, reached, *rest in document["lives"]
    ]
    claims = [
        ((str(by), int(start)), Process(str(node_id), int(incarnation), str(host), int(port)))
        for by, start, node_id, incarnation, host, port in document.get("claims", [])
    ]
    open = dict(map(_open_of, document["open"]))
    waits_for = {str(node_id) for node_id in document["waits for"]}
    start, last_settled = int(document["start"]), int(document["life"])
    ended_at = int(document.get("ended at", 0))
    used = [(bytes.fromhex(id), int(epoch)) for id, epoch in document.get("epochs used", [])]
    unknown = document.get("epochs unknown upto")
    return Remembered(
        True, start, last_settled, ended_at, waits_for, processes, open, used, unknown, claims
    )
