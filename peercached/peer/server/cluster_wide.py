"""Clears a namespace on all members, and locates one key for people."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import grpc

from peercached.cold.tier import ColdStore
from peercached.directory.layout import ROW_BYTES, SELF, holder_of, is_resident, length_of
from peercached.directory.placement import Node, Placement
from peercached.peer.directory.records import Records
from peercached.peer.directory.shared_epochs import NotPersisted, SharedEpochs
from peercached.peer.membership.goodbye import Goodbye
from peercached.peer.removals.driver import RemovalDriver
from peercached.peer.rpc.failure_detector import FailureDetector
from peercached.peer.rpc.failures import CallFailed, Refused
from peercached.peer.rpc.wire import epoch_messages
from peercached.proto import peer_pb2 as pb

if TYPE_CHECKING:
    from peercached._native import Engine

# Concurrent clears outbid each other's epoch; this bounds how often.
CLEAR_ROUNDS_MAX = 4
# Poll interval while we or other members wait for the newest view.
LOOK_AGAIN_S = 0.01
_NOT_YET = object()


@dataclass(eq=False)
class ClusterWide:
    _engine: Engine
    _placement: Placement
    _records: Records
    _failures: FailureDetector
    _goodbye: Goodbye
    _epochs: SharedEpochs
    _removal_driver: RemovalDriver
    _timeout_s: float
    _cold: ColdStore

    async def clear(self, namespace: str, by: str = "") -> list[str]:
        """Clears the namespace everywhere. Returns the names of nodes not reached; they learn of
        the clear from heartbeats when they are back. Among them are processes that vanished without
        a goodbye, until they are known to have ended. This node is among them if it could not save
        the clear. `by`: the worker's user, empty for an operator. Raises ValueError if there is no
        room for the namespace's epoch."""
        namespace_id = self._engine.namespace_id(namespace)
        epoch = self._epochs.next_of(namespace_id, time.time_ns() // 1000)
        unreached: list[str] = []
        for _ in range(CLEAR_ROUNDS_MAX):
            epoch = self._epochs.raise_to(namespace_id, epoch, by=by)
            highest, unreached = await self._raise_everywhere(namespace_id, epoch)
            if highest <= epoch:
                highest, why = await self._cold.clear(namespace_id, epoch)
                unreached += [f"the object store ({why})"] if why else []
            if highest <= epoch:
                break
            # A member, or another cluster on the store, knew a later clear. Outbid it: pages set
            # since then have its epoch.
            epoch = highest + 1
        try:
            await self._epochs.persisted()
        except NotPersisted as error:
            unreached.append(f"{self._placement.own.address.node_id} ({error})")
        return unreached

    async def _raise_everywhere(self, namespace_id: bytes, epoch: int) -> tuple[int, list[str]]:
        """Returns (highest epoch in force anywhere, names of nodes not reached). Asks all members
        of the newest view that any member named. A node that joins meanwhile is asked, too: it may
        have learned epochs from members before they were told."""
        request = pb.RaiseEpochRequest(epoch=epoch_messages([(namespace_id, epoch)])[0])
        give_up_at = time.monotonic() + self._timeout_s
        asked: dict[Node, Any] = {}
        silent: list[str] = []
        newest = 0
        while True:
            new = [node for node in self._placement.others if node not in asked]
            replies = await asyncio.gather(*(self._raise_at(node, request) for node in new))
            pairs = zip(new, replies, strict=True)
            asked |= {node: reply for node, reply in pairs if reply is not _NOT_YET}
            heard = [reply for reply in asked.values() if reply is not None]
            if new or not asked:
                told = [process for reply in heard for process in reply.silent]
                silent = await self._removal_driver.still_silent(told)
            newest = max((reply.view_number for reply in heard), default=0)
            behind = self._placement.view.number < newest
            left = set(self._placement.others) - asked.keys()
            if not behind and not left:
                break
            if time.monotonic() >= give_up_at:
                silent += [node.address.node_id for node in left]
                if behind:
                    silent.append("members of a newer view, which this node has not heard of yet")
                break
            await asyncio.sleep(LOOK_AGAIN_S)
        unreached = {*silent, *(node.address.node_id for node, r in asked.items() if r is None)}
        for node, reply in asked.items():
            if reply is not None and (why := self._cold.differs(reply.store_marker)):
                unreached.add(f"{node.address.node_id} ({why})")
        return max((reply.epoch for reply in heard), default=epoch), sorted(unreached)

    async def _raise_at(self, node: Node, request: pb.RaiseEpochRequest) -> Any:
        """The reply, None if the node was not reached, or _NOT_YET if we are not in its view."""
        try:
            return await self._failures.call(node, "RaiseEpoch", request, self._timeout_s)
        except CallFailed as error:
            is_early = isinstance(error, Refused) and (
                error.code is grpc.StatusCode.FAILED_PRECONDITION
            )
            return _NOT_YET if is_early else None

    async def locate(self, namespace: str, key: bytes) -> dict[str, Any]:
        """Asks the key's owners for its holders, and this node, which knows its own pages. Returns
        the fields of admin.status.Located. Raises ValueError for an empty key."""
        if not key:
            raise ValueError("an empty key names no page")
        digest = self._engine.digest(namespace, key)
        namespace_id = self._engine.namespace_id(namespace)
        nodes = self._placement.nodes
        owners = [nodes[i] for i in self._engine.owners(digest) if i in nodes]
        own, *answers = await asyncio.gather(
            *(self._records_at(node, digest) for node in (self._placement.own, *owners))
        )
        here = [record for record in own[0] if record["is_self"]]
        is_outside = bool(self._goodbye.why_outside)  # then the owners are this node alone
        holders: dict[tuple[str, int], dict[str, Any]] = {}
        for records in (here, *(records for records, _, _ in answers)):
            for record in records:
                holders.setdefault((record["node_id"], record["generation"]), record)
        return {
            "namespace": namespace,
            "namespace_id": namespace_id,
            "epoch": self._epochs.of(namespace_id),
            "digest": digest,
            "owners": [
                {
                    "node_id": node.address.node_id,
                    "is_self": node.index == SELF,
                    "suspect": node.suspect,
                    "answered": not error,
                    "final": final and not is_outside,
                    "error": error,
                }
                for node, (_, final, error) in zip(owners, answers, strict=True)
            ],
            "holders": list(holders.values()),
            "stored": self._cold.stored(digest).get(digest),
            "cached": self._engine.location_cached(digest),
            "suspects": sorted(node.address.node_id for node in nodes.values() if node.suspect),
        }

    async def _records_at(
        self, owner: Node, digest: bytes
    ) -> tuple[list[dict[str, Any]], bool, str]:
        """The records, whether they are all, and why the owner did not answer."""
        answer = await self._records.at_owner(owner.index, digest, self._timeout_s)
        if answer is None:
            return [], False, f"no answer within {self._timeout_s:g} s"
        rows, is_all = answer
        return [one for row in _rows_in(rows) if (one := self._explain(row))], is_all, ""

    def _explain(self, row: bytes) -> dict[str, Any] | None:
        node = self._placement.nodes.get(holder_of(row))
        if node is None:
            return None
        return {
            "node_id": node.address.node_id,
            "incarnation": node.address.incarnation,
            "is_self": node is self._placement.own,
            "suspect": node.suspect,
            "resident": is_resident(row),
            "length": length_of(row),
            "offset": int.from_bytes(row[16:24], "little"),
            "generation": int.from_bytes(row[24:32], "little"),
        }


def _rows_in(packed: bytes) -> list[bytes]:
    return [packed[at : at + ROW_BYTES] for at in range(0, len(packed), ROW_BYTES)]


def describe_unreached(unreached: list[str]) -> str:
    """Tells the worker that cleared a namespace which nodes were not reached. Empty: none."""
    return f"not reached: {', '.join(unreached)}" if unreached else ""
