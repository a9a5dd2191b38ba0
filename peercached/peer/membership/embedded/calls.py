"""The calls that membership makes to other nodes."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass

from peercached.membership import Heartbeat, HeartbeatAnswer, NodeAddress
from peercached.peer.directory.shared_epochs import SharedEpochs
from peercached.peer.membership.embedded import wire as member_wire
from peercached.peer.rpc import wire
from peercached.peer.rpc.client import Peers
from peercached.peer.rpc.failures import CallFailed, Disconnected, WrongProcess
from peercached.peer.rpc.heads import Heads
from peercached.peer.rpc.pings import reaches
from peercached.proto import peer_pb2 as pb
from peercached.timeout import within


class LedHome(WrongProcess):
    """The endpoint leads back to this very process."""


@dataclass(eq=False)
class MemberCalls:
    """gRPC calls. Each takes at most `deadline_s` seconds, handshake included: an answer that
    takes longer comes too late for membership."""

    _peers: Peers
    _epochs: SharedEpochs
    _deadline_s: float
    _heads: Heads | None = None

    async def heartbeat(
        self, endpoint: str, beat: Heartbeat, only: NodeAddress | None = None
    ) -> HeartbeatAnswer:
        """Also exchanges namespace epochs. Raises CallFailed, or ValueError for a malformed
        answer; LedHome if this very process answers. `only`: the node id and key that must be
        there."""
        if self._heads is not None and (problem := self._heads.problem(endpoint)):
            raise Disconnected(problem)
        link = self._peers.link(endpoint)
        there: NodeAddress | None = None
        if only is not None:
            await link.ready_within(self._deadline_s)
            there = link.identity
            if there is None or (there.node_id, there.key) != (only.node_id, only.key):
                raise WrongProcess(f"{only.node_id} is at {endpoint} no more")
        request = member_wire.heartbeat_message(beat, self._epochs.some())
        # `there` may be an earlier process: another one at the address must not get the heartbeat.
        reply: pb.HeartbeatReply = await link.call_within(
            "Heartbeat", request, self._deadline_s, there
        )
        answer = member_wire.answer_of(reply)
        if link.identity is not None and link.identity.same_process(beat.sender.address):
            link.connect_anew()
            raise LedHome(endpoint)
        if (
            link.identity is not None
            and link.identity.endpoint != endpoint
            and not (beat.view_number or reply.verdict != pb.HeartbeatReply.NOT_A_MASTER)
        ):
            link.connect_anew()  # through a forwarder, which may lead to another node next time
        if link.identity is not None:
            epochs = [(e.namespace_id, e.epoch) for e in reply.epochs]
            # Once the caller has taken the answer: its view may make the sender a member.
            asyncio.get_running_loop().call_soon(self._epochs.hear, link.identity, epochs)
        return answer

    async def ping(self, target: NodeAddress) -> bool:
        """Whether that process answers."""
        return await reaches(self._peers, target, self._deadline_s)

    async def probe(self, via: NodeAddress, target: NodeAddress) -> bool:
        """Whether `via` answers that it reaches `target`. Takes at most two deadlines."""
        request = pb.ProbeRequest(target=wire.address_message(target))
        try:
            reply: pb.ProbeReply = await self._peers.link(via.endpoint).call_within(
                "Probe", request, 2 * self._deadline_s
            )
        except (CallFailed, ValueError):
            return False
        return reply.alive

    async def goodbye(self, beats: Mapping[str, Heartbeat], timeout_s: float) -> None:
        """Sends the last heartbeats, by endpoint, in parallel. Raises asyncio.TimeoutError after
        `timeout_s`."""
        calls = []
        for endpoint, beat in beats.items():
            link = self._peers.link(endpoint)
            if link.metadata:  # without a session, that master does not count on us
                request = member_wire.heartbeat_message(beat, [])
                calls.append(link.call("Heartbeat", request, timeout_s, last=True))
        await within(timeout_s, asyncio.gather(*calls, return_exceptions=True))
