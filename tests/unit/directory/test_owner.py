"""An owner may answer with finality only while every holder's records are completely in sync."""

from typing import Any, cast

import pytest
from harness.fake_engine import ROW, FakeEngine, build_ring, digest_of

from peercached.directory.layout import SELF, ZERO_SUMMARY, fingerprint_of
from peercached.directory.messages import Batch, Kind
from peercached.directory.owner import OwnerSide

HOLDER = 1


class Owner:
    """The owner's end of one holder's stream, in view 1."""

    def __init__(self, capacity: int = 100) -> None:
        self.engine = FakeEngine(capacity)
        assert self.engine.add_node("holder", 7) == HOLDER
        self.engine.set_ring(*build_ring({"owner": SELF, "holder": HOLDER}), 2)
        self.side = OwnerSide(cast(Any, self.engine))
        self.side.set_view(1, [SELF, HOLDER])
        self.side.own_records_in_sync(1)
        self.epoch = 0
        self.sequence = 0

    def send(self, kind: Kind, payload: bytes = b"", view: int = 1) -> None:
        self.sequence += 1
        self.side.batch(HOLDER, Batch(kind, self.epoch, self.sequence, view, payload))

    def hello(self) -> None:
        self.epoch += 1
        self.sequence = 0
        self.send(Kind.HELLO)

    def sync(self, view: int = 1) -> None:
        self.send(Kind.SUMMARY, ZERO_SUMMARY, view)
        self.send(Kind.SYNC_DONE, view=view)

    def final(self, view: int = 1) -> bool:
        final = self.side.final(view)
        if view == self.side._view_number:
            assert self.engine.shard_final == final, "native code goes by something else"
        return final


@pytest.fixture
def owner() -> Owner:
    made = Owner()
    assert not made.final(), "nobody has said anything yet"
    made.hello()
    assert not made.final()
    made.sync()
    assert made.final()
    return made


def test_final_only_for_a_reader_with_the_same_view(owner: Owner) -> None:
    assert not owner.final(0)
    assert not owner.final(2)


def test_not_final_after_a_new_hello_until_resynced(owner: Owner) -> None:
    """The owner may notice the end of the earlier connection later, or never."""
    owner.hello()
    assert not owner.final()
    owner.sync()
    assert owner.final()


def test_not_final_after_a_sequence_gap(owner: Owner) -> None:
    owner.sequence += 1
    owner.send(Kind.ROWS)
    assert not owner.final()


def test_not_final_after_the_connection_ends(owner: Owner) -> None:
    owner.side.closed(HOLDER, owner.epoch - 1)
    assert owner.final(), "that was the end of an earlier one"
    owner.side.closed(HOLDER, owner.epoch)
    assert not owner.final()


def test_not_final_during_a_view_change_until_resynced(owner: Owner) -> None:
    owner.side.view_changes()
    assert not owner.final()
    owner.side.set_view(2, [SELF, HOLDER])
    assert not owner.final(2)
    owner.side.own_records_in_sync(1)
    owner.sync(2)
    assert not owner.final(2), "our own pool has been compared for the view before"
    owner.side.own_records_in_sync(2)
    assert owner.final(2)


def test_sync_for_another_view_does_not_make_final(owner: Owner) -> None:
    owner.side.set_view(2, [SELF, HOLDER])
    owner.side.own_records_in_sync(2)
    owner.sync(1)
    assert not owner.final(2)
    owner.sync(2)
    assert owner.final(2)


def test_matching_fingerprint_for_this_view_makes_final(owner: Owner) -> None:
    owner.side.set_view(2, [SELF, HOLDER])
    owner.side.own_records_in_sync(2)
    owner.send(Kind.FINGERPRINT, fingerprint_of(b"x" * 4096), 2)
    assert not owner.final(2), "the holder has other records"
    owner.send(Kind.FINGERPRINT, fingerprint_of(ZERO_SUMMARY), 1)
    assert not owner.final(2), "of another view"
    owner.send(Kind.FINGERPRINT, fingerprint_of(ZERO_SUMMARY), 2)
    assert owner.final(2)


def test_pending_fingerprint_is_void_after_a_sequence_gap(owner: Owner) -> None:
    owner.send(Kind.FINGERPRINT, fingerprint_of(ZERO_SUMMARY), 2)
    owner.sequence += 1
    owner.send(Kind.ROWS)
    owner.side.set_view(2, [SELF, HOLDER])
    owner.side.own_records_in_sync(2)
    assert not owner.final(2)


def test_not_final_while_a_record_was_refused_for_room() -> None:
    owner = Owner(capacity=1)
    rows = b"".join(ROW.pack(digest_of(f"{n}"), 64, n + 1, 1, 64, 0, 1) for n in range(2))
    owner.hello()
    owner.send(Kind.SUMMARY, ZERO_SUMMARY)
    owner.send(Kind.ROWS, rows)
    owner.send(Kind.SYNC_DONE)
    assert not owner.final(), "one of the two was refused"
    owner.sync()
    assert owner.final(), "compared anew, nothing was missing"


def test_nothing_is_final_after_a_stall_until_input_is_read(owner: Owner) -> None:
    """Native threads give final answers only while the control plane keeps renewing this."""
    side, engine = owner.side, owner.engine
    for now in (10.0, 10.1, 10.2):
        side.tend(now)
    assert engine.kept_final == 3 and side.final(1)
    for now in (11.2, 11.3, 11.4, 11.5, 11.6):
        side.tend(now)
        assert engine.kept_final == 3 and not side.final(1)
    side.tend(11.71)
    assert engine.kept_final == 4 and side.final(1)


def test_a_higher_fence_is_raised_before_anything_is_applied(
    owner: Owner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A frame with a lower fence may be in flight, with a record that these rows withdraw."""
    done: list[object] = []
    monkeypatch.setattr(
        owner.engine, "raise_fence", lambda holder, fence: done.append((holder, fence))
    )

    def apply(*_: object) -> tuple[int, ...]:
        done.append("rows")
        return (0, 0, 0, 0, 0)

    monkeypatch.setattr(owner.engine, "shard_apply", apply)
    for fence in (3, 3, 2, 4):
        owner.sequence += 1
        batch = Batch(Kind.ROWS, owner.epoch, owner.sequence, 1, b"", fence=fence)
        owner.side.batch(HOLDER, batch)
    assert done == [(HOLDER, 3), "rows", "rows", "rows", (HOLDER, 4), "rows"]
