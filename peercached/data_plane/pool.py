"""The memory of the pool: what is not there yet, or cannot be had."""

from __future__ import annotations

from peercached.component import Component, Stats
from peercached.config.values import format_size
from peercached.health import Say, kinds


class PoolStatus(Component):
    def say(self, say: Say, stats: Stats) -> None:
        pool = stats.get("pool", {})
        ready, all_of_it = pool.get("ready_bytes", 0), pool.get("capacity_bytes", 0)
        if ready >= all_of_it:
            return
        has = f"{format_size(ready)} of {format_size(all_of_it)}"
        if pool["why_small"]:
            say(
                kinds.POOL_SMALL,
                f"The pool has {has} only: {pool['why_small']}.",
                "Free memory, or lower pool_size, and restart the daemon.",
            )
        else:
            say(
                kinds.POOL_GROWS,
                f"The pool has {has} so far. The daemon prepares the rest while it serves.",
                "Wait. A set that needs more memory waits up to half a second for it.",
            )
