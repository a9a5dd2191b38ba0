"""gRPC between processes in virtual time, limited to the parts that the daemon uses. It replaces
the channels and servers of grpc.aio by connections of net.py. Messages are serialized, and calls
end with gRPC's own errors.

The first call opens a connection, and so does the first call after a loss. Without a listener the
attempt fails at once; without any answer it fails after CONNECT_S. Further calls fail until a new
attempt succeeds, which starts after a backoff.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable
from functools import partial
from itertools import count
from typing import Any, NamedTuple

import grpc
import grpc.aio

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


class _Call:
    """The caller's side of a call: one request, then the answer and the status together."""

    _numbers = count(1)

    def __init__(self, channel: Channel, method: _Method, request: Any, metadata: Any) -> None:
        self.number = next(_Call._numbers)
        self.method = method.path
        self.metadata = tuple(metadata or ())
        self.request = method.serialize(request)
        self.connection: _Connection | None = None
        self._channel = channel
        self._deserialize = method.deserialize
        self._ended: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    def established(self, connection: _Connection) -> None:
        self.connection = connection
        connection.begin(self)

    def end(self, code: Code, details: str, answer: bytes = b"") -> None:
        if self._ended.done():
            return
        self._channel.forget(self)
        if code is Code.OK:
            self._ended.set_result(self._deserialize(answer))
        elif code is Code.CANCELLED:
            self._ended.cancel()
        else:
            self._ended.set_exception(error_of(code, details))

    def give_up(self, code: Code, details: str) -> None:
        if not self._ended.done() and self.connection is not None:
            self.connection.reset(self)
        self.end(code, details)

    async def answered(self, timeout_s: float | None) -> Any:
        try:
            if timeout_s is None:
                return await self._ended
            loop = asyncio.get_running_loop()
            late = (Code.DEADLINE_EXCEEDED, "Deadline Exceeded")
            timer = loop.call_later(timeout_s, self.give_up, *late)
            try:
                return await self._ended
            finally:
                timer.cancel()
        except asyncio.CancelledError:
            self.give_up(Code.CANCELLED, "")
            raise


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

    def unary_unary(
        self, method: str, request_serializer: Any, response_deserializer: Any
    ) -> Callable[..., Any]:
        how = _Method(method, request_serializer, response_deserializer)
        return partial(Channel._unary, self, how)

    def _unary(
        self, method: _Method, request: Any, timeout: float | None = None, metadata: Any = None
    ) -> Any:
        call = _Call(self, method, request, metadata)
        self._start(call)
        return call.answered(timeout)

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
            call.give_up(Code.CANCELLED, "")
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
        number, method, metadata, data = call.number, call.method, call.metadata, call.request
        self._send(0, len(data), lambda: self._serve(number, method, metadata, data))

    def reset(self, call: _Call) -> None:
        number = call.number
        self._send(0, 0, lambda: self._reset(number))

    # --- at the server

    def _serve(self, number: int, method: str, metadata: Any, data: bytes) -> None:
        self._served[number] = _Served(self, self._server, number, method, metadata, data)

    def _reset(self, number: int) -> None:
        if number in self._served:
            self._served[number].task.cancel()

    def _hung_up(self) -> None:
        for served in list(self._served.values()):
            served.task.cancel()
        self._server.connections.pop(self, None)

    def over(self, number: int, code: Code, details: str, answer: bytes) -> None:
        self._served.pop(number, None)

        def arrive() -> None:
            if number in self.calls:
                self.calls[number].end(code, details, answer)

        self._send(1, len(answer), arrive)

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
        self,
        connection: _Connection,
        server: Server,
        number: int,
        method: str,
        metadata: Any,
        request: bytes,
    ) -> None:
        self._connection = connection
        self._number = number
        self._metadata = metadata
        self._handler = server.handler(_Details(method, metadata))
        self._ended = False
        self.task = asyncio.ensure_future(self._run(request))
        # A task that is cancelled before its first step runs no code, so the callback sends the
        # status.
        self.task.add_done_callback(lambda _: self._over(Code.CANCELLED, "cancelled"))

    def _over(self, code: Code, details: str, answer: bytes = b"") -> None:
        if not self._ended:
            self._ended = True
            self._connection.over(self._number, code, details, answer)

    async def _run(self, data: bytes) -> None:
        handler = self._handler
        try:
            if handler is None:
                raise _Aborted(Code.UNIMPLEMENTED, "Method not found!")
            # The refusals of auth_interceptor.py do not read the request.
            answer = handler.unary_unary or handler.stream_unary or handler.stream_stream
            parse = handler.request_deserializer
            reply = await answer(data if parse is None else parse(data), self)
        except _Aborted as aborted:
            self._over(aborted.code, aborted.details)
        else:
            self._over(Code.OK, "", handler.response_serializer(reply))

    # --- grpc.aio.ServicerContext

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
