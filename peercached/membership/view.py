"""A view: the numbered list of members that the ring is built from."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum

# A number from a confused or hostile peer must not be able to exhaust the numbers.
VIEW_NUMBER_MAX = 1 << 62


class Verdict(IntEnum):
    """What a head says to a heartbeat; the numbers are those of peer.proto."""

    UNSPECIFIED = 0
    ACCEPTED = 1
    WAIT = 2
    DUPLICATE = 3
    NOT_A_HEAD = 4


def join_host_port(host: str, port: int) -> str:
    """`host:port` as gRPC and people write it; IPv6 addresses get brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


@dataclass(frozen=True, slots=True, order=True)
class NodeAddress:
    """One daemon start (node id and incarnation) and where it is reached."""

    node_id: str
    incarnation: int
    host: str
    peer_port: int
    data_port: int
    pool_bytes: int = 0
    rails: int = 0  # of RDMA; 0: pages over TCP only

    @property
    def endpoint(self) -> str:
        return join_host_port(self.host, self.peer_port)

    def same_process(self, other: NodeAddress) -> bool:
        return self.node_id == other.node_id and self.incarnation == other.incarnation


@dataclass(frozen=True, slots=True)
class View:
    """`members` ascend by node id, one incarnation each. Number 0: nobody made it, it is a
    node on its own."""

    number: int
    master: str
    members: tuple[NodeAddress, ...]

    @staticmethod
    def alone(node: NodeAddress) -> View:
        return View(0, "", (node,))

    @staticmethod
    def of(number: int, master: str, members: Iterable[NodeAddress]) -> View:
        return View(number, master, tuple(sorted(members)))

    def member(self, node_id: str) -> NodeAddress | None:
        return next((m for m in self.members if m.node_id == node_id), None)

    def has(self, node: NodeAddress) -> bool:
        found = self.member(node.node_id)
        return found is not None and found.incarnation == node.incarnation

    def supersedes(self, other: View) -> bool:
        """Heads number their views so that two never meet (state.py); the order of the
        masters' ids decides should their configurations disagree."""
        return self.number > other.number or (
            self.number == other.number and self.number > 0 and self.master < other.master
        )
