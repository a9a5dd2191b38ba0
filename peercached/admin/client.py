"""Asks a daemon on this host through its admin socket, and says plainly why it could not."""

from __future__ import annotations

import grp
import os
import socket
import stat
from pathlib import Path
from typing import Any, TypeVar

import grpc
from pydantic import ValidationError

from peercached import __version__
from peercached.admin.ring import Ring
from peercached.admin.status import SCHEMA_VERSION, Located, Status
from peercached.proto import admin_pb2, admin_pb2_grpc

_REPLY_BYTES_MAX = 64 << 20

_Document = TypeVar("_Document", Status, Located, Ring)


class Unreachable(Exception):
    """No daemon answers there; the text says why, and what to do."""


class Refused(Exception):
    """The daemon answered that it cannot do this; the text is for the operator."""


class AdminClient:
    """One connection; a context manager. Raises Unreachable and Refused, nothing else of gRPC."""

    def __init__(self, path: str, timeout_s: float = 5.0) -> None:
        check_socket(path, "admin socket", "admin_socket")
        self._path = path
        self._timeout_s = timeout_s
        self._channel = grpc.insecure_channel(
            f"unix:{Path(path).absolute()}",
            options=[
                ("grpc.max_receive_message_length", _REPLY_BYTES_MAX),
                ("grpc.enable_http_proxy", 0),
            ],
        )
        self._stub: Any = admin_pb2_grpc.AdminStub(self._channel)  # type: ignore[no-untyped-call]

    def __enter__(self) -> AdminClient:
        return self

    def __exit__(self, *_: object) -> None:
        self._channel.close()

    def status(self) -> Status:
        """The daemon's whole status."""
        reply = self._call(self._stub.Status, admin_pb2.StatusRequest())
        return self._parse(Status, reply.json)

    def locate(self, namespace: str, key: bytes) -> Located:
        """What the cluster knows of a key."""
        request = admin_pb2.LocateRequest(namespace=namespace, key=key)
        return self._parse(Located, self._call(self._stub.Locate, request).json)

    def ring(self) -> Ring:
        """Who owns which part of the digests, and how far the records have come."""
        return self._parse(Ring, self._call(self._stub.Ring, admin_pb2.RingRequest()).json)

    def drain(self, bytes_max: int, seconds: float, stay: bool) -> None:
        """Begins; `status().drain` shows how far it is."""
        request = admin_pb2.DrainRequest(bytes_max=bytes_max, seconds=seconds, stay=stay)
        self._call(self._stub.Drain, request)

    def undrain(self) -> None:
        """Takes sets again."""
        self._call(self._stub.Undrain, admin_pb2.UndrainRequest())

    def clear(self, namespace: str) -> list[str]:
        """Clears a namespace cluster-wide; the nodes that were not reached."""
        request = admin_pb2.ClearRequest(namespace=namespace)
        return list(self._call(self._stub.Clear, request).unreached)

    def _call(self, method: Any, request: Any) -> Any:
        try:
            return method(request, timeout=self._timeout_s)
        except grpc.RpcError as error:
            code, details = error.code(), error.details()
        if code == grpc.StatusCode.DEADLINE_EXCEEDED:
            raise Unreachable(
                f"the daemon at {self._path} did not answer within {self._timeout_s:g} s: it hangs "
                "or is stopped; look at its log, or give --timeout more seconds"
            )
        if code == grpc.StatusCode.UNAVAILABLE:
            raise Unreachable(
                f"the daemon at {self._path} went away ({details}): see its log, and try again"
            )
        if code == grpc.StatusCode.UNIMPLEMENTED:
            raise Refused(self._skew(f"it does not know this call ({details})"))
        raise Refused(str(details))

    def _parse(self, model: type[_Document], text: str) -> _Document:
        try:
            document = model.model_validate_json(text)
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(map(str, first["loc"])) or "its answer"
            raise Refused(self._skew(f"{where}: {first['msg']}")) from None
        if document.schema_version > SCHEMA_VERSION:
            raise Refused(
                self._skew(f"it speaks schema {document.schema_version}, not {SCHEMA_VERSION}")
            )
        return document

    def _skew(self, what: str) -> str:
        return (
            f"the daemon at {self._path} is of another version than this peercachectl "
            f"{__version__}: {what}; use the peercachectl that was installed with the daemon"
        )


def check_socket(path: str, name: str, key: str) -> None:
    """Unreachable, with the reason, unless somebody listens at `path`.

    gRPC and the worker's client say "unavailable" or "miss" to all of these alike.
    """
    with socket.socket(socket.AF_UNIX) as probe:
        probe.settimeout(2.0)
        try:
            probe.connect(path)
            return
        except FileNotFoundError:
            reason = (
                f"there is no {name} at {path}: start peercached, or say where its socket is with "
                f"--{key.replace('_path', '').replace('_', '-')} or --config"
            )
        except PermissionError:
            reason = f"you may not open the {name} {path}: {_who_may(path)}"
        except ConnectionRefusedError:
            reason = f"nobody listens at the {name} {path}: its daemon has died; start peercached"
        except TimeoutError:
            reason = f"the daemon at {path} takes no connections: it hangs or is stopped"
        except OSError as error:
            reason = f"the {name} {path} cannot be used: {error.strerror or error}"
    raise Unreachable(reason)


def _who_may(path: str) -> str:
    try:
        status = os.stat(path)  # noqa: PTH116 - the folder may be closed; one way to ask is enough
    except OSError:
        return f"its folder is closed to {os.geteuid()}; become the daemon's user, or root"
    try:
        group = grp.getgrgid(status.st_gid).gr_name
    except KeyError:
        group = str(status.st_gid)
    if stat.S_IMODE(status.st_mode) & 0o020:
        return f"join the group {group} (then log in again), or become root"
    return "only its owner may; become the daemon's user, or root"
