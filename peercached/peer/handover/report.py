"""Progress and outcome of a drain, for `status` and `peercachectl drain`."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from peercached.directory.placement import Node
from peercached.health import Say, kinds

NO_DRAIN = "no"


@dataclass(slots=True)
class Progress:
    state: str = NO_DRAIN  # or "handing over", "drained", "leaving", "left"
    pages: int = 0  # held when it began
    bytes: int = 0
    budget_bytes: int = 0
    offered: int = 0  # pages within the budget
    too_large: int = 0  # pages within the budget, but too large to be offered
    handed_pages: int = 0
    handed_bytes: int = 0
    stored_pages: int = 0  # written to the object store
    stored_bytes: int = 0
    complete: bool = False  # all pages within the budget are at peers or in the object store
    outcome: str = ""
    began: float = field(default_factory=time.monotonic)

    @staticmethod
    def begun(pool: Mapping[str, Any], budget_bytes: int) -> Progress:
        return Progress("handing over", pool["keys"], pool["payload_bytes"], budget_bytes)

    def handed(self, length: int) -> None:
        self.handed_pages += 1
        self.handed_bytes += length

    def end(self, out: Mapping[Node, str]) -> None:
        """All offers are made. `out`: why each of these peers took nothing more."""
        self.complete = self.handed_pages >= self.offered
        if self.complete:
            beyond = self.pages - self.offered - self.too_large
            why = f"; {beyond} were beyond the budget" if beyond > 0 else ""
        elif out:
            why = f"; the peers took no more ({_each(out)})"
        else:
            why = "; there is no other node that can take them"
        self.outcome = self._handed() + why

    def end_late(self, seconds: float, silent: Mapping[Node, str]) -> None:
        """`silent`: peers that gave no answer lately, and why."""
        why = f" (no answer from {_each(silent)})" if silent else ""
        self.outcome = f"{self._handed()}; then the {seconds:g} s were over{why}"

    def stored(self, pages: int, size_bytes: int, all_left: bool) -> None:
        """After the end. `all_left`: the store has all pages within the budget that no peer
        took."""
        self.stored_pages, self.stored_bytes = pages, size_bytes
        self.complete = self.complete or all_left
        if pages:
            self.outcome += f"; {pages} pages were written to the object store"

    def end_broken(self, error: Exception) -> None:
        self.outcome = f"{self._handed()}; then it failed: {type(error).__name__}: {error}"

    def _handed(self) -> str:
        handed = f"{self.handed_pages} of {self.pages} pages were handed to peers"
        if self.too_large:
            handed += f", {self.too_large} are larger than 64 MiB and stay"
        return handed

    def document(self, refused_pages: int) -> dict[str, Any]:
        """The fields of admin.status.Drain."""
        return {
            "state": self.state,
            "seconds": 0.0 if self.state == "no" else time.monotonic() - self.began,
            "pages": self.pages,
            "bytes": self.bytes,
            "budget_bytes": self.budget_bytes,
            "handed_pages": self.handed_pages,
            "handed_bytes": self.handed_bytes,
            "stored_pages": self.stored_pages,
            "stored_bytes": self.stored_bytes,
            "complete": self.complete,
            "outcome": self.outcome,
            "refused_pages": refused_pages,
        }

    def say(self, say: Say, refused_pages: int) -> None:
        if self.state == "no":
            return
        told = self.outcome or f"{self._handed()} so far"
        say(
            kinds.DRAINING,
            f"This node takes no new pages because of a drain (state: {self.state}); "
            f"{refused_pages} were refused. {told}.",
            "It has left the cluster: stop it, or restart it to bring it back."
            if self.state in ("leaving", "left")
            else "`peercachectl undrain` makes it take pages again.",
        )


def _each(reasons: Mapping[Node, str]) -> str:
    return "; ".join(f"{node.address.node_id}: {why}" for node, why in reasons.items())
