"""The Admin service (proto/admin.proto) on this host's admin socket.

Whoever may open the socket is an operator: its mode (0660, from the moment it exists) is the
only check. The service knows nothing of the daemon but a `StatusSource`.
"""

from __future__ import annotations

import errno
import logging
import os
import socket
import stat
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

import grpc
import grpc.aio

from peercached.admin.ring import Ring
from peercached.admin.status import Located, Status
from peercached.proto import admin_pb2, admin_pb2_grpc

_log = logging.getLogger(__name__)

_STOP_GRACE_S = 1.0
_REQUEST_BYTES_MAX = 1 << 20
_PEER = struct.Struct("3i")  # ucred: pid, uid, gid


class StatusSource(Protocol):
    """What the composition root lets operators see and do. Called on the event loop's thread."""

    def status(self) -> Mapping[str, Any]:
        """The fields of `peercached.admin.status.Status`. Must not block."""

    async def locate(self, namespace: str, key: bytes) -> Mapping[str, Any]:
        """The fields of `peercached.admin.status.Located`. ValueError for a bad key."""

    def ring(self) -> Mapping[str, Any]:
        """The fields of `peercached.admin.ring.Ring`. Must not block."""

    def start_drain(self, bytes_max: int, seconds: float, stay: bool) -> None:
        """Returns at once; `status` shows how far it is. ValueError if that cannot be."""

    async def undrain(self) -> None:
        """ValueError if it is too late."""

    async def clear(self, namespace: str) -> list[str]:
        """Clears it cluster-wide; the nodes that were not reached. ValueError for a bad name."""


class _Service(admin_pb2_grpc.AdminServicer):
    def __init__(self, source: StatusSource) -> None:
        self._source = source

    async def Status(self, request: Any, context: Any) -> Any:
        try:
            document = Status.model_validate(dict(self._source.status()))
        except Exception as error:
            await _abort(context, "status", error)
            raise
        return admin_pb2.StatusReply(json=document.model_dump_json())

    async def Locate(self, request: Any, context: Any) -> Any:
        try:
            found = await self._source.locate(request.namespace, request.key)
            document = Located.model_validate(dict(found))
        except Exception as error:
            await _abort(context, "locate", error)
            raise
        return admin_pb2.LocateReply(json=document.model_dump_json())

    async def Ring(self, request: Any, context: Any) -> Any:
        try:
            document = Ring.model_validate(dict(self._source.ring()))
        except Exception as error:
            await _abort(context, "ring", error)
            raise
        return admin_pb2.RingReply(json=document.model_dump_json())

    async def Drain(self, request: Any, context: Any) -> Any:
        try:
            self._source.start_drain(request.bytes_max, request.seconds, request.stay)
        except Exception as error:
            await _abort(context, "drain", error)
            raise
        return admin_pb2.DrainReply()

    async def Undrain(self, request: Any, context: Any) -> Any:
        try:
            await self._source.undrain()
        except Exception as error:
            await _abort(context, "undrain", error)
            raise
        return admin_pb2.UndrainReply()

    async def Clear(self, request: Any, context: Any) -> Any:
        try:
            unreached = await self._source.clear(request.namespace)
        except Exception as error:
            await _abort(context, "clear", error)
            raise
        return admin_pb2.ClearReply(unreached=unreached)


async def _abort(context: Any, call: str, error: Exception) -> None:
    """Ends the call with the operator's mistake, or with ours (and a traceback in the log)."""
    # pydantic's ValidationError is a ValueError too, but a document that does not fit is our bug.
    if isinstance(error, ValueError) and type(error).__module__.split(".")[0] != "pydantic_core":
        await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
    _log.error("admin call %s failed", call, exc_info=error)
    await context.abort(
        grpc.StatusCode.INTERNAL, f"{type(error).__name__}: {error} (traceback in the daemon's log)"
    )


class AdminServer:
    """Serves one `StatusSource` until stopped; the socket is there only in between."""

    def __init__(self, path: str, source: StatusSource) -> None:
        self._path = Path(path)
        self._source = source
        self._server: grpc.aio.Server | None = None

    async def start(self) -> None:
        """Binds and serves. OSError naming the path, with the remedy."""
        _make_way(self._path)
        server = grpc.aio.server(
            options=[
                ("grpc.max_receive_message_length", _REQUEST_BYTES_MAX),
                ("grpc.so_reuseport", 0),
            ]
        )
        admin_pb2_grpc.add_AdminServicer_to_server(_Service(self._source), server)  # type: ignore[no-untyped-call]
        # Under the umask, so that the socket is never open to others, not even for a moment.
        before = os.umask(0o117)
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

    async def stop(self) -> None:
        """Ends calls within a second and removes the socket."""
        if self._server is None:
            return
        await self._server.stop(_STOP_GRACE_S)  # gRPC removes the socket that it has bound
        self._server = None


def _make_way(path: Path) -> None:
    """Removes a dead daemon's socket, because gRPC would remove a live one's just as readily."""
    try:
        path.parent.mkdir(mode=0o750, parents=True, exist_ok=True)
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
