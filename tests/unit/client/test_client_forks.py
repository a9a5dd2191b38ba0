"""A forked child is an independent worker, and its parent's calls do not affect it."""

import asyncio
import os
import signal
import threading
from collections.abc import Callable

from harness import ipc_stand_in as ipc
from harness.clock import seconds
from harness.ipc_stand_in import IpcStandIn
from harness.waiting import eventually

from peercache_client import AsyncClient, Client, Status

PAGE_BYTES = 4096


def forked(work: Callable[[], bool]) -> int:
    """Forks and returns the child's pid. The child exits with 0 if `work` returned True."""
    pid = os.fork()
    if pid == 0:
        code = 2
        try:
            signal.alarm(int(seconds(60)) + 1)
            code = 0 if work() else 1
        finally:
            os._exit(code)
    return pid


def all_was_well(*pids: int) -> bool:
    return all(os.waitpid(pid, 0)[1] == 0 for pid in pids)


def works_alone(client: Client, name: str, rounds: int = 200) -> bool:
    """Sets and gets through unshared memory, with contents that no other process uses."""
    for i in range(rounds):
        page = f"{name} {i} ".encode().ljust(PAGE_BYTES, b".")
        if client.set(f"{name} {i % 7}", page) is not Status.ok:
            return False
        if client.get(f"{name} {i % 7}", PAGE_BYTES) != page:
            return False
    return True


def test_parent_and_children_have_each_their_own_memory_for_plain_buffers(client: Client) -> None:
    assert client.set("before", bytes(PAGE_BYTES))
    children = [forked(lambda: works_alone(client, f"child {i}")) for i in range(3)]  # noqa: B023
    assert works_alone(client, "parent")
    assert all_was_well(*children)


def test_call_in_another_thread_at_fork_does_not_stop_the_child(
    client: Client, daemon: IpcStandIn
) -> None:
    client.ping()
    daemon.hang_on = {ipc.SET}
    thread = threading.Thread(target=lambda: client.set("hangs", bytes(PAGE_BYTES)))
    thread.start()
    assert daemon.hanging.wait(seconds(10))
    daemon.hang_on = set()
    children = [forked(lambda: works_alone(client, f"child {i}", 5)) for i in range(5)]  # noqa: B023
    assert all_was_well(*children)
    daemon.go_on.set()
    thread.join()
    assert works_alone(client, "parent", 5)


def test_an_asyncio_client_has_threads_in_the_child(daemon: IpcStandIn) -> None:
    client = AsyncClient(daemon.path, "space", timeout_s=seconds(10))

    async def works(name: str) -> bool:
        page = name.encode() * 100
        return await client.set(name, page) is Status.ok and (
            await client.get(name, len(page)) == page
        )

    assert asyncio.run(works("parent"))
    assert all_was_well(forked(lambda: asyncio.run(works("child"))))
    assert asyncio.run(works("parent again"))
    asyncio.run(client.close())


def test_a_child_of_a_closed_client_has_a_closed_one(client: Client) -> None:
    client.ping()
    client.close()
    assert all_was_well(forked(lambda: client.set("k", b"page") is Status.no_daemon))


def signal_when_it_hangs(daemon: IpcStandIn, pid: int) -> None:
    daemon.hanging.wait()
    os.kill(pid, signal.SIGUSR1)


def get_while_a_handler_forks(
    client: Client,
    daemon: IpcStandIn,
    in_parent: Callable[[int], object],
    in_child: Callable[[list[Status]], bool],
) -> None:
    """The signal handler forks while the daemon hangs in a get. The daemon continues once
    `in_parent` (pid of the child) has returned. The child's copy of the call passes its statuses to
    `in_child`."""
    region = client.alloc(PAGE_BYTES)
    region.view[:4] = b"page"
    assert all(client.batch_set(["k"], region, [0], 4))

    def fork(*_: object) -> None:
        pid = os.fork()
        if pid:
            in_parent(pid)
            daemon.go_on.set()

    before = signal.signal(signal.SIGUSR1, fork)
    parent = os.getpid()
    try:
        daemon.hang_on = {ipc.GET}
        killer = threading.Thread(target=signal_when_it_hangs, args=(daemon, parent))
        killer.start()
        statuses = client.batch_get(["k"], region, [100], 4)
        if os.getpid() != parent:
            os._exit(0 if in_child(statuses) else 1)
        killer.join()
        daemon.hang_on = set()
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert statuses == [Status.ok]
    assert bytes(region.view[100:104]) == b"page"


def test_a_fork_in_a_signal_handler_in_the_middle_of_a_call(
    client: Client, daemon: IpcStandIn
) -> None:
    """In the child the call continues as a miss. The reply goes to the parent alone."""
    children: list[int] = []

    def in_child(statuses: list[Status]) -> bool:
        return statuses == [Status.no_daemon] and works_alone(client, "child", 3)

    get_while_a_handler_forks(client, daemon, children.append, in_child)
    assert all_was_well(*children)


def test_child_giving_up_a_call_does_not_end_the_parents_call(
    client: Client, daemon: IpcStandIn
) -> None:
    def in_parent(pid: int) -> None:
        assert all_was_well(pid)  # the child gives up before the daemon continues

    get_while_a_handler_forks(client, daemon, in_parent, lambda statuses: not any(statuses))
    assert len(daemon.asked(ipc.GET)) == 1, "the parent had to ask again"


def test_regions_stay_shared_between_parent_and_child(client: Client) -> None:
    region = client.alloc(PAGE_BYTES)
    region.view[:4] = b"page"
    assert all(client.batch_set(["k"], region, [0], 4))
    assert all_was_well(forked(lambda: all(client.batch_get(["k"], region, [200], 4))))
    assert bytes(region.view[200:204]) == b"page"


def test_closing_in_a_child_does_not_close_for_the_parent(
    client: Client, daemon: IpcStandIn
) -> None:
    region = client.alloc(PAGE_BYTES)
    region.view[:4] = b"page"
    assert all(client.batch_set(["k"], region, [0], 4))

    def close_all() -> bool:
        region.close()
        client.close()
        return True

    assert all_was_well(forked(close_all))
    eventually(lambda: daemon.connections == 1)
    assert all(client.batch_get(["k"], region, [200], 4))
