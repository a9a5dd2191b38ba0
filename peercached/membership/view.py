"""A view: a numbered list of members. The ring is built from it.

A number is a counter and, in its low 32 bits, a mark of the members (the XOR of their hashes). So
views with the same number have the same members, whichever node made them. Of two different views
one is always higher. The number alone tells whether a difference applies to a node's view.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import IntEnum
from functools import lru_cache, reduce
from hashlib import blake2b
from operator import xor
from types import MappingProxyType

# Holder indices are 16 bits, and no table may grow without bound.
MEMBERS_MAX = 4096
MARK_BITS = 32
# A confused or hostile peer must not be able to exhaust the numbers.
VIEW_NUMBER_MAX = 1 << 62
SEQUENCE_MAX = 1 << 62
NO_HEAD = -1


class Verdict(IntEnum):
    """Answer to a heartbeat; the numbers are those of peer.proto."""

    UNSPECIFIED = 0
    ACCEPTED = 1
    WAIT = 2
    DUPLICATE = 3
    NOT_A_MASTER = 4


class State(IntEnum):
    """State of one process, as in peer.proto. At equal sequence and incarnation the higher wins."""

    ALIVE = 1
    LEAVING = 2  # drains: still a member, soon gone
    DEAD = 3  # a master found it silent
    LEFT = 4  # said goodbye


def join_host_port(host: str, port: int) -> str:
    """`host:port` as gRPC and people write it; IPv6 addresses get brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


# Transports beside TCP, ascending by name, and what each tells its peers.
Transports = tuple[tuple[str, bytes], ...]


@dataclass(frozen=True, slots=True, order=True)
class NodeAddress:
    """One daemon start (node id and incarnation) and its address."""

    node_id: str
    incarnation: int
    host: str
    peer_port: int
    data_port: int
    pool_bytes: int = 0
    transports: Transports = ()
    key: bytes = b""  # public key that proves its identity (peer/rpc/node_key.py); empty: none
    name: str = ""  # of the host in its TLS certificate, if that has not `host`

    @property
    def endpoint(self) -> str:
        return join_host_port(self.host, self.peer_port)

    @property
    def process(self) -> tuple[str, int, bytes]:
        return self.node_id, self.incarnation, self.key

    def transport_to(self, other: NodeAddress) -> str:
        """The transport for pages between these two nodes: "tcp", or a better one of both."""
        theirs = dict(other.transports)
        return next((name for name, _ in self.transports if name in theirs), "tcp")

    def same_process(self, other: NodeAddress) -> bool:
        """Compares the keys, too: any process may claim a node id and an incarnation."""
        return self.process == other.process


@dataclass(frozen=True, slots=True)
class Member:
    """The record of one node id. `sequence` grows with every change. Of two records the one with
    the greater `age` is newer, whichever node sent it."""

    address: NodeAddress
    sequence: int = 0
    state: State = State.ALIVE
    head_rank: int = NO_HEAD  # its index in discovery_addr

    @property
    def node_id(self) -> str:
        return self.address.node_id

    @property
    def age(self) -> tuple[int, int, int]:
        return (self.sequence, self.address.incarnation, self.state)

    @property
    def weight(self) -> int:
        """Its weight on the ring: the bytes of its pool."""
        return self.address.pool_bytes


@dataclass(frozen=True, slots=True)
class Gone:
    """A tombstone of a former member. `age_s`: time since it went; a duration, as clocks differ."""

    node_id: str
    incarnation: int
    sequence: int
    state: State
    age_s: float = 0.0
    key: bytes = b""  # of NodeAddress

    @property
    def age(self) -> tuple[int, int, int]:
        return (self.sequence, self.incarnation, self.state)


_NONE: Mapping[str, int] = MappingProxyType({})


@lru_cache(maxsize=2 * MEMBERS_MAX)
def _mark(member: Member, since: int) -> int:
    a = member.address
    age = f"\0{since}" if since else ""
    name = f"\0name {a.name}" if a.name else ""
    transports = ",".join(f"{kind}={told.hex()}" for kind, told in a.transports)
    text = (
        f"{a.node_id}\0{a.incarnation}\0{a.host}\0{a.peer_port}\0{a.data_port}\0{a.pool_bytes}\0"
        f"{transports}\0{member.sequence}\0{int(member.state)}\0{member.head_rank}{a.key.hex()}{age}"
        f"{name}"
    )
    return int.from_bytes(blake2b(text.encode(), digest_size=MARK_BITS // 8).digest(), "big")


def mark_of(members: Iterable[Member], since: Mapping[str, int] = _NONE) -> int:
    return reduce(xor, (_mark(m, since.get(m.address.node_id, 0)) for m in members), 0)


@dataclass(frozen=True, slots=True)
class View:
    """`members` ascend by node id, one process each. Number 0: a node on its own, outside any
    cluster."""

    number: int
    members: tuple[Member, ...]
    by_id: Mapping[str, Member] = field(compare=False, repr=False, hash=False)
    # By node id: the counter of the first view that had this process (ages.py). Empty with etcd.
    since: Mapping[str, int] = field(default_factory=dict, compare=False, repr=False, hash=False)

    @staticmethod
    def of(number: int, members: Iterable[Member], since: Mapping[str, int] = _NONE) -> View:
        ordered = tuple(sorted(members, key=lambda m: m.address.node_id))
        return View(number, ordered, {m.address.node_id: m for m in ordered}, since)

    @staticmethod
    def alone(node: NodeAddress) -> View:
        return View.of(0, (Member(node),))

    @staticmethod
    def nothing() -> View:
        return View.of(0, ())

    def next(
        self, members: Iterable[Member], told: int = 0, since: Mapping[str, int] = _NONE
    ) -> View:
        """A view of `members`, numbered above this one and above `told`. Members that `since` lacks
        are new."""
        counter = (max(self.number, told) >> MARK_BITS) + 1
        view = View.of(0, members)
        ages = {node_id: since.get(node_id, counter) for node_id in view.by_id}
        return View.numbered(counter, replace(view, since=ages))

    @staticmethod
    def numbered(counter: int, view: View) -> View:
        """The same members, numbered with that counter."""
        mark = mark_of(view.members, view.since)
        return View(counter << MARK_BITS | mark, view.members, view.by_id, view.since)

    @property
    def counter(self) -> int:
        """The part of the number that people read."""
        return self.number >> MARK_BITS

    @property
    def mark(self) -> str:
        """The rest of the number, in hex. Nodes with equal counter and mark have the same view."""
        return f"{self.number & ((1 << MARK_BITS) - 1):08x}"

    def member(self, node_id: str) -> Member | None:
        return self.by_id.get(node_id)

    def has(self, node: NodeAddress) -> bool:
        found = self.by_id.get(node.node_id)
        return found is not None and found.address.incarnation == node.incarnation

    @property
    def is_what_it_says(self) -> bool:
        """Whether the number's mark matches the members."""
        return self.number & ((1 << MARK_BITS) - 1) == mark_of(self.members, self.since)
