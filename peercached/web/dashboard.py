"""The dashboard's files: a page, its scripts and styles, all served by us."""

from __future__ import annotations

from http import HTTPStatus
from pathlib import Path

from peercached.web.message import HTML, Request, Response
from peercached.web.server import Handler

_TYPES = {
    ".html": HTML,
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
}
# No inline scripts, no other origins, no frames. Inline styles, because uPlot sets them.
_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; connect-src 'self'; "
    "img-src 'self' data:; style-src 'self' 'unsafe-inline'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
}


def dashboard_routes() -> dict[str, Handler]:
    """Reads all files once, when called."""
    root = Path(__file__).with_name("static")
    found: dict[str, Handler] = {}
    for path in sorted(root.rglob("*")):
        if (kind := _TYPES.get(path.suffix)) is not None:
            response = Response(path.read_bytes(), kind, HTTPStatus.OK, _HEADERS)
            found[f"/{path.relative_to(root).as_posix()}"] = _serve(response)
    return {"/": found["/index.html"], **found}


def _serve(response: Response) -> Handler:
    async def serve(_: Request) -> Response:
        return response

    return serve
