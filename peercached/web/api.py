"""The JSON documents for the dashboard and for scripts: docs/operations.md."""

from __future__ import annotations

from dataclasses import asdict
from http import HTTPStatus
from typing import Any

from peercached.admin.calls import Refusal
from peercached.admin.curves import Curves
from peercached.admin.events import Events
from peercached.admin.process import Process
from peercached.admin.status import Located, Status
from peercached.data_plane.latencies import Latencies
from peercached.overview.overview import Overview
from peercached.peer.service.relay import Relay
from peercached.proto import admin_pb2 as pb
from peercached.web.message import JSON, Request, Response, json_document, text
from peercached.web.server import Handler

# How long another node may take to answer.
ANSWER_S = 5.0


def api_routes(
    source: Any,
    latencies: Latencies,
    overview: Overview,
    relay: Relay,
    shows_names: bool,
) -> dict[str, Handler]:
    """`shows_names`: readers may see the names of namespaces."""

    async def of_node(node_id: str, method: str) -> Response:
        try:
            packed = await relay.ask_for_web(node_id, method, ANSWER_S)
        except Refusal as refusal:
            return text(str(refusal), HTTPStatus.BAD_GATEWAY)
        return Response(pb.StatusReply.FromString(packed).json.encode(), JSON)

    async def node(_: Request) -> Response:
        document = Status.model_validate(dict(source.status())).model_dump(mode="json")
        # The endpoint is unauthenticated, and a namespace may contain a tenant's salt.
        if not shows_names:
            for part, field in (
                ("workers", "namespace"),
                ("namespaces", "name"),
                ("quotas", "namespace"),
            ):
                for one in document[part]:
                    del one[field]
        # By its name, a guess at a weak secret could be checked.
        for name in ("secret", "secrets_also_accepted"):
            document["security"].pop(name, None)
        document["latencies"] = [asdict(latency) for latency in latencies.now()]
        return json_document(document)

    async def whole(_: Request) -> Response:
        return json_document(await overview.document())

    async def look_up(request: Request) -> Response:
        asked = request.arguments
        for name in ("namespace", "key"):
            if not asked.get(name):
                raise ValueError(f"{name} is missing: /api/v1/locate?namespace=NAME&key=KEY")
        found = await source.locate(asked["namespace"], asked["key"].encode())
        return json_document(Located.model_validate(dict(found)).model_dump(mode="json"))

    async def seen(asked: Request) -> Response:
        after = asked.arguments.get("after", "0")
        if not (after.isascii() and after.isdigit() and len(after) < 20):
            raise ValueError(f"after is {after!r}: the number of the last event known")
        return json_document(
            Events.model_validate(dict(source.events(int(after)))).model_dump(mode="json")
        )

    async def curves(asked: Request) -> Response:
        node_id = asked.arguments.get("node")
        if node_id is None:
            return json_document(Curves.model_validate(dict(source.curves())).model_dump())
        return await of_node(node_id, "Curves")

    async def process(asked: Request) -> Response:
        node_id = asked.arguments.get("node")
        if node_id is None:
            return json_document(Process.model_validate(dict(await source.process())).model_dump())
        return await of_node(node_id, "Process")

    return {
        "/api/v1/node": node,
        "/api/v1/cluster": whole,
        "/api/v1/events": seen,
        "/api/v1/curves": curves,
        "/api/v1/process": process,
        "/api/v1/locate": look_up,
    }
