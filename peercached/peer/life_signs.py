"""Signs of life between membership and the engine's followers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from peercached.membership.signs import OwnSign, Sign

if TYPE_CHECKING:
    from peercached._native import Engine


class LifeSigns:
    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def say(self, sign: OwnSign, for_s: float) -> None:
        """Until the next call, at most for so long: a control plane that hangs says nothing."""
        self._engine.say_life(sign.view_number, sign.sequence, sign.in_office, for_s)

    def take(self, now: float) -> list[Sign]:
        """Whoever was heard since the last call. Nodes that know of other epochs of namespaces
        have something to tell each other, so theirs are left out."""
        mark = self._engine.epochs_mark()
        return [
            Sign(incarnation, view_number, sequence, in_office, now - ago_s, now - answered_ago_s)
            for (
                incarnation,
                view_number,
                sequence,
                epochs_mark,
                in_office,
                ago_s,
                answered_ago_s,
            ) in self._engine.take_life_signs()
            if epochs_mark == mark
        ]
