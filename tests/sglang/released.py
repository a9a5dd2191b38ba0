"""Measures how long a thread's calls into peercache_client have released the GIL."""

from peercache_client import _ipc


class Released:
    """Within the block, `seconds` is the time that this thread's calls waited for the daemon. The
    client releases the GIL only there. It may hold the GIL for the rest of a call."""

    def __init__(self) -> None:
        self._began = _ipc.waited_s()

    @property
    def seconds(self) -> float:
        return _ipc.waited_s() - self._began

    def __enter__(self) -> "Released":
        self._began = _ipc.waited_s()
        return self

    def __exit__(self, *_: object) -> None:
        pass
