"""A sign of life tells whether its sender has the same namespace epochs."""

from __future__ import annotations

from typing import Any, cast

from peercached.peer.membership.embedded.life_signs import LifeSigns

INFINITY = float("inf")


class Engine:
    def __init__(self, mark: int) -> None:
        self.mark = mark

    def epochs_mark(self) -> int:
        return self.mark

    def take_life_signs(self) -> list[tuple[int, int, int, int, bool, float, float]]:
        return [(1, 7, 0, 5, True, 0.5, 0.5), (2, 7, 0, 6, False, 0.25, INFINITY)]


def test_life_sign_flags_matching_epochs_of_its_sender() -> None:
    same, other = LifeSigns(cast(Any, Engine(mark=5))).take(100.0)
    assert (same.incarnation, same.same_epochs, same.at, same.answered_at) == (1, True, 99.5, 99.5)
    assert (other.incarnation, other.same_epochs, other.answered_at) == (2, False, -INFINITY)
