"""The status document (admin/status.py) of a running node, put together from its parts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from peercached.component import Component
from peercached.health import Findings

if TYPE_CHECKING:
    from peercached._native import Engine


class NodeStatus:
    """On the event loop's thread."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._parts: list[Component] = []

    def add(self, *parts: Component) -> None:
        """Adds parts of the node. Their findings are reported in this order."""
        self._parts.extend(parts)

    def findings(self) -> Findings:
        """A health check alone."""
        stats = self._engine.stats()
        findings = Findings()
        for part in self._parts:
            part.say(findings.say, stats)
        return findings

    def document(self) -> dict[str, Any]:
        stats = self._engine.stats()
        findings = Findings()
        sections: dict[str, Any] = {}
        control: dict[str, int] = {}
        for part in self._parts:
            part.say(findings.say, stats)
            sections |= part.sections(stats)
            control |= part.control_counters(stats)
        return {
            **sections,
            "health": findings.document(),
            "operations": {**stats.get("operations", {}), "control": control},
        }

    def line(self) -> str:
        """One line for the service manager."""
        now = self.document()
        members, pool = now["membership"]["members"], now["pool"]
        used = pool.get("used_bytes", 0) / max(pool.get("capacity_bytes", 0), 1)
        health = now["health"]
        worst = next(
            (h for severity in ("error", "warning") for h in health if h["severity"] == severity),
            None,
        )
        others = len(members) - 1
        return (
            f"Serving, with {others} other node{'' if others == 1 else 's'}; pool {used:.0%} used; "
            + (worst["sentence"] if worst else "healthy.")
        )
