"""A TCP proxy that a test can cut: it then forwards nothing, silently, like a dead switch."""

from __future__ import annotations

import contextlib
import socket
import threading


class CutProxy:
    """A context manager. `target` is host:port."""

    def __init__(self, target: str) -> None:
        host, _, port = target.rpartition(":")
        self._target = (host, int(port))
        self._whole = threading.Event()
        self._whole.set()
        self._sockets: list[socket.socket] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.endpoint = f"127.0.0.1:{self._listener.getsockname()[1]}"

    def __enter__(self) -> CutProxy:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *error: object) -> None:
        self._shut(self._listener)
        self.mend()

    def cut(self) -> None:
        self._whole.clear()

    def mend(self) -> None:
        """Forwards again, but only on new connections. Closes those from before."""
        for end in self._sockets:
            self._shut(end)
        self._sockets.clear()
        self._whole.set()

    @staticmethod
    def _shut(end: socket.socket) -> None:
        with contextlib.suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)
        end.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                self._sockets.append(near)
                threading.Thread(target=self._serve, args=(near,), daemon=True).start()

    def _serve(self, near: socket.socket) -> None:
        self._whole.wait()
        try:
            far = socket.create_connection(self._target)
        except OSError:
            self._shut(near)
            return
        self._sockets.append(far)
        threading.Thread(target=self._pump, args=(far, near), daemon=True).start()
        self._pump(near, far)

    def _pump(self, source: socket.socket, to: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while part := source.recv(65536):
                self._whole.wait()
                to.sendall(part)
        self._shut(to)
        self._shut(source)
