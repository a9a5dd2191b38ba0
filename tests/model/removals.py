"""Searches all that can happen in model/world.py, breadth first:

PYTHONPATH=tests .venv/bin/python -m model.removals         # what `make test` searches
PYTHONPATH=tests .venv/bin/python -m model.removals wide    # larger stories: ten minutes
"""

from __future__ import annotations

import sys
import time
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

from model import rules
from model.rules import RULES
from model.world import (
    AT_KNOWING,
    AT_MISSING,
    FOR_GOOD,
    FROM_LEFT,
    Node,
    Rules,
    Story,
    World,
    begin,
    is_over,
    steps,
    wrong,
)


class Fault(NamedTuple):
    """A story that is just long enough for the fault that its rule prevents. The search must find
    the fault when the rule is replaced by `without`."""

    story: Story
    kind: str
    rule: str
    without: Any


def nothing(*_: object) -> None:
    pass


def always(*_: object) -> bool:
    return True


def start_with_any_disk(w: World, node: Node) -> None:
    node.note = (node.journal.id, node.journal.last)
    rules.start(w, node)


FAULTS = {
    "a frozen node that was forgotten never learns": Fault(
        Story({"pause": "c", "cut": "c", "forget": "c"}, 3), AT_MISSING + FOR_GOOD,
        "contact", nothing,
    ),
    "a node that was cut off and forgotten moves removed pages": Fault(
        Story({"cut": "c", "forget": "c"}, 2, also={"move": "c"}), AT_KNOWING, "over", nothing
    ),
    "a node that only looked ended never learns": Fault(
        Story({"cut": "c", "reject": "c"}, 2), AT_MISSING + FOR_GOOD, "contact", nothing
    ),
    "state_dir and then the disk come from two backups": Fault(
        Story(
            {"restore state_dir of": "c", "later restore disk of": "c"}, 2, remove="a", removals=2,
            starts_max=3, also={"set": "c", "leave": "c", "backup": "c"}, without="b", settles=True,
        ),
        AT_MISSING, "start", start_with_any_disk,
    ),
    "another node has the address of a node that comes back": Fault(
        Story(
            {"cut": "c", "address": "b"}, 2, also={"leave": "b"}, starts_max=3, settles=True
        ),
        AT_MISSING + FOR_GOOD, "contact", nothing,
    ),
    "a node that has left answers `removing`": Fault(
        Story({}, 0, also={"leave": "ab"}), FROM_LEFT, "may_remove", always
    ),
    "a start that ends before it asks hides a backup": Fault(
        Story(
            {"restore state_dir of": "c", "restore disk of": "c", "crash": "c"}, 3, remove="a",
            starts_max=3, also={"leave": "c", "backup": "c"}, without="b", settles=True,
        ),
        AT_MISSING + FOR_GOOD, "knows_later", lambda *_: False,
    ),
}  # fmt: skip

STORIES = {
    "replicas": Story({"cut": "c", "forget": "c"}, 2, also={"replica": "c"}),
    "two removals": Story(
        {"cut": "c", "forget": "c"}, 2, remove="a", removals=2, also={"set": "c"}
    ),
    "two nodes are away": Story({"cut": "bc", "forget": "c"}, 2, remove="a", also={"move": "c"}),
    "the driver is killed": Story({"kill": "a", "cut": "c"}, 2, remove="a", starts_max=2),
    "others reach it one way": Story({"cut in": "c", "forget": "c"}, 2, remove="a"),
    "it reaches others one way": Story({"cut out": "c", "forget": "c"}, 2, remove="a"),
    "an answer to a start gets lost": Story(
        {"cut": "c", "forget": "c", "lost": "a"}, 3, remove="a", starts_max=2, away="b"
    ),
    "two nodes were forgotten": Story(
        {"cut": "a", "forget": "bc"}, 3, remove="a", also={"set": "b"}
    ),
}
# Ten minutes in all.
WIDE = {
    "a node takes its address and meets it": Story(
        {"cut": "c", "address": "b"}, 2, remove="a", starts_max=2, away="b"
    ),
    "a node takes its address after a kill": Story(
        {"cut": "c", "kill": "b", "address": "b"}, 3, remove="a", starts_max=2
    ),
    "a start while a node is frozen": Story(
        {"pause": "c", "cut": "c", "forget": "c", "lost": "ab"}, 4, remove="a", starts_max=2,
        away="b",
    ),
    "kills": Story(
        {"kill": "bc", "cut": "c", "forget": "c"}, 3, remove="a", starts_max=3,
        also={"replica": "c"},
    ),
    "the driver is killed, a node forgotten": Story(
        {"kill": "a", "cut": "c", "forget": "c"}, 3, remove="a", starts_max=2
    ),
    "two nodes are away, one frozen": Story(
        {"cut": "bc", "forget": "c", "pause": "b"}, 3, remove="a", also={"move": "c"}
    ),
    "others reach it one way, and views lag": Story(
        {"cut in": "c", "reject": "c", "forget": "c", "lag": "b"}, 3, remove="a",
        also={"replica": "c"},
    ),
    "it reaches others one way, and views lag": Story(
        {"cut out": "c", "forget": "c", "lag": "b"}, 3, remove="a"
    ),
}  # fmt: skip


class Found(NamedTuple):
    states: int
    stories: dict[str, list[str]]  # the shortest one of each kind of wrong answer


def search(
    story: Story,
    rules: Rules = RULES,
    wanted: str = "",
    each: Callable[[World], None] | None = None,
) -> Found:
    """Goes through all states, or until it finds the wanted kind. `each` is called with each."""
    first = begin(story, rules)
    came: dict[int, tuple[int, str]] = {}
    seen = {first.key(): 0}
    waiting = deque([(0, first)])
    stories: dict[str, list[str]] = {}
    while waiting:
        number, w = waiting.popleft()
        if each is not None:
            each(w)
        for text, after in () if is_over(w) else steps(w):
            key = after.key()
            if key in seen:
                continue
            at = seen[key] = len(seen)
            came[at] = (number, text)
            waiting.append((at, after))
            for kind in wrong(after):
                if kind not in stories:
                    stories[kind] = _how(came, at)
            if wanted in stories:
                return Found(len(seen), stories)
    return Found(len(seen), stories)


def _how(came: dict[int, tuple[int, str]], at: int) -> list[str]:
    texts = []
    while at:
        at, text = came[at]
        texts.append(text)
    return texts[::-1]


def main() -> None:
    stories = {name: fault.story for name, fault in FAULTS.items()} | STORIES
    if "wide" in sys.argv:
        stories |= WIDE
    for name, story in stories.items():
        began = time.monotonic()
        found = search(story)
        print(f"{name}: {found.states} states in {time.monotonic() - began:.1f} s")
        for kind, texts in found.stories.items():
            print(f"    found {kind}: {'; '.join(texts)}")


if __name__ == "__main__":
    main()
