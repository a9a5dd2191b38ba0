"""Computes rates from two status documents."""

from __future__ import annotations

from typing import Any

import pytest

from peercached.admin.status import Status
from peercached.cli.rates import between


def status(incarnation: int = 1, **fields: Any) -> Status:
    return Status.model_validate({"node": {"incarnation": incarnation, "uptime_s": 10.0}, **fields})


def gets(ok: int, absent: int, **singles: int) -> dict[str, Any]:
    return {"operations": {"get": {"ok": ok, "absent": absent}, **singles}}


def sought(asked: int, pool: int, peer: int, evicted: int) -> dict[str, Any]:
    return {"demand": {"asked": asked, "found": {"pool": pool, "peer": peer},
                       "evicted": {"2x": evicted}}}  # fmt: skip


def test_rates_are_differences_per_second() -> None:
    before = status(**gets(100, 50, get_local=60, bytes_got=1000), **sought(10, 1, 1, 0))
    after = status(
        **gets(160, 70, get_local=80, bytes_got=5000),
        **sought(110, 7, 3, 20),
        tcp_server={"bytes": 800},
        pool={"evictions": 6, "given": 8},
    )
    rates = between(before, after, 2.0)
    assert rates.get_pages == 40
    assert rates.asked_keys == 50
    assert rates.found_keys == {"pool": 3, "peer": 1}
    assert rates.hit_rate == pytest.approx(0.08)
    assert rates.hit_rate_if == {"2x": pytest.approx(0.28)}
    assert rates.misses == {"absent": 10}
    assert (rates.local_pages, rates.bytes_got) == (10, 2000)
    assert (rates.bytes_served, rates.evictions, rates.given) == (400, 3, 4)


def test_gets_of_what_exists_has_found_do_not_make_the_hit_rate() -> None:
    before = status(**gets(0, 0), **sought(0, 0, 0, 0))
    after = status(**gets(89, 0), **sought(1000, 89, 0, 0))
    assert between(before, after, 1.0).hit_rate == pytest.approx(0.089)


def test_if_nobody_looks_there_is_no_hit_rate() -> None:
    same = status(**gets(5, 5), **sought(9, 9, 0, 0))
    assert between(same, same, 1.0).hit_rate is None


def test_a_restart_counts_from_its_start() -> None:
    rates = between(status(1, **gets(1000, 0)), status(2, **gets(50, 0)), 1.0)
    assert rates.get_pages == 5


def test_peer_rates_restart_with_the_incarnation_and_sort_by_bytes() -> None:
    def peer(node_id: str, incarnation: int, size: int) -> dict[str, Any]:
        return {"node_id": node_id, "incarnation": incarnation, "engine": "tcp", "bytes": size}

    before = status(transfer=[peer("b", 1, 500), peer("c", 1, 100)])
    after = status(transfer=[peer("b", 2, 50), peer("c", 1, 300)])
    rates = between(before, after, 1.0)
    assert [(p.node_id, p.bytes) for p in rates.peers] == [("c", 200), ("b", 50)]
