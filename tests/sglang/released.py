"""For how long a thread's calls into peercache_client cannot hold the GIL."""

from types import TracebackType

from peercache_client import _ipc


class Released:
    """Within it, `seconds` is for how long this thread's calls waited for the daemon. There the
    client gives the GIL up, and nowhere else: the rest of a call's time it may be held."""

    def __init__(self) -> None:
        self._began = _ipc.waited_s()

    @property
    def seconds(self) -> float:
        return _ipc.waited_s() - self._began

    def __enter__(self) -> "Released":
        self._began = _ipc.waited_s()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        pass
