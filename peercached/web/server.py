"""Serves GET and POST requests. The port is unauthenticated, so everything is limited.

At most IDLE_MAX connections wait for a request. At most ANSWERS_MAX requests are in work or being
written, ANSWERS_PER_HOST_MAX of them from one address. One connection more closes the idle one that
has waited for longest, and one request more the slowest one, of the address that has most of them.
If no request is slow, it waits. So neither silent clients nor clients that do not read lock out a
scraper. Probes (health.py) need no such turn. Their answer is a few bytes and fits any socket
buffer.

A request head is limited to HEAD_BYTES_MAX and HEAD_S. The body of a POST is limited to
BODY_BYTES_MAX and HEAD_S; other bodies are refused. A client that does not take its answer within
WRITE_S is disconnected. Handlers run on the event loop. They must await
between pieces of work that take more than a few milliseconds.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from http import HTTPStatus
from typing import Any

import h11

from peercached.component import Component, Stats
from peercached.error_text import reason
from peercached.observe.port_holder import cannot_listen
from peercached.timeout import within
from peercached.web.message import Request, Response, text
from peercached.web.own_names import is_own, own_names

_log = logging.getLogger(__name__)

IDLE_MAX = 64
ANSWERS_MAX = 32
ANSWERS_PER_HOST_MAX = 8
PROBES = frozenset({"/healthz", "/readyz"})
HEAD_BYTES_MAX = 16 << 10
BODY_BYTES_MAX = 512 << 10
# Time limit for a head, from its first byte; for a connection's first head, from its accept.
HEAD_S = 5.0
IDLE_S = 75.0  # between requests; longer than the usual scrape interval
HANDLE_S = 20.0
# A request makes room for another if its client keeps the daemon waiting for longer than SLOW_S, or
# if it is in work for longer than WORK_S.
SLOW_S = 0.25
WORK_S = 1.0
TURN_S = 5.0  # for room
_TURN_LOOK_S = 0.02
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
    refused: int = 0  # requests over the limits, or under another name
    displaced: int = 0  # connections closed to make room
    bad: int = 0  # malformed HTTP, or too large
    cut: int = 0  # clients that were too slow
    failed: int = 0  # handlers that raised


@dataclass(eq=False)
class _Link:
    """`since`: when the connection began to wait for its client, or to work on its request."""

    host: str
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    since: float = field(default_factory=time.monotonic)
    works: bool = False
    task: asyncio.Task[None] | None = None

    def begin(self, works: bool) -> None:
        self.works, self.since = works, time.monotonic()

    @property
    def is_slow(self) -> bool:
        return time.monotonic() - self.since > (WORK_S if self.works else SLOW_S)


class WebServer(Component):
    """Call start() and stop() once each, on one event loop."""

    def __init__(
        self,
        host: str,
        port: int,
        routes: Mapping[str, Handler],
        posts: Mapping[str, Handler] | None = None,
        names: Iterable[str] = (),
    ) -> None:
        """`routes`: for GET and HEAD; `posts`: for POST. A path is in one of them. `names`: of this
        daemon, beside those of this host."""
        self._host = host
        self._asked_port = port
        self._routes = routes
        self._posts = posts or {}
        self._names = own_names({host, *names})
        self._server: asyncio.Server | None = None
        self._closed = False
        self._tasks: set[asyncio.Task[None]] = set()
        self._idle: set[_Link] = set()  # and those that are probed
        self._answering: set[_Link] = set()
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
            # asyncio's own words repeat the address.
            number = error.errno or 0
            why = os.strerror(number) if number > 0 else reason(error)
            keys = "metrics_port or metrics_host, or metrics_enabled to false"
            raise cannot_listen("metrics", self._host, self._asked_port, keys, why) from error
        _log.info("metrics and the dashboard are served at %s:%d", self._host, self.port)

    @property
    def connections(self) -> int:
        return len(self._idle) + len(self._answering)

    def sections(self, stats: Stats) -> dict[str, Any]:
        del stats
        return {"metrics": {"connections": self.connections, **asdict(self.counters)}}

    async def stop(self) -> None:
        """Closes all connections at once."""
        self._closed = True
        if self._server is None:
            return
        self._server.close()
        for link in self._idle | self._answering:
            link.writer.transport.abort()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._server = None

    def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._closed:  # a connection from just before
            writer.transport.abort()
            return
        link = _Link(_host_of(writer), reader, writer)
        self._rest(link)
        link.task = asyncio.ensure_future(self._serve(link))
        self._tasks.add(link.task)
        link.task.add_done_callback(self._tasks.discard)

    def _rest(self, link: _Link) -> None:
        """Lets it wait for its next request."""
        self._answering.discard(link)
        self._make_room(self._idle, IDLE_MAX, IDLE_MAX, link.host)
        link.begin(works=False)
        self._idle.add(link)

    def _make_room(self, links: set[_Link], links_max: int, per_host_max: int, host: str) -> bool:
        """Room for one more from `host`; False if all that are in its way go on quickly."""
        same = {link for link in links if link.host == host}
        if len(links) >= links_max:
            crowd = links
        elif len(same) >= per_host_max:
            crowd = same
        else:
            return True
        by_host = Counter(link.host for link in crowd)
        may_go = [link for link in crowd if link in self._idle or link.is_slow]
        if not may_go:
            return False
        gone = min(may_go, key=lambda link: (-by_host[link.host], link.since))
        links.discard(gone)
        gone.writer.transport.abort()
        if gone.task is not None:
            gone.task.cancel()
        self.counters.displaced += 1
        _log.warning(
            "closed a slow or idle connection to the metrics port from %s, to make room for one "
            "from %s (limit: %d)",
            gone.host,
            host,
            len(crowd),
        )
        return True

    async def _turn(self, link: _Link) -> bool:
        """Waits for the turn of its request; False if it does not come."""
        until = time.monotonic() + TURN_S
        while not self._make_room(self._answering, ANSWERS_MAX, ANSWERS_PER_HOST_MAX, link.host):
            if time.monotonic() > until:
                return False
            await asyncio.sleep(_TURN_LOOK_S)
        self._idle.discard(link)
        self._answering.add(link)
        return True

    async def _serve(self, link: _Link) -> None:
        transport = link.writer.transport
        http = h11.Connection(h11.SERVER, max_incomplete_event_size=HEAD_BYTES_MAX)
        try:
            transport.set_write_buffer_limits(0)  # drain() then waits until the kernel has all
            limit_s = HEAD_S
            while await self._one(http, link, limit_s) and not self._closed:
                http.start_next_cycle()
                limit_s = IDLE_S
                self._rest(link)
        except (asyncio.TimeoutError, TimeoutError):
            self.counters.cut += 1
            _log.info("closed the metrics connection from %s: it was too slow", link.host)
        except (OSError, h11.LocalProtocolError):
            pass  # the client disconnected
        except RuntimeError:  # uvloop raises it when the client has disconnected
            if not transport.is_closing():
                raise
        finally:
            self._idle.discard(link)
            self._answering.discard(link)
            # The answer is sent or the client is gone, so closing must not wait for the client.
            transport.abort()

    async def _one(self, http: h11.Connection, link: _Link, silent_s: float) -> bool:
        """Handles one request. Returns True if another one may follow."""
        reader, writer = link.reader, link.writer
        try:
            request = await self._head(http, reader, silent_s)
            if request is None:
                return False
            path = request.target.partition(b"?")[0].decode("latin-1")
            if path not in PROBES and not await self._turn(link):
                self.counters.refused += 1
                _log.warning("refused %s at the metrics port: too many requests", path)
                busy = text("too many requests: only probes", HTTPStatus.SERVICE_UNAVAILABLE)
                await self._send(http, writer, busy, request.method)
                return False
            link.begin(works=False)
            limit = 0 if path in PROBES or request.method != b"POST" else BODY_BYTES_MAX
            body = await within(HEAD_S, self._body(http, reader, writer, limit))
        except h11.RemoteProtocolError as error:
            self.counters.bad += 1
            if http.our_state in (h11.IDLE, h11.SEND_RESPONSE):
                await self._send(
                    http, writer, text(str(error), HTTPStatus(error.error_status_hint)), b"GET"
                )
            return False
        self.counters.requests += 1
        link.begin(works=True)
        response = await self._answer(request, body)
        link.begin(works=False)
        await self._send(http, writer, response, request.method)
        return http.our_state is h11.DONE and http.their_state is h11.DONE

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
            received = await within(limit_s, reader.read(_READ_BYTES))
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

    async def _answer(self, asked: h11.Request, body: bytes) -> Response:
        path, _, query = asked.target.decode("latin-1").partition("?")
        is_post = asked.method == b"POST"
        handler = (self._posts if is_post else self._routes).get(path)
        if handler is None or asked.method not in (b"GET", b"HEAD", b"POST"):
            return self._nothing(path)
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in asked.headers}
        if not is_own(headers.get("host", "localhost"), self._names):
            self.counters.refused += 1
            return text(
                "this is no name of this daemon; use its address, localhost, the host's name, or "
                "the names in the keys host and metrics_host",
                HTTPStatus.MISDIRECTED_REQUEST,
            )
        try:
            request = Request(path, query, headers, body)
            return await within(HANDLE_S, handler(request))
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
        await within(WRITE_S, writer.drain())


def _host_of(writer: asyncio.StreamWriter) -> str:
    peer = writer.get_extra_info("peername")
    return str(peer[0]) if peer else "somebody"
