"""`POST /api/v1/prefix`: tells routers how much of a prompt each node has (docs/operations.md).

The caller is not authenticated, so the body, the keys and the time are limited. Nothing here counts
as a use of a page, or as a lookup by a worker.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from http import HTTPStatus
from typing import Any

from peercached.peer.directory.prefixes import Prefixes
from peercached.web.message import Request, Response, json_document, text
from peercached.web.server import Handler

KEYS_MAX = 4096
ANSWER_S = 2.0
_DIGEST_HEX = 32
_HEX = frozenset("0123456789abcdef")
_WANTED = 'a JSON object like {"namespace": "NAME", "keys": ["KEY", ...]} or {"digests": [...]}'


def prefix_routes(prefixes: Prefixes) -> dict[str, Handler]:
    async def prefix(request: Request) -> Response:
        asked = _parsed(request.body)
        names: list[str] = asked["digests" if "digests" in asked else "keys"]
        if len(names) > KEYS_MAX:
            return text(
                f"{len(names)} keys at once: {KEYS_MAX} are the limit, ask for the first ones",
                HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
            )
        if "digests" in asked:
            digests = _packed(names)
        else:
            digests = prefixes.digests(asked["namespace"], names)
        found = await prefixes.find(digests, ANSWER_S)
        nodes = [{**asdict(node), "on_disk": node.prefix - node.in_pool} for node in found.nodes]
        return json_document(
            {"schema_version": 1, "keys": len(names), "present": found.present, "nodes": nodes}
        )

    return {"/api/v1/prefix": prefix}


def _parsed(body: bytes) -> dict[str, Any]:
    """ValueError unless it has a list of texts, and a namespace for keys."""
    try:
        asked = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"the body is not JSON ({error}): send {_WANTED}") from error
    if not isinstance(asked, dict):
        raise ValueError(f"the body is a {type(asked).__name__}: send {_WANTED}")
    if ("keys" in asked) == ("digests" in asked):
        raise ValueError(f"give either keys or digests: send {_WANTED}")
    kind = "keys" if "keys" in asked else "digests"
    if kind == "keys" and (not isinstance(asked.get("namespace"), str) or not asked["namespace"]):
        raise ValueError(f"namespace is {asked.get('namespace')!r:.80}: send {_WANTED}")
    names = asked[kind]
    if not isinstance(names, list) or set(map(type, names)) - {str}:
        raise ValueError(f"{kind} is not a list of texts: send {_WANTED}")
    try:
        "".join([asked.get("namespace", ""), *names]).encode()
    except (TypeError, UnicodeEncodeError) as error:
        raise ValueError(f"namespace and {kind} are text in valid Unicode: {error}") from error
    return asked


def _packed(digests: list[str]) -> bytes:
    """ValueError names the first that is no digest."""
    joined = "".join(digests)
    if set(map(len, digests)) <= {_DIGEST_HEX} and not set(joined.lower()) - _HEX:
        return bytes.fromhex(joined)
    place, digest = next(
        (place, digest)
        for place, digest in enumerate(digests)
        if len(digest) != _DIGEST_HEX or set(digest.lower()) - _HEX
    )
    raise ValueError(
        f"digest {place} is {digest!r:.80}: {_DIGEST_HEX} hex digits, as `peercachectl locate` "
        "shows them"
    )
