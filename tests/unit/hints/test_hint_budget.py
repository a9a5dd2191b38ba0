"""The budget of hints: equal parts for tenants and namespaces, and a bounded flow."""

from __future__ import annotations

from peercached.hints.budget import ACTIVE_S, NAMESPACES_MAX, REFILL_S, Budget

TOTAL = 1200


def test_namespaces_have_equal_parts() -> None:
    budget = Budget()
    budget.hear("a", 0)
    assert budget.part("a", TOTAL) == TOTAL
    budget.hear("b", 0)
    budget.hear("c", 0)
    assert [budget.part(name, TOTAL) for name in "abc"] == [400] * 3
    assert budget.part("never heard", TOTAL) == TOTAL // 4, "as the next one"


def test_tenant_gains_nothing_by_more_namespaces() -> None:
    budget = Budget(["big/*", "small/*"])
    for name in ("big/1", "big/2", "big/3", "small/1"):
        budget.hear(name, 0)
    assert budget.part("small/1", TOTAL) == TOTAL // 2
    assert [budget.part(f"big/{n}", TOTAL) for n in (1, 2, 3)] == [TOTAL // 6] * 3


def test_silent_namespace_leaves_its_part_to_others() -> None:
    budget = Budget()
    budget.hear("a", 0)
    budget.hear("b", 0)
    budget.hear("a", ACTIVE_S)
    budget.forget(ACTIVE_S)
    assert budget.part("a", TOTAL) == TOTAL
    assert budget.part("b", TOTAL) == TOTAL // 2, "as a new one"


def test_flow_of_a_namespace_is_its_part_in_each_period() -> None:
    budget = Budget()
    budget.hear("a", 0)
    assert budget.left("a", TOTAL, 0) == TOTAL
    budget.spend("a", TOTAL, TOTAL, 0)
    assert budget.left("a", TOTAL, 0) == 0
    assert budget.left("a", TOTAL, REFILL_S / 4) == TOTAL // 4
    budget.spend("a", TOTAL // 4, TOTAL, REFILL_S / 4)
    assert budget.left("a", TOTAL, REFILL_S / 4) == 0
    assert budget.left("a", TOTAL, 9 * REFILL_S) == TOTAL, "never more than its part"


def test_spending_of_one_costs_no_other() -> None:
    budget = Budget()
    budget.hear("a", 0)
    budget.hear("b", 0)
    budget.spend("a", 10 * TOTAL, TOTAL, 0)
    assert (budget.left("a", TOTAL, 0), budget.left("b", TOTAL, 0)) == (0, TOTAL // 2)


def test_number_of_namespaces_is_bounded() -> None:
    budget = Budget()
    for number in range(NAMESPACES_MAX):
        budget.hear(f"n{number}", 0)
    budget.hear("one more", 1)
    assert budget.part("one more", TOTAL) == budget.left("one more", TOTAL, 1) == 0
    budget.hear("n0", 1)
    budget.forget(ACTIVE_S)  # the others were silent for so long
    assert budget.part("n0", TOTAL) == TOTAL
    assert budget.part("one more", TOTAL) == TOTAL // 2


def test_report_has_the_last_first() -> None:
    budget = Budget(["t/*"])
    budget.hear("a", 0)
    budget.hear("t/b", 1)
    found = [(one.namespace, one.tenant, one.part_bytes) for one in budget.spenders(TOTAL, 1)]
    assert found == [("t/b", "t/*", 600), ("a", "a", 600)]
