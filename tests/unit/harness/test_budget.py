"""Keeps `make test` short: the number of tests in each folder must stay within its budget."""

import re
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

TESTS = Path(__file__).parents[2]
BUDGET: dict[str, dict[str, int]] = tomllib.loads((TESTS / "budget.toml").read_text())


def over(counted: Counter[str], budget: dict[str, int]) -> list[str]:
    """One sentence for each folder that exceeds its budget or has none."""
    return [
        f"{room} has {count}, and its budget is {budget.get(room, 0)}"
        for room, count in counted.items()
        if count > budget.get(room, 0)
    ]


def is_story(item: Any) -> bool:
    parameters = getattr(item, "callspec", None)
    return item.path.name in (
        "test_cluster.py",
        "test_real_engine.py",
        "test_removals.py",
    ) and bool(parameters and {"seed", "kind"} & set(parameters.params))


def test_python_tests_keep_to_the_budget_of_their_room(request: pytest.FixtureRequest) -> None:
    """Counts the collected tests, so only a run of all tests checks every folder."""
    assert not request.config.getoption("lf", False), "only the first run counts all tests"
    if "not slow" not in request.config.getoption("-m"):
        pytest.skip("this run has tests that are not for every run")
    items = request.session.items
    rooms = Counter(item.path.relative_to(TESTS).parts[0] for item in items)
    stories = Counter("sim" for item in items if item.path.parent.name == "sim" and is_story(item))
    assert not over(rooms, BUDGET["tests"])
    assert not over(stories, BUDGET["stories"])


def test_native_tests_keep_to_the_budget_of_their_room() -> None:
    tests = re.compile(r"^TEST(?:_F|_P)?\(", re.MULTILINE)
    rooms: Counter[str] = Counter()
    native = TESTS / "native"
    for source in native.rglob("*_test.cc"):
        rooms[source.relative_to(native).parts[0]] += len(tests.findall(source.read_text()))
    assert not over(rooms, BUDGET["native"])


def test_a_room_above_its_budget_is_named() -> None:
    counted = Counter({"small": 2, "large": 9, "new": 1})
    assert over(counted, {"small": 2, "large": 8}) == [
        "large has 9, and its budget is 8",
        "new has 1, and its budget is 0",
    ]
