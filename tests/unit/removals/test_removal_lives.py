"""A node remembers the incarnations of other nodes, and keeps them over its own restarts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from peercached.membership import NodeAddress
from peercached.membership.view import Member, View
from peercached.removals.ledger import OVER_MAX, Entry, Ledger, RemovalId
from peercached.removals.lives import (
    LIVES_PER_NODE_MAX,
    NODES_MAX,
    NOT_KNOWN,
    Life,
    Lives,
    Presence,
)
from peercached.removals.store import Remembered, RemovalStore


def address(node_id: str, incarnation: int, port: int = 0) -> NodeAddress:
    """Each node keeps its address over restarts, unless `port` differs."""
    return NodeAddress(node_id, incarnation, "127.0.0.1", port or ord(node_id[0]), 1)


def view(*members: NodeAddress) -> View:
    return View.of(1, [Member(each) for each in (address("self", 1, 9), *members)])


def nobody_left(node_id: str, incarnation: int) -> bool:
    return False


def seen(*views: View, running_from: int = 0) -> Lives:
    lives = Lives("self")
    for each in views:
        lives.see(each, nobody_left, running_from)
    return lives


def presences(lives: Lives) -> dict[tuple[str, int], Presence]:
    return {life.name: life.presence for life in lives}


A1, A2, B1 = address("a", 1), address("a", 2), address("b", 11)


def test_vanished_life_is_silent_until_it_returns() -> None:
    lives = seen(view(A1), view())
    assert [life.name for life in lives.silent(nobody_left)] == [("a", 1)]
    lives.see(view(A1), nobody_left, 0)
    assert presences(lives) == {("a", 1): Presence.HERE}


def test_goodbye_ends_a_life_even_when_heard_late() -> None:
    lives = seen(view(A1, B1))
    lives.see(view(B1), lambda node_id, _: node_id == "a", 0)
    assert presences(lives)[("a", 1)] is Presence.ENDED
    lives.see(view(), nobody_left, 0)
    assert [life.node_id for life in lives.silent(nobody_left)] == ["b"]
    assert lives.silent(lambda node_id, _: node_id == "b") == []


def test_another_start_at_the_same_address_ends_the_one_before() -> None:
    assert presences(seen(view(A1), view(A2))) == {
        ("a", 1): Presence.ENDED,
        ("a", 2): Presence.HERE,
    }
    elsewhere = seen(view(A1), view(address("a", 2, port=7)))
    assert [life.name for life in elsewhere.silent(nobody_left)] == [("a", 1)]


def test_all_absent_lives_are_asked_for_while_one_is_silent() -> None:
    lives = seen(view(A1, B1))
    lives.see(view(B1), lambda *_: True, 0)
    assert lives.to_ask_for(nobody_left) == [], "a said goodbye, and nobody else is away"
    lives.see(view(), nobody_left, 0)
    assert {life.node_id for life in lives.to_ask_for(nobody_left)} == {"a", "b"}
    for life in lives:
        lives.found_ended(life)
    assert {life.node_id for life in lives.to_ask_for(nobody_left)} == {"a", "b"}
    assert lives.may_have_outlived_us() == {"a", "b"}
    assert lives.ended() == set()
    lives.found_nobody()
    assert lives.to_ask_for(nobody_left) == []
    assert lives.may_have_outlived_us() == set()
    assert lives.ended() == {("a", 1), ("b", 11)}


def test_forgotten_life_is_not_asked_for() -> None:
    lives = seen(view(A1, B1), view())
    for life in lives:
        if life.node_id == "a":
            lives.forget(life)
    assert [life.node_id for life in lives.to_ask_for(nobody_left)] == ["b"]
    assert lives.may_have_outlived_us() == {"b"}


def test_empty_start_waits_for_silent_lives_with_unknown_missed_removals() -> None:
    lives = seen(view(A1, B1), view(B1), running_from=5)
    lives.forget_all()
    assert [life.node_id for life in lives.silent(nobody_left)] == ["a"]
    assert {life.node_id: life.owed_from for life in lives} == {"a": NOT_KNOWN, "b": 0}
    lives.removed(9)
    assert {life.node_id: life.owed_from for life in lives} == {"a": NOT_KNOWN, "b": 0}
    ended = seen(view(A1), view(A2))
    ended.forget_all()
    assert [life.name for life in ended] == [("a", 2)]


def test_present_life_that_reported_a_removal_is_not_owed_it() -> None:
    lives = seen(view(A1, B1), view())
    lives.removed(5, told_by="a")
    assert {life.node_id: life.owed_from for life in lives} == {"a": 5, "b": 5}, "it may be frozen"
    lives = seen(view(A1, B1), view(A2))
    lives.removed(5, told_by="a")
    assert {life.name: life.owed_from for life in lives} == {("a", 1): 0, ("a", 2): 0, ("b", 11): 5}


def test_absent_life_is_owed_the_first_removal_it_missed() -> None:
    lives = seen(view(A1, B1), view(B1), running_from=5)
    a, b = lives.find("a", 1), lives.find("b", 11)
    assert a is not None and b is not None
    assert (a.owed_from, b.owed_from) == (5, 0)
    lives.removed(9)
    assert (a.owed_from, b.owed_from) == (5, 0), "b carries it out"
    lives.over(9, answered={1})
    assert (a.owed_from, b.owed_from) == (5, 9), "it did not answer"
    lives.over(3, answered={11})
    assert (a.owed_from, b.owed_from) == (3, 9)


def test_suspected_lives_are_asked_for_until_they_are_met() -> None:
    lives = Lives("self")
    lives.suspect(view(A1, B1).members)
    assert presences(lives) == {("a", 1): Presence.SILENT, ("b", 11): Presence.SILENT}
    assert [life.owed_from for life in lives] == [NOT_KNOWN, NOT_KNOWN]
    lives.see(view(A2, B1), nobody_left, 0)
    assert presences(lives) == {
        ("a", 1): Presence.ENDED,  # another start has its address
        ("a", 2): Presence.HERE,
        ("b", 11): Presence.HERE,
    }


def test_lives_are_bounded() -> None:
    lives = seen(*(view(address("a", n)) for n in range(1, 40)))
    assert len(list(lives)) == LIVES_PER_NODE_MAX
    assert lives.find("a", 39) is not None
    many = Lives("self")
    for number in range(NODES_MAX + 50):
        name = f"n{number}"
        many.see(view(address(name, 1, port=number + 1)), lambda *_: True, 0)
    assert len(list(many)) <= NODES_MAX + 1


def test_an_end_that_comes_first_is_remembered() -> None:
    ledger = Ledger()
    first = RemovalId(1, 1)
    assert ledger.end(first) is None
    assert ledger.is_over(first)
    ledger.running[RemovalId(1, 2)] = Entry(RemovalId(1, 2), b"", 7, 0.0, 0.0)
    ledger.running[RemovalId(1, 3)] = Entry(RemovalId(1, 3), b"", 4, 0.0, 0.0)
    assert ledger.running_from == 4
    for number in range(10, OVER_MAX + 10):
        ledger.end(RemovalId(2, number))
    assert not ledger.is_over(first)
    assert ledger.is_over(RemovalId(2, OVER_MAX))


OPEN = {RemovalId(3, 4): bytes(16)}
STATE = Remembered(True, 8, 7, {"b"}, [], OPEN)


def test_saved_removal_state_is_loaded_at_the_next_start(tmp_path: Path) -> None:
    store = RemovalStore(str(tmp_path), "self")
    assert not store.load().is_known
    lives = [Life("a", 1, "h", 2, Presence.SILENT, 5), Life("a", 2, "h", 2, Presence.FORGOTTEN)]
    assert store.save(Remembered(True, 8, 7, {"b"}, lives, OPEN))
    found = RemovalStore(str(tmp_path), "self").load()
    assert (found.is_known, found.start, found.life) == (True, 8, 7)
    assert (found.waits_for, found.open) == ({"b"}, OPEN)
    assert found.lives == lives
    assert not RemovalStore(str(tmp_path), "another").load().is_known


def test_removal_state_of_another_secret_is_ignored_and_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert RemovalStore(str(tmp_path), "self", b"old").save(STATE)
    assert RemovalStore(str(tmp_path), "self", b"old").load().is_known
    assert caplog.text == ""
    assert not RemovalStore(str(tmp_path), "self", b"new").load().is_known
    assert "secret" in caplog.text


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "{}", '{"format": 99}', '{"format": 1, "lives": [["a"]]}']
)
def test_a_file_that_makes_no_sense_knows_nothing(tmp_path: Path, text: str) -> None:
    store = RemovalStore(str(tmp_path), "self")
    store.save(STATE)
    assert store.path is not None
    assert json.loads(store.path.read_text())["life"] == 7
    store.path.write_text(text)
    assert not store.load().is_known


def test_failed_save_of_removal_state_is_reported(tmp_path: Path) -> None:
    store = RemovalStore(str(tmp_path / "nowhere"), "self")
    assert not store.save(STATE)
    assert "nowhere" in store.problem
    (tmp_path / "nowhere").mkdir()
    assert store.save(STATE)
    assert store.problem == ""


def test_without_a_folder_nothing_is_kept() -> None:
    store = RemovalStore("", "self")
    assert store.save(STATE)
    assert not store.load().is_known
