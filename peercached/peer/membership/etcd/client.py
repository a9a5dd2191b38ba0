"""Calls etcd (proto/etcd.proto), each with a timeout, at one endpoint after the other."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import grpc
import grpc.aio
from grpc.aio import EOF  # type: ignore[attr-defined]

from peercached.peer.rpc.tls import Tls
from peercached.proto import etcd_pb2 as pb
from peercached.proto import etcd_pb2_grpc
from peercached.timeout import within

OPTIONS: list[tuple[str, Any]] = [
    ("grpc.enable_http_proxy", 0),
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 1000),
    ("grpc.max_reconnect_backoff_ms", 1000),
    ("grpc.max_receive_message_length", 64 << 20),
]


class EtcdError(Exception):
    """etcd cannot be used now. The text says why."""


def range_end(prefix: bytes) -> bytes:
    """The range end for all keys with that prefix. The prefix must not end in 0xff."""
    return prefix[:-1] + bytes([prefix[-1] + 1])


class EtcdClient:
    """Uses one endpoint at a time; call use_next() after an error. Every call raises EtcdError if
    it fails or gets no answer in `timeout_s`. Use it on the event loop's thread."""

    def __init__(self, endpoints: Sequence[str], tls: Tls | None, timeout_s: float) -> None:
        self._endpoints = list(endpoints)
        self._tls = tls
        self._timeout_s = timeout_s
        self._at = 0
        self._open()

    def _open(self) -> None:
        self.endpoint = self._endpoints[self._at % len(self._endpoints)]
        self._channel = (
            grpc.aio.insecure_channel(self.endpoint, options=OPTIONS)
            if self._tls is None
            else grpc.aio.secure_channel(
                self.endpoint, self._tls.channel_credentials(), options=OPTIONS
            )
        )
        self._kv: Any = etcd_pb2_grpc.KVStub(self._channel)  # type: ignore[no-untyped-call]
        self._lease: Any = etcd_pb2_grpc.LeaseStub(self._channel)  # type: ignore[no-untyped-call]
        self._watch: Any = etcd_pb2_grpc.WatchStub(self._channel)  # type: ignore[no-untyped-call]

    async def use_next(self) -> None:
        await self.close()
        self._at += 1
        self._open()

    async def close(self) -> None:
        await self._channel.close(None)

    async def _within(self, call: Any) -> Any:
        try:
            return await within(self._timeout_s, call)
        except asyncio.TimeoutError as error:
            raise EtcdError(f"etcd at {self.endpoint} did not answer in time") from error
        except grpc.aio.AioRpcError as error:
            raise self._failed(error) from error

    def _failed(self, error: grpc.aio.AioRpcError) -> EtcdError:
        if error.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
            return EtcdError(f"etcd at {self.endpoint} did not answer in time")
        details = (error.details() or "")[:200]
        return EtcdError(f"etcd at {self.endpoint}: {error.code().name.lower()} {details}")

    async def read(self, prefix: bytes) -> tuple[list[pb.KeyValue], int]:
        """All keys with that prefix, and the revision of this read."""
        request = pb.RangeRequest(key=prefix, range_end=range_end(prefix))
        reply = await self._within(self._kv.Range(request, timeout=self._timeout_s))
        return list(reply.kvs), int(reply.header.revision)

    async def put(self, key: bytes, value: bytes, lease: int = 0) -> int:
        """Writes the key. Returns the revision of the change."""
        request = pb.PutRequest(key=key, value=value, lease=lease)
        reply = await self._within(self._kv.Put(request, timeout=self._timeout_s))
        return int(reply.header.revision)

    async def put_if(
        self,
        key: bytes,
        value: bytes,
        lease: int,
        unchanged_since: int,
        prefix: bytes = b"",
        also: Sequence[pb.PutRequest] = (),
    ) -> bool:
        """Compare-and-swap: writes only if the key was not written after revision
        `unchanged_since`. With a prefix, no key under it may have been. Returns whether it
        wrote."""
        puts = [pb.PutRequest(key=key, value=value, lease=lease), *also]
        request = pb.TxnRequest(
            compare=[
                pb.Compare(
                    result=pb.Compare.LESS,
                    target=pb.Compare.MOD,
                    key=prefix or key,
                    range_end=range_end(prefix) if prefix else b"",
                    mod_revision=unchanged_since + 1,
                )
            ],
            success=[pb.RequestOp(request_put=put) for put in puts],
        )
        reply = await self._within(self._kv.Txn(request, timeout=self._timeout_s))
        return bool(reply.succeeded)

    async def grant(self, ttl_s: int) -> int:
        reply = await self._within(
            self._lease.LeaseGrant(pb.LeaseGrantRequest(TTL=ttl_s), timeout=self._timeout_s)
        )
        return int(reply.ID)

    async def renewed_s_ago(self, lease: int) -> int | None:
        """Seconds since the lease was renewed, by etcd's clock. None if it has ended."""
        request = pb.LeaseTimeToLiveRequest(ID=lease)
        reply = await self._within(self._lease.LeaseTimeToLive(request, timeout=self._timeout_s))
        # A new etcd leader may extend a lease beyond its granted TTL: never return less than 0.
        return max(int(reply.grantedTTL - reply.TTL), 0) if reply.TTL > 0 else None

    async def revoke(self, lease: int) -> None:
        """Ends the lease. Its keys are gone when this returns."""
        request = pb.LeaseRevokeRequest(ID=lease)
        await self._within(self._lease.LeaseRevoke(request, timeout=self._timeout_s))

    async def keep_alive(self, lease: int) -> bool:
        """Renews the lease. Returns False if etcd has lost it."""
        call = self._lease.LeaseKeepAlive(timeout=self._timeout_s)
        try:
            await self._within(call.write(pb.LeaseKeepAliveRequest(ID=lease)))
            reply = await self._within(call.read())
        finally:
            call.cancel()
        if reply is EOF:
            raise EtcdError(f"etcd at {self.endpoint} ended the call")
        return bool(reply.TTL > 0)

    @asynccontextmanager
    async def watch(self, prefix: bytes, revision: int) -> AsyncIterator[AsyncIterator[Any]]:
        """Yields WatchResponses with all changes from that revision on, in order. Raises EtcdError
        when the watch ends, or if etcd has compacted that revision."""
        call = self._watch.Watch()
        create = pb.WatchCreateRequest(
            key=prefix, range_end=range_end(prefix), start_revision=revision
        )
        try:
            await self._within(call.write(pb.WatchRequest(create_request=create)))
            first = await self._within(call.read())
            if first is EOF or first.canceled:
                raise EtcdError(f"etcd at {self.endpoint} refused the watch")
            yield self._changes(call)
        finally:
            call.cancel()

    async def _changes(self, call: Any) -> AsyncIterator[Any]:
        while True:
            try:
                reply = await call.read()
            except grpc.aio.AioRpcError as error:
                raise self._failed(error) from error
            if reply is EOF or reply.canceled:
                reason = "" if reply is EOF else f": {reply.cancel_reason}"
                raise EtcdError(f"the watch at {self.endpoint} ended{reason}")
            yield reply
