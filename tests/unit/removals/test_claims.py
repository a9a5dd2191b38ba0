"""Debts to other members."""

from __future__ import annotations

from peercached.removals.claims import Claims
from peercached.removals.processes import Process

MEMBER, OTHER = ("m", 1), ("o", 2)


def process(node_id: str, incarnation: int) -> Process:
    return Process(node_id, incarnation, "h", 1)


def test_a_member_s_last_word_counts() -> None:
    claims = Claims("self")
    assert claims.say(MEMBER, [process("a", 11), process("b", 12), process("self", 13)])
    assert claims.say(OTHER, [process("b", 12)])
    assert claims.owing() == {11, 12}
    assert claims.creditors_of(12) == {"m", "o"} and not claims.creditors_of(1)
    assert not claims.say(MEMBER, [process("b", 12), process("a", 11)]), "that is no news"
    assert claims.say(MEMBER, [])
    assert claims.owing() == {12} and not claims.are_of(MEMBER)


def test_claims_of_members_that_are_gone_are_taken_out() -> None:
    claims = Claims("self", [(MEMBER, process("a", 11)), (OTHER, process("b", 12))])
    assert [one.name for one in claims.without([OTHER])] == [("a", 11)]
    assert claims.owing() == {12} and not claims.without([OTHER])
