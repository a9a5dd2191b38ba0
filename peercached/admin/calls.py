"""The calls of the Admin service (proto/admin.proto), by name, and how the daemon answers them.

A `source` answers them (peercached/operations.py). It has a method for each call: `forget_node` for
ForgetNode. The method runs on the event loop's thread. It takes the request's fields by name and
returns the reply's fields, or those of the document that the reply carries as JSON. ValueError is
an operator's mistake, or a call that is impossible now; its text is shown to the operator.
"""

from __future__ import annotations

import inspect
import logging
import re
from collections.abc import Mapping
from typing import Any

import grpc
from google.protobuf.descriptor_pb2 import MethodOptions
from google.protobuf.message import DecodeError, Message
from google.protobuf.message_factory import GetMessageClass
from pydantic import BaseModel

from peercached.admin.curves import Curves
from peercached.admin.effective import EffectiveConfig
from peercached.admin.events import Events
from peercached.admin.hints import HintOutcomes
from peercached.admin.pages import Pages
from peercached.admin.process import Process
from peercached.admin.ring import Ring
from peercached.admin.status import Located, Status
from peercached.admin.trace import Trace
from peercached.proto import admin_pb2 as pb

log = logging.getLogger(__name__)

SERVICE = pb.DESCRIPTOR.services_by_name["Admin"]
CALLS = SERVICE.methods_by_name

# By call: the document in its reply.
_DOCUMENTS: dict[str, type[BaseModel]] = {
    "Status": Status,
    "Locate": Located,
    "Ring": Ring,
    "Config": EffectiveConfig,
    "Events": Events,
    "Curves": Curves,
    "Process": Process,
    "Trace": Trace,
    "Pages": Pages,
    "Hint": HintOutcomes,
}


class Refusal(Exception):
    """A call that was not done: a gRPC status code, and a text for the operator."""

    def __init__(self, code: grpc.StatusCode, details: str) -> None:
        super().__init__(details)
        self.code = code
        self.details = details


def steers(method: str) -> bool:
    """Whether the call changes the daemon's behaviour."""
    level = CALLS[method].GetOptions().idempotency_level
    return bool(level != MethodOptions.NO_SIDE_EFFECTS)


async def answer(source: Any, method: str, packed: bytes, asker: str) -> bytes:
    """The reply's bytes, or Refusal. `asker` is only logged."""
    if (call := CALLS.get(method)) is None:
        raise Refusal(grpc.StatusCode.UNIMPLEMENTED, f"it does not know the call {method!r}")
    request = GetMessageClass(call.input_type)()
    try:
        request.ParseFromString(packed)
    except DecodeError as error:
        raise Refusal(grpc.StatusCode.INVALID_ARGUMENT, f"{method}: {error}") from error
    if steers(method):
        log.warning("admin command %s, requested by %s", method.lower(), asker)
    try:
        if method in _DOCUMENTS:
            found = await document(source, method, **_fields(request))
            fields: Mapping[str, Any] = {"json": found.model_dump_json()}
        else:
            fields = await _found(source, method, **_fields(request))
        return GetMessageClass(call.output_type)(**fields).SerializeToString()
    except Exception as error:
        raise _refusal(method, error) from error


async def document(source: Any, method: str, **fields: Any) -> BaseModel:
    """The document that this call returns."""
    return _DOCUMENTS[method].model_validate(dict(await _found(source, method, **fields)))


async def _found(source: Any, method: str, **fields: Any) -> Mapping[str, Any]:
    found = getattr(source, operation_of(method))(**fields)
    return (await found if inspect.isawaitable(found) else found) or {}


def operation_of(method: str) -> str:
    """The name of the source's method for that call."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", method).lower()


def _fields(request: Message) -> dict[str, Any]:
    values = {field.name: getattr(request, field.name) for field in request.DESCRIPTOR.fields}
    return {
        name: value if isinstance(value, bytes | str | int | float) else list(value)
        for name, value in values.items()
    }


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
