"""gRPC between processes in virtual time, limited to the parts that the daemon uses. It replaces
the channels and servers of grpc.aio by connections of net.py. Messages are serialized, and calls
end with gRPC's own errors.

The first call opens a connection, and so does the first call after a loss. Without a listener the
attempt fails at once; without any answer it fails after CONNECT_S. Further calls fail until a new
attempt succeeds, which starts after a backoff.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict, deque
from collections.abc import AsyncIterator, Callable
from functools import lru_cache, partial
from itertools import count
from typing import Any, NamedTuple

import grpc
import grpc.aio
from grpc.aio import EOF  # type: ignore[attr-defined]

from peercached.peer.rpc.client import CHANNEL_OPTIONS
from sim.loop import Process, this_process
from sim.net import End, Line, Net, Work

_OPTIONS = dict(CHANNEL_OPTIONS)
BACKOFF_FIRST_S = _OPTIONS["grpc.initial_reconnect_backoff_ms"] / 1000
BACKOFF_MAX_S = _OPTIONS["grpc.max_reconnect_backoff_ms"] / 1000
CONNECT_S = _OPTIONS["grpc.min_reconnect_backoff_ms"] / 1000
BACKOFF_FACTOR, BACKOFF_JITTER = 1.6, 0.2

Code = grpc.StatusCode


class Network:
    """The listening servers and all channels. `dark` tells whether a machine is down, so that
    nothing there answers. `meter` gets (from, to, bytes) of every message."""

    def __init__(self, net: Net, dark: Callable[[str], bool]) -> None:
        self.net = net
        self.dark = dark
        self.servers: dict[str, Server] = {}
        self.channels: dict[Process, dict[Channel, None]] = defaultdict(dict)
        self.meter: Callable[[str, str, int], None] = lambda source, to, size: None

    def insecure_channel(self, endpoint: str, options: Any = None) -> Channel:
        del options
        return Channel(self, endpoint)

    def kill(self, process: Process, silently: bool) -> None:
        """Ends the process. Connected peers notice it, unless `silently`."""
        for server in [s for s in self.servers.values() if s.process is process]:
            server.close()
            for connection in [] if silently else list(server.connections):
                connection.line.close(1)
        for channel in [] if silently else self.channels[process]:
            channel.hang_up()
        self.channels.pop(process, None)

    def server(self, options: Any = None, maximum_concurrent_rpcs: int = 0) -> Server:
        del options, maximum_concurrent_rpcs
        return Server(self)


class _Method(NamedTuple):
    path: str
    serialize: Callable[[Any], bytes]
    deserialize: Callable[[bytes], Any]


_method = lru_cache(maxsize=None)(_Method)


class _Call:
    """The caller's side of a call."""

    _numbers = count(1)

    def __init__(self, channel: Channel, method: _Method, metadata: Any) -> None:
        self.number = next(_Call._numbers)
        self.method = method.path
        self.metadata = tuple(metadata or ())
        self.process = channel.process
        self.connection: _Connection | None = None
        self.status: tuple[Code, str] | None = None
        self._channel = channel
        self._serialize, self._deserialize = method.serialize, method.deserialize
        self._unsent: list[bytes] = []
        self._inbox: deque[Any] = deque()
        self._waiter: asyncio.Future[None] | None = None
        self._cancelled = False

    # --- for the connection

    def established(self, connection: _Connection) -> None:
        self.connection = connection
        connection.begin(self)
        for data in self._unsent:
            connection.to_server(self, data)
        self._unsent.clear()

    def message(self, data: bytes) -> None:
        self._inbox.append(self._deserialize(data))
        self._wake()

    def end(self, code: Code, details: str) -> None:
        if self.status is None:
            self.status = (code, details)
            self._channel.forget(self)
            self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    # --- for the daemon

    def send(self, request: Any) -> None:
        data = self._serialize(request)
        if self.connection is None:
            self._unsent.append(data)
        else:
            self.connection.to_server(self, data)

    def cancel(self) -> bool:
        if self.status is not None:
            return False
        self._cancelled = True
        self._give_up(Code.CANCELLED, "Locally cancelled by application!")
        return True

    def _give_up(self, code: Code, details: str) -> None:
        if self.status is None and self.connection is not None:
            self.connection.reset(self)
        self.end(code, details)

    def deadline(self, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        loop.call_later(seconds, self._give_up, Code.DEADLINE_EXCEEDED, "Deadline Exceeded")

    async def _next(self) -> Any:
        """Returns the next message, or EOF after a normal end. Otherwise raises gRPC's error."""
        while not self._inbox:
            if self.status is not None:
                if self._cancelled:
                    raise asyncio.CancelledError
                code, details = self.status
                if code is not Code.OK:
                    raise error_of(code, details)
                return EOF
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
        return self._inbox.popleft()

    async def unary(self) -> Any:
        try:
            found = await self._next()
            while await self._next() is not EOF:
                pass  # wait for the end: there is only one message
            return found
        except asyncio.CancelledError:
            self.cancel()
            raise

    async def read(self) -> Any:
        return await self._next()

    async def write(self, request: Any) -> None:
        if self.status is not None:
            raise asyncio.InvalidStateError("RPC already finished.")
        self.send(request)

    async def code(self) -> Code:
        assert self.status is not None
        return self.status[0]

    async def details(self) -> str:
        assert self.status is not None
        return self.status[1]


class Channel:
    """grpc.aio.Channel"""

    def __init__(self, network: Network, endpoint: str) -> None:
        self.process = this_process()
        self._network = network
        self._net = network.net
        self._endpoint = endpoint
        self._connection: _Connection | None = None
        self._attempt = 0  # the running attempt; 0: none
        self._attempts = count(1)
        self._broken = ""  # why the last attempt failed
        self._pause_s = BACKOFF_FIRST_S
        self._calls: dict[_Call, None] = {}
        self._closed = False
        network.channels[self.process][self] = None

    # Partials instead of closures, for memory: every link has a stub with about thirty of these.

    def unary_unary(
        self, method: str, request_serializer: Any, response_deserializer: Any, **_: Any
    ) -> Any:
        return partial(
            Channel._unary, self, _method(method, request_serializer, response_deserializer)
        )

    def stream_stream(
        self, method: str, request_serializer: Any, response_deserializer: Any, **_: Any
    ) -> Any:
        return partial(
            Channel._stream, self, _method(method, request_serializer, response_deserializer)
        )

    def _unary(
        self, method: _Method, request: Any, timeout: float | None = None, metadata: Any = None
    ) -> Any:
        call = _Call(self, method, metadata)
        call.send(request)
        if timeout is not None:
            call.deadline(timeout)
        self._start(call)
        return call.unary()

    def _stream(self, method: _Method, metadata: Any = None) -> _Call:
        call = _Call(self, method, metadata)
        self._start(call)
        return call

    def get_state(self) -> grpc.ChannelConnectivity:
        if self._connection is not None:
            return grpc.ChannelConnectivity.READY
        failing = grpc.ChannelConnectivity.TRANSIENT_FAILURE
        return failing if self._broken else grpc.ChannelConnectivity.IDLE

    async def close(self, grace: float | None = None) -> None:
        del grace
        self._closed = True
        self._attempt = 0
        for call in list(self._calls):
            call.cancel()
        self.hang_up()
        self._network.channels[self.process].pop(self, None)

    def hang_up(self) -> None:
        if self._connection is not None:
            self._connection.line.close(0)
            self._connection = None

    # --- calls

    def _start(self, call: _Call) -> None:
        if self._closed:
            raise grpc.aio.UsageError("Channel is closed.")
        self._calls[call] = None
        if self._connection is not None:
            call.established(self._connection)
        elif self._broken:
            asyncio.get_running_loop().call_soon(call.end, Code.UNAVAILABLE, self._broken)
        elif not self._attempt:
            self._connect()

    def forget(self, call: _Call) -> None:
        self._calls.pop(call, None)
        if call.connection is not None:
            call.connection.calls.pop(call.number, None)

    # --- connections

    def _connect(self) -> None:
        net, network, loop = self._net, self._network, asyncio.get_running_loop()
        attempt = self._attempt = next(self._attempts)
        here, there = self.process.name, self._endpoint.rpartition(":")[0]

        def failed(why: str) -> None:
            if self._attempt == attempt:
                self._failed(f"failed to connect: {why}")

        def answered(server: Server) -> None:
            if self._attempt == attempt:
                self._established(server)

        def back(work: Work) -> None:
            net.carry(there, here, lambda: self.process.do(work))

        def arrived() -> None:
            server = network.servers.get(self._endpoint)
            if server is not None:
                server.process.do(lambda: back(lambda: answered(server)))
            elif not network.dark(there):
                back(lambda: failed("connection refused"))

        net.carry(here, there, arrived)
        loop.call_later(max(CONNECT_S, self._pause_s), failed, "no answer")

    def _failed(self, why: str) -> None:
        self._attempt = 0
        self._broken = why
        for call in list(self._calls):
            call.end(Code.UNAVAILABLE, why)
        pause_s = self._pause_s * self._net.rng.uniform(1 - BACKOFF_JITTER, 1 + BACKOFF_JITTER)
        self._pause_s = min(BACKOFF_FACTOR * self._pause_s, BACKOFF_MAX_S)

        def again() -> None:
            if not self._closed and not self._attempt:
                self._connect()

        asyncio.get_running_loop().call_later(pause_s, again)

    def _established(self, server: Server) -> None:
        self._attempt = 0
        self._broken = ""
        self._pause_s = BACKOFF_FIRST_S
        connection = self._connection = _Connection(self._network, self, server)
        for call in list(self._calls):
            call.established(connection)

    def lost(self, connection: _Connection) -> None:
        if self._connection is connection:
            self._connection = None
        for call in list(connection.calls.values()):
            call.end(Code.UNAVAILABLE, "the connection was lost")


class _Connection:
    _numbers = count(1)

    def __init__(self, network: Network, channel: Channel, server: Server) -> None:
        client, there = channel.process, server.process
        self.peer = f"ipv4:{client.name}:{next(_Connection._numbers)}"
        self.calls: dict[int, _Call] = {}
        self._served: dict[int, _Served] = {}
        self._network = network
        self._names = (client.name, there.name)
        self._server = server
        self.line = Line(
            network.net,
            (
                End(client.name, client.do, lambda: channel.lost(self), client.answers),
                End(there.name, there.do, self._hung_up, there.answers),
            ),
        )
        server.connections[self] = None

    def _send(self, sender: int, size: int, work: Work) -> None:
        self._network.meter(self._names[sender], self._names[1 - sender], size)
        self.line.send(sender, work)

    # --- from the client

    def begin(self, call: _Call) -> None:
        self.calls[call.number] = call
        number, method, metadata = call.number, call.method, call.metadata
        self._send(0, 0, lambda: self._serve(number, method, metadata))

    def to_server(self, call: _Call, data: bytes) -> None:
        number = call.number
        self._send(0, len(data), lambda: self._arrived(number, data))

    def reset(self, call: _Call) -> None:
        number = call.number
        self._send(0, 0, lambda: self._reset(number))

    # --- at the server

    def _serve(self, number: int, method: str, metadata: Any) -> None:
        self._served[number] = _Served(self, self._server, number, method, metadata)

    def _arrived(self, number: int, data: bytes) -> None:
        if number in self._served:
            self._served[number].arrived(data)

    def _reset(self, number: int) -> None:
        if number in self._served:
            self._served[number].task.cancel()

    def _hung_up(self) -> None:
        for served in list(self._served.values()):
            served.task.cancel()
        self._server.connections.pop(self, None)

    def to_client(self, number: int, data: bytes) -> None:
        def arrive() -> None:
            if number in self.calls:
                self.calls[number].message(data)

        self._send(1, len(data), arrive)

    def over(self, number: int, code: Code, details: str) -> None:
        self._served.pop(number, None)

        def arrive() -> None:
            if number in self.calls:
                self.calls[number].end(code, details)

        self._send(1, 0, arrive)

    def end(self) -> None:
        """The server's process stops or has died."""
        for served in list(self._served.values()):
            served.task.cancel()
        self.line.close(1)


class _Aborted(Exception):
    def __init__(self, code: Code, details: str) -> None:
        super().__init__(details)
        self.code = code
        self.details = details


class _Details:
    def __init__(self, method: str, invocation_metadata: Any) -> None:
        self.method = method
        self.invocation_metadata = invocation_metadata


class _Served:
    """The server's side of a call, and the context that its handler gets."""

    def __init__(
        self, connection: _Connection, server: Server, number: int, method: str, metadata: Any
    ) -> None:
        self._connection = connection
        self._number = number
        self._metadata = metadata
        self._inbox: deque[bytes] = deque()
        self._waiter: asyncio.Future[None] | None = None
        self._handler = server.handler(_Details(method, metadata))
        self.task = asyncio.ensure_future(self._run())
        # A task that is cancelled before its first step runs no code, so the callback sends the
        # status.
        self.task.add_done_callback(lambda _: self._over(Code.CANCELLED, "cancelled"))
        self._ended = False

    def arrived(self, data: bytes) -> None:
        self._inbox.append(data)
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _over(self, code: Code, details: str) -> None:
        if not self._ended:
            self._ended = True
            self._connection.over(self._number, code, details)

    async def _run(self) -> None:
        handler = self._handler
        try:
            if handler is None:
                raise _Aborted(Code.UNIMPLEMENTED, "Method not found!")
            if handler.stream_stream is not None:
                await handler.stream_stream(self._requests(), self)
            elif handler.stream_unary is not None:
                await self.write(await handler.stream_unary(self._requests(), self))
            else:
                await self.write(await handler.unary_unary(await self.read(), self))
        except _Aborted as aborted:
            self._over(aborted.code, aborted.details)
        else:
            self._over(Code.OK, "")

    async def _requests(self) -> AsyncIterator[Any]:
        while True:
            yield await self.read()

    # --- grpc.aio.ServicerContext

    async def read(self) -> Any:
        while not self._inbox:
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
        data = self._inbox.popleft()
        deserialize = self._handler.request_deserializer
        return data if deserialize is None else deserialize(data)

    async def write(self, reply: Any) -> None:
        self._connection.to_client(self._number, self._handler.response_serializer(reply))

    async def abort(self, code: Code, details: str) -> None:
        raise _Aborted(code, details)

    def invocation_metadata(self) -> Any:
        return self._metadata

    def peer(self) -> str:
        return self._connection.peer

    def auth_context(self) -> dict[str, list[bytes]]:
        return {}


class Server:
    """grpc.aio.Server"""

    def __init__(self, network: Network) -> None:
        self.process: Process = this_process()
        self.connections: dict[_Connection, None] = {}
        self._network = network
        self._handlers: tuple[Any, ...] = ()
        self._address = ""

    def add_generic_rpc_handlers(self, handlers: Any) -> None:
        self._handlers = tuple(handlers)

    def handler(self, details: _Details) -> Any:
        return self._handlers[0].service(details)

    def add_insecure_port(self, address: str) -> int:
        if address in self._network.servers:
            return 0
        self._address = address
        return int(address.rpartition(":")[2])

    async def start(self) -> None:
        self._network.servers[self._address] = self

    async def stop(self, grace: float | None) -> None:
        """Refuses new calls. Running calls get `grace` seconds to end."""
        self.close()
        await asyncio.sleep(grace or 0.0)
        for connection in list(self.connections):
            connection.end()

    def close(self) -> None:
        if self._network.servers.get(self._address) is self:
            del self._network.servers[self._address]


def error_of(code: Code, details: str) -> grpc.aio.AioRpcError:
    return grpc.aio.AioRpcError(code, grpc.aio.Metadata(), grpc.aio.Metadata(), details, None)
