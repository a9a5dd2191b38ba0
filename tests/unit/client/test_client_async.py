"""The asyncio client has the same calls. A cancelled call still returns only after the last
write."""

import asyncio
import inspect
import subprocess
import sys
import threading

import pytest
from harness import ipc_stand_in as ipc
from harness.clock import seconds
from harness.ipc_stand_in import IpcStandIn

from peercache_client import AsyncClient, Client, Status


def test_every_call_of_the_client_has_its_twin() -> None:
    def calls(kind: type) -> dict[str, list[str]]:
        return {
            name: list(inspect.signature(value).parameters)
            for name, value in vars(kind).items()
            if callable(value) and not name.startswith("_")
        }

    assert calls(AsyncClient) == calls(Client)


async def test_pages_come_back_byte_for_byte(daemon: IpcStandIn) -> None:
    async with AsyncClient(daemon.path, "space", timeout_s=seconds(10)) as client:
        region = await client.alloc(4096)
        region.view[:4] = b"page"
        assert all(await client.batch_set(["a"], region, [0], 4))
        assert all(await client.batch_get(["a"], region, [8], 4))
        assert bytes(region.view[8:12]) == b"page"
        assert await client.set("b", b"content") is Status.ok
        assert await client.get("b", 7) == b"content"
        assert await client.batch_exists(["a", "b", "c"]) == 2
        assert await client.contains(["c", "a"]) == [False, True]
        assert await client.remove(["a"]) == [Status.ok]
        assert await client.clear()
        assert (await client.stats())["connected"]
        assert await client.ping()


async def test_calls_run_side_by_side(daemon: IpcStandIn) -> None:
    async with AsyncClient(daemon.path, "space", timeout_s=seconds(10), threads=3) as client:
        pages = {f"k{i}": bytes([i]) * 100 for i in range(50)}
        assert all(await asyncio.gather(*(client.set(k, v) for k, v in pages.items())))
        got = await asyncio.gather(*(client.get(key, 100) for key in pages))
        assert got == list(pages.values())
    assert len(daemon.asked(ipc.HELLO)) <= 4


async def test_a_cancelled_get_returns_only_when_the_daemon_is_done(daemon: IpcStandIn) -> None:
    async with AsyncClient(daemon.path, "space", timeout_s=seconds(10)) as client:
        region = await client.alloc(4096)
        region.view[:4] = b"page"
        assert all(await client.batch_set(["k"], region, [0], 4))
        daemon.hang_on = {ipc.GET}
        get = asyncio.create_task(client.batch_get(["k"], region, [100], 4))
        await asyncio.to_thread(daemon.hanging.wait)
        for _ in range(3):
            get.cancel()
            done, _ = await asyncio.wait([get], timeout=seconds(0.02))
            assert not done, "the daemon may still be writing"
        daemon.go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await get
        assert bytes(region.view[100:104]) == b"page", "it was over before"


async def test_a_call_cancelled_before_it_began_never_begins(daemon: IpcStandIn) -> None:
    async with AsyncClient(daemon.path, "space", timeout_s=seconds(10), threads=1) as client:
        daemon.hang_on = {ipc.EXISTS}
        first = asyncio.create_task(client.batch_exists(["first"]))
        await asyncio.to_thread(daemon.hanging.wait)
        second = asyncio.create_task(client.set("second", b"page"))
        await asyncio.sleep(0)
        second.cancel()
        with pytest.raises(asyncio.CancelledError):
            await second
        daemon.go_on.set()
        assert await first == 0
    assert not daemon.asked(ipc.SET)


async def test_errors_of_arguments_come_through(daemon: IpcStandIn) -> None:
    async with AsyncClient(daemon.path, "space") as client:
        with pytest.raises(ValueError, match="size is 0"):
            await client.alloc(0)


def test_calls_after_close_miss_and_calls_at_exit_are_answered(
    daemon: IpcStandIn,
) -> None:
    async def main() -> None:
        client = AsyncClient(daemon.path, "space")
        assert await client.ping()
        await client.close()
        await client.close()
        assert not await client.ping()
        assert await client.set("k", b"page") is Status.no_daemon
        assert await client.get("k", 4) is None

    asyncio.run(main())
    script = (
        "import asyncio, atexit, sys\n"
        "from peercache_client import AsyncClient\n"
        "client = AsyncClient(sys.argv[1], 'space')\n"
        "atexit.register(lambda: print(asyncio.run(client.ping())))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(daemon.path)],
        capture_output=True, text=True, timeout=seconds(60), check=True,
    )  # fmt: skip
    assert (done.stdout, done.stderr) == ("True\n", "")


async def test_call_runs_once_when_no_thread_can_be_started(
    daemon: IpcStandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The executor queues the call before it fails, and runs it later if it ever gets a thread."""

    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    async with AsyncClient(daemon.path, "space", timeout_s=seconds(10)) as client:
        assert client._client.ping()  # connects while the stand-in can still start a thread
        with monkeypatch.context() as without_threads:
            without_threads.setattr(threading.Thread, "start", refuse)
            assert await client.set("first", b"page") is Status.ok
        assert await client.set("second", b"page") is Status.ok
        assert await client.get("second", 4) == b"page"
    assert [request.keys for request in daemon.asked(ipc.SET)] == [[b"first"], [b"second"]]
