"""The conclusions from a history of sets, removals and reads (harness/history.py)."""

import pytest
from harness.history import History, Span

KEY = b"page"


def history_with_an_unsure_removal() -> History:
    """Version 100 was set at 0 to 1 s. Its removal at node a began at 2 s, and at 3 s a answered
    `removing`. A second set began at a at 5 s and was accepted at 6 s."""
    history = History()
    first = history.begin_set(0.0, [KEY], "b")
    history.sets[first].ended = 1.0
    history.removing(KEY, Span(2.0, 3.0, where="a"), "a")
    second = history.begin_set(5.0, [KEY], "a")
    history.sets[second].ended = 6.0
    return history


def test_a_set_that_is_accepted_ends_the_removals_before_it() -> None:
    history = history_with_an_unsure_removal()
    history.stored(KEY, 101, "a")
    history.read(KEY, 100, 5.9, "b")  # began before the set was answered
    with pytest.raises(AssertionError, match="took a set again"):
        history.read(KEY, 100, 6.1, "b")


def test_a_set_behind_a_clear_says_nothing_of_removals() -> None:
    """A node takes sets again once it is cleared, although another, which the clear has not
    reached, may still serve the page."""
    history = history_with_an_unsure_removal()
    history.clears.append(Span(4.0))  # some node was not reached, so it has not ended
    history.stored(KEY, 101, "a")
    history.read(KEY, 100, 6.1, "b")


def test_a_clear_that_had_ended_before_the_removal_does_not_matter() -> None:
    history = history_with_an_unsure_removal()
    history.clears.append(Span(1.2, 1.8))
    history.stored(KEY, 101, "a")
    with pytest.raises(AssertionError, match="took a set again"):
        history.read(KEY, 100, 6.1, "b")
