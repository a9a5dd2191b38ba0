"""Deaths in the middle. One daemon dies by `kill -9`, and returns later; or all of them die, and
begin again with nothing but the object store."""

import asyncio
import shutil
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from harness.cluster import Cluster
from harness.waiting import eventually

from demo.replay import Replay, WorkerProcess
from demo.workload import Request

_DIES_AT = 0.25
_STARTS_AGAIN_AT = 0.5
# A short replay could end before the daemon is a member again, so it waits here for that.
_RETURNED_BY = 0.85
_VICTIM = 1
_ALL_DIE_AT = 0.5
_STORE_READ_S = 60.0

# A block that no request has. Its workers ask for it to learn whether the daemon serves them again.
_PROBE = Request((1 << 61,))
_PROBE_EVERY_S = 0.05


class Scenario(Protocol):
    async def advance(self, fraction: float) -> None:
        """Called before every request, with the completed fraction of the replay."""

    async def finish(self) -> None:
        """Waits until restarted daemons have returned. Raises the error if they could not."""


async def _wait_served(workers: Iterable[WorkerProcess]) -> None:
    """The workers reconnect by themselves, but with pauses between attempts."""
    for worker in workers:
        outcome = await worker.do(_PROBE)
        while outcome.unset:
            await asyncio.sleep(_PROBE_EVERY_S)
            outcome = await worker.do(_PROBE)


class KillOneDaemon:
    def __init__(
        self,
        cluster: Cluster,
        workers: Sequence[Sequence[WorkerProcess]],
        replay: Replay,
        say: Callable[[str], None],
    ) -> None:
        """`workers`: for every role, one per node."""
        self._cluster = cluster
        self._victims_workers = [of_role[_VICTIM] for of_role in workers]
        self._replay = replay
        self._say = say
        self._victim = cluster[_VICTIM]
        self._killed = False
        self._return: asyncio.Task[None] | None = None
        replay.begin_phase("before")

    async def advance(self, fraction: float) -> None:
        name = self._victim.node_id
        if not self._killed and fraction >= _DIES_AT:
            self._killed = True
            self._victim.kill()
            self._replay.begin_phase(f"{name} dead")
            self._say(f"killed daemon {name} (kill -9); its workers go on without it")
        elif self._killed and self._return is None and fraction >= _STARTS_AGAIN_AT:
            self._return = asyncio.create_task(self._come_back())
        elif self._return is not None and fraction >= _RETURNED_BY:
            await self._return

    async def _come_back(self) -> None:
        """Starts the daemon again, and waits for it to join, while the replay continues."""
        name = self._victim.node_id
        self._say(f"starting daemon {name} again")
        self._victim.start()
        await asyncio.to_thread(self._cluster.wait_complete)
        await _wait_served(self._victims_workers)
        self._replay.begin_phase(f"{name} back")
        self._say(f"daemon {name} is a member again, and its workers are served")

    async def finish(self) -> None:
        if self._return is not None:
            await self._return


class WipeAll:
    """All daemons die at once, and lose memory, disks and what they knew of each other."""

    def __init__(
        self,
        cluster: Cluster,
        workers: Sequence[Sequence[WorkerProcess]],
        replay: Replay,
        say: Callable[[str], None],
    ) -> None:
        self._cluster = cluster
        self._workers = [worker for of_role in workers for worker in of_role]
        self._replay = replay
        self._say = say
        self._wiped = False
        replay.begin_phase("before")

    async def advance(self, fraction: float) -> None:
        if not self._wiped and fraction >= _ALL_DIE_AT:
            self._wiped = True
            await asyncio.to_thread(self._wipe)
            await _wait_served(self._workers)
            self._replay.begin_phase("from nothing")

    def _wipe(self) -> None:
        daemons = self._cluster.daemons
        objects = sum(daemon.status()["cold"]["written_objects"] for daemon in daemons)
        for daemon in daemons:
            daemon.kill()
        for daemon in daemons:
            daemon.lose_removal_state()
            if folder := daemon.options.get("disk-path"):
                shutil.rmtree(str(folder))
        self._say("killed all daemons (kill -9) and wiped their disks; they start from nothing")
        self._cluster.start()
        for daemon in daemons:
            eventually(
                lambda daemon=daemon: daemon.status()["cold"]["objects"] >= objects,  # type: ignore[misc]
                _STORE_READ_S,
                f"{daemon.node_id} knows the objects of the store",
            )

    async def finish(self) -> None: ...
