"""The HTTP server for monitoring: its answers, and its limits on slow or numerous clients."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import re
from collections.abc import AsyncIterator, Callable
from http import HTTPStatus
from pathlib import Path

import pytest
import uvloop
from harness.clock import seconds
from harness.loop_node import LoopNode

from peercached.web import server as web
from peercached.web.message import Request, Response, json_document, text
from peercached.web.own_names import own_names

pytestmark = pytest.mark.uvloop

BIG = b"x" * (32 << 20)  # more than the kernel's buffers on both sides


async def _hello(request: Request) -> Response:
    return text(f"hello {request.arguments.get('who', 'nobody')}")


async def _big(_: Request) -> Response:
    return Response(BIG)


async def _broken(_: Request) -> Response:
    raise RuntimeError("a bug")


async def _wrong(_: Request) -> Response:
    raise ValueError("key: is empty; give one")


async def _echo(request: Request) -> Response:
    return Response(request.body)


POSTS: dict[str, web.Handler] = {"/echo": _echo}
ROUTES: dict[str, web.Handler] = {
    "/hello": _hello,
    "/big": _big,
    "/broken": _broken,
    "/wrong": _wrong,
}


ASK_ON = b"GET /hello HTTP/1.1\r\nHost: localhost\r\n\r\n"


@contextlib.asynccontextmanager
async def served() -> AsyncIterator[web.WebServer]:
    server = web.WebServer("127.0.0.1", 0, ROUTES, POSTS)
    await server.start()
    try:
        yield server
    finally:
        await server.stop()
    assert server.connections == 0


async def exchange(server: web.WebServer, sent: bytes) -> bytes:
    """Everything the server sends until it closes the connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(sent)
    answer = await reader.read()
    writer.close()
    return answer


async def eventually(condition: Callable[[], bool]) -> None:
    while not condition():  # noqa: ASYNC110 - of the server's own numbers
        await asyncio.sleep(0.005)


def get(path: str, *, more: str = "") -> bytes:
    return f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{more}\r\n".encode()


async def test_a_get_is_answered_by_its_route() -> None:
    async with served() as server:
        answer = await exchange(server, get("/hello?who=you%20all"))
        head, _, body = answer.partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200")
        assert b"cache-control: no-store" in head.lower()
        assert body == b"hello you all\n"
        assert server.counters.requests == 1


def post(path: str, body: bytes, *, more: str = "") -> bytes:
    head = get(path, more=f"Content-Length: {len(body)}\r\n{more}").replace(b"GET", b"POST", 1)
    return head + body


async def test_a_post_has_its_body_and_a_client_that_waits_is_told_to_send_it() -> None:
    async with served() as server:
        body = b"x" * web.BODY_BYTES_MAX
        answer = await exchange(server, post("/echo", body))
        assert answer.split(b"\r\n\r\n", 1)[1] == body
        waits = post("/echo", b"abc", more="Expect: 100-continue\r\n")
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(waits[:-3])
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 100")
        writer.write(b"abc")
        assert (await reader.read()).endswith(b"\r\n\r\nabc")
        writer.close()


async def test_a_slow_body_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(web, "HEAD_S", seconds(0.1))

    async with served() as server:
        assert await exchange(server, post("/echo", b"abc")[:-1]) == b""
        assert server.counters.cut == 1


async def test_one_connection_serves_request_after_request() -> None:
    async with served() as server:
        first = b"GET /hello?who=%d HTTP/1.1\r\nHost: localhost\r\n\r\n"
        answers = await exchange(server, first % 1 + first % 2 + get("/hello?who=3"))
        assert re.findall(rb"hello (\d)", answers) == [b"1", b"2", b"3"]
        assert server.counters.requests == 3


async def test_head_has_the_length_and_no_body() -> None:
    async with served() as server:
        answer = await exchange(server, get("/hello").replace(b"GET", b"HEAD", 1))
        assert b"content-length: 13" in answer.lower()
        assert answer.endswith(b"\r\n\r\n")


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (get("/nowhere"), b"404"),
        (get("/hello").replace(b"GET", b"DELETE", 1), b"405"),
        (get("/hello", more="Content-Length: 3\r\n") + b"abc", b"413"),
        (post("/echo", b"x" * (web.BODY_BYTES_MAX + 1)), b"413"),
        (post("/hello", b"{}"), b"405"),
        (post("/nowhere", b"{}"), b"404"),
        (get("/echo"), b"405"),
        (get("/hello", more=f"X: {'y' * (20 << 10)}\r\n"), b"431"),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03 nonsense\r\n\r\n", b"400"),
        (get("/broken"), b"500"),
        (get("/wrong"), b"400"),
    ],
)
async def test_bad_requests_get_their_status_and_the_server_goes_on(
    sent: bytes, status: bytes
) -> None:
    async with served() as server:
        assert (await exchange(server, sent)).split()[1] == status
        assert (await exchange(server, get("/hello"))).split()[1] == b"200"


async def test_a_slow_head_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(web, "HEAD_S", seconds(0.1))

    async with served() as server:
        _, writer = await asyncio.open_connection("127.0.0.1", server.port)
        try:
            while server.counters.cut == 0:  # an occasional byte must not extend the time limit
                writer.write(b"G")
                await asyncio.sleep(0.01)
        except ConnectionError:
            pass
        await eventually(lambda: server.connections == 0)
        writer.close()
        assert server.counters.cut == 1


async def test_an_idle_connection_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(web, "IDLE_S", seconds(0.05))

    async with served() as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        assert await reader.read() == b""
        writer.close()


async def test_a_client_that_does_not_read_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(web, "WRITE_S", seconds(0.1))

    async with served() as server:
        _, writer = await asyncio.open_connection("127.0.0.1", server.port, limit=1024)
        writer.write(get("/big"))
        await eventually(lambda: server.counters.cut == 1 and server.connections == 0)
        writer.close()


async def test_a_large_answer_arrives_whole() -> None:
    async with served() as server:
        answer = await exchange(server, get("/big"))
        assert answer.partition(b"\r\n\r\n")[2] == BIG


async def test_a_flood_of_silent_connections_keeps_nobody_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(web, "IDLE_MAX", 4)

    async with served() as server:
        flood = [await asyncio.open_connection("127.0.0.1", server.port) for _ in range(4)]
        await eventually(lambda: server.connections == 4)
        for _ in range(20):
            flood.append(await asyncio.open_connection("127.0.0.1", server.port))
            assert b"200" in await exchange(server, get("/hello"))
            assert server.connections <= 4
        assert server.counters.displaced >= 20
        assert server.counters.refused == 0
        assert await asyncio.wait_for(flood[0][0].read(), seconds(5)) == b""
        for _, writer in flood:
            writer.close()


async def test_one_more_than_can_be_answered_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(web, "ANSWERS_MAX", 4)
    monkeypatch.setattr(web, "TURN_S", 0.05)
    done = asyncio.Event()

    async def slow(_: Request) -> Response:
        await done.wait()
        return text("at last")

    monkeypatch.setitem(ROUTES, "/slow", slow)

    async with served() as server:
        asked = [asyncio.ensure_future(exchange(server, get("/slow"))) for _ in range(4)]
        await eventually(lambda: len(server._answering) == 4)
        assert b"503" in await exchange(server, get("/hello"))
        assert server.counters.refused == 1
        done.set()
        assert all(b"at last" in answer for answer in await asyncio.gather(*asked))
        await eventually(lambda: server.connections == 0)
        assert b"200" in await exchange(server, get("/hello"))


async def test_a_request_waits_for_its_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(web, "ANSWERS_PER_HOST_MAX", 2)

    async def slow(_: Request) -> Response:
        await asyncio.sleep(0.05)
        return text("at last")

    monkeypatch.setitem(ROUTES, "/slow", slow)

    async with served() as server:
        answers = await asyncio.gather(*(exchange(server, get("/slow")) for _ in range(10)))
        assert all(b"at last" in answer for answer in answers)
        assert server.counters.displaced == 0


@pytest.mark.parametrize("bound", ["ANSWERS_MAX", "ANSWERS_PER_HOST_MAX"])
async def test_clients_that_read_nothing_keep_neither_probe_nor_scraper_out(
    monkeypatch: pytest.MonkeyPatch, bound: str
) -> None:
    monkeypatch.setattr(web, bound, 4)

    async def healthy(_: Request) -> Response:
        return text("ok")

    monkeypatch.setitem(ROUTES, "/healthz", healthy)

    async with served() as server:
        takers = []
        for _ in range(40):  # more than the server answers at once
            reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
            writer.write(get("/big"))
            takers.append((reader, writer))
        await eventually(lambda: len(server._answering) == 4 and not server._idle)
        takers += [await asyncio.open_connection("127.0.0.1", server.port) for _ in range(5)]
        for _ in range(10):
            assert (await exchange(server, get("/healthz"))).endswith(b"ok\n")
            assert b"200" in await exchange(server, get("/hello"))
        for _, writer in takers:
            writer.transport.abort()


async def test_work_that_takes_long_makes_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(web, "ANSWERS_MAX", 4)
    monkeypatch.setattr(web, "WORK_S", 0.05)

    async def hangs(_: Request) -> Response:
        await asyncio.Event().wait()
        raise AssertionError

    monkeypatch.setitem(ROUTES, "/hangs", hangs)

    async with served() as server:
        asked = [asyncio.ensure_future(exchange(server, get("/hangs"))) for _ in range(4)]
        await eventually(lambda: len(server._answering) == 4)
        assert b"200" in await exchange(server, get("/hello"))
        await asyncio.wait(asked, return_when=asyncio.FIRST_COMPLETED)
        for one in asked:
            one.cancel()


async def test_clients_that_leave_during_their_answer_leave_no_traceback(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    faults: list[object] = []

    async def slow(_: Request) -> Response:
        await asyncio.sleep(0.02)
        return text("at last")

    monkeypatch.setitem(ROUTES, "/slow", slow)

    async with served() as server:
        asyncio.get_running_loop().set_exception_handler(lambda _, fault: faults.append(fault))
        for _ in range(20):
            _, writer = await asyncio.open_connection("127.0.0.1", server.port)
            writer.write(get("/slow"))
            await eventually(lambda: bool(server._answering))
            writer.transport.abort()
            await eventually(lambda: not server._answering)
        gc.collect()  # asyncio reports a task's exception when it is collected
    assert faults == []


async def test_a_connection_that_never_asks_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(web, "HEAD_S", seconds(0.1))

    async with served() as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        assert await reader.read() == b""
        writer.close()
        assert server.counters.cut == 1


async def test_a_handler_that_hangs_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(web, "HANDLE_S", seconds(0.05))

    async def hangs(_: Request) -> Response:
        await asyncio.Event().wait()
        raise AssertionError

    monkeypatch.setitem(ROUTES, "/hangs", hangs)

    async with served() as server:
        assert (await exchange(server, get("/hangs"))).split()[1] == b"504"


def test_a_stop_ends_a_request_that_comes_at_the_same_moment() -> None:
    """Python's wait_for drops a cancellation then. A tab that asked on kept the daemon running."""

    async def ask_on(server: web.WebServer) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        with contextlib.suppress(ConnectionError):
            while True:
                writer.write(ASK_ON)
                if not await reader.read(4096):
                    break
        writer.close()

    async def claim() -> None:
        server = web.WebServer("127.0.0.1", 0, ROUTES)
        await server.start()
        tabs = [asyncio.ensure_future(ask_on(server)) for _ in range(web.ANSWERS_PER_HOST_MAX)]
        await eventually(lambda: server.counters.requests > 50)
        await asyncio.wait_for(server.stop(), seconds(5))
        await asyncio.gather(*tabs)

    for _ in range(10):
        uvloop.run(claim())


async def test_taken_port_error_names_the_address_and_the_key() -> None:
    async with served() as server:
        second = web.WebServer("127.0.0.1", server.port, {})
        with pytest.raises(
            OSError,
            match=r"on 127\.0\.0\.1:\d+: Address already in use\..* set metrics_port",
        ) as failed:
            await second.start()
        assert "Errno" not in str(failed.value)
        assert str(os.getpid()) not in str(failed.value)  # this process has the port
        await second.stop()


def test_a_json_document_is_compact() -> None:
    answer = json_document({"a": [1, 2]}, HTTPStatus.ACCEPTED)
    assert (answer.body, answer.status) == (b'{"a":[1,2]}', HTTPStatus.ACCEPTED)


async def test_only_addresses_and_own_names_are_answered() -> None:
    own = ["10.0.0.1:31997", "[::1]:31997", "LOCALHOST", "a.site.", os.uname().nodename]
    foreign = ["evil.example", "evil.example:31997", "[::1", "a.site.x"]

    server = web.WebServer("127.0.0.1", 0, ROUTES, POSTS, {"A.site"})
    await server.start()
    for host in own + foreign:
        asked = get("/hello").replace(b"localhost", host.encode())
        status = b"200" if host in own else b"421"
        assert (await exchange(server, asked)).split()[1] == status, host
    await server.stop()


async def test_the_name_in_the_key_host_is_answered_though_peers_are_told_an_address() -> None:
    node = LoopNode("a", name="kv1.example", metrics_host="127.0.0.1", metrics_port=0)
    server = node.daemon.web
    await server.start()
    answer = await exchange(server, get("/readyz").replace(b"localhost", b"kv1.example"))
    assert answer.endswith(b"it starts\n")
    await server.stop()


def test_own_names_are_those_of_the_host_in_its_domains(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("socket.gethostname", lambda: "N1.rack.example")
    (tmp_path / "resolv").write_text("nameserver 10.0.0.1\nsearch site.example. other\n\n")
    names = own_names({"10.0.0.1", "storage"}, tmp_path / "resolv")
    there = {"n1", "n1.rack.example", "n1.site.example", "n1.other"}
    assert names == there | {"localhost", "10.0.0.1", "storage"}
    assert own_names((), tmp_path / "none") == {"n1", "n1.rack.example", "localhost"}
