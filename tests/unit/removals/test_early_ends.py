"""Ends of removals that come before the removal: each member has a bounded share of the memory."""

from __future__ import annotations

from peercached.membership.view import MEMBERS_MAX
from peercached.removals.early_ends import ANSWERS_MAX, EarlyEnds
from peercached.removals.ledger import RemovalId


def test_a_member_that_makes_up_ends_pushes_out_only_its_own() -> None:
    early, real = EarlyEnds(), RemovalId(1, 1)
    early.note(real, {1: 7}, by=1)
    most = ANSWERS_MAX // MEMBERS_MAX
    made_up = [RemovalId(9, number) for number in range(1, 3 * most)]
    for id in made_up:
        early.note(id, dict.fromkeys(range(MEMBERS_MAX), 0), by=2)
    kept = [id for id in made_up if early.take(id) is not None]
    assert kept == made_up[-len(kept) :]
    assert 1 < len(kept) <= most
    assert early.take(real) == {1: 7}
    assert early.take(real) is None


def test_ends_told_by_processes_that_are_no_members_any_more_are_forgotten() -> None:
    early = EarlyEnds()
    for member in (1, 2):
        early.note(RemovalId(member, 1), {}, by=member)
    early.keep_only({2})
    assert early.take(RemovalId(1, 1)) is None
    assert early.take(RemovalId(2, 1)) == {}
