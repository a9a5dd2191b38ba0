"""A disk that stalls under state_dir holds up removals, and nothing else."""

import contextlib
import os
from collections.abc import Iterator

from harness.cluster import Daemon
from harness.fixtures import FAST, MakeCluster
from harness.pages import keys_of
from harness.steady_reader import SteadyReader
from harness.waiting import eventually

from peercache_client import Status

TTL_S = float(FAST["member-ttl-s"])


@contextlib.contextmanager
def stalled(daemon: Daemon) -> Iterator[None]:
    """Within the block, the daemon's writes of its removal state do not return: to open a pipe for
    writing waits for a reader."""
    pipe = daemon.state_dir / f"removals-{daemon.node_id}.new"
    os.mkfifo(pipe)
    try:
        yield
    finally:
        reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)

        def is_written() -> bool:
            with contextlib.suppress(BlockingIOError):
                os.read(reader, 1 << 20)
            return not pipe.exists()

        eventually(is_written)
        os.close(reader)


def test_stalled_disk_costs_no_member_and_no_read_but_confirms_no_removal(
    make_cluster: MakeCluster,
) -> None:
    a, b, c = make_cluster(3).daemons
    keys = keys_of("held by a", 64)
    assert all(a.attach().set(keys))
    reader = SteadyReader(b.attach(), keys)
    remover = b.attach(timeout_s=2.0)
    with stalled(a):
        with reader:
            c.kill()  # a has to remember that c may have missed removals
            a.wait_members(["a", "b"])
            b.wait_members(["a", "b"])
            reader.forget()
            reader.check_whole("c's death", for_s=2 * TTL_S)
        assert set(remover.client.remove(keys)) == {Status.removing}
        assert a.status()["removals"]["running"] == len(keys)
        # A node that it answered might set pages, of which it would know nothing after `kill -9`.
        c.start()
        eventually(lambda: "list of missed removals from a" in c.log_tail(), 20)
    eventually(lambda: a.status()["removals"]["running"] == 0)
    assert set(remover.client.remove(keys)) == {Status.absent}
