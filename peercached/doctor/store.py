"""Whether the object store answers: as the daemon here says, or by a listing of our own."""

from __future__ import annotations

import asyncio
from pathlib import Path
from urllib.parse import unquote

from peercached.admin.status import Cold
from peercached.cold.marker import FOLDER, NAME
from peercached.cold.requests import Requests, StoreError
from peercached.doctor.finding import Finding

_NAMES_MAX = 1 << 17
_OWN_ENVIRONMENT = "This shell may have other variables than the daemon's unit (docs/cold-tier.md)."


def check_store(url: str, daemon: Cold | None) -> list[Finding]:
    """`daemon`: what the daemon on this host says of the store; None: none runs. The credentials
    are in its environment, so its word counts."""
    if not url or (daemon is not None and daemon.failure):  # its health has the sentence
        return []
    if daemon is not None:
        known = f"{daemon.pages} pages in {daemon.objects} objects"
        return [Finding("store", "ok", f"{url} answers the daemon, which knows {known}")]
    if url.startswith("file://") and not (folder := Path(unquote(url[7:]))).is_dir():
        remedy = "Mount or make it, for the daemon's user, or correct cold_store."
        return [Finding("store", "failure", f"there is no folder {folder}", remedy)]
    return [asyncio.run(_listed(url))]


async def _listed(url: str) -> Finding:
    try:
        requests = Requests(url, 10)
    except RuntimeError as error:
        text, _, remedy = str(error).partition(": install ")
        remedy = f"Install {remedy}." if remedy else _OWN_ENVIRONMENT
        return Finding("store", "failure", text, remedy)
    try:
        names = await requests.names(FOLDER, "", _NAMES_MAX)
    except StoreError as error:
        remedies = [remedy for _, remedy in requests.failures.values()]
        remedy = " ".join([*remedies, _OWN_ENVIRONMENT]).strip()
        return Finding("store", "failure", f"{url}: {error}", remedy)
    finally:
        requests.stop()
    is_used = any(map(NAME.fullmatch, names))
    known = "a cluster has used it" if is_used else "no cluster has used it yet"
    return Finding("store", "ok", f"{url} can be listed: {known}")
