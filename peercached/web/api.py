"""The JSON documents for the dashboard and for scripts: docs/operations.md."""

from __future__ import annotations

from dataclasses import asdict
from http import HTTPStatus
from typing import Any

from peercached.admin.calls import Refusal, document
from peercached.data_plane.latencies import Latencies
from peercached.overview.overview import Overview
from peercached.peer.server.relay import Relay
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

    async def own(method: str, **fields: Any) -> dict[str, Any]:
        return (await document(source, method, **fields)).model_dump(mode="json")

    def of_any_node(method: str) -> Handler:
        async def ask(asked: Request) -> Response:
            node_id = asked.arguments.get("node")
            if node_id is None:
                return json_document(await own(method))
            try:
                packed = await relay.ask_for_web(node_id, method, ANSWER_S)
            except Refusal as refusal:
                return text(str(refusal), HTTPStatus.BAD_GATEWAY)
            return Response(pb.StatusReply.FromString(packed).json.encode(), JSON)

        return ask

    async def node(_: Request) -> Response:
        shown = await own("Status")
        # The endpoint is unauthenticated, and a namespace may contain a tenant's salt.
        if not shows_names:
            for part, field in (
                ("workers", "namespace"),
                ("namespaces", "name"),
                ("quotas", "namespace"),
            ):
                for one in shown[part]:
                    del one[field]
        # By its name, a guess at a weak secret could be checked.
        for name in ("secret", "secrets_also_accepted"):
            shown["security"].pop(name, None)
        shown["latencies"] = [asdict(latency) for latency in latencies.now()]
        return json_document(shown)

    async def whole(_: Request) -> Response:
        return Response(await overview.json_for_web(), JSON)

    async def look_up(request: Request) -> Response:
        asked = request.arguments
        for name in ("namespace", "key"):
            if not asked.get(name):
                raise ValueError(f"{name} is missing: /api/v1/locate?namespace=NAME&key=KEY")
        namespace, key = asked["namespace"], asked["key"].encode()
        return json_document(await own("Locate", namespace=namespace, key=key))

    async def seen(asked: Request) -> Response:
        after = asked.arguments.get("after", "0")
        if not (after.isascii() and after.isdigit() and len(after) < 20):
            raise ValueError(f"after is {after!r}: the number of the last event known")
        return json_document(await own("Events", after=int(after)))

    return {
        "/api/v1/node": node,
        "/api/v1/cluster": whole,
        "/api/v1/events": seen,
        "/api/v1/curves": of_any_node("Curves"),
        "/api/v1/process": of_any_node("Process"),
        "/api/v1/locate": look_up,
    }
