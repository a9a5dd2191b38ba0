"""Calls a daemon through its admin socket, and explains connection failures."""

from __future__ import annotations

import grp
import os
import pwd
import socket
import stat
from pathlib import Path
from typing import Any, TypeVar

import grpc
from google.protobuf.message_factory import GetMessageClass
from pydantic import ValidationError

from peercached import __version__
from peercached.admin import NODE_KEY, VERSION_KEY
from peercached.admin.calls import CALLS, SERVICE
from peercached.admin.effective import EffectiveConfig
from peercached.admin.events import Events
from peercached.admin.hints import HintOutcomes
from peercached.admin.pages import Pages
from peercached.admin.process import Process
from peercached.admin.ring import Ring
from peercached.admin.status import SCHEMA_VERSION, Document, Located, Status
from peercached.admin.trace import Trace
from peercached.proto import admin_pb2 as pb

_REPLY_BYTES_MAX = 64 << 20

_Document = TypeVar("_Document", bound=Document)
# The part of the caller's timeout that a traced get, a pin or a move may use.
_OF_THE_TIMEOUT = 0.8


class Unreachable(Exception):
    """No daemon answers at the socket. The text says why, and what to do."""


class NoDaemon(Unreachable):
    """Nobody is there who could be asked."""


class Refused(Exception):
    """The daemon refused the call. The text is for the operator."""


class AdminClient:
    """One connection; a context manager. `node`: the member to ask, through the daemon of this
    host. Of gRPC's errors it raises only Unreachable and Refused."""

    def __init__(self, path: str, timeout_s: float = 5.0, node: str = "") -> None:
        check_socket(path, "admin socket", "admin_socket")
        self._path = path
        self._timeout_s = timeout_s
        self._work_s = timeout_s * _OF_THE_TIMEOUT
        self._node = node
        self._metadata = ((NODE_KEY, node.encode()),) if node else ()
        self.version = ""  # of the daemon at `path`; empty until it answers
        self._channel = grpc.insecure_channel(
            f"unix:{Path(path).absolute()}",
            options=[
                ("grpc.max_receive_message_length", _REPLY_BYTES_MAX),
                ("grpc.enable_http_proxy", 0),
            ],
        )

    def __enter__(self) -> AdminClient:
        return self

    def __exit__(self, *_: object) -> None:
        self._channel.close()

    def status(self) -> Status:
        """The daemon's whole status."""
        return self._read(Status, "Status")

    def locate(self, namespace: str, key: bytes) -> Located:
        """The owners and holders of a key."""
        return self._read(Located, "Locate", namespace=namespace, key=key)

    def ring(self) -> Ring:
        """The ring's owners and their shares, and the state of the records."""
        return self._read(Ring, "Ring")

    def config(self) -> EffectiveConfig:
        """The effective configuration, and the source of each value."""
        return self._read(EffectiveConfig, "Config")

    def events(self, after: int = 0) -> Events:
        """The events that the node saw lately, with a number above `after`."""
        return self._read(Events, "Events", after=after)

    def process(self) -> Process:
        """The daemon's threads and memory, and what it runs on."""
        return self._read(Process, "Process")

    def trace(self, namespace: str, key: bytes) -> Trace:
        """Makes the daemon get one page, and returns the time of each step."""
        seconds = min(self._work_s, 60.0)
        return self._read(Trace, "Trace", namespace=namespace, key=key, seconds=seconds)

    def drain(self, bytes_max: int, seconds: float, stay: bool) -> None:
        """Starts a drain; `status().drain` shows the progress."""
        self._call("Drain", bytes_max=bytes_max, seconds=seconds, stay=stay)

    def undrain(self) -> None:
        """Ends a drain: the node accepts sets again."""
        self._call("Undrain")

    def clear(self, namespace: str) -> list[str]:
        """Clears a namespace cluster-wide. Returns the nodes that were not reached."""
        return list(self._call("Clear", namespace=namespace).unreached)

    def forget_node(self, node_id: str, listening: bool = False) -> list[str]:
        """Stops waiting with removals for a lost node. Returns the members that were not
        reached. `listening`: even if something takes connections at its address."""
        return list(self._call("ForgetNode", node_id=node_id, listening=listening).unreached)

    def evict(self, namespace: str, keys: list[bytes]) -> pb.EvictReply:
        """Evicts these pages from the node's pool."""
        reply: pb.EvictReply = self._call("Evict", namespace=namespace, keys=keys)
        return reply

    def evict_coldest(self, bytes_wanted: int | None) -> pb.EvictReply:
        """Like evict(), for the coldest pages. None: all pages."""
        reply: pb.EvictReply = self._call(
            "Evict", coldest_bytes=bytes_wanted or 0, everything=bytes_wanted is None
        )
        return reply

    def pages(self, order: str, limit: int, namespace: str = "") -> Pages:
        """Pages of the node's pool, of one namespace or of all: "hot", or "pinned"."""
        return self._read(Pages, "Pages", order=order, limit=limit, namespace=namespace)

    def hint(self, envelope: bytes) -> HintOutcomes:
        """Hands an envelope of hints to the node, and waits for its actions."""
        return self._read(HintOutcomes, "Hint", envelope=envelope)

    def pin(
        self,
        namespace: str,
        keys: list[bytes],
        seconds: float,
        *,
        prefix: bool = False,
        here: bool = False,
    ) -> tuple[list[str], str]:
        """Pins pages at their holders, or brings them to the node and pins them there. Returns (an
        outcome for each key: ok, absent, no_space or another page status, and why some were
        refused)."""
        reply = self._call(
            "Pin",
            namespace=namespace,
            keys=keys,
            seconds=seconds,
            prefix=prefix,
            here=here,
            timeout_s=self._work_s,
        )
        return list(reply.outcomes), reply.why_not

    def unpin(self, namespace: str, keys: list[bytes]) -> tuple[list[str], str]:
        """Ends pins at all holders. An outcome is `absent` for a page that was not pinned."""
        reply = self._call("Unpin", namespace=namespace, keys=keys, timeout_s=self._work_s)
        return list(reply.outcomes), reply.why_not

    def move(self, namespace: str, keys: list[bytes], to: str) -> pb.MoveReply:
        """Hands pages of the node's pool to the node `to`."""
        reply: pb.MoveReply = self._call(
            "Move", namespace=namespace, keys=keys, to=to, timeout_s=self._work_s
        )
        return reply

    def reload(self) -> tuple[list[str], list[str], list[str]]:
        """(keys changed, keys that need a restart, problems)"""
        reply = self._call("Reload")
        return list(reply.changed), list(reply.needs_restart), list(reply.problems)

    def _call(self, method: str, **fields: Any) -> Any:
        of = CALLS[method]
        request: Any = GetMessageClass(of.input_type)(**fields)
        reply: Any = GetMessageClass(of.output_type)
        ask = self._channel.unary_unary(
            f"/{SERVICE.full_name}/{method}",
            request_serializer=type(request).SerializeToString,
            response_deserializer=reply.FromString,
        )
        try:
            answer, call = ask.with_call(request, timeout=self._timeout_s, metadata=self._metadata)
            self._note_version(call)
            return answer
        except grpc.RpcError as error:
            self._note_version(error)
            code, details = error.code(), error.details()
        if code == grpc.StatusCode.DEADLINE_EXCEEDED:
            raise Unreachable(
                f"{self._who()} did not answer within {self._timeout_s:g} s: it hangs "
                "or is stopped; look at its log, or give --timeout more seconds"
            )
        if code == grpc.StatusCode.UNAVAILABLE:
            raise Unreachable(
                f"the daemon at {self._path} went away ({details}): see its log, and try again"
            )
        if code == grpc.StatusCode.UNIMPLEMENTED:
            raise Refused(self._skew(f"it does not know this call ({details})"))
        raise Refused(str(details))

    def _note_version(self, call: Any) -> None:
        for key, value in call.trailing_metadata() or ():
            if key == VERSION_KEY:
                self.version = str(value)

    def _who(self) -> str:
        return (
            f"{self._node} (through the daemon at {self._path})"
            if self._node
            else f"the daemon at {self._path}"
        )

    def _read(self, model: type[_Document], method: str, **fields: Any) -> _Document:
        """The document of type `model` in that call's reply."""
        try:
            document = model.model_validate_json(self._call(method, **fields).json)
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
        there = f" ({self.version})" if self.version else ""
        return (
            f"{self._who()} is of another version{there} than this peercachectl {__version__}: "
            f"{what}; use the peercachectl that was installed with the daemon"
        )


def check_socket(path: str, name: str, key: str) -> None:
    """Raises Unreachable, with the reason, unless a daemon listens at `path`.

    gRPC reports "unavailable" for all these reasons, and the worker's client a miss.
    """
    with socket.socket(socket.AF_UNIX) as probe:
        probe.settimeout(2.0)
        try:
            probe.connect(path)
            return
        except FileNotFoundError:
            raise NoDaemon(
                f"there is no {name} at {path}: start peercached, or say where its socket is with "
                f"--{key.replace('_path', '').replace('_', '-')} or --config"
            ) from None
        except PermissionError:
            reason = f"you may not open the {name} {path}: {_who_may(path)}"
        except ConnectionRefusedError:
            raise NoDaemon(
                f"nobody listens at the {name} {path}: its daemon has died, or still starts: "
                "see its log"
            ) from None
        except TimeoutError:
            reason = f"the daemon at {path} takes no connections: it hangs or is stopped"
        except OSError as error:
            reason = f"the {name} {path} cannot be used: {error.strerror or error}"
    raise Unreachable(reason)


def _who_may(path: str) -> str:
    """Looks at the socket, or at its folder if that is closed to this user."""
    place, needed = Path(path), stat.S_IWGRP
    if not os.access(place.parent, os.X_OK):
        place, needed = place.parent, stat.S_IXGRP
    try:
        status = place.stat()
    except OSError:
        return "become the daemon's user, or root"
    if status.st_mode & needed:
        return f"join the group {_group(status.st_gid)} (then log in again), or become root"
    try:
        owner = pwd.getpwuid(status.st_uid).pw_name
    except KeyError:
        owner = str(status.st_uid)
    return f"only root and {owner} may (sudo -u {owner})"


def _group(number: int) -> str:
    try:
        return grp.getgrgid(number).gr_name
    except KeyError:
        return str(number)
