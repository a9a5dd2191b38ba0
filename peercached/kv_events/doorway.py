"""A port that takes a bounded number of connections, for ZMQ, which accepts all that come.

Closing the port of a ZMQ socket would end the connections that came through it. So the kernel is
told to drop what strangers send to it while there are too many. They try again by themselves.
"""

from __future__ import annotations

import ctypes
import os
import socket
import struct

CONNECTIONS_MAX = 256
BACKLOG = 64

# asm-generic/socket.h; the socket module does not have them.
_SO_ATTACH_FILTER = 26
_SO_DETACH_FILTER = 27
_DROP = ctypes.create_string_buffer(struct.pack("@HBBI", 0x06, 0, 0, 0), 8)  # BPF: return 0 bytes
_DROP_ALL = struct.pack("@HP", 1, ctypes.addressof(_DROP))


class Doorway:
    """On one thread. Connections are known by their descriptors."""

    def __init__(self, host: str, port: int) -> None:
        """Listens. OSError."""
        family, kind, _, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        self.connections: set[int] = set()
        self.shut = 0  # times that it took no more
        self._open = True
        self._listener = socket.socket(family, kind)
        try:
            self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                self._listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
            self._listener.setblocking(False)
            self._listener.bind(address)
            self._listener.listen(BACKLOG)
        except OSError:
            self._listener.close()
            raise
        self._address = self._listener.getsockname()

    def descriptor(self) -> int:
        """Another one of the listener. The caller closes it."""
        return self._listener.dup().detach()

    def close(self) -> None:
        self._listener.close()

    def came(self, connection: int) -> None:
        self.connections.add(connection)
        self._look()

    def went(self, connection: int) -> None:
        self.connections.discard(connection)
        self._look()

    def _look(self) -> None:
        is_open = len(self.connections) < CONNECTIONS_MAX
        if is_open == self._open:
            return
        self._open = is_open
        if is_open:
            self._listener.setsockopt(socket.SOL_SOCKET, _SO_DETACH_FILTER, 0)
        else:
            self.shut += 1
            self._listener.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, _DROP_ALL)

    def end(self, connection: int) -> None:
        """Ends one that has come. Its owner notices, and closes it."""
        try:
            with socket.socket(fileno=os.dup(connection)) as found:
                # By now the descriptor may be of something else.
                if found.getsockname()[1] == self._address[1]:
                    found.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass  # it has gone
