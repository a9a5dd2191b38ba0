"""`POST /api/v1/hints`: takes an envelope of hints from a router (docs/routers.md).

With a cluster secret the caller shows the routers' token. The body is not looked at before.
"""

from __future__ import annotations

from http import HTTPStatus

from peercached.peer.rpc.auth import Secret
from peercached.routers.servicer import TakesHints
from peercached.routers.token import HEADER, Tokens
from peercached.web.message import JSON, Request, Response, json_document, text
from peercached.web.server import Handler

_PATH = "/api/v1/hints"
_WAITS = {"0": False, "1": True}


def hint_routes(hints: TakesHints, secret: Secret, tokens: Tokens) -> dict[str, Handler]:
    async def take(request: Request) -> Response:
        why = tokens.why_not(request.headers.get(HEADER), secret.cluster)
        if why:
            refused = text(why, HTTPStatus.UNAUTHORIZED)
            return Response(
                refused.body, status=refused.status, headers={"WWW-Authenticate": "Bearer"}
            )
        # A page in a browser cannot send this type to another host without asking it before.
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind != JSON:
            return text(
                f"the body is {kind or 'of no type'}: send content-type {JSON}",
                HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
            )
        wait = request.arguments.get("wait", "0")
        if wait not in _WAITS:
            raise ValueError(f"wait is {wait!r:.80}: give 0 or 1")
        outcomes = await hints.take(request.body, wait=_WAITS[wait])
        documents = [outcome.document() for outcome in outcomes]
        return json_document({"schema_version": 1, "outcomes": documents})

    return {_PATH: take}


def closed_routes() -> dict[str, Handler]:
    async def refuse(request: Request) -> Response:
        del request
        return text("this daemon takes no hints: set router_port", HTTPStatus.NOT_FOUND)

    return {_PATH: refuse}
