"""Serves GET and POST requests. The port is unauthenticated, so everything is limited.

At most CONNECTIONS_MAX connections are open, PER_HOST_MAX of them from one address. One more
replaces the connection that has been silent for longest, so that silent clients lock out no
scraper. If none is silent, the new connection may only ask for a probe (health.py). A probe's
answer is a few bytes and fits any socket buffer, so clients that do not read lock out no probe.

A request head is limited to HEAD_BYTES_MAX and HEAD_S. The body of a POST is limited to
BODY_BYTES_MAX and HEAD_S; other bodies are refused. A client that does not take its answer within
WRITE_S is disconnected. Handlers run on the event loop. They must await
between pieces of work that take more than a few milliseconds.
"""

from __future__ import annotations

import asyncio
import errno
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import asdict, dataclass
from http import HTTPStatus
from typing import Any

import h11

from peercached.component import Component, Stats
from peercached.observe.port_holder import port_holder
from peercached.web.message import Request, Response, text

_log = logging.getLogger(__name__)

CONNECTIONS_MAX = 32
PER_HOST_MAX = 24
PROBES = frozenset({"/healthz", "/readyz"})
PROBES_MAX = 16  # connections beyond the limits, for one probe each
HEAD_BYTES_MAX = 16 << 10
BODY_BYTES_MAX = 512 << 10
# Time limit for a head, from its first byte; for a connection's first head, from its accept.
HEAD_S = 5.0
IDLE_S = 75.0  # between requests; longer than the usual scrape interval
HANDLE_S = 20.0
WRITE_S = 10.0
_READ_BYTES = 4096

Handler = Callable[[Request], Awaitable[Response]]

_ALWAYS = [
    ("Cache-Control", "no-store"),
    ("X-Content-Type-Options", "nosniff"),
    ("Server", "peercached"),
]


@dataclass
class WebCounters:
    """Counters since the start of the daemon."""

    requests: int = 0
    refused: int = 0  # connections over the limits, including requests there other than probes
    displaced: int = 0  # silent connections closed to make room
    bad: int = 0  # malformed HTTP, or too large
    cut: int = 0  # clients that were too slow
    failed: int = 0  # handlers that raised


class WebServer(Component):
    """Call start() and stop() once each, on one event loop."""

    def __init__(
        self,
        host: str,
        port: int,
        routes: Mapping[str, Handler],
        posts: Mapping[str, Handler] | None = None,
    ) -> None:
        """`routes`: for GET and HEAD; `posts`: for POST. A path is in one of them."""
        self._host = host
        self._asked_port = port
        self._routes = routes
        self._posts = posts or {}
        self._server: asyncio.Server | None = None
        self._connections: dict[asyncio.Task[None], str] = {}  # task -> client address
        self._probes: dict[asyncio.Task[None], asyncio.StreamWriter] = {}  # oldest first
        self._ending: set[asyncio.Task[None]] = set()
        # Connections that wait for a head; the longest wait comes first.
        self._silent: dict[asyncio.Task[None], asyncio.StreamWriter] = {}
        self.counters = WebCounters()

    @property
    def port(self) -> int:
        """The bound port; 0 while not bound."""
        if self._server is None or not self._server.sockets:
            return 0
        return int(self._server.sockets[0].getsockname()[1])

    async def start(self) -> None:
        """Binds and serves. An OSError names the remedy."""
        try:
            self._server = await asyncio.start_server(
                self._accepted, self._host, self._asked_port, limit=HEAD_BYTES_MAX
            )
        except OSError as error:
            who = port_holder(self._host, self._asked_port)
            where = f"{self._host}:{self._asked_port}"
            code = error.errno or errno.EADDRNOTAVAIL
            raise OSError(
                code,
                f"cannot serve metrics at {where} ({error.strerror or error})"
                + (f": {who} has the port" if who else "")
                + "; set metrics_port or metrics_host, or metrics_enabled to false",
            ) from error
        _log.info("metrics and the dashboard are served at %s:%d", self._host, self.port)

    @property
    def connections(self) -> int:
        return len(self._connections)

    def sections(self, stats: Stats) -> dict[str, Any]:
        del stats
        return {"metrics": {"connections": self.connections, **asdict(self.counters)}}

    async def stop(self) -> None:
        """Closes all connections at once."""
        if self._server is None:
            return
        self._server.close()
        tasks = [*self._connections, *self._probes, *self._ending]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._server = None

    def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        host = _host_of(writer)
        crowd = self._crowd(host)
        if crowd:
            silent = next((task for task in crowd if task in self._silent), None)
            if silent is None:
                self._accept_probe(reader, writer)
                return
            self._displace(silent, self._silent.pop(silent))
            del self._connections[silent]
            _log.warning(
                "closed an idle connection to the metrics port to make room for a new one from %s "
                "(limit: %d)",
                host,
                len(crowd),
            )
        task = asyncio.ensure_future(self._serve(reader, writer))
        self._connections[task] = host
        self._silent[task] = writer
        task.add_done_callback(lambda done: self._connections.pop(done, None))

    def _crowd(self, host: str) -> list[asyncio.Task[None]]:
        """The connections that use up the limit for this address, or in total; empty if there is
        room."""
        if len(self._connections) >= CONNECTIONS_MAX:
            return list(self._connections)
        same = [task for task, other in self._connections.items() if other == host]
        return same if len(same) >= PER_HOST_MAX else []

    def _accept_probe(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serves one probe beyond the limits. At PROBES_MAX it drops the oldest: a real probe is
        short."""
        if len(self._probes) >= PROBES_MAX:
            oldest = next(iter(self._probes))
            self._displace(oldest, self._probes.pop(oldest))
        task = asyncio.ensure_future(self._serve(reader, writer, probe=True))
        self._probes[task] = writer
        task.add_done_callback(lambda done: self._probes.pop(done, None))

    def _displace(self, task: asyncio.Task[None], writer: asyncio.StreamWriter) -> None:
        writer.transport.abort()
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)
        self.counters.displaced += 1

    async def _serve(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, probe: bool = False
    ) -> None:
        writer.transport.set_write_buffer_limits(0)  # drain() then waits until the kernel has all
        link = h11.Connection(h11.SERVER, max_incomplete_event_size=HEAD_BYTES_MAX)
        try:
            limit_s = HEAD_S
            while await self._one(link, reader, writer, limit_s, probe) and not probe:
                link.start_next_cycle()
                limit_s = IDLE_S
                self._silent[_this_task()] = writer
        except (asyncio.TimeoutError, TimeoutError):
            self.counters.cut += 1
            _log.info("closed the metrics connection from %s: it was too slow", _host_of(writer))
        except (OSError, h11.LocalProtocolError):
            pass  # the client disconnected
        finally:
            self._silent.pop(_this_task(), None)
            # The answer is sent or the client is gone, so closing must not wait for the client.
            writer.transport.abort()

    async def _one(
        self,
        link: h11.Connection,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        silent_s: float,
        probe: bool,
    ) -> bool:
        """Handles one request. Returns True if another one may follow."""
        try:
            request = await self._head(link, reader, silent_s)
            if request is None:
                return False
            limit = 0 if probe or request.method != b"POST" else BODY_BYTES_MAX
            body = await asyncio.wait_for(self._body(link, reader, writer, limit), HEAD_S)
            self._silent.pop(_this_task(), None)
        except h11.RemoteProtocolError as error:
            self.counters.bad += 1
            if link.our_state in (h11.IDLE, h11.SEND_RESPONSE):
                await self._send(
                    link, writer, text(str(error), HTTPStatus(error.error_status_hint)), b"GET"
                )
            return False
        self.counters.requests += 1
        response = await self._answer(request, body, probe)
        await self._send(link, writer, response, request.method)
        return link.our_state is h11.DONE and link.their_state is h11.DONE

    async def _head(
        self, link: h11.Connection, reader: asyncio.StreamReader, silent_s: float
    ) -> h11.Request | None:
        limit_s = min(silent_s, IDLE_S)
        until = None
        while True:
            event = link.next_event()
            if isinstance(event, h11.Request):
                return event
            if isinstance(event, h11.ConnectionClosed):
                return None
            now = asyncio.get_running_loop().time()
            if until is not None:
                limit_s = until - now
            received = await asyncio.wait_for(reader.read(_READ_BYTES), limit_s)
            if until is None:
                until = asyncio.get_running_loop().time() + HEAD_S
            link.receive_data(received)

    async def _body(
        self,
        link: h11.Connection,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        bytes_max: int,
    ) -> bytes:
        """Reads to the end of the request."""
        body = bytearray()
        while True:
            event = link.next_event()
            if isinstance(event, h11.EndOfMessage):
                return bytes(body)
            if isinstance(event, h11.Data):
                body += event.data
                if len(body) > bytes_max:
                    raise h11.RemoteProtocolError(
                        f"a body of more than {bytes_max} bytes: ask for less at once"
                        if bytes_max
                        else "a request here has no body",
                        413,
                    )
            if event is h11.NEED_DATA:
                if link.they_are_waiting_for_100_continue:
                    go_on = h11.InformationalResponse(status_code=100, headers=[])
                    writer.write(link.send(go_on) or b"")
                link.receive_data(await reader.read(_READ_BYTES))

    async def _answer(self, asked: h11.Request, body: bytes, probe: bool) -> Response:
        path, _, query = asked.target.decode("latin-1").partition("?")
        if probe and path not in PROBES:
            self.counters.refused += 1
            _log.warning("refused %s at the metrics port: too many connections", path)
            return text("too many connections: only probes", HTTPStatus.SERVICE_UNAVAILABLE)
        is_post = asked.method == b"POST"
        handler = (self._posts if is_post else self._routes).get(path)
        if handler is None or asked.method not in (b"GET", b"HEAD", b"POST"):
            return self._nothing(path)
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in asked.headers}
        try:
            request = Request(path, query, headers, body)
            return await asyncio.wait_for(handler(request), HANDLE_S)
        except (asyncio.TimeoutError, TimeoutError):
            return text("this took too long", HTTPStatus.GATEWAY_TIMEOUT)
        except ValueError as error:
            return text(str(error), HTTPStatus.BAD_REQUEST)
        except Exception as error:
            self.counters.failed += 1
            _log.error("%s %s failed", asked.method.decode(), path, exc_info=error)
            return text("failed; the daemon's log says why", HTTPStatus.INTERNAL_SERVER_ERROR)

    def _nothing(self, path: str) -> Response:
        """The path takes another method, or is not there."""
        allowed = "POST" if path in self._posts else "GET, HEAD" if path in self._routes else ""
        if allowed:
            return Response(
                f"only {allowed}\n".encode(),
                status=HTTPStatus.METHOD_NOT_ALLOWED,
                headers={"Allow": allowed},
            )
        there = ", ".join(sorted([*self._routes, *self._posts]))
        return text(f"nothing is here; there is {there}", HTTPStatus.NOT_FOUND)

    async def _send(
        self, link: h11.Connection, writer: asyncio.StreamWriter, answer: Response, method: bytes
    ) -> None:
        headers = [
            ("Content-Type", answer.content_type),
            ("Content-Length", str(len(answer.body))),
            *_ALWAYS,
            *answer.headers.items(),
        ]
        head = h11.Response(status_code=int(answer.status), headers=headers)
        parts = [link.send(head)]
        if method != b"HEAD":
            parts.append(link.send(h11.Data(data=answer.body)))
        parts.append(link.send(h11.EndOfMessage()))
        writer.write(b"".join(part for part in parts if part))
        await asyncio.wait_for(writer.drain(), WRITE_S)


def _host_of(writer: asyncio.StreamWriter) -> str:
    peer = writer.get_extra_info("peername")
    return str(peer[0]) if peer else "somebody"


def _this_task() -> asyncio.Task[None]:
    task: asyncio.Task[None] | None = asyncio.current_task()
    assert task is not None
    return task
