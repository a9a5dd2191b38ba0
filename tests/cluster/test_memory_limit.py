"""A daemon under a memory limit (a cgroup): refused with both figures, or it starts and serves."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest
from harness.cluster import Daemon
from harness.fixtures import MakeCluster
from harness.pages import keys_of
from harness.waiting import eventually

from peercached.config import Config
from peercached.config.memory import besides_bytes

POOL_MIB = 256
Limit = Callable[[Daemon, int], None]
V1, V2 = Path("/sys/fs/cgroup/memory"), Path("/sys/fs/cgroup")


def remove(group: Path) -> None:
    """Once the kernel has noticed that its processes have ended."""

    def removed() -> bool:
        with suppress(OSError):
            group.rmdir()
        return not group.exists()

    eventually(removed, 10)


@pytest.fixture
def limit() -> Iterator[Limit]:
    """Starts that daemon in a cgroup with that many bytes."""
    with ExitStack() as stack:

        def limited(daemon: Daemon, limit_bytes: int) -> None:
            top, name = (V1, "memory.limit_in_bytes") if V1.exists() else (V2, "memory.max")
            group = top / f"peercached-test-{os.getpid()}"
            try:
                group.mkdir()
                stack.callback(remove, group)
                stack.callback(daemon.clean_up)
                (group / name).write_text(str(limit_bytes))
            except OSError as error:
                pytest.skip(f"no cgroup with a limit can be made here: {error}")
            join = f'echo $$ > {group}/cgroup.procs && exec "$@"'
            daemon.launcher = ["sh", "-c", join, "sh"]
            daemon.start()

        yield limited


def test_pool_just_below_the_limit_is_refused_with_both_figures(
    make_cluster: MakeCluster, limit: Limit
) -> None:
    (daemon,) = make_cluster(1, start=False, pool_size=f"{POOL_MIB}MiB").daemons
    limit_bytes = (POOL_MIB + 16) << 20
    limit(daemon, limit_bytes)
    assert daemon.wait_exit(30) == 2, daemon.log_tail()
    assert "256MiB, and the 128MiB that the daemon needs besides" in daemon.log_text()
    assert f"do not fit the {limit_bytes} bytes" in daemon.log_text()


def test_daemon_serves_a_full_pool_with_the_least_memory_that_is_accepted(
    make_cluster: MakeCluster, limit: Limit
) -> None:
    (daemon,) = make_cluster(1, start=False, pool_size=f"{POOL_MIB}MiB").daemons
    limit(daemon, (POOL_MIB << 20) + besides_bytes(Config()))
    daemon.wait_ready()
    pages = daemon.attach(page_bytes=1 << 20)
    for round in range(3):
        keys = keys_of(f"round {round}", 200)
        for at in range(0, len(keys), 20):
            assert all(pages.set(keys[at : at + 20]))
        assert pages.has(keys[-40:])
    assert daemon.alive
