"""Nodes that were refused because a setting that must be equal differs (config/shared.py)."""

from __future__ import annotations

# Nodes that `status` names, and for how long after their last attempt.
UNLIKE_MAX = 16
UNLIKE_LATELY_S = 60.0


class OtherSettings(ValueError):
    """A caller has another value of a setting that must be equal; the text is for people."""


class UnlikeSettings:
    """Nodes that were refused lately because of their settings. `now` is monotonic seconds."""

    def __init__(self) -> None:
        self._found: dict[str, tuple[str, float]] = {}  # by node id, the latest last

    def add(self, node_id: str, differs: str, now: float) -> None:
        self._found.pop(node_id, None)
        self._found[node_id] = differs, now
        if len(self._found) > UNLIKE_MAX:
            del self._found[next(iter(self._found))]

    def lately(self, now: float) -> dict[str, str]:
        """The differences, by node id."""
        return {n: text for n, (text, at) in self._found.items() if now - at < UNLIKE_LATELY_S}
