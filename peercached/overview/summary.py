"""What a node says of itself to those who look at the whole cluster: some hundred bytes of JSON."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict

HEALTH_MAX = 5
SENTENCE_LENGTH_MAX = 400
_SEVERITIES = ("error", "warning", "info")


class _Part(BaseModel):
    """Of a newer version there may be more, of an older one less."""

    model_config = ConfigDict(extra="ignore")


class Said(_Part):
    """A health sentence."""

    severity: str = "warning"
    sentence: str = ""
    remedy: str = ""


class Summary(_Part):
    """Counters since the start of the daemon; bytes; seconds."""

    version: str = ""
    uptime_s: float = 0.0
    pool_capacity_bytes: int = 0
    pool_used_bytes: int = 0
    pool_keys: int = 0
    pool_evictions: int = 0
    disk_enabled: bool = False
    disk_capacity_bytes: int = 0
    disk_used_bytes: int = 0
    disk_keys: int = 0
    workers: int = 0
    protocol: str = ""  # "rdma" or "tcp"
    drain: str = "no"
    set_pages: int = 0
    set_bytes: int = 0
    get_bytes: int = 0
    served_bytes: int = 0  # over TCP to peers; one-sided READs leave no trace at the holder
    hits: dict[str, int] = {}  # pages got, by tier
    misses: dict[str, int] = {}  # pages not got, by reason
    health: list[Said] = []  # the worst first
    health_more: int = 0  # sentences left out


def _at(document: Mapping[str, Any], path: str) -> Any:
    found: Any = document
    for name in path.split("."):
        found = found.get(name) if isinstance(found, Mapping) else None
    return found or 0


# Tiers as the metrics name them (metrics/traffic.py).
_TIERS = {
    "pool": "operations.get_local",
    "peer": "operations.get_remote",
    "disk": "operations.get_disk",
    "peer_disk": "operations.get_peer_disk",
}


def summary_of(status: Mapping[str, Any]) -> Summary:
    """Of a status document (admin/status.py)."""
    gets: dict[str, int] = dict(_at(status, "operations.get") or {})
    disk = _at(status, "disk") or {}
    said = sorted(status.get("health", ()), key=lambda one: _rank(one["severity"]))
    return Summary(
        version=_at(status, "node.version") or "",
        uptime_s=_at(status, "node.uptime_s"),
        pool_capacity_bytes=_at(status, "pool.capacity_bytes"),
        pool_used_bytes=_at(status, "pool.used_bytes"),
        pool_keys=_at(status, "pool.keys"),
        pool_evictions=_at(status, "pool.evictions"),
        disk_enabled=bool(disk),
        disk_capacity_bytes=_at(status, "disk.capacity_bytes"),
        disk_used_bytes=_at(status, "disk.used_bytes"),
        disk_keys=_at(status, "disk.keys"),
        workers=len(status.get("workers", ())),
        protocol=_at(status, "transport.protocol") or "",
        drain=_at(status, "drain.state") or "no",
        set_pages=_at(status, "operations.set.ok"),
        set_bytes=_at(status, "operations.bytes_set"),
        get_bytes=_at(status, "operations.bytes_got"),
        served_bytes=_at(status, "tcp_server.bytes"),
        hits={tier: int(_at(status, path)) for tier, path in _TIERS.items()},
        misses={why: count for why, count in gets.items() if why != "ok" and count},
        health=[_said(one) for one in said[:HEALTH_MAX]],
        health_more=max(0, len(said) - HEALTH_MAX),
    )


def _rank(severity: str) -> int:
    return _SEVERITIES.index(severity) if severity in _SEVERITIES else len(_SEVERITIES)


def _said(one: Mapping[str, str]) -> Said:
    return Said(
        severity=one["severity"],
        sentence=one["sentence"][:SENTENCE_LENGTH_MAX],
        remedy=one.get("remedy", "")[:SENTENCE_LENGTH_MAX],
    )


def worst(said: Iterable[Said]) -> str:
    """The severity of the worst; empty if all is well."""
    return min((one.severity for one in said), key=_rank, default="")
