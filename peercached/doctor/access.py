"""Whether engines can do more than their work: be operators, or members of the cluster."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from peercached.config.private import DAEMON_GROUP, PRIVATE_KEYS, WORKERS_GROUP
from peercached.doctor.finding import Finding


@dataclass(frozen=True, slots=True)
class Process:
    """A worker's process. `groups`: all its gids."""

    pid: int
    name: str
    user: int
    groups: frozenset[int]


def check_members(others: Sequence[str]) -> list[Finding]:
    """`others`: users beside the daemon's own in DAEMON_GROUP."""
    return [
        Finding(
            "access",
            "warning",
            f"{user} is in the group {DAEMON_GROUP}, which may read the daemon's files",
            f"gpasswd -d {user} {DAEMON_GROUP}; if it runs an engine: usermod -aG {WORKERS_GROUP} "
            f"{user}, and restart the engine.",
        )
        for user in others
    ]


def check_readers(readers: Mapping[str, str]) -> list[Finding]:
    """`readers`: key of a private file -> who may read it, beside the daemon's user."""
    return [
        Finding(
            "access",
            "warning",
            f"{key} can be read by {who}: with it they can {PRIVATE_KEYS[key]}",
            "Give the file to the daemon's user (chown), and chmod 600 it.",
        )
        for key, who in readers.items()
    ]


def check_workers(
    workers: Sequence[Process], daemon: int, closed: Mapping[int, str]
) -> list[Finding]:
    """`daemon`: the daemon's uid; `closed`: groups that engines should not have, gid -> name. Root
    may do all, so its processes say nothing."""
    findings = []
    for worker in workers:
        if worker.user == 0:
            continue
        why = "runs as the daemon's user" if worker.user == daemon else ""
        for group in sorted(worker.groups & closed.keys()):
            why = why or f"has the group {closed[group]}"
        if why:
            text = f"the worker {worker.name} (process {worker.pid}) {why}, so it may steer the "
            text += "daemon or read its files"
            remedy = f"Run it as another user, in the group {WORKERS_GROUP} alone."
            findings.append(Finding("access", "warning", text, remedy))
    return findings
