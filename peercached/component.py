"""The report of one part of the node: its sections of the status and its health findings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from peercached.health import Say

Stats = Mapping[str, Any]  # Engine.stats()


class Component:
    """Each method changes nothing but what it remembers of counters. On the event loop's thread.
    `stats`: the data plane's counters at this moment."""

    def sections(self, stats: Stats) -> dict[str, Any]:
        """Its sections of the status document (admin/status.py), by name."""
        del stats
        return {}

    def control_counters(self, stats: Stats) -> dict[str, int]:
        """Its part of `operations.control` in the status document."""
        del stats
        return {}

    def say(self, say: Say, stats: Stats) -> None:
        """Reports its health findings."""
