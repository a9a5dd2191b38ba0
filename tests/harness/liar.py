"""A cluster member that is no daemon and may send anything. It has the secret and its own key, and
keeps its membership up by heartbeats.

`lies` makes requests of one kind, with each number in turn at each of its bounds.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Iterator, Sequence
from typing import Any

from google.protobuf.descriptor import Descriptor, FieldDescriptor

from harness.cluster import Daemon
from harness.links import link_from
from peercached.membership import Heartbeat, Member, NodeAddress
from peercached.peer.membership.embedded import wire as member_wire
from peercached.peer.rpc import wire
from peercached.peer.rpc.auth import Secret
from peercached.peer.rpc.failures import Unreachable
from peercached.peer.rpc.node_key import NodeKey
from peercached.proto import peer_pb2 as pb

HOST = "127.0.0.9"
_BEAT_S = 0.25
BOUNDS = (0, 1, (1 << 31) - 1, (1 << 32) - 1, (1 << 62) - 1, (1 << 63) - 1, (1 << 64) - 1)
_MAX = {
    FieldDescriptor.TYPE_UINT32: (1 << 32) - 1,
    FieldDescriptor.TYPE_UINT64: (1 << 64) - 1,
    FieldDescriptor.TYPE_INT32: (1 << 31) - 1,
    FieldDescriptor.TYPE_INT64: (1 << 63) - 1,
    FieldDescriptor.TYPE_ENUM: (1 << 31) - 1,
}


class Liar:
    """A member of these daemons' clusters while the block lasts. Uses one event loop."""

    def __init__(
        self,
        daemons: Sequence[Daemon],
        secret: bytes,
        node_id: str = "liar",
        incarnation: int = 0,
        port: int = 1,
    ) -> None:
        """`incarnation`: 0 for the time. `port`: by default nobody listens there, so the liar is an
        owner that never answers."""
        key = NodeKey.make()
        incarnation = incarnation or time.time_ns()
        self.own = NodeAddress(node_id, incarnation, HOST, port, port, 1 << 20, (), key.public)
        self._secret = Secret(secret, key)
        self.links = [link_from(self.own, d.address, self._secret) for d in daemons]
        self._view_number = 0

    async def __aenter__(self) -> Liar:
        await self._beat()
        self._beating = asyncio.ensure_future(self._go_on())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._beating.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._beating
        for link in self.links:
            await link.close()

    async def _go_on(self) -> None:
        while True:
            with contextlib.suppress(Unreachable):
                await self._beat()
            await asyncio.sleep(_BEAT_S)

    async def _beat(self) -> None:
        beat = member_wire.heartbeat_message(Heartbeat(Member(self.own), self._view_number), [])
        for link in self.links:
            answer = member_wire.answer_of(await link.call("Heartbeat", beat))
            if answer.update is not None:
                self._view_number = max(self._view_number, answer.update.number)

    def lies(self, request: type[Any]) -> Iterator[Any]:
        """Requests of that kind. Each has one number at a bound."""
        count = sum(1 for _ in _numbers(self._plausible(request)))
        for place in range(count):
            for bound in BOUNDS:
                lie = self._plausible(request)
                owner, field = list(_numbers(lie))[place]
                with contextlib.suppress(ValueError, TypeError):
                    _put(owner, field, min(bound, _MAX[field.type]))
                    yield lie

    def _plausible(self, request: type[Any]) -> Any:
        message = request()
        fill(message)
        if request is pb.HeartbeatRequest:
            message.sender.address.CopyFrom(wire.address_message(self.own))
        return message


def fill(message: Any) -> None:
    for field in message.DESCRIPTOR.fields:
        if field.containing_oneof is not None and field.containing_oneof.fields[0] is not field:
            continue
        many = field.is_repeated
        if field.type == FieldDescriptor.TYPE_MESSAGE:
            if not many:
                fill(getattr(message, field.name))
                getattr(message, field.name).SetInParent()
            elif not _contains(field.message_type, message.DESCRIPTOR):
                fill(getattr(message, field.name).add())
            continue
        value: Any = 1
        if field.type == FieldDescriptor.TYPE_STRING:
            value = "liar"
        elif field.type == FieldDescriptor.TYPE_BYTES:
            value = bytes(32 if field.name == "key" else 48 if field.name == "rows" else 16)
        elif field.type == FieldDescriptor.TYPE_BOOL:
            value = True
        if many:
            getattr(message, field.name).append(value)
        else:
            setattr(message, field.name, value)


def _contains(inner: Descriptor, outer: Descriptor) -> bool:
    return bool(inner.full_name == outer.full_name)


def _numbers(message: Any) -> Iterator[tuple[Any, FieldDescriptor]]:
    """Every number in the message, with the message or submessage that contains it."""
    for field, value in message.ListFields():
        if field.type == FieldDescriptor.TYPE_MESSAGE:
            for part in value if field.is_repeated else [value]:
                yield from _numbers(part)
        elif field.type in _MAX:
            yield message, field


def _put(message: Any, field: FieldDescriptor, number: int) -> None:
    if field.is_repeated:
        del getattr(message, field.name)[:]
        getattr(message, field.name).append(number)
    else:
        setattr(message, field.name, number)
