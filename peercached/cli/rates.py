"""Rates between two status documents, for `peercachectl top`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from peercached.admin.status import Status


@dataclass(frozen=True)
class PeerRate:
    """READs from one peer's pool, per second."""

    node_id: str
    engine: str
    pages: float
    bytes: float
    errors: float


@dataclass(frozen=True)
class Rates:
    """Rates per second. `hit_rate` is the share of the keys looked for that were found, and
    `hit_rate_if` the same for a larger pool ("2x", "4x"). None, or absent: nobody looked."""

    seconds: float
    asked_keys: float = 0.0
    hit_rate: float | None = None
    hit_rate_if: dict[str, float] = field(default_factory=dict)
    found_keys: dict[str, float] = field(default_factory=dict)  # by tier
    found_tokens: float = 0.0
    get_pages: float = 0.0
    local_pages: float = 0.0
    remote_pages: float = 0.0
    misses: dict[str, float] = field(default_factory=dict)  # by reason
    set_pages: float = 0.0
    bytes_got: float = 0.0
    bytes_set: float = 0.0
    bytes_served: float = 0.0  # to peers over TCP; with RDMA the device serves them unseen
    evictions: float = 0.0
    given: float = 0.0  # pages that went to other nodes, by spill or otherwise
    peers: list[PeerRate] = field(default_factory=list)  # busiest first


def between(before: Status, after: Status, seconds: float) -> Rates:
    """Rates from `before` to `after`. After a restart, rates since the new process's start."""
    if before.node.incarnation != after.node.incarnation or seconds <= 0:
        before = Status()
        seconds = max(after.node.uptime_s, 1e-3)

    def rate(now: Any, then: Any) -> float:
        return max(int(now or 0) - int(then or 0), 0) / seconds

    now, past = after.operations, before.operations
    gets = {name: rate(n, past.get.get(name)) for name, n in now.get.items()}
    sets = {name: rate(n, past.set.get(name)) for name, n in now.set.items()}
    sought, sought_before = after.demand, before.demand
    asked = rate(sought.asked, sought_before.asked)
    found = {tier: rate(n, sought_before.found.get(tier)) for tier, n in sought.found.items()}
    found_all = sum(found.values())
    then = {(peer.node_id, peer.incarnation): peer for peer in before.transfer}
    peers = []
    for peer in after.transfer:
        old = then.get((peer.node_id, peer.incarnation))
        peers.append(
            PeerRate(
                peer.node_id,
                peer.engine,
                rate(peer.pages, old and old.pages),
                rate(peer.bytes, old and old.bytes),
                rate(peer.errors, old and old.errors),
            )
        )
    return Rates(
        seconds=seconds,
        asked_keys=asked,
        hit_rate=found_all / asked if asked else None,
        hit_rate_if={
            size: (found_all + rate(n, sought_before.evicted.get(size))) / asked
            for size, n in sought.evicted.items()
            if asked
        },
        found_keys=found,
        found_tokens=rate(sought.tokens_found, sought_before.tokens_found),
        get_pages=sum(gets.values()),
        local_pages=rate(now.get_local, past.get_local),
        remote_pages=rate(now.get_remote, past.get_remote),
        misses={name: n for name, n in gets.items() if name != "ok" and n},
        set_pages=sum(sets.values()),
        bytes_got=rate(now.bytes_got, past.bytes_got),
        bytes_set=rate(now.bytes_set, past.bytes_set),
        bytes_served=rate(after.tcp_server.bytes, before.tcp_server.bytes),
        evictions=rate(after.pool.evictions, before.pool.evictions),
        given=rate(after.pool.given, before.pool.given),
        peers=sorted(peers, key=lambda peer: -peer.bytes),
    )
