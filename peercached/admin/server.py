"""The Admin service (proto/admin.proto) on this host's admin socket.

Everyone who can open the socket is an operator: the daemon's user and root. The socket has mode
0600 from its creation on, and its folder 0700. The `Relay` forwards calls that name another member.
"""

from __future__ import annotations

import errno
import os
import socket
import stat
import struct
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Protocol

import grpc
import grpc.aio

from peercached import __version__
from peercached.admin import NODE_KEY, VERSION_KEY
from peercached.admin.calls import CALLS, SERVICE, Refusal, answer

# Timeout of relayed calls without a deadline.
RELAYED_S_MAX = 3600.0
_STOP_GRACE_S = 1.0
_REQUEST_BYTES_MAX = 1 << 20
_PEER = struct.Struct("3i")  # ucred: pid, uid, gid


class Relay(Protocol):
    """Forwards calls to other members."""

    async def ask(self, node_id: str, method: str, packed: bytes, left_s: float) -> bytes:
        """Returns that member's reply. Raises the member's Refusal, or one if it cannot be
        reached."""


class AdminServer:
    """Serves one `source` (calls.py) from start() to stop(); the socket exists only in between.
    Without a `relay` no other member can be asked."""

    def __init__(self, path: str, source: Any, relay: Relay | None = None) -> None:
        self._path = Path(path)
        self._source = source
        self._relay = relay
        self._server: grpc.aio.Server | None = None

    def make_way(self) -> None:
        """Removes a dead daemon's socket. OSError with the remedy if the path cannot be used."""
        _make_way(self._path)

    async def start(self) -> None:
        """Binds and serves. An OSError names the path and the remedy."""
        self.make_way()
        server = grpc.aio.server(
            options=[
                ("grpc.max_receive_message_length", _REQUEST_BYTES_MAX),
                ("grpc.so_reuseport", 0),
            ]
        )
        handlers = {
            method: grpc.unary_unary_rpc_method_handler(self._handler(method)) for method in CALLS
        }
        service = grpc.method_handlers_generic_handler(SERVICE.full_name, handlers)
        server.add_generic_rpc_handlers((service,))
        # Set the umask before binding, so that other users can never open the socket.
        before = os.umask(0o177)
        try:
            server.add_insecure_port(f"unix:{self._path}")
        except RuntimeError as error:
            raise OSError(
                errno.EADDRNOTAVAIL,
                f"cannot bind the admin socket ({error}): set admin_socket to a path in a folder "
                "that this user may write",
                str(self._path),
            ) from error
        finally:
            os.umask(before)
        await server.start()
        self._server = server

    def _handler(self, method: str) -> Callable[[bytes, Any], Awaitable[bytes]]:
        async def handle(packed: bytes, context: Any) -> bytes:
            context.set_trailing_metadata(((VERSION_KEY, __version__),))
            node_id = _node_wanted(context)
            try:
                if not node_id:
                    return await answer(self._source, method, packed, "an operator of this host")
                if self._relay is None:
                    raise Refusal(grpc.StatusCode.NOT_FOUND, "this daemon has no peers to ask")
                left_s = min(context.time_remaining() or RELAYED_S_MAX, RELAYED_S_MAX)
                return await self._relay.ask(node_id, method, packed, left_s)
            except Refusal as refusal:
                await context.abort(refusal.code, refusal.details)
                raise

        return handle

    async def stop(self) -> None:
        """Ends running calls within 1 s, and removes the socket."""
        if self._server is None:
            return
        await self._server.stop(_STOP_GRACE_S)  # gRPC removes the socket file
        self._server = None


def _node_wanted(context: Any) -> str:
    """The node named by the caller. The value is bytes, because text metadata must be ASCII."""
    for key, value in context.invocation_metadata() or ():
        if key == NODE_KEY:
            return bytes(value).decode(errors="replace")
    return ""


def _make_way(path: Path) -> None:
    """Removes a dead daemon's socket file. gRPC would silently replace a live daemon's socket,
    too."""
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if path.parent.stat().st_uid not in (0, os.geteuid()):
            # In a folder such as /tmp, somebody else can be first.
            raise PermissionError(errno.EPERM, "it belongs to another user")
        mode = path.stat().st_mode
    except FileNotFoundError:
        return
    except OSError as error:
        raise OSError(
            error.errno,
            f"cannot use the folder of the admin socket ({error.strerror}): create it for this "
            "user, or set admin_socket",
            str(path.parent),
        ) from error
    if not stat.S_ISSOCK(mode):
        raise OSError(
            errno.EADDRINUSE,
            "the admin socket's path is taken by something that is not a socket: move it away, or "
            "set admin_socket",
            str(path),
        )
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.connect(str(path))
            peer = probe.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size)
        except ConnectionRefusedError:
            path.unlink(missing_ok=True)
            return
        except FileNotFoundError:
            return
        except OSError as error:
            raise OSError(
                error.errno, f"cannot tell whether it is in use ({error.strerror})", str(path)
            ) from error
    raise OSError(
        errno.EADDRINUSE,
        "a running daemon already serves the admin socket "
        f"(process {_PEER.unpack(peer)[0]}): stop it, or set admin_socket to another path",
        str(path),
    )
