"""The calls of the Admin service, by name, and how the daemon answers them.

Requests and replies are the serialized messages of proto/admin.proto. Some calls change the
daemon's behaviour; the others only read.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import grpc
from google.protobuf.message import DecodeError
from pydantic import BaseModel

from peercached.admin.curves import Curves
from peercached.admin.effective import EffectiveConfig
from peercached.admin.events import Events
from peercached.admin.pages import Pages
from peercached.admin.process import Process
from peercached.admin.ring import Ring
from peercached.admin.status import Located, Status
from peercached.admin.trace import Trace
from peercached.proto import admin_pb2 as pb

log = logging.getLogger(__name__)


class StatusSource(Protocol):
    """The daemon functions behind the admin calls, called on the event loop's thread. A returned
    mapping has the fields of the document named in the docstring. ValueError is an operator's
    mistake, or a call that is impossible now; its text is shown to the operator."""

    def status(self) -> Mapping[str, Any]:
        """`peercached.admin.status.Status`. Must not block."""

    async def locate(self, namespace: str, key: bytes) -> Mapping[str, Any]:
        """`peercached.admin.status.Located`."""

    def ring(self) -> Mapping[str, Any]:
        """`peercached.admin.ring.Ring`. Must not block."""

    def config(self) -> Mapping[str, Any]:
        """`peercached.admin.effective.EffectiveConfig`. Must not block."""

    def events(self, after: int) -> Mapping[str, Any]:
        """`peercached.admin.events.Events`, those with higher numbers. Must not block."""

    def curves(self) -> Mapping[str, Any]:
        """`peercached.admin.curves.Curves`. Must not block."""

    async def process(self) -> Mapping[str, Any]:
        """`peercached.admin.process.Process`."""

    async def trace(self, namespace: str, key: bytes, seconds: float) -> Mapping[str, Any]:
        """`peercached.admin.trace.Trace`, of a get that may take up to `seconds`."""

    def start_drain(self, bytes_max: int, seconds: float, stay: bool) -> None:
        """Returns at once; `status` shows the progress."""

    async def undrain(self) -> None: ...

    async def clear(self, namespace: str) -> list[str]:
        """Clears it cluster-wide. Returns the nodes that were not reached."""

    async def forget_node(self, node_id: str, listening: bool) -> list[str]:
        """Stops waiting with removals for a lost node. Returns the members that were not
        reached. `listening`: even if something takes connections at its address."""

    async def evict(self, namespace: str, keys: list[bytes]) -> tuple[int, int]:
        """Returns (pages, bytes) evicted from this node's pool."""

    async def evict_coldest(self, bytes_wanted: int | None) -> tuple[int, int]:
        """Like evict(), for the coldest pages. None: all pages."""

    async def pages(self, order: str, limit: int, namespace: str) -> Mapping[str, Any]:
        """`peercached.admin.pages.Pages`: pages of this node's pool. An empty `namespace`: of
        all."""

    async def pin(
        self,
        namespace: str,
        keys: list[bytes],
        seconds: float,
        prefix: bool,
        here: bool,
        timeout_s: float,
    ) -> tuple[list[str], str]:
        """Pins pages where they are, or brings them here. Returns (an outcome for each key, why
        some were refused)."""

    async def unpin(
        self, namespace: str, keys: list[bytes], timeout_s: float
    ) -> tuple[list[str], str]:
        """Ends pins at all holders. Returns as pin() does."""

    async def move(
        self, namespace: str, keys: list[bytes], to: str, timeout_s: float
    ) -> Mapping[str, Any]:
        """Hands pages of this node's pool to the node `to`. Returns the fields of MoveReply."""

    async def reload(self) -> tuple[list[str], list[str], list[str]]:
        """(keys changed, keys that need a restart, problems)"""


class Refusal(Exception):
    """A call that was not done: a gRPC status code, and a text for the operator."""

    def __init__(self, code: grpc.StatusCode, details: str) -> None:
        super().__init__(details)
        self.code = code
        self.details = details


@dataclass(frozen=True)
class _Call:
    request: Callable[[], Any]
    answer: Callable[[StatusSource, Any], Awaitable[Any]]
    steers: bool = False


def _json(model: type[BaseModel], fields: Mapping[str, Any]) -> str:
    return model.model_validate(dict(fields)).model_dump_json()


async def _status(source: StatusSource, request: pb.StatusRequest) -> Any:
    return pb.StatusReply(json=_json(Status, source.status()))


async def _locate(source: StatusSource, request: pb.LocateRequest) -> Any:
    found = await source.locate(request.namespace, request.key)
    return pb.LocateReply(json=_json(Located, found))


async def _ring(source: StatusSource, request: pb.RingRequest) -> Any:
    return pb.RingReply(json=_json(Ring, source.ring()))


async def _config(source: StatusSource, request: pb.ConfigRequest) -> Any:
    return pb.ConfigReply(json=_json(EffectiveConfig, source.config()))


async def _events(source: StatusSource, request: pb.EventsRequest) -> Any:
    return pb.EventsReply(json=_json(Events, source.events(request.after)))


async def _curves(source: StatusSource, request: pb.StatusRequest) -> Any:
    return pb.StatusReply(json=_json(Curves, source.curves()))


async def _process(source: StatusSource, request: pb.StatusRequest) -> Any:
    return pb.StatusReply(json=_json(Process, await source.process()))


async def _trace(source: StatusSource, request: pb.TraceRequest) -> Any:
    traced = await source.trace(request.namespace, request.key, request.seconds)
    return pb.TraceReply(json=_json(Trace, traced))


async def _drain(source: StatusSource, request: pb.DrainRequest) -> Any:
    source.start_drain(request.bytes_max, request.seconds, request.stay)
    return pb.DrainReply()


async def _undrain(source: StatusSource, request: pb.UndrainRequest) -> Any:
    await source.undrain()
    return pb.UndrainReply()


async def _clear(source: StatusSource, request: pb.ClearRequest) -> Any:
    return pb.ClearReply(unreached=await source.clear(request.namespace))


async def _forget_node(source: StatusSource, request: pb.ForgetNodeRequest) -> Any:
    unreached = await source.forget_node(request.node_id, request.listening)
    return pb.ForgetNodeReply(unreached=unreached)


async def _evict(source: StatusSource, request: pb.EvictRequest) -> Any:
    if sum((bool(request.keys), request.bytes > 0, request.all)) != 1:
        raise ValueError("say which pages should go: keys, or how many bytes, or all")
    if request.keys:
        pages, size = await source.evict(request.namespace, list(request.keys))
    else:
        pages, size = await source.evict_coldest(None if request.all else request.bytes)
    return pb.EvictReply(pages=pages, bytes=size)


async def _pages(source: StatusSource, request: pb.PagesRequest) -> Any:
    found = await source.pages(request.order, request.limit, request.namespace)
    return pb.PagesReply(json=_json(Pages, found))


async def _pin(source: StatusSource, request: pb.PinRequest) -> Any:
    outcomes, why_not = await source.pin(
        request.namespace,
        list(request.keys),
        request.seconds,
        request.prefix,
        request.here,
        request.timeout_s,
    )
    return pb.PinReply(outcomes=outcomes, why_not=why_not)


async def _unpin(source: StatusSource, request: pb.UnpinRequest) -> Any:
    outcomes, why_not = await source.unpin(request.namespace, list(request.keys), request.timeout_s)
    return pb.PinReply(outcomes=outcomes, why_not=why_not)


async def _move(source: StatusSource, request: pb.MoveRequest) -> Any:
    moved = await source.move(request.namespace, list(request.keys), request.to, request.timeout_s)
    return pb.MoveReply(**moved)


async def _reload(source: StatusSource, request: pb.ReloadRequest) -> Any:
    changed, needs_restart, problems = await source.reload()
    return pb.ReloadReply(changed=changed, needs_restart=needs_restart, problems=problems)


CALLS: dict[str, _Call] = {
    "Status": _Call(pb.StatusRequest, _status),
    "Locate": _Call(pb.LocateRequest, _locate),
    "Ring": _Call(pb.RingRequest, _ring),
    "Config": _Call(pb.ConfigRequest, _config),
    "Events": _Call(pb.EventsRequest, _events),
    # Their messages are like those of Status: an empty request, and a document.
    "Curves": _Call(pb.StatusRequest, _curves),
    "Process": _Call(pb.StatusRequest, _process),
    "Trace": _Call(pb.TraceRequest, _trace),
    "Pages": _Call(pb.PagesRequest, _pages),
    "Pin": _Call(pb.PinRequest, _pin, steers=True),
    "Unpin": _Call(pb.UnpinRequest, _unpin, steers=True),
    "Move": _Call(pb.MoveRequest, _move, steers=True),
    "Clear": _Call(pb.ClearRequest, _clear, steers=True),
    "ForgetNode": _Call(pb.ForgetNodeRequest, _forget_node, steers=True),
    "Evict": _Call(pb.EvictRequest, _evict, steers=True),
    "Drain": _Call(pb.DrainRequest, _drain, steers=True),
    "Undrain": _Call(pb.UndrainRequest, _undrain, steers=True),
    "Reload": _Call(pb.ReloadRequest, _reload, steers=True),
}


async def answer(source: StatusSource, method: str, packed: bytes, asker: str) -> bytes:
    """The reply's bytes, or Refusal. `asker` is only logged."""
    call = CALLS.get(method)
    if call is None:
        raise Refusal(grpc.StatusCode.UNIMPLEMENTED, f"it does not know the call {method!r}")
    request = call.request()
    try:
        request.ParseFromString(packed)
    except DecodeError as error:
        raise Refusal(grpc.StatusCode.INVALID_ARGUMENT, f"{method}: {error}") from error
    if call.steers:
        log.warning("admin command %s, requested by %s", method.lower(), asker)
    try:
        return bytes((await call.answer(source, request)).SerializeToString())
    except Exception as error:
        raise _refusal(method, error) from error


def _refusal(method: str, error: Exception) -> Refusal:
    """INVALID_ARGUMENT for the operator's mistakes. Other errors are bugs: logged with a
    traceback."""
    # pydantic's ValidationError is a ValueError too, but it means a bug in our documents.
    if isinstance(error, ValueError) and type(error).__module__.split(".")[0] != "pydantic_core":
        return Refusal(grpc.StatusCode.INVALID_ARGUMENT, str(error))
    log.error("admin call %s failed", method, exc_info=error)
    return Refusal(
        grpc.StatusCode.INTERNAL, f"{type(error).__name__}: {error} (traceback in the daemon's log)"
    )
