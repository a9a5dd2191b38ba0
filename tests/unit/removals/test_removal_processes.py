"""A node remembers the incarnations of other nodes, and keeps them over its own restarts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from peercached.membership import NodeAddress
from peercached.membership.view import Member, View
from peercached.removals.epochs_used import USED_MAX, EpochsUsed
from peercached.removals.ledger import OVER_MAX, Entry, Ledger, RemovalId, Wanted
from peercached.removals.processes import (
    NODES_MAX,
    NOT_KNOWN,
    STARTS_PER_NODE_MAX,
    Process,
    Processes,
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


def begun(processes: Processes, position: int) -> Entry:
    entry = removal(position)
    entry.away |= processes.away()
    return entry


def seen(*views: View) -> Processes:
    processes = Processes("self")
    for each in views:
        processes.see(each, nobody_left, (), 0)
    return processes


def asked(*views: View) -> Processes:
    """Each process has asked us in its first view."""
    processes = Processes("self")
    for each in views:
        processes.see(each, nobody_left, (), 0)
        for process in processes:
            if process.is_new:
                processes.heard(process, 0)
    return processes


def waits(processes: Processes) -> dict[tuple[str, int], Waits | None]:
    return {process.name: None if process.here else process.waits for process in processes}


def missed(processes: Processes) -> dict[str, int]:
    return {process.node_id: process.missed_from for process in processes}


def owing(processes: Processes) -> set[str]:
    return {process.node_id for process in processes if process.owes}


A1, A2, B1 = address("a", 1), address("a", 2), address("b", 11)


def test_vanished_life_is_silent_until_it_returns() -> None:
    processes = seen(view(A1), view())
    assert [process.name for process in processes.silent(nobody_left)] == [("a", 1)]
    processes.see(view(A1), nobody_left, (), 0)
    assert waits(processes) == {("a", 1): None}


def test_goodbye_ends_the_wait_even_when_heard_late() -> None:
    processes = seen(view(A1, B1))
    processes.see(view(B1), lambda node_id, _: node_id == "a", (), 0)
    assert waits(processes)[("a", 1)] is Waits.NO
    processes.see(view(), nobody_left, (), 0)
    assert [process.node_id for process in processes.silent(nobody_left)] == ["b"]
    assert processes.silent(lambda node_id, _: node_id == "b") == []


def test_another_start_at_the_same_address_ends_the_wait_for_the_one_before() -> None:
    assert waits(seen(view(A1), view(A2))) == {("a", 1): Waits.NO, ("a", 2): None}
    elsewhere = seen(view(A1), view(address("a", 2, port=7)))
    assert [process.name for process in elsewhere.silent(nobody_left)] == [("a", 1)]
    taken = seen(view(A1), view(), view(address("c", 5, port=ord("a"))))
    assert taken.silent(nobody_left) == [], "also of another node"
    assert "a" not in taken.may_have_outlived_us()
    forgotten = seen(view(A1), view())
    for process in forgotten:
        forgotten.forget(process)
    forgotten.see(view(address("c", 5, port=ord("a"))), nobody_left, (), 0)
    assert waits(forgotten)[("a", 1)] is Waits.NEVER


def test_all_absent_lives_are_asked_for_while_one_is_silent() -> None:
    processes = seen(view(A1, B1))
    processes.see(view(B1), lambda *_: True, (), 0)
    assert processes.to_ask_for(nobody_left) == [], "a said goodbye, and nobody else is away"
    processes.see(view(), nobody_left, (), 0)
    assert {process.node_id for process in processes.to_ask_for(nobody_left)} == {"a", "b"}
    assert processes.may_have_outlived_us() == {"a", "b"}
    assert processes.ended() == set()
    both = seen(view(A1, B1), view())
    both.found_nobody({("b", 11)}, answered=())
    assert [one.node_id for one in both.silent(nobody_left)] == ["a"], "it vanished meanwhile"
    processes.found_nobody({("a", 1), ("b", 11)}, answered={11})
    silent = [process.node_id for process in processes.silent(nobody_left)]
    assert silent == ["b"], "that removal did not ask b, which had answered it before it vanished"
    processes.found_nobody({("a", 1), ("b", 11)}, answered=())
    assert processes.to_ask_for(nobody_left) == []
    assert processes.may_have_outlived_us() == set()
    assert processes.ended() == {("a", 1), ("b", 11)}


def test_forgotten_life_is_not_asked_for() -> None:
    processes = seen(view(A1, B1), view())
    for process in processes:
        if process.node_id == "a":
            processes.forget(process)
    assert [process.node_id for process in processes.to_ask_for(nobody_left)] == ["b"]
    assert processes.may_have_outlived_us() == {"b"}


@pytest.mark.parametrize("how", ["forgotten", "looks ended", "address taken", "goodbye"])
def test_nothing_that_ends_the_wait_ends_the_debt(how: str) -> None:
    processes = asked(view(A1, B1), view(B1))
    a = processes.find("a", 1)
    assert a is not None
    if how == "forgotten":
        processes.forget(a)
    elif how == "looks ended":
        processes.found_nobody({("a", 1)}, answered=())
    elif how == "address taken":
        processes.see(view(B1, address("c", 3, port=ord("a"))), nobody_left, (), 0)
    else:
        assert processes.silent(lambda *_: True) == []
    processes.over(begun(processes, 5), answered={11})
    processes.see(view(A1, B1), nobody_left, (), 5)
    assert "a" in owing(processes)
    processes.heard(a, 5)
    assert "a" not in owing(processes)


def test_a_life_that_missed_nothing_owes_nothing_when_it_is_back() -> None:
    processes = asked(view(A1, B1), view(B1), view(A1, B1))
    assert owing(processes) == set()
    processes = asked(view(A1, B1), view(B1))
    entry = begun(processes, 5)
    processes.see(view(A1, B1), nobody_left, [entry], 5)
    assert owing(processes) == set(), "the removal is not complete: it waits for a"
    processes.over(entry, answered={1, 11})
    assert missed(processes) == {"a": 0, "b": 0}
    processes.over(entry, answered={11})
    assert owing(processes) == {"a"}, "it was away, and has not answered"


def test_a_life_that_has_heard_of_a_removal_under_way_does_not_miss_it() -> None:
    processes = asked(view(A1, B1), view(B1))
    first, second = begun(processes, 5), begun(processes, 6)
    processes.see(view(A1, B1), nobody_left, [first, second], 5)
    a = processes.find("a", 1)
    assert a is not None
    processes.heard(a, 5, [first, second])
    assert (first.away, second.away) == (set(), {1})


def test_a_member_that_has_missed_nothing_knows_who_has() -> None:
    processes = asked(view(A1, B1), view(B1))
    processes.over(begun(processes, 5), answered={11})
    processes.see(view(A1, B1), nobody_left, (), 5)
    assert processes.up_to_date() == [11]
    processes.trust([1, 11])
    assert owing(processes) == set()


def test_a_new_life_owes_until_it_has_asked() -> None:
    processes = seen(view(A1, B1))
    assert owing(processes) == set(), "nothing was removed since our start"
    processes.see(view(A2, B1), nobody_left, (), 7)
    assert owing(processes) == {"a"}
    second = processes.find("a", 2)
    assert second is not None
    assert second.missed_from == 8, "nothing that was removed until now"
    processes.see(view(A2, B1, address("c", 1)), nobody_left, (), 7)
    assert owing(processes) == {"a", "c"}, "c may have run in another part of the cluster"
    processes.see(view(A2, B1, address("c", 1), address("d", 1)), nobody_left, [removal(1)], 7)
    assert owing(processes) == {"a", "c"}, "the removals that d may have missed wait for it"


def test_a_new_life_has_missed_what_the_one_before_has_missed() -> None:
    processes = asked(view(A1, B1), view(B1))
    processes.over(begun(processes, 5), answered={11})
    processes.see(view(A2, B1), nobody_left, (), 9)
    second = processes.find("a", 2)
    assert second is not None
    assert (second.missed_from, second.is_new) == (5, True), "it asks us, for it is the newer one"
    processes.heard(second, 7)
    assert second.missed_from == 8, "the last ones it has not heard of"
    processes.heard(second, 9)
    assert not second.owes


def test_the_word_of_a_member_from_before_our_start_ends_no_inherited_debt() -> None:
    processes = Processes(
        "self", [Process("a", 1, "127.0.0.1", ord("a"), here=False, missed_from=5)]
    )
    later = [Member(each) for each in (address("self", 3, 9), A2, B1)]
    processes.see(View.of(1, later), nobody_left, (), 9)
    for process in processes:
        processes.accept(process)
    assert owing(processes) == {"a"}
    second = processes.find("a", 2)
    assert second is not None
    assert not second.is_new, "so it is told"


def test_a_debt_to_a_member_that_is_gone_is_taken_over() -> None:
    processes = asked(view(A1))
    processes.owed(Process("a", 1, "h", 1))
    processes.owed(Process("b", 11, "h", 2))
    assert missed(processes) == {"a": NOT_KNOWN, "b": NOT_KNOWN}
    assert owing(processes) == {"a", "b"}
    assert processes.to_ask_for(nobody_left) == [], "whoever named them waits for them"
    processes.see(view(A1, B1), nobody_left, (), 3)
    for process in processes:
        processes.heard(process, 3)
    assert owing(processes) == set()


def test_empty_start_waits_for_silent_lives_with_unknown_missed_removals() -> None:
    processes = asked(view(A1, B1), view(B1))
    processes.forget_all(0)
    assert [process.node_id for process in processes.silent(nobody_left)] == ["a"]
    assert {process.node_id: process.is_unclear for process in processes} == {"a": True, "b": False}
    processes.over(begun(processes, 9), answered={11})
    assert missed(processes) == {"a": 9, "b": 0}, "we know what it misses from now on"


def test_a_debt_outlives_an_empty_start() -> None:
    processes = asked(view(A1, B1), view(B1))
    processes.over(begun(processes, 5), answered={11})
    processes.forget_all(6)
    assert missed(processes) == {"a": NOT_KNOWN, "b": 0}
    processes.over(begun(processes, 9), answered={11})
    assert missed(processes) == {"a": NOT_KNOWN, "b": 0}
    processes.see(view(A1, B1), nobody_left, (), 9)
    a = processes.find("a", 1)
    assert a is not None and a.owes and not a.is_new, "so it is told"
    processes.heard(a, 9)
    assert not a.owes


def test_a_node_that_told_of_a_removal_has_not_missed_it() -> None:
    processes = asked(view(A1, B1), view())
    processes.removed(5, told_by={"a"})
    assert missed(processes) == {"a": 5, "b": 5}, "a may be frozen"
    processes = asked(view(A1, B1))
    processes.removed(5, told_by={"a"})
    assert owing(processes) == set()
    processes.removed(6, told_by={"a"}, up_to_date={11})
    assert owing(processes) == set()
    processes.removed(7, told_by={"a"}, up_to_date=())
    assert owing(processes) == {"b"}


def test_absent_life_is_owed_the_first_removal_it_missed() -> None:
    earlier = removal(3)
    processes = asked(view(A1, B1))
    processes.see(view(B1), nobody_left, [earlier], 0)
    assert earlier.away == {1}
    processes.over(begun(processes, 9), answered={11})
    assert missed(processes) == {"a": 9, "b": 0}
    processes.over(earlier, answered={11})
    assert missed(processes) == {"a": 3, "b": 0}
    processes.over(begun(processes, 11), answered=())
    assert missed(processes) == {"a": 3, "b": 0}, "b was never away: it is asked itself"


def test_suspected_lives_are_asked_for_until_they_are_met() -> None:
    processes = Processes("self")
    processes.suspect(view(A1, B1).members)
    assert waits(processes) == {("a", 1): Waits.YES, ("b", 11): Waits.YES}
    assert all(process.is_unclear and not process.owes for process in processes)
    processes.see(view(A2, B1), nobody_left, (), 0)
    assert waits(processes) == {("a", 1): Waits.NO, ("a", 2): None, ("b", 11): None}


def test_lives_are_bounded() -> None:
    processes = seen(*(view(address("a", n)) for n in range(1, 40)))
    assert len(list(processes)) == STARTS_PER_NODE_MAX
    assert processes.find("a", 39) is not None
    many = Processes("self")
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
    processes = [
        Process("a", 1, "h", 2, False, Waits.NEVER, 5),
        Process("a", 2, "h", 2, missed_from=7, is_unclear=True),
    ]
    assert store.save(Remembered(True, 8, 7, 6, {"b"}, processes, OPEN, [(bytes(16), 3)], 4))
    found = RemovalStore(str(tmp_path), "self").load()
    assert (found.is_known, found.start, found.last_settled, found.ended_at) == (True, 8, 7, 6)
    assert (found.waits_for, found.open) == ({"b"}, OPEN)
    assert found.processes == processes
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
    "text", ["", "{", "[]", "{}", '{"format": 99}', '{"format": 1, "processes": [["a"]]}']
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
