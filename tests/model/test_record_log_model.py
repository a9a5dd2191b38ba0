"""The model of the record log shows that its rules suffice, and that each is needed.

PYTHONPATH=tests .venv/bin/python -m model.test_record_log_model    # how many states
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable

import pytest

from model.record_log import (
    Rules,
    World,
    begin,
    healed,
    is_known,
    records,
    says_final,
    steps,
    wrong,
)

RULES = Rules()
STORIES = {
    "pushes and answers": begin(set0=2, remove=1, ask=1, push=2),
    "a view changes": begin(set0=1, ask=2, push=1, view=3),
    "a holder joins": begin(set1=1, ask=3, push=1, view=3),
    "leases end": begin(set0=1, remove=1, ask=2, push=1, expire=1),
    "records are lost": begin(set0=1, remove=1, ask=2, push=1, lose=1),
    "the log is cut": begin(set0=1, remove=1, ask=1, push=1, trim=1, lose=1),
}


def search(
    rules: Rules, first: World, each: Callable[[World], None] | None = None
) -> tuple[int, dict[str, list[str]]]:
    """Goes through all states. Returns their number, and the shortest way to each wrong kind."""
    seen: dict[World, tuple[World | None, str]] = {first: (None, "")}
    waiting = deque([first])
    found: dict[str, list[str]] = {}
    while waiting:
        w = waiting.popleft()
        if each is not None:
            each(w)
        for kind in wrong(w, rules):
            if kind not in found:
                found[kind] = way(seen, w)
        if found and rules != RULES:
            break
        for text, after in steps(w, rules):
            if after not in seen:
                seen[after] = (w, text)
                waiting.append(after)
    return len(seen), found


def way(seen: dict[World, tuple[World | None, str]], w: World) -> list[str]:
    texts = []
    at: World | None = w
    while at is not None:
        at, text = seen[at]
        texts.append(text)
    return texts[-2::-1]


QUICK = ("a view changes", "the log is cut")


@pytest.mark.parametrize(
    "name",
    [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in STORIES],
)
def test_the_rules_suffice(name: str) -> None:
    _, found = search(RULES, STORIES[name])
    assert found == {}


NEEDED = {
    "a_push_fits_the_position": "pushes and answers",
    "a_scan_has_the_position_before_it": "the log is cut",
    "a_lease_comes_with_the_end_of_the_log": "the log is cut",
    "a_lease_counts_in_its_view_alone": "a view changes",
    "a_set_waits_for_leases_of_other_views": "a view changes",
    "a_removal_waits_for_all_leases": "pushes and answers",
    "a_new_holder_waits_until_all_have_asked": "a holder joins",
    "a_question_names_the_lease": "a view changes",
    "an_answer_counts_from_its_question": "leases end",
    "a_lease_is_waited_for_to_its_end": "pushes and answers",
    "a_follower_that_loses_records_loses_its_lease": "records are lost",
}


@pytest.mark.parametrize("rule", Rules._fields)
def test_this_rule_is_needed(rule: str) -> None:
    assert search(RULES._replace(**{rule: False}), STORIES[NEEDED[rule]])[1]


@pytest.mark.parametrize("name", ["a view changes", "records are lost"])
def test_all_know_all_once_messages_arrive(name: str) -> None:
    def heals(w: World) -> None:
        after = healed(w, RULES)
        assert says_final(after.followers[1], 1, RULES)
        for number, h in enumerate(after.holders):
            assert all(f.feeds[number].table == records(h.log) for f in after.followers)
            assert all(is_known(h, change, RULES) for change in h.waits)

    small = STORIES[name]
    search(RULES, small._replace(left=tuple((n, min(c, 1)) for n, c in small.left)), heals)


def main() -> None:
    for name, first in STORIES.items():
        began = time.monotonic()
        states, found = search(RULES, first)
        print(f"{name}: {states} states in {time.monotonic() - began:.1f} s {found or ''}")


if __name__ == "__main__":
    main()
