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
        """Sets our own sign. It expires after `for_s`, so a control plane that hangs gives none."""
        self._engine.set_life_sign(sign.view_number, sign.sequence, sign.is_master, for_s)

    def take(self, now: float) -> list[Sign]:
        """The signs received since the last call."""
        mark = self._engine.epochs_mark()
        return [
            Sign(
                incarnation,
                view_number,
                sequence,
                is_master,
                now - ago_s,
                now - answered_ago_s,
                epochs_mark == mark,
            )
            for (
                incarnation,
                view_number,
                sequence,
                epochs_mark,
                is_master,
                ago_s,
                answered_ago_s,
            ) in self._engine.take_life_signs()
        ]
