"""Sentences about removals for `status`, each with a remedy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from peercached.health import Say, kinds

RUNNING_LONG_S = 30.0


def say_removals(say: Say, removals: Mapping[str, Any]) -> None:
    if removals.get("waiting"):
        say(
            kinds.REMOVALS_NOT_KEPT,
            f"{removals['waiting']} removals could not be written down in state_dir: "
            f"{removals['problem']}. After a restart those pages may come back.",
            "Make room in state_dir, or make it writable; it is tried again each second.",
        )
    if removals.get("unsure"):
        missing = "; ".join(f"{who}: {why}" for who, why in sorted(removals["missing"].items()))
        say(
            kinds.REMOVAL_INCOMPLETE,
            f"{removals['unsure']} pages are being removed since {removals['unsure_s']:.0f} s, and "
            f"may still be found somewhere: {missing}. Until then they cannot be set.",
            "Bring that node back, or end its daemon; of a host that is off or gone for good: "
            "peercachectl forget NODE.",
        )
    elif removals.get("running_s", 0.0) > RUNNING_LONG_S:
        say(
            kinds.REMOVAL_ELSEWHERE,
            f"{removals['running']} pages are being removed by other nodes since "
            f"{removals['running_s']:.0f} s, and cannot be set.",
            "peercachectl status at the other nodes says who has not answered yet.",
        )
    if removals.get("held_back_for"):
        names = ", ".join(removals["held_back_for"])
        say(
            kinds.PAGES_HELD_BACK,
            "Pages of an earlier start are held back: some may have been removed since, and of "
            f"those who know ({names}) not enough have answered.",
            "Start the daemons of those nodes; of one that is gone for good: peercachectl forget "
            "NODE.",
        )
    if removals.get("store_problem"):
        say(
            kinds.MISSED_REMOVALS_NOT_KEPT,
            "What other nodes have missed cannot be kept in state_dir: "
            f"{removals['store_problem']}.",
            "Make room in state_dir, or make it writable.",
        )
