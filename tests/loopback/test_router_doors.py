"""The gRPC service for routers: it reads nothing of a caller without the token."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager

import grpc
import grpc.aio
import pytest
from harness.loop_node import free_port

from peercached.config.cluster_secret import ClusterSecret
from peercached.hints.envelope import ACCEPTED, Outcome
from peercached.kv_events.stream import Batch, FromTheFuture
from peercached.news import News
from peercached.peer.rpc.auth import Secret
from peercached.proto import router_pb2 as pb
from peercached.proto import router_pb2_grpc
from peercached.routers.server import MESSAGE_BYTES_MAX, RouterServer
from peercached.routers.servicer import RouterServicer
from peercached.routers.token import Tokens, token_of

SECRET = b"the cluster's own secret"
NEXT = b"the secret that comes next"
HOST = "127.0.0.1"


class Taker:
    def __init__(self) -> None:
        self.taken: list[tuple[bytes, bool]] = []

    async def take(self, envelope: bytes, *, wait: bool) -> list[Outcome]:
        if envelope == b"bad":
            raise ValueError("the envelope is bad")
        self.taken.append((envelope, wait))
        return [Outcome("a1", "kv.fetch", ACCEPTED, pages=2)]

    async def follow(self, start: int) -> AsyncGenerator[Batch, None]:
        if start > 7:
            raise FromTheFuture(f"{start} is asked for, and 7 is the next")
        for number in range(start, 7):
            yield Batch(number, b"kv@a@llama", b"batch")


class Door:
    def __init__(self, secret: ClusterSecret, target: str, taker: Taker) -> None:
        self.secret = secret
        self.taker = taker
        self._channel = grpc.aio.insecure_channel(target)

    async def ask(
        self, envelope: bytes = b"{}", token: str | None = None, wait: bool = False
    ) -> pb.HintsReply:
        metadata = [("authorization", f"Bearer {token}")] if token is not None else []
        stub = router_pb2_grpc.RouterStub(self._channel)  # type: ignore[no-untyped-call]
        request = pb.HintsRequest(envelope=envelope, wait=wait)
        reply: pb.HintsReply = await stub.Hints(request, metadata=metadata, timeout=10)
        return reply

    async def refusal(self, envelope: bytes = b"{}", token: str | None = None) -> tuple[str, str]:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await self.ask(envelope, token)
        return caught.value.code().name, caught.value.details() or ""

    async def follow(self, start: int, token: str) -> list[pb.EventBatch]:
        stub = router_pb2_grpc.RouterStub(self._channel)  # type: ignore[no-untyped-call]
        call = stub.Events(
            pb.EventsRequest(start=start), metadata=[("authorization", f"Bearer {token}")]
        )
        return [batch async for batch in call]

    async def close(self) -> None:
        await self._channel.close(None)


@asynccontextmanager
async def door(secret: ClusterSecret) -> AsyncIterator[tuple[Door, RouterServer]]:
    taker, port = Taker(), free_port()
    server = RouterServer(
        RouterServicer(taker, taker), Secret(secret), None, Tokens(), News(), clustered=True
    )
    await server.start(HOST, port)
    opened = Door(secret, f"{HOST}:{port}", taker)
    try:
        yield opened, server
    finally:
        await opened.close()
        await server.stop()


async def test_token_opens_the_door() -> None:
    async with door(ClusterSecret(SECRET)) as (opened, _):
        reply = await opened.ask(b"{}", token_of(SECRET), wait=True)
        assert [(one.action_id, one.pages) for one in reply.outcomes] == [("a1", 2)]
        assert opened.taker.taken == [(b"{}", True)]


async def test_callers_without_the_token_are_refused_with_the_remedy() -> None:
    async with door(ClusterSecret(SECRET)) as (opened, server):
        for token in (None, "", "f" * 64, SECRET.decode(), "f" * 8000):
            code, why = await opened.refusal(token=token)
            assert code == "UNAUTHENTICATED" and "peercachectl router-token" in why
        assert not opened.taker.taken
        assert server.sections({})["routers"]["unauthenticated"] == 5


async def test_message_of_a_stranger_is_not_read() -> None:
    async with door(ClusterSecret(SECRET)) as (opened, _):
        # Were it read, the refusal would be that of its size.
        assert (await opened.refusal(bytes(MESSAGE_BYTES_MAX + 1)))[0] == "UNAUTHENTICATED"


async def test_tokens_of_both_secrets_open_while_one_replaces_the_other() -> None:
    async with door(ClusterSecret(SECRET, next=NEXT)) as (opened, _):
        await opened.ask(token=token_of(SECRET))
        await opened.ask(token=token_of(NEXT))


async def test_cluster_that_accepts_nodes_without_a_secret_asks_for_no_token() -> None:
    for secret in (ClusterSecret(b""), ClusterSecret(b"", next=NEXT)):
        async with door(secret) as (opened, _):
            await opened.ask()


async def test_refusals_name_the_reason() -> None:
    async with door(ClusterSecret(SECRET)) as (opened, server):
        token = token_of(SECRET)
        assert await opened.refusal(b"bad", token) == ("INVALID_ARGUMENT", "the envelope is bad")
        code, why = await opened.refusal(bytes(MESSAGE_BYTES_MAX + 1), token)
        assert code == "RESOURCE_EXHAUSTED" and str(MESSAGE_BYTES_MAX) in why
        assert server.sections({})["routers"]["malformed"] == 1


async def test_a_caller_with_the_token_follows_events() -> None:
    async with door(ClusterSecret(SECRET)) as (there, _):
        batches = await there.follow(5, token_of(SECRET))
        assert [(one.number, one.topic, one.payload) for one in batches] == [
            (5, "kv@a@llama", b"batch"),
            (6, "kv@a@llama", b"batch"),
        ]
        for start, token, code in (
            (8, token_of(SECRET), "INVALID_ARGUMENT"),
            (5, token_of(NEXT), "UNAUTHENTICATED"),
        ):
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await there.follow(start, token)
            assert caught.value.code().name == code
