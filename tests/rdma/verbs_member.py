"""A cluster member that is no daemon. It authenticates and sends heartbeats, and its end of an RDMA
channel is plain pyverbs (verbs_reader.py).

    async with VerbsMember(head) as member:
        access = await member.connect(holder, reader)
        reader.read(access.address_of(offset), access.rkey_of(offset), length)
"""

import asyncio
import contextlib
import ipaddress
import itertools
import struct
import time
from dataclasses import dataclass

from harness.channel_ends import end_of, queue_pair_of
from harness.cluster import Daemon
from harness.links import link_from

from peercached.membership import Heartbeat, Member, NodeAddress, State
from peercached.peer.membership.embedded import wire as member_wire
from peercached.peer.rpc.auth import Secret
from peercached.peer.rpc.client import PeerLink
from peercached.proto import peer_pb2 as pb
from rdma.verbs_reader import Endpoint, VerbsReader

_HEARTBEAT_S = 0.5
_TIMEOUT_S = 20.0
_END_BYTES = 40
_POOL = struct.Struct("<QQQQI")  # after the holder's end
_READS_IN_FLIGHT = 16
_numbers = itertools.count(1)


@dataclass(frozen=True)
class Access:
    """Access to a holder's pool through one channel."""

    incarnation: int
    pool_address: int
    pool_bytes: int
    chunk_bytes: int
    rkeys: tuple[int, ...]

    @staticmethod
    def of(answer: bytes) -> "Access":
        incarnation, address, pool_bytes, chunk_bytes, count = _POOL.unpack_from(answer, _END_BYTES)
        rkeys = struct.unpack_from(f"<{count}I", answer, _END_BYTES + _POOL.size)
        return Access(incarnation, address, pool_bytes, chunk_bytes, rkeys)

    def address_of(self, offset: int) -> int:
        return self.pool_address + offset

    def rkey_of(self, offset: int) -> int:
        return self.rkeys[offset // self.chunk_bytes]


class VerbsMember:
    """A member of `head`'s cluster while the block lasts. Uses one event loop."""

    def __init__(self, head: Daemon) -> None:
        # A new name each time, because a name that came and went must wait before it joins.
        # Nobody listens at its address, so it is an owner on the ring that never answers.
        name, rdma = f"verbs{next(_numbers)}", (("rdma", b""),)
        self.own = NodeAddress(name, time.time_ns(), "127.0.0.9", 1, 1, 0, rdma)
        self._head = self.link(head)
        self._view_number = 0
        self._beating: asyncio.Task[None] | None = None
        self._links = [self._head]
        self._channel = 0

    def link(self, daemon: Daemon) -> PeerLink:
        return link_from(self.own, daemon.address, Secret(b""), timeout_s=_TIMEOUT_S)

    async def __aenter__(self) -> "VerbsMember":
        await self._beat(Member(self.own))
        self._beating = asyncio.ensure_future(self._go_on())
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.leave()
        for link in self._links:
            await link.close()

    async def leave(self) -> None:
        """Leaves the cluster, but keeps its connections and channels."""
        if self._beating is None:
            return
        self._beating.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._beating
        self._beating = None
        await self._beat(Member(self.own, sequence=1, state=State.LEFT))

    async def connect(self, holder: Daemon, reader: VerbsReader) -> Access:
        """Makes `reader` one end of a channel to the holder's pool. Raises Refused."""
        link = self.link(holder)
        self._links.append(link)
        self._channel += 1
        own = reader.endpoint
        end = end_of(
            own.queue_pair_number,
            own.packet_number,
            rd_atomic=_READS_IN_FLIGHT,
            gid=ipaddress.IPv6Address(own.gid).packed,
            channel=self._channel,
        )
        reply = await link.call("ConnectChannel", pb.ConnectChannelRequest(end=end))
        qpn, psn, gid = queue_pair_of(reply.answer)
        reader.connect(Endpoint(qpn, psn, ipaddress.IPv6Address(gid).exploded))
        return Access.of(reply.answer)

    async def _go_on(self) -> None:
        while True:
            await asyncio.sleep(_HEARTBEAT_S)
            await self._beat(Member(self.own))

    async def _beat(self, sender: Member) -> None:
        beat = Heartbeat(sender, self._view_number)
        answer = member_wire.answer_of(
            await self._head.call("Heartbeat", member_wire.heartbeat_message(beat, []))
        )
        if answer.update is not None:
            self._view_number = answer.update.number
