"""The health sentence of a node that must wait to join, for both kinds of membership."""

from __future__ import annotations

from peercached.health import Say, kinds


def say_waits(say: Say, reason: str) -> None:
    say(
        kinds.NOT_A_MEMBER_YET,
        f"Not a member yet, so this node takes no sets: {reason}.",
        "It joins by itself; if it comes and goes, look for why it stops or loses the network.",
    )
