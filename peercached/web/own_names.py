"""The names that a browser may use for this daemon.

A web page may make its own name resolve to this daemon's address (DNS rebinding). The browser of
its reader then lets the page read our answers. It still sends the page's name in the `Host` header.
"""

from __future__ import annotations

import contextlib
import ipaddress
import socket
from collections.abc import Iterable, Set
from pathlib import Path
from urllib.parse import urlsplit


def own_names(configured: Iterable[str], resolver: Path = Path("/etc/resolv.conf")) -> set[str]:
    """localhost, this host's name, also within its DNS domains, and configured names. Asks no
    network."""
    short, _, domain = socket.gethostname().partition(".")
    domains = {domain}
    with contextlib.suppress(OSError):
        for line in resolver.read_text(errors="replace").splitlines():
            key, *rest = line.split() or [""]
            if key in ("search", "domain"):
                domains.update(rest)
    here = {short, *(f"{short}.{one.strip('.')}" for one in domains if one.strip("."))}
    return {name.lower().rstrip(".") for name in {"localhost", *here, *configured}}


def is_own(host: str, names: Set[str]) -> bool:
    """Whether a `Host` header has an address, or one of these names."""
    try:
        name = (urlsplit(f"//{host}").hostname or "").rstrip(".")
    except ValueError:
        return False
    if name in names:
        return True
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
