"""Checks whether this host can reach the ports of heads and members."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from peercached.doctor.finding import Finding
from peercached.error_text import reason
from peercached.membership.view import join_host_port
from peercached.names import addresses

CONNECT_S = 2.0
LOOKUP_S = 5.0
_AT_ONCE_MAX = 32
_NAMED_MAX = 8
_ADDRESSES_MAX = 8
_DROPPED = " (the host is down, or a firewall drops the packets)"


@dataclass(frozen=True, slots=True)
class Target:
    what: str  # "head", "peers' calls of NODE", "pages of NODE"
    host: str
    port: int


def reach(target: Target) -> str:
    """Empty if a TCP connection to one of its addresses succeeded, else the reason."""
    try:
        found = addresses(target.host, LOOKUP_S)
    except OSError as error:
        return f"the name {target.host} does not resolve ({error})"
    why = ""
    for address in found[:_ADDRESSES_MAX]:
        try:
            with socket.create_connection((address, target.port), CONNECT_S):
                return ""
        except OSError as error:
            why = f"{reason(error)}{_DROPPED if isinstance(error, TimeoutError) else ''}"
    return why


def ask(targets: Sequence[Target]) -> list[tuple[Target, str]]:
    """Tries all targets, a few at a time, each within CONNECT_S."""
    with ThreadPoolExecutor(_AT_ONCE_MAX) as pool:
        return list(zip(targets, pool.map(reach, targets), strict=True))


def check_heads(answers: Sequence[tuple[Target, str]]) -> list[Finding]:
    if not answers:
        return []
    lost = [(target, why) for target, why in answers if why]
    if not lost:
        return [Finding("heads", "ok", f"{len(answers)} of {len(answers)} can be reached")]
    return [
        Finding(
            "heads",
            "failure" if len(lost) == len(answers) else "warning",
            f"the head {join_host_port(target.host, target.port)} cannot be reached: {why}",
            "Start peercached there; else look at discovery_addr, names (DNS or /etc/hosts), "
            "routes and firewalls (TCP).",
        )
        for target, why in lost
    ]


def check_members(answers: Sequence[tuple[Target, str]]) -> list[Finding]:
    if not answers:
        return []
    lost = [(target, why) for target, why in answers if why]
    if not lost:
        return [Finding("members", "ok", f"all {len(answers)} ports of members can be reached")]
    named = "; ".join(
        f"{target.what} at {join_host_port(target.host, target.port)}: {why}"
        for target, why in lost[:_NAMED_MAX]
    )
    more = f"; and {len(lost) - _NAMED_MAX} more" if len(lost) > _NAMED_MAX else ""
    return [
        Finding(
            "members",
            "warning",
            f"{len(lost)} of {len(answers)} ports of members cannot be reached: {named}{more}",
            "Look at those daemons, and at routes and firewalls in between: meta_port and "
            "data_port, TCP.",
        )
    ]
