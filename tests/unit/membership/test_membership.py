"""The parts of membership, one claim each. tests/sim/test_members.py tests whole clusters."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from itertools import permutations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from peercached.membership import (
    Gone,
    Heartbeat,
    Member,
    Membership,
    NodeAddress,
    Refused,
    State,
    Timing,
    Verdict,
    View,
    ViewChanged,
    ViewUpdate,
)
from peercached.membership.claims import Claims
from peercached.membership.liveness import Liveness
from peercached.membership.order import Order, masters_of
from peercached.membership.patience import Patience
from peercached.membership.state import NodeState, Phase
from peercached.membership.store import Store
from peercached.membership.table import Table
from peercached.membership.updates import VIEWS_KEPT, History
from peercached.membership.view import MEMBERS_MAX, NO_HEAD, VIEW_NUMBER_MAX

TIMING = Timing(1.0, 5.0)
NOW = 1000.0


def address(node_id: str, incarnation: int = 1, host: str = "") -> NodeAddress:
    return NodeAddress(node_id, incarnation, host or node_id, 1, 2)


def member(node_id: str, sequence: int = 0, incarnation: int = 1, **more: object) -> Member:
    return replace(Member(address(node_id, incarnation), sequence), **more)  # type: ignore[arg-type]


def gone(node_id: str, sequence: int = 0, state: State = State.DEAD, age_s: float = 0.0) -> Gone:
    return Gone(node_id, 1, sequence, state, age_s)


def ids(view: View) -> list[str]:
    return [m.node_id for m in view.members]


def membership(
    name: str, heads: list[str], rank: int | None = None, masters: int = 3, **more: object
) -> Membership:
    rng = random.Random(1)
    endpoints = [f"{head}:1" for head in heads]
    own = address(name)
    return Membership(own, endpoints, rank, TIMING, NOW, rng, masters, **more)  # type: ignore[arg-type]


def head_with(*others: str) -> tuple[Membership, float]:
    """The only head, with all others in its view."""
    head, now = membership("a", ["a"], 0), NOW
    head.tick(now)
    for name in others:
        head.on_heartbeat(Heartbeat(member(name), 0), now)
    now += 1.0
    head.tick(now)
    assert ids(head.view) == sorted(["a", *others])
    return head, now


# --- the table --------------------------------------------------------------------------------

news = st.one_of(
    st.builds(
        member,
        st.sampled_from("abc"),
        st.integers(0, 3),
        st.integers(1, 3),
        state=st.sampled_from([State.ALIVE, State.LEAVING]),
    ),
    st.builds(
        gone,
        st.sampled_from("abc"),
        st.integers(0, 3),
        st.sampled_from([State.DEAD, State.LEFT]),
    ),
)


def table_of(told: list[Member | Gone]) -> dict[str, tuple[int, int, int]]:
    table = Table(100.0)
    for one in told:
        if isinstance(one, Member):
            table.take(one, NOW)
        else:
            table.add_tombstone(one, NOW)
    found = {m.node_id: m.age for m in table.members()}
    return found | {g.node_id: g.age for g in table.tombstones(NOW)}


@settings(max_examples=200, deadline=None)
@given(st.lists(news, max_size=5), st.randoms())
def test_reordered_and_repeated_news_make_the_same_table(
    told: list[Member | Gone], rng: random.Random
) -> None:
    again = told + rng.choices(told, k=3) if told else told
    rng.shuffle(again)
    assert table_of(again) == table_of(told)


def test_newest_state_of_a_member_wins_in_any_order() -> None:
    words: list[Member | Gone] = [
        member("a", 1),
        member("a", 1, state=State.LEAVING),
        gone("a", 1),
        gone("a", 1, State.LEFT),
    ]
    for told in permutations(words):
        assert table_of(list(told)) == {"a": (1, 1, State.LEFT)}
    assert table_of([*words, member("a", 2)]) == {"a": (2, 1, State.ALIVE)}


def test_member_table_and_tombstones_are_bounded() -> None:
    table = Table(100.0)
    for number in range(MEMBERS_MAX + 5):
        table.take(member(f"n{number}"), NOW)
    assert len(table) == MEMBERS_MAX
    for number in range(MEMBERS_MAX + 5):
        table.add_tombstone(gone(f"g{number}"), NOW + number)
    assert len(table.tombstones(NOW)) == MEMBERS_MAX
    assert table.gone("g0") is None


def test_tombstones_expire_by_age_despite_being_exchanged() -> None:
    one, other = Table(100.0), Table(100.0)
    one.add_tombstone(gone("x"), NOW)
    for step in range(1, 12):
        now = NOW + 10.0 * step
        for source, sink in ((one, other), (other, one)):
            for tombstone in source.tombstones(now):
                sink.add_tombstone(tombstone, now)
    assert not one.tombstones(NOW + 120.0)
    assert not other.tombstones(NOW + 120.0)


# --- views and how they travel ----------------------------------------------------------------


def test_view_number_identifies_its_members() -> None:
    before = View.nothing()
    view = before.next([member("b"), member("a")])
    assert view == before.next([member("a"), member("b")])
    assert ids(view) == ["a", "b"]
    assert view.is_what_it_says
    others = [
        before.next([member("a")]),
        before.next([member("a"), member("b", 1)]),
        before.next([member("a"), member("b", state=State.LEAVING)]),
        before.next([member("a"), member("b", incarnation=2)]),
    ]
    assert len({view.number, *(other.number for other in others)}) == 5
    assert {other.counter for other in others} == {1}
    assert view.next([], told=7 << 32).counter == 8


def test_a_difference_makes_the_same_view_and_only_from_its_own_base() -> None:
    rng = random.Random(3)
    mine, theirs, table = History(), History(), Table(100.0)
    view = View.nothing()
    for _ in range(20):
        before = view
        view = view.next(member(f"n{n}", rng.randint(0, 3)) for n in rng.sample(range(10), 6))
        mine.add(view, 0)
        update = mine.update_for(before.number, table, NOW)
        assert theirs.resolve(update) == view
        theirs.add(view, 0)
        if before.number:
            assert update.base == before.number
            assert History().resolve(update) is None
            assert theirs.resolve(replace(update, number=update.number ^ 1)) is None


def test_member_with_a_too_old_view_gets_the_full_view() -> None:
    history, table, view = History(), Table(100.0), View.nothing()
    first = view.next([member("a")])
    view = first
    for number in range(VIEWS_KEPT + 1):
        history.add(view, 0)
        view = view.next([member("a", number)])
    assert history.update_for(first.number, table, NOW).base == 0


def test_view_difference_includes_tombstones_since_its_base() -> None:
    history, table = History(), Table(100.0)
    table.add_tombstone(gone("long ago"), NOW)
    first = View.nothing().next([member("a")])
    history.add(first, table.last_serial)
    table.add_tombstone(gone("in between"), NOW)
    history.add(first.next([member("a", 1)]), table.last_serial)
    update = history.update_for(first.number, table, NOW)
    assert [g.node_id for g in update.gone] == ["in between"]


def test_view_difference_carries_a_tombstone_for_each_removed_member() -> None:
    """The base view may come from another master, and its members have not heard of the death."""
    history, table = History(), Table(100.0)
    table.add_tombstone(gone("b"), NOW)
    theirs = View.nothing().next([member("a"), member("b")])
    history.add(theirs, table.last_serial)
    history.add(theirs.next([member("a")]), table.last_serial)
    update = history.update_for(theirs.number, table, NOW)
    assert (update.without, [g.node_id for g in update.gone]) == (("b",), ["b"])


# --- masters ----------------------------------------------------------------------------------


def test_heads_come_first_in_their_order_then_the_others_by_name() -> None:
    members = [
        member("a"),
        member("b"),
        member("y", head_rank=1),
        member("z", head_rank=0),
        member("0", state=State.LEAVING),
    ]
    assert [m.node_id for m in masters_of(members, 3)] == ["z", "y", "a"]
    assert member("a").head_rank == NO_HEAD


# --- silent members ---------------------------------------------------------------------------


def test_silent_member_is_probed_and_one_answer_saves_it() -> None:
    life = Liveness(TIMING, Patience(TIMING))
    life.heard("x", 1, NOW)
    assert not life.due(NOW + TIMING.suspect_after_s - 0.1, 0.0)
    now = NOW + TIMING.suspect_after_s
    assert life.due(now, 0.0) == ["x"]
    number = life.begin("x", 2, now)
    life.probed("x", number, False, now)
    life.probed("x", number, True, now + 0.1)
    assert not life.dead(NOW + 2 * TIMING.member_ttl_s)


def test_a_silent_member_is_dead_after_its_ttl_if_nobody_reached_it() -> None:
    life = Liveness(TIMING, Patience(TIMING))
    life.heard("x", 1, NOW)
    assert not life.dead(NOW + 10 * TIMING.member_ttl_s), "nobody has asked it"
    now = NOW + TIMING.suspect_after_s
    number = life.begin("x", 2, now)
    life.probed("x", number, False, now)
    assert not life.dead(NOW + TIMING.member_ttl_s), "one has not answered yet"
    life.probed("x", number, False, now)
    assert not life.dead(NOW + TIMING.member_ttl_s - 0.1)
    assert life.dead(NOW + TIMING.member_ttl_s) == ["x"]


def test_a_member_that_was_wrongly_found_dead_has_longer() -> None:
    patience = Patience(TIMING)
    patience.was_short("x", NOW)
    life = Liveness(TIMING, patience)
    for name in ("w", "x"):
        life.heard(name, 1, NOW)
        life.probed(name, life.begin(name, 1, NOW + 4.0), False, NOW + 4.0)
    forgotten_s = 0.1  # patience becomes less as time goes by
    assert life.dead(NOW + 2 * TIMING.member_ttl_s - forgotten_s) == ["w"]
    assert life.dead(NOW + 2 * TIMING.member_ttl_s) == ["w", "x"]


def test_probes_without_an_answer_end_by_themselves() -> None:
    life = Liveness(TIMING, Patience(TIMING))
    life.heard("x", 1, NOW)
    now = NOW + TIMING.suspect_after_s
    life.begin("x", 2, now)
    assert not life.due(now + 1.0, 0.0)
    assert life.due(now + 10.0, 0.0) == ["x"]
    assert life.dead(now + 10.0) == ["x"]


def test_late_probe_answer_of_an_older_round_is_ignored() -> None:
    life = Liveness(TIMING, Patience(TIMING))
    life.heard("x", 1, NOW)
    old = life.begin("x", 1, NOW + 4.0)
    life.begin("x", 1, NOW + 8.0)
    life.probed("x", old, False, NOW + 8.1)
    assert not life.dead(NOW + 8.1)


def test_a_master_that_was_stopped_blames_nobody() -> None:
    head, now = head_with("b", "c")
    actions = [*head.tick(now + 60.0), *head.tick(now + 60.1)]
    assert ids(head.view) == ["a", "b", "c"]
    assert not any(type(action).__name__ == "Probe" for action in actions)


# --- two processes with one name --------------------------------------------------------------


def test_probes_rotate_fairly_through_many_silent_members() -> None:
    names = [f"{number:03}" for number in range(300)]
    liveness = Liveness(TIMING, Patience(TIMING))
    liveness.watch([member(name) for name in names], "a", NOW)
    asked: list[str] = []
    now = NOW + TIMING.suspect_after_s
    while len(asked) < 2 * len(names):
        for name in liveness.due(now, 0.0)[:20]:
            asked.append(name)
            liveness.probed(name, liveness.begin(name, 1, now), True, now)
        now += 0.5
    assert sorted(asked[: len(names)]) == names
    assert asked[len(names) :] == asked[: len(names)]


def test_master_says_without_a_ping_only_that_recently_heard_members_live() -> None:
    head, now = head_with("b", "c")
    assert not head.just_heard(address("b"), NOW + 0.5 * TIMING.suspect_after_s)
    head.on_heartbeat(Heartbeat(member("b"), head.view.number), now)
    assert head.just_heard(address("b"), now + 0.4 * TIMING.suspect_after_s)
    assert not head.just_heard(address("b"), now + 0.5 * TIMING.suspect_after_s)
    assert not head.just_heard(address("b", incarnation=2), now)
    assert not head.just_heard(address("x"), now)


def judge(claims: Claims, sender: NodeAddress, heard: float, now: float) -> Verdict:
    return claims.judge(sender, address("x", 5, "here"), heard, now)[0]


def test_a_restart_at_the_same_address_replaces_the_old_start_at_once() -> None:
    assert judge(Claims(TIMING), address("x", 6, "here"), NOW, NOW) is Verdict.ACCEPTED


def test_a_second_process_elsewhere_waits_and_is_refused_if_the_first_lives() -> None:
    claims = Claims(TIMING)
    assert judge(claims, address("x", 6, "there"), NOW, NOW) is Verdict.WAIT
    assert judge(claims, address("x", 6, "there"), NOW + 0.5, NOW + 1.0) is Verdict.DUPLICATE


@pytest.mark.parametrize("sender", [address("x", 6, "there"), address("x", 4, "here")])
def test_node_with_new_address_or_lower_incarnation_is_accepted_after_silence(
    sender: NodeAddress,
) -> None:
    claims = Claims(TIMING)
    assert judge(claims, sender, NOW, NOW) is Verdict.WAIT
    assert judge(claims, sender, NOW, NOW + TIMING.replace_after_s) is Verdict.ACCEPTED


def test_a_newer_process_of_a_lower_incarnation_gets_a_higher_sequence() -> None:
    head, now = head_with("b")
    old = head.view.by_id["b"]
    later = now + TIMING.replace_after_s
    head.tick(later)
    back = Member(replace(old.address, incarnation=old.address.incarnation - 1 or 7), 0)
    head.on_heartbeat(Heartbeat(back, 0), later)
    head.tick(later + 1.0)
    assert head.view.by_id["b"].address == back.address
    assert head.view.by_id["b"].sequence == old.sequence + 1


def test_dead_members_are_probed_once_more_after_one_returns() -> None:
    life = Liveness(TIMING, Patience(TIMING))
    for name in "xyz":
        life.heard(name, 1, NOW)
    now = NOW + TIMING.member_ttl_s

    def in_vain(name: str) -> None:
        life.probed(name, life.begin(name, 1, now), False, now)

    for name in "xyz":
        in_vain(name)
    assert life.dead(now) == ["x", "y", "z"]
    life.heard("x", 1, now)
    assert life.dead(now) == []
    assert life.due(now, 0.0) == ["y", "z"]
    in_vain("y")
    assert life.dead(now) == ["y"]
    life.probed("z", life.begin("z", 1, now), True, now)
    in_vain("x")
    life.heard("x", 1, now)
    assert life.dead(now) == ["y"], "once is enough"


# --- healed partitions ------------------------------------------------------------------------


class Returning:
    """Node x was partitioned together with y, and now receives the other part's views."""

    def __init__(self) -> None:
        self.node = membership("x", ["a"])
        self._latest = View.nothing()
        self.told([member("x"), member("y")])
        self.own_part = self.node.view

    def told(self, members: list[Member], *tombstones: Gone, now: float = NOW) -> View:
        self._latest = self._latest.next(members)
        update = ViewUpdate.whole(self._latest, gone=tombstones)
        self.node.on_heartbeat(Heartbeat(member("a"), self._latest.number, update), now)
        return self._latest

    def accused(self) -> None:
        """The other part reports x and y as dead. x objects, and is heard first."""
        self.told([member("a")], gone("x"), gone("y"))
        assert self.node.own.sequence == 1


def test_returning_node_adopts_no_view_missing_its_parts_members() -> None:
    x = Returning()
    x.accused()
    x.told([member("a"), member("x", 1)])
    assert x.node.view == x.own_part
    assert x.told([member("a"), member("x", 1), member("y", 1)]) == x.node.view


def test_returning_node_also_waits_when_another_objected_for_it() -> None:
    x = Returning()
    x.told([member("a"), member("x", 1)], gone("y"))
    assert x.node.view == x.own_part


def test_returning_node_waits_at_most_one_ttl() -> None:
    x = Returning()
    x.accused()
    partial = x.told([member("a"), member("x", 1)])
    assert x.node.next_at(NOW + TIMING.member_ttl_s - 0.1) <= NOW + TIMING.member_ttl_s
    x.node.tick(NOW + TIMING.member_ttl_s - 0.1)
    assert x.node.view == x.own_part
    x.node.tick(NOW + TIMING.member_ttl_s)
    assert x.node.view == partial


def test_returning_node_does_not_wait_for_a_member_that_left() -> None:
    x = Returning()
    x.accused()
    left = gone("y", 1, State.LEFT)
    assert x.told([member("a"), member("x", 1)], left) == x.node.view


def test_a_member_that_died_is_out_at_once() -> None:
    x = Returning()
    x.told([member("a"), member("x"), member("y")])
    assert x.told([member("a"), member("x")], gone("y")) == x.node.view


def test_member_without_a_tombstone_is_not_dropped_at_once() -> None:
    """A former master knows only the members that it has heard since."""
    x = Returning()
    all_three = x.told([member("a"), member("x"), member("y")])
    x.told([member("a"), member("x")])
    assert x.node.view == all_three


# --- one node ---------------------------------------------------------------------------------


def test_node_holds_its_view_returns_when_refused_and_never_after_its_goodbye() -> None:
    node = NodeState(member("x"), TIMING)
    two = View.nothing().next([member("x"), member("y")])
    one = two.next([member("x")])

    def after(view: View, now: float = NOW) -> tuple[Phase, View]:
        node.view_came(view, Table(1.0), now)
        return node.phase, node.view

    assert (node.phase, ids(node.view)) == (Phase.OUTSIDE, ["x"])
    assert after(two) == (Phase.MEMBER, two)
    assert after(one) == (Phase.HOLDING, two)
    assert node.waited(node.holds_until - 0.1) == []
    assert node.waited(node.holds_until) == [ViewChanged(one)]
    assert after(two) == (Phase.MEMBER, two)
    assert [type(action) for action in node.refuse("taken")] == [Refused, ViewChanged]
    assert (node.phase, ids(node.view), node.refuse("still")) == (Phase.REFUSED, ["x"], [])
    assert after(two) == (Phase.MEMBER, two)
    node.announce(State.LEFT)
    assert after(one, NOW + 2 * TIMING.member_ttl_s) == (Phase.LEFT, two)


def test_a_node_without_heads_is_a_cluster_of_its_own() -> None:
    alone = membership("a", [])
    assert alone.tick(NOW) == []
    assert (alone.view.number, ids(alone.view), alone.settled) == (0, ["a"], True)


def test_joins_that_come_together_make_one_view() -> None:
    head, _ = head_with("b", "c", "d", "e")
    assert head.view.counter == 2


def test_leaving_member_is_out_at_once_despite_a_late_heartbeat() -> None:
    head, now = head_with("b", "c")
    leaving = replace(head.view.by_id["b"], sequence=1, state=State.LEFT)
    late = Heartbeat(head.view.by_id["b"], head.view.number)
    head.on_heartbeat(Heartbeat(leaving, head.view.number), now + 1.0)
    head.on_heartbeat(late, now + 1.1)
    head.tick(now + 2.0)
    assert ids(head.view) == ["a", "c"]


def test_member_declared_dead_objects_and_rejoins() -> None:
    b = membership("b", ["a"])
    head, now = head_with("b", "c")
    head._roster.table.add_tombstone(gone("b", 0), now)
    head.tick(now + 1.0)
    assert ids(head.view) == ["a", "c"]
    answer, _ = head.on_heartbeat(Heartbeat(b.own, 0), now + 1.0)
    assert (answer.verdict, answer.accused) == (Verdict.WAIT, 1)
    b.tick(NOW)
    b.answered("a:1", answer, NOW)
    answer, _ = head.on_heartbeat(Heartbeat(b.own, 0), now + 1.1)
    assert answer.verdict is Verdict.ACCEPTED
    head.tick(now + 2.0)
    assert ids(head.view) == ["a", "b", "c"]


def test_fresh_heartbeat_overrides_another_masters_death_report() -> None:
    head, now = head_with("b", "c")
    other = head.view.next([member("c")])
    update = ViewUpdate.whole(other, gone=(gone("b", 0),))
    head.on_heartbeat(Heartbeat(member("c"), other.number, update), now + 0.1)
    head.tick(now + 1.0)
    assert ids(head.view) == ["a", "b", "c"]
    assert head.view.number > other.number
    assert head.view.by_id["b"].sequence == 1


def test_view_without_this_process_is_known_but_not_adopted() -> None:
    b = membership("b", ["a"])
    b.tick(NOW)
    view = View.nothing().next([member("a", head_rank=0), member("b", incarnation=9)])
    b.on_heartbeat(Heartbeat(member("a"), view.number, ViewUpdate.whole(view)), NOW)
    assert (b.latest.number, b.view.number) == (view.number, 0)


@pytest.mark.parametrize("number", [0, VIEW_NUMBER_MAX, 1 << 63])
def test_absurd_view_numbers_are_ignored(number: int) -> None:
    b = membership("b", ["a"])
    update = ViewUpdate(number, (member("a"), member("b")))
    b.on_heartbeat(Heartbeat(member("a"), number, update), NOW)
    assert b.latest.number == 0


def test_newer_view_is_requested_from_one_member_only() -> None:
    head, now = head_with("b", "c")
    newer = head.view.number + (5 << 32)
    beats = [Heartbeat(member(name), newer) for name in ("b", "c", "d")]
    wants = [head.on_heartbeat(beat, now)[0].wants_view for beat in beats]
    assert wants == [True, False, False]


# --- the last view on disk --------------------------------------------------------------------


def test_a_view_is_read_back_as_it_was_written(tmp_path: object) -> None:
    store = Store(str(tmp_path), "b")
    assert store.load() is None
    view = View.nothing().next([member("a", 3, head_rank=0), member("b", state=State.LEAVING)])
    store.save(view)
    assert store.load() == view


@pytest.mark.parametrize("damage", ["", "{}", "[]", '{"format": 2}', "torn"])
def test_damaged_view_file_is_ignored(tmp_path: object, damage: str) -> None:
    store = Store(str(tmp_path), "b")
    store.save(View.nothing().next([member("a")]))
    assert store.path is not None
    text = store.path.read_text()
    store.path.write_text(damage if damage != "torn" else text.replace('"a"', '"x"', 1))
    assert store.load() is None


def test_unwritable_state_folder_is_reported_without_raising(
    tmp_path: object, caplog: pytest.LogCaptureFixture
) -> None:
    store = Store(f"{tmp_path}/none", "b")
    store.save(View.nothing().next([member("a")]))
    assert "No such file" in caplog.text


# --- silent masters ---------------------------------------------------------------------------


def test_takeover_adds_candidates_only_after_a_wait() -> None:
    suspects: set[str] = set()
    acting = who_acts(suspects)
    assert acting(0.9) == "ab"
    assert acting(1.1) == "abcd"
    assert acting(3.9) == "abcd"
    assert acting(4.1) == "abcdef"


def test_takeover_skips_suspected_candidates_without_extra_wait() -> None:
    suspects = {"b", "c", "e"}
    acting = who_acts(suspects)
    assert acting(0.9) == "ab", "masters are asked as long as they are masters"
    assert acting(1.1) == "abdf"
    suspects.clear()
    assert acting(1.1) == "abdf", "not looked up for every heartbeat"
    assert acting(1.5) == "abcd"
    suspects |= set("cdef")
    assert acting(2.0) == "abgz"
    assert acting(4.1) == "abgz"


class Suspects:
    def __init__(self, names: set[str]) -> None:
        self._names = names

    def __contains__(self, address: object) -> bool:
        return isinstance(address, NodeAddress) and address.node_id in self._names


def who_acts(suspects: set[str]) -> Callable[[float], str]:
    """The nodes that act as masters, as z sees it. None of the masters has answered for this many
    TTLs."""
    view = View.nothing().next([member(name) for name in "abcdefgz"])
    order = Order(view, member("z"), 2, TIMING, Suspects(suspects))

    def acting(silence_ttl: float) -> str:
        silence_s = silence_ttl * TIMING.member_ttl_s
        found = order.masters(silence_s, NOW + silence_s)
        return "".join(m.node_id for m in found)

    return acting
