"""The kill in the middle: one daemon dies by `kill -9`, and returns later."""

import asyncio
from collections.abc import Callable, Sequence

from harness.cluster import Cluster

from demo.replay import Replay, WorkerProcess
from demo.workload import Request

_DIES_AT = 0.25
_STARTS_AGAIN_AT = 0.5
# A short replay could end before the daemon is a member again, so it waits here for that.
_RETURNED_BY = 0.85
_VICTIM = 1

# A block that no request has. Its workers ask for it to learn whether the daemon serves them again.
_PROBE = Request((1 << 61,))
_PROBE_EVERY_S = 0.05


class KillOneDaemon:
    """Its `advance` is called before every request, with the completed fraction of the replay."""

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
        for worker in self._victims_workers:
            # The workers reconnect by themselves, but with pauses between attempts.
            outcome = await worker.do(_PROBE)
            while outcome.unset:
                await asyncio.sleep(_PROBE_EVERY_S)
                outcome = await worker.do(_PROBE)
        self._replay.begin_phase(f"{name} back")
        self._say(f"daemon {name} is a member again, and its workers are served")

    async def finish(self) -> None:
        """Waits until a restarted daemon has returned. Raises the error if it could not."""
        if self._return is not None:
            await self._return
