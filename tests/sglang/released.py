"""For how long a thread's calls into peercache_client cannot hold the GIL."""

import socket
import time
from types import TracebackType
from typing import Any

from peercache_client import connection


class Released:
    """Within it, `seconds` grows by what the client's sockets take to send and to receive. Python
    gives the GIL up there and nowhere else in a call: the rest of a call's time it may be held."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def __enter__(self) -> "Released":
        released = self

        class Timed(socket.socket):
            """Any of the client's, seen through this class."""

            __slots__ = ()

            def sendall(self, *arguments: Any) -> None:
                began = time.perf_counter()
                super().sendall(*arguments)
                released.seconds += time.perf_counter() - began

            def recv_into(self, *arguments: Any) -> int:
                began = time.perf_counter()
                got = super().recv_into(*arguments)
                released.seconds += time.perf_counter() - began
                return got

        for each in list(connection._open_connections):
            each._socket.__class__ = Timed
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for each in list(connection._open_connections):
            each._socket.__class__ = socket.socket
