"""Sentences about removals for `status`, each with a remedy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from peercached.health import Say, kinds, lasting

RUNNING_LONG_S = 30.0
# Among the nodes that have not confirmed a removal.
THE_STORE = "the object store"


def say_removals(say: Say, removals: Mapping[str, Any], own_id: str) -> None:
    if removals.get("waiting"):
        say(
            kinds.REMOVALS_NOT_KEPT,
            f"{removals['waiting']} removals cannot be written to state_dir: "
            f"{removals['problem']}. A restart may bring those pages back.",
            "Make room in state_dir, or make it writable; it is tried again each second.",
        )
    if removals.get("unsure"):
        _say_unconfirmed(say, removals, own_id)
    elif removals.get("running_s", 0.0) > RUNNING_LONG_S:
        say(
            kinds.REMOVAL_ELSEWHERE,
            f"Other nodes have been removing {removals['running']} pages for "
            f"{removals['running_s']:.0f} s. These pages cannot be set until that ends.",
            "Run peercachectl status on the other nodes: it names the nodes that have not "
            "confirmed.",
        )
    if removals.get("held_back_for"):
        names = ", ".join(removals["held_back_for"])
        say(
            kinds.PAGES_HELD_BACK,
            "Older pages are held back and not served: some may have been removed while this node "
            f"was away. Too few of the nodes that would know ({names}) have answered.",
            "Start the daemons on those nodes. If a node is gone for good, run: peercachectl "
            "forget NODE.",
        )
    if removals.get("store_problem"):
        say(
            kinds.MISSED_REMOVALS_NOT_KEPT,
            "Removals that other nodes have missed cannot be written to state_dir: "
            f"{removals['store_problem']}. A restart may forget them.",
            "Make room in state_dir, or make it writable.",
        )


def _say_unconfirmed(say: Say, removals: Mapping[str, Any], own_id: str) -> None:
    others = dict(removals["missing"])
    here = others.pop(own_id, "")
    whys = [f"this node: {here}"] if here else []
    whys += [f"{who}: {why}" for who, why in sorted(others.items())]
    silent_nodes = set(others) - {THE_STORE}
    if others:
        until = "those nodes confirm" if silent_nodes else "it confirms"
        where = f"Until {until}, the pages may still be found there, and cannot be set."
    else:
        where = "Until this node can go on, the pages cannot be set."
    remedies = []
    if here:
        remedies.append(
            "The removal goes on by itself once this node can: see the other findings here."
        )
    if THE_STORE in others:
        remedies.append(
            "The removal goes on by itself once the object store answers: look at the store that "
            "cold_store names, and at the network to it."
        )
    if silent_nodes:
        remedies.append(
            "Start those nodes again, or stop their daemons. If a host is off or gone for good, "
            "run: peercachectl forget NODE."
        )
    say(
        kinds.REMOVAL_INCOMPLETE,
        f"The removal of {removals['unsure']} pages is unconfirmed"
        f"{lasting(removals['unsure_s'])}: {'; '.join(whys)}. {where}",
        " ".join(remedies),
    )
