"""A node's summary for the cluster overview: a few hundred bytes of JSON."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

from peercached.admin.status import Health, Status
from peercached.health.kind import SEVERITIES
from peercached.node_status import NodeStatus

HEALTH_MAX = 5
CODE_LENGTH_MAX = 40
SENTENCE_LENGTH_MAX = 400


class _Part(BaseModel):
    """Other versions may send more or fewer fields."""

    model_config = ConfigDict(extra="ignore")


class Said(_Part):
    """A health sentence."""

    code: str = ""
    severity: str = "warning"
    sentence: str = ""
    remedy: str = ""


class Summary(_Part):
    """Counters since the start of the daemon; bytes; seconds."""

    version: str = ""
    role: str = "full"
    uptime_s: float = 0.0
    pool_capacity_bytes: int = 0
    pool_used_bytes: int = 0
    pool_keys: int = 0
    pool_adopted_bytes: int = 0  # of pages from other nodes or the store
    pool_evictions: int = 0
    pool_given: int = 0  # pages that went to other nodes, by spill or otherwise
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
    rdma_bytes: int = 0  # read from peers
    tcp_bytes: int = 0
    served_bytes: int = 0  # to peers over TCP; the holder does not see one-sided READs
    asked: int = 0  # keys that workers looked for (Demand in admin/status.py)
    found: dict[str, int] = {}  # by tier
    evicted: dict[str, int] = {}  # that a larger pool would have kept
    tokens_asked: int = 0
    tokens_found: int = 0
    health: list[Said] = []  # worst first
    health_more: int = 0  # sentences left out


def own_summary(node: NodeStatus) -> Summary:
    return summary_of(Status.model_validate(node.document()))


def summary_of(status: Status) -> Summary:
    counted, demand = status.operations, status.demand
    rdma_bytes = sum(rail.bytes for rail in status.transport.rails)
    read_bytes = sum(peer.bytes for peer in status.transfer)
    said = sorted(status.health, key=lambda one: SEVERITIES.index(one.severity))
    return Summary(
        version=status.node.version,
        role=status.node.role,
        uptime_s=status.node.uptime_s,
        pool_capacity_bytes=status.pool.capacity_bytes,
        pool_used_bytes=status.pool.used_bytes,
        pool_keys=status.pool.keys,
        pool_adopted_bytes=status.pool.adopted_bytes,
        pool_evictions=status.pool.evictions,
        pool_given=status.pool.given,
        disk_enabled=bool(status.disk.state),
        disk_capacity_bytes=status.disk.size_bytes,
        disk_used_bytes=status.disk.used_bytes,
        disk_keys=status.disk.pages,
        workers=len(status.workers),
        protocol=status.transport.protocol,
        drain=status.drain.state,
        set_pages=counted.set.get("ok", 0),
        set_bytes=counted.bytes_set,
        get_bytes=counted.bytes_got,
        rdma_bytes=rdma_bytes,
        tcp_bytes=max(read_bytes - rdma_bytes, 0),
        served_bytes=status.tcp_server.bytes,
        asked=demand.asked,
        found=demand.found,
        evicted=demand.evicted,
        tokens_asked=demand.tokens_asked,
        tokens_found=demand.tokens_found,
        health=[_short(one) for one in said[:HEALTH_MAX]],
        health_more=max(0, len(said) - HEALTH_MAX),
    )


def _short(one: Health) -> Said:
    return Said(
        code=one.code[:CODE_LENGTH_MAX],
        severity=one.severity,
        sentence=one.sentence[:SENTENCE_LENGTH_MAX],
        remedy=one.remedy[:SENTENCE_LENGTH_MAX],
    )
