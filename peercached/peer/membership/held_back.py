"""The health sentence of a node that must wait to join, for both kinds of membership."""

from __future__ import annotations

from peercached.health import Say, kinds


def say_waits(say: Say, reason: str) -> None:
    say(
        kinds.NOT_A_MEMBER_YET,
        f"Not a member yet: {reason}. This node takes no sets meanwhile.",
        "It joins by itself later. If it keeps leaving and joining, find out why it stops or loses "
        "the network.",
    )
