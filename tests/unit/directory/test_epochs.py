"""Epochs of namespaces on heartbeats: which ones a message carries, and which ones are accepted."""

from typing import Any, cast

import pytest
from harness.fake_engine import FakeEngine, digest_of

from peercached.directory.epochs import (
    EPOCH_MAX,
    EPOCH_TOLD_MAX,
    EPOCHS_PER_MESSAGE_MAX,
    Epochs,
    TooManyNamespaces,
)
from peercached.directory.first_clears import DAY_S, FIRST_CLEARS_MAX, FirstClears


def cleared(count: int) -> tuple[FakeEngine, Epochs]:
    engine = FakeEngine()
    engine.epochs = {digest_of(f"namespace {number}"): 1 for number in range(count)}
    return engine, Epochs(cast(Any, engine))


def test_bounded_messages_cover_all_epochs_within_four() -> None:
    count = 3 * EPOCHS_PER_MESSAGE_MAX + 7
    engine, epochs = cleared(count)
    told: set[tuple[bytes, int]] = set()
    for _ in range(4):
        some = epochs.some()
        assert len(some) <= EPOCHS_PER_MESSAGE_MAX
        told |= set(some)
    assert told == set(engine.epochs.items())


def test_short_epoch_table_is_sent_whole() -> None:
    engine, epochs = cleared(EPOCHS_PER_MESSAGE_MAX)
    assert dict(epochs.some()) == engine.epochs


@pytest.mark.parametrize("epoch", [0, -1, EPOCH_MAX, EPOCH_MAX + 1])
def test_out_of_range_epoch_is_refused(epoch: int) -> None:
    engine, epochs = cleared(0)
    with pytest.raises(ValueError, match=f"epoch {epoch} "):
        epochs.raise_to(digest_of("n"), epoch)
    assert engine.epochs == {}


def test_an_epoch_out_of_reach_is_believed_in_answers_only() -> None:
    engine, epochs = cleared(0)
    with pytest.raises(ValueError, match="far above 0, the one here"):
        epochs.raise_to(digest_of("n"), EPOCH_MAX - 1)
    epochs.learn([(digest_of("n"), EPOCH_MAX - 1)])
    assert engine.epochs == {}
    epochs.raise_to(digest_of("n"), EPOCH_TOLD_MAX)
    assert epochs.next_of(digest_of("n"), now_us=5) == EPOCH_TOLD_MAX + 1
    epochs.raise_to(digest_of("n"), EPOCH_TOLD_MAX + 1)
    epochs.learn([(digest_of("o"), EPOCH_TOLD_MAX + 2)], asked=True)
    assert engine.epochs == {
        digest_of("n"): EPOCH_TOLD_MAX + 1,
        digest_of("o"): EPOCH_TOLD_MAX + 2,
    }


def test_an_epoch_only_rises() -> None:
    engine, epochs = cleared(0)
    assert epochs.raise_to(digest_of("n"), 5) == 5
    assert epochs.raise_to(digest_of("n"), 3) == 5
    assert engine.epochs == {digest_of("n"): 5}


def test_new_clears_epoch_exceeds_every_earlier_epoch() -> None:
    _, elsewhere = cleared(0)
    _, epochs = cleared(0)
    theirs = elsewhere.next_of(digest_of("n"), now_us=1000)
    elsewhere.raise_to(digest_of("n"), theirs)
    assert epochs.next_of(digest_of("n"), now_us=1001) > theirs
    epochs.raise_to(digest_of("n"), 5000)
    assert epochs.next_of(digest_of("n"), now_us=1001) == 5001, "whatever the clock says"


def test_a_full_table_is_the_callers_business_but_no_heartbeats() -> None:
    engine, epochs = cleared(0)
    engine.raise_epoch = lambda *_: False
    with pytest.raises(TooManyNamespaces, match="table of them is full"):
        epochs.raise_to(digest_of("n"), 1)
    epochs.learn([(digest_of("n"), 1)])


def test_one_node_cannot_fill_the_table() -> None:
    engine, epochs = cleared(0)
    names = [digest_of(f"made up {number}") for number in range(FIRST_CLEARS_MAX + 100)]
    epochs.learn([(name, 1) for name in names], by="node liar")
    assert len(engine.epochs) == FIRST_CLEARS_MAX
    with pytest.raises(TooManyNamespaces, match="node liar has cleared 8192"):
        epochs.raise_to(names[-1], 1, by="node liar")
    assert epochs.raise_to(names[0], 2, by="node liar") == 2, "a place that it has"
    assert epochs.raise_to(names[-1], 1, by="node b") == 1
    assert epochs.raise_to(names[-2], 1) == 1, "an operator"


def test_first_clear_quota_refills_within_a_day() -> None:
    now = 0.0
    clears = FirstClears(lambda: now)
    assert all(clears.take("user 1") for _ in range(FIRST_CLEARS_MAX))
    assert not clears.take("user 1")
    assert clears.take("user 2")
    now = DAY_S / 2
    assert sum(clears.take("user 1") for _ in range(FIRST_CLEARS_MAX)) == FIRST_CLEARS_MAX // 2
