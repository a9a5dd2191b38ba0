"""A node's own records in its own shard: repaired after a change, with bounded memory."""

from collections.abc import Callable
from typing import Any, cast

import pytest
from harness.fake_engine import (
    WITHDRAW,
    FakeEngine,
    FakeNative,
    build_ring,
    digest_of,
    unpack_rows,
)

from peercached.directory import local as local_module
from peercached.directory.layout import ROW_BYTES, SELF
from peercached.directory.local import LocalShard


class Own:
    def __init__(self) -> None:
        self.engine = FakeEngine()
        self.engine.set_ring(*build_ring({"a": SELF}), 1)
        self.refusals: list[bool] = []
        self.shard = LocalShard(
            cast(Any, self.engine), FakeNative(), lambda: self.refusals.append(True)
        )

    def set(self, name: str) -> None:
        self.shard.apply(self.engine.set_page(digest_of(name)))

    def scan_once(self) -> bool:
        want = self.shard.wanted()
        if want is None:
            return False
        self.shard.scanning(want)
        if want.mask:
            as_of, rows = self.engine.pool_rows(SELF, want.mask)
            self.shard.give_rows(want.attempt, as_of, dict(FakeNative.split_buckets(rows)))
        else:
            as_of, summaries = self.engine.pool_summaries()
            self.shard.give_summary(want.attempt, as_of, summaries.get(SELF, b""))
        return True

    @property
    def whole(self) -> bool:
        return {digest for digest, _ in self.engine.shard} == set(self.engine.pool)


def test_scan_restores_missing_shard_records_from_the_pool() -> None:
    own = Own()
    for number in range(20):
        own.set(f"page {number}")
    own.engine.lose_records()
    own.shard.set_view(3)
    while own.scan_once():
        pass
    assert own.whole
    assert own.shard.in_sync_for == 3


def test_echo_kept_during_a_scan_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """During a slow scan many sets may arrive. Instead of keeping all of them the scan restarts."""
    monkeypatch.setattr(local_module, "ECHO_BYTES_MAX", 4 * ROW_BYTES)
    own = Own()
    own.engine.set_page(digest_of("lost"))  # its record did not reach the shard
    own.shard.set_view(3)
    assert own.scan_once()
    want = own.shard.wanted()
    assert want is not None
    assert want.mask
    own.shard.scanning(want)
    for number in range(50):
        own.set(f"page {number}")
        assert own.shard._echo_bytes <= 5 * ROW_BYTES
    as_of, rows = own.engine.pool_rows(SELF, want.mask)
    own.shard.give_rows(want.attempt, as_of, dict(FakeNative.split_buckets(rows)))
    assert own.shard.in_sync_for != 3, "that scan was given up"
    while own.scan_once():
        pass
    assert own.whole
    assert own.shard.in_sync_for == 3


def test_own_refused_record_ends_sync_until_the_shard_has_room() -> None:
    own = Own()
    own.shard.set_view(3)
    while own.scan_once():
        pass
    assert own.shard.in_sync_for == 3
    own.engine.shard_capacity = 5
    for number in range(8):
        own.set(f"page {number}")
    assert own.shard.refused_full == 3
    assert own.refusals
    assert own.shard.in_sync_for != 3

    def check(now: float) -> None:
        own.shard.check(now)
        while own.scan_once():
            pass

    check(1.0)
    check(7.0)
    assert own.shard.resyncs == 2
    assert own.shard.in_sync_for != 3, "it was in vain"
    own.engine.shard_capacity = 100
    check(8.0)
    check(100.0)
    assert own.whole
    assert own.shard.in_sync_for == 3


def test_withdrawn_records_do_not_reappear_after_a_scan(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    own = Own()
    scanned, short_lived = digest_of("scanned"), digest_of("short-lived")
    own.engine.set_page(scanned)  # its record did not reach the shard
    own.shard.resync()
    assert not own.shard.exact
    assert own.scan_once()
    want = own.shard.wanted()
    assert want is not None
    own.shard.scanning(want)
    own.shard.apply(own.engine.set_page(short_lived))
    as_of, rows = own.engine.pool_rows(SELF, want.mask)
    for digest in (scanned, short_lived):
        own.shard.apply(own.engine.drop_page(digest))
    given: list[bytes] = []

    def looked_after(change: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any) -> Any:
            result = change(*args)
            assert not [row for row in unpack_rows(args[-1]) if not row[-1] & WITHDRAW]
            given.append(own.engine.shard_lookup(scanned + short_lived))
            return result

        return call

    for name in ("shard_apply", "shard_replace"):
        monkeypatch.setattr(own.engine, name, looked_after(getattr(own.engine, name)))
    own.shard.give_rows(want.attempt, as_of, dict(FakeNative.split_buckets(rows)))
    assert given
    assert not any(given)
    assert own.shard.exact
