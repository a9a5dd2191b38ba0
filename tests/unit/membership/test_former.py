"""Former members: a master asks them while no head answers."""

from __future__ import annotations

import random
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

from peercached.membership import (
    Gone,
    Heartbeat,
    HeartbeatAnswer,
    Member,
    NodeAddress,
    SendBeat,
    State,
    Timing,
    Verdict,
    View,
    ViewUpdate,
)
from peercached.membership.former import FORMER_MAX, Former
from peercached.membership.membership import Membership

TIMING = Timing(1.0, 5.0)
NOW = 1000.0
HEAD = "h:1"


def member(node_id: str, host: str = "") -> Member:
    return Member(
        NodeAddress(node_id, 1, host or node_id, 1, 2), head_rank=0 if host == "h" else 99
    )


def view_of(*members: Member) -> View:
    return View.nothing().next(tuple(sorted(members, key=lambda m: m.node_id)), 0)


def asked(former: Former) -> list[str]:
    return sorted(address.node_id for address in former.addresses())


def test_lost_members_are_asked_until_they_are_back_or_have_left() -> None:
    gone: dict[str, Gone] = {}
    former = Former([member("r")], "x", cast(Any, SimpleNamespace(gone=gone.get)))
    four = view_of(member("x"), member("a"), member("b"), member("c"))
    former.saw(four, view_of(member("x"), member("c")))
    assert asked(former) == ["a", "b", "r"]
    former.saw(view_of(member("x"), member("c")), view_of(member("x"), member("a"), member("c")))
    assert asked(former) == ["b", "r"]
    gone["b"] = Gone("b", 1, 1, State.LEFT, 0.0)
    former.saw(view_of(member("x"), member("a")), view_of(member("x"), member("a")))
    assert asked(former) == ["r"]


def test_former_members_are_bounded() -> None:
    members = [member(f"{number:03}") for number in range(100)]
    former = Former(members, "x", cast(Any, SimpleNamespace(gone=lambda _: None)))
    assert len(former.addresses()) == FORMER_MAX
    former.saw(view_of(member("x"), *members), view_of(member("x")))
    assert len(former.addresses()) == FORMER_MAX


def sole_master(*lost: Member) -> tuple[Membership, float]:
    """Node x after its head and the `lost` have died."""
    own = member("x")
    x = Membership(own.address, [HEAD], None, TIMING, NOW, random.Random(1))
    before = view_of(member("h", "h"), own, *lost)
    x.tick(NOW)
    update = ViewUpdate.whole(before)
    x.answered(HEAD, HeartbeatAnswer(Verdict.ACCEPTED, "", update, "h"), NOW)
    assert x.view.has(own.address)
    now = NOW
    while "h" in x.latest.by_id or len(x.latest.members) > 1:
        now += 0.1
        assert now < NOW + 100, x.latest
        for action in x.tick(now):
            if isinstance(action, SendBeat):
                x.failed(action.endpoint, "dead", now)
    return x, now


def beats(x: Membership, now: float, seconds: float) -> list[SendBeat]:
    found = []
    for step in range(int(seconds * 10)):
        for action in x.tick(now + step / 10):
            if isinstance(action, SendBeat):
                found.append(action)
                x.failed(action.endpoint, "dead", now + step / 10)
    return found


def test_a_master_asks_only_the_very_node_that_it_lost() -> None:
    lost = replace(member("b"), address=replace(member("b").address, key=b"k" * 32))
    x, now = sole_master(lost)
    to = {beat.endpoint: beat.only for beat in beats(x, now, 30.0)}
    assert to == {HEAD: None, "b:1": lost.address}


def test_a_master_never_asks_itself_after_it_was_renamed() -> None:
    x, now = sole_master(member("its former name", host="x"))
    assert {beat.endpoint for beat in beats(x, now, 30.0)} == {HEAD}


def test_a_former_members_word_of_us_ends_no_mastership() -> None:
    x, now = sole_master(member("b"))
    end = now + 30.0
    while now < end:
        now += 0.1
        for action in x.tick(now):
            if not isinstance(action, SendBeat):
                continue
            if action.endpoint == HEAD:
                x.failed(HEAD, "dead", now)
            else:
                verdict = Verdict.DUPLICATE if action.beat.view_number % 2 else Verdict.WAIT
                x.answered(action.endpoint, HeartbeatAnswer(verdict, "no", responder="b"), now)
        assert x.is_master(now)
    assert not x.refused
    answer, _ = x.on_heartbeat(Heartbeat(member("d"), 0), now)
    assert answer.verdict is Verdict.ACCEPTED
