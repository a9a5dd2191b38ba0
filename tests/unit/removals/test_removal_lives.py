"""A node remembers the incarnations of other nodes, and keeps them over its own restarts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from peercached.membership import NodeAddress
from peercached.membership.view import Member, View
from peercached.removals.epochs_used import USED_MAX, EpochsUsed
from peercached.removals.ledger import OVER_MAX, Entry, Ledger, RemovalId, Wanted
from peercached.removals.lives import (
    LIVES_PER_NODE_MAX,
    NODES_MAX,
    NOT_KNOWN,
    Life,
    Lives,
    Waits,
)
from peercached.removals.store import Remembered, RemovalStore


def address(node_id: str, incarnation: int, port: int = 0) -> NodeAddress:
    """Each node keeps its address over restarts, unless `port` differs."""
    return NodeAddress(node_id, incarnation, "127.0.0.1", port or ord(node_id[0]), 1)


def view(*members: NodeAddress) -> View:
    return View.of(1, [Member(each) for each in (address("self", 1, 9), *members)])


def nobody_left(node_id: str, incarnation: int) -> bool:
    return False


def removal(position: int) -> Entry:
    return Entry(RemovalId(1, position), b"", position, 0.0, 0.0)


def begun(lives: Lives, position: int) -> Entry:
    entry = removal(position)
    entry.away |= lives.away()
    return entry


def seen(*views: View) -> Lives:
    lives = Lives("self")
    for each in views:
        lives.see(each, nobody_left, (), 0)
    return lives


def asked(*views: View) -> Lives:
    """Each life has asked us in its first view."""
    lives = Lives("self")
    for each in views:
        lives.see(each, nobody_left, (), 0)
        for life in lives:
            if life.is_new:
                lives.heard(life, 0)
    return lives


def waits(lives: Lives) -> dict[tuple[str, int], Waits | None]:
    return {life.name: None if life.here else life.waits for life in lives}


def missed(lives: Lives) -> dict[str, int]:
    return {life.node_id: life.missed_from for life in lives}


def owing(lives: Lives) -> set[str]:
    return {life.node_id for life in lives if life.owes}


A1, A2, B1 = address("a", 1), address("a", 2), address("b", 11)


def test_vanished_life_is_silent_until_it_returns() -> None:
    lives = seen(view(A1), view())
    assert [life.name for life in lives.silent(nobody_left)] == [("a", 1)]
    lives.see(view(A1), nobody_left, (), 0)
    assert waits(lives) == {("a", 1): None}


def test_goodbye_ends_the_wait_even_when_heard_late() -> None:
    lives = seen(view(A1, B1))
    lives.see(view(B1), lambda node_id, _: node_id == "a", (), 0)
    assert waits(lives)[("a", 1)] is Waits.NO
    lives.see(view(), nobody_left, (), 0)
    assert [life.node_id for life in lives.silent(nobody_left)] == ["b"]
    assert lives.silent(lambda node_id, _: node_id == "b") == []


def test_another_start_at_the_same_address_ends_the_wait_for_the_one_before() -> None:
    assert waits(seen(view(A1), view(A2))) == {("a", 1): Waits.NO, ("a", 2): None}
    elsewhere = seen(view(A1), view(address("a", 2, port=7)))
    assert [life.name for life in elsewhere.silent(nobody_left)] == [("a", 1)]
    taken = seen(view(A1), view(), view(address("c", 5, port=ord("a"))))
    assert taken.silent(nobody_left) == [], "also of another node"
    assert "a" not in taken.may_have_outlived_us()
    forgotten = seen(view(A1), view())
    for life in forgotten:
        forgotten.forget(life)
    forgotten.see(view(address("c", 5, port=ord("a"))), nobody_left, (), 0)
    assert waits(forgotten)[("a", 1)] is Waits.NEVER


def test_all_absent_lives_are_asked_for_while_one_is_silent() -> None:
    lives = seen(view(A1, B1))
    lives.see(view(B1), lambda *_: True, (), 0)
    assert lives.to_ask_for(nobody_left) == [], "a said goodbye, and nobody else is away"
    lives.see(view(), nobody_left, (), 0)
    assert {life.node_id for life in lives.to_ask_for(nobody_left)} == {"a", "b"}
    assert lives.may_have_outlived_us() == {"a", "b"}
    assert lives.ended() == set()
    lives.found_nobody(answered={11})
    silent = [life.node_id for life in lives.silent(nobody_left)]
    assert silent == ["b"], "that removal did not ask b, which had answered it before it vanished"
    lives.found_nobody(answered=())
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


@pytest.mark.parametrize("how", ["forgotten", "looks ended", "address taken", "goodbye"])
def test_nothing_that_ends_the_wait_ends_the_debt(how: str) -> None:
    lives = asked(view(A1, B1), view(B1))
    a = lives.find("a", 1)
    assert a is not None
    if how == "forgotten":
        lives.forget(a)
    elif how == "looks ended":
        lives.found_nobody(answered=())
    elif how == "address taken":
        lives.see(view(B1, address("c", 3, port=ord("a"))), nobody_left, (), 0)
    else:
        assert lives.silent(lambda *_: True) == []
    lives.over(begun(lives, 5), answered={11})
    lives.see(view(A1, B1), nobody_left, (), 5)
    assert "a" in owing(lives)
    lives.heard(a, 5)
    assert "a" not in owing(lives)


def test_a_life_that_missed_nothing_owes_nothing_when_it_is_back() -> None:
    lives = asked(view(A1, B1), view(B1), view(A1, B1))
    assert owing(lives) == set()
    lives = asked(view(A1, B1), view(B1))
    entry = begun(lives, 5)
    lives.see(view(A1, B1), nobody_left, [entry], 5)
    assert owing(lives) == set(), "the removal is not complete: it waits for a"
    lives.over(entry, answered={1, 11})
    assert missed(lives) == {"a": 0, "b": 0}
    lives.over(entry, answered={11})
    assert owing(lives) == {"a"}, "it was away, and has not answered"


def test_a_life_that_has_heard_of_a_removal_under_way_does_not_miss_it() -> None:
    lives = asked(view(A1, B1), view(B1))
    first, second = begun(lives, 5), begun(lives, 6)
    lives.see(view(A1, B1), nobody_left, [first, second], 5)
    a = lives.find("a", 1)
    assert a is not None
    lives.heard(a, 5, [first, second])
    assert (first.away, second.away) == (set(), {1})


def test_a_member_that_has_missed_nothing_knows_who_has() -> None:
    lives = asked(view(A1, B1), view(B1))
    lives.over(begun(lives, 5), answered={11})
    lives.see(view(A1, B1), nobody_left, (), 5)
    assert lives.up_to_date() == [11]
    lives.trust([1, 11])
    assert owing(lives) == set()


def test_a_new_life_owes_until_it_has_asked() -> None:
    lives = seen(view(A1, B1))
    assert owing(lives) == set(), "nothing was removed since our start"
    lives.see(view(A2, B1), nobody_left, (), 7)
    assert owing(lives) == {"a"}
    second = lives.find("a", 2)
    assert second is not None
    assert second.missed_from == 8, "nothing that was removed until now"
    lives.see(view(A2, B1, address("c", 1)), nobody_left, (), 7)
    assert owing(lives) == {"a", "c"}, "c may have run in another part of the cluster"
    lives.see(view(A2, B1, address("c", 1), address("d", 1)), nobody_left, [removal(1)], 7)
    assert owing(lives) == {"a", "c"}, "the removals that d may have missed wait for it"


def test_a_new_life_has_missed_what_the_one_before_has_missed() -> None:
    lives = asked(view(A1, B1), view(B1))
    lives.over(begun(lives, 5), answered={11})
    lives.see(view(A2, B1), nobody_left, (), 9)
    second = lives.find("a", 2)
    assert second is not None
    assert (second.missed_from, second.is_new) == (5, True), "it asks us, for it is the newer one"
    lives.heard(second, 7)
    assert second.missed_from == 8, "the last ones it has not heard of"
    lives.heard(second, 9)
    assert not second.owes


def test_the_word_of_a_member_from_before_our_start_ends_no_inherited_debt() -> None:
    lives = Lives("self", [Life("a", 1, "127.0.0.1", ord("a"), here=False, missed_from=5)])
    later = [Member(each) for each in (address("self", 3, 9), A2, B1)]
    lives.see(View.of(1, later), nobody_left, (), 9)
    for life in lives:
        lives.accept(life)
    assert owing(lives) == {"a"}
    second = lives.find("a", 2)
    assert second is not None
    assert not second.is_new, "so it is told"


def test_a_debt_to_a_member_that_is_gone_is_taken_over() -> None:
    lives = asked(view(A1))
    lives.owed(Life("a", 1, "h", 1))
    lives.owed(Life("b", 11, "h", 2))
    assert missed(lives) == {"a": NOT_KNOWN, "b": NOT_KNOWN}
    assert owing(lives) == {"a", "b"}
    assert lives.to_ask_for(nobody_left) == [], "whoever named them waits for them"
    lives.see(view(A1, B1), nobody_left, (), 3)
    for life in lives:
        lives.heard(life, 3)
    assert owing(lives) == set()


def test_empty_start_waits_for_silent_lives_with_unknown_missed_removals() -> None:
    lives = asked(view(A1, B1), view(B1))
    lives.forget_all(0)
    assert [life.node_id for life in lives.silent(nobody_left)] == ["a"]
    assert {life.node_id: life.is_unclear for life in lives} == {"a": True, "b": False}
    lives.over(begun(lives, 9), answered={11})
    assert missed(lives) == {"a": 9, "b": 0}, "we know what it misses from now on"


def test_a_node_that_told_of_a_removal_has_not_missed_it() -> None:
    lives = asked(view(A1, B1), view())
    lives.removed(5, told_by={"a"})
    assert missed(lives) == {"a": 5, "b": 5}, "a may be frozen"
    lives = asked(view(A1, B1))
    lives.removed(5, told_by={"a"})
    assert owing(lives) == set()
    lives.removed(6, told_by={"a"}, up_to_date={11})
    assert owing(lives) == set()
    lives.removed(7, told_by={"a"}, up_to_date=())
    assert owing(lives) == {"b"}


def test_absent_life_is_owed_the_first_removal_it_missed() -> None:
    earlier = removal(3)
    lives = asked(view(A1, B1))
    lives.see(view(B1), nobody_left, [earlier], 0)
    assert earlier.away == {1}
    lives.over(begun(lives, 9), answered={11})
    assert missed(lives) == {"a": 9, "b": 0}
    lives.over(earlier, answered={11})
    assert missed(lives) == {"a": 3, "b": 0}
    lives.over(begun(lives, 11), answered=())
    assert missed(lives) == {"a": 3, "b": 0}, "b was never away: it is asked itself"


def test_suspected_lives_are_asked_for_until_they_are_met() -> None:
    lives = Lives("self")
    lives.suspect(view(A1, B1).members)
    assert waits(lives) == {("a", 1): Waits.YES, ("b", 11): Waits.YES}
    assert all(life.is_unclear and not life.owes for life in lives)
    lives.see(view(A2, B1), nobody_left, (), 0)
    assert waits(lives) == {("a", 1): Waits.NO, ("a", 2): None, ("b", 11): None}


def test_lives_are_bounded() -> None:
    lives = seen(*(view(address("a", n)) for n in range(1, 40)))
    assert len(list(lives)) == LIVES_PER_NODE_MAX
    assert lives.find("a", 39) is not None
    many = Lives("self")
    for number in range(NODES_MAX + 50):
        name = f"n{number}"
        many.see(view(address(name, 1, port=number + 1)), lambda *_: True, (), 0)
    assert len(list(many)) <= NODES_MAX + 1


def test_only_removals_under_way_end() -> None:
    ledger = Ledger()
    first, driven = RemovalId(1, 1), RemovalId(1, 2)
    assert ledger.end(first) is None
    assert not ledger.is_over(first), "nobody can end one before it has begun"
    for id, position in ((first, 4), (driven, 2)):
        ledger.running[id] = Entry(id, b"", position, 0.0, 0.0, away={9})
    assert ledger.may_be_missed({driven}) == {9: 4}
    for number in range(OVER_MAX + 1):
        id = RemovalId(2, number)
        ledger.running[id] = Entry(id, b"", 7, 0.0, 0.0)
        ledger.end(id)
    assert not ledger.is_over(RemovalId(2, 0))
    assert ledger.is_over(RemovalId(2, OVER_MAX))


OPEN = {
    RemovalId(3, 4): Wanted(bytes(16), (bytes(16), 7)),
    RemovalId(3, 5): Wanted(bytes(16), None),
}
STATE = Remembered(True, 8, 7, 6, {"b"}, [], OPEN, [(bytes(16), 3)], 4)


def test_saved_removal_state_is_loaded_at_the_next_start(tmp_path: Path) -> None:
    store = RemovalStore(str(tmp_path), "self")
    assert not store.load().is_known
    lives = [
        Life("a", 1, "h", 2, False, Waits.NEVER, 5),
        Life("a", 2, "h", 2, missed_from=7, is_unclear=True),
    ]
    assert store.save(Remembered(True, 8, 7, 6, {"b"}, lives, OPEN, [(bytes(16), 3)], 4))
    found = RemovalStore(str(tmp_path), "self").load()
    assert (found.is_known, found.start, found.life, found.ended_at) == (True, 8, 7, 6)
    assert (found.waits_for, found.open) == ({"b"}, OPEN)
    assert found.lives == lives
    assert (found.epochs_used, found.epochs_unknown_upto) == ([(bytes(16), 3)], 4)
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


def test_epochs_of_removals_are_known_from_the_last_one_that_was_not() -> None:
    first, second, third = ((bytes(16), epoch) for epoch in (1, 2, 3))
    used = EpochsUsed([first], unknown_upto=4, last=6)
    assert used.since(4) is None, "a removal there may have used any"
    assert used.since(5) == [first]
    assert used.note(second, 9)
    assert not used.note(second, 12)
    assert used.since(7) == [second], "the first was not used since"
    assert used.note(None, 13)
    assert used.since(13) is None
    assert used.note(third, 20)
    for number in range(USED_MAX):
        used.note((bytes(16), 10 + number), 21 + number)
    assert used.since(20) is None, "more than are remembered"
    assert used.since(21) == [(bytes(16), 10 + number) for number in range(USED_MAX)]
