"""The configuration, which can be reloaded while the daemon runs.

A reload changes only the keys marked `live` in the schema. The operator is told which other keys
wait for a restart. An impossible configuration changes nothing.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from peercached.component import Component, Stats
from peercached.config import Config, ConfigError, Effective
from peercached.config.keys import KEYS
from peercached.config.own_host import own_host
from peercached.health import Say, kinds
from peercached.news import Event, News

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Reloaded:
    """The result of a reload."""

    changed: list[str] = field(default_factory=list)  # in force now
    needs_restart: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)  # not empty: nothing has changed


@dataclass(frozen=True)
class ConfigChanged(Event):
    """After a reload, this configuration is in force."""

    config: Config


class Settings(Component):
    """`config` is in force, and `sources` names the source of each value. `read` reads all sources
    again, and may block. The parts of this process tell their `news`. Not thread safe."""

    def __init__(self, effective: Effective, read: Callable[[], Effective]) -> None:
        self.config = self._given = effective.config
        self.sources = dict(effective.sources)
        self._read = read
        self.news = News()
        self._last = Reloaded()
        self._one_at_a_time = asyncio.Lock()

    def settle_host(self) -> None:
        """Finds the address that peers are told, once for this start. Blocks (own_host.py)."""
        host, how = own_host(self.config)
        found = {"host": host}
        if how:
            self.sources["host"] = how
        if not self.config.metrics_host:
            found["metrics_host"], self.sources["metrics_host"] = host, "default: host"
        self.config = self.config.model_copy(update=found)

    async def reload(self) -> Reloaded:
        """Reads all sources again. When it returns, changed `live` keys are in force."""
        async with self._one_at_a_time:  # or what was read earlier might be applied later
            return await self._reload()

    async def _reload(self) -> Reloaded:
        loop = asyncio.get_running_loop()
        try:
            # Reading files may block.
            found = await loop.run_in_executor(None, self._read)
        except ConfigError as error:
            self._last = Reloaded(problems=[str(problem) for problem in error.problems])
            for problem in self._last.problems:
                log.error("configuration not reloaded, the old one stays in use: %s", problem)
            return self._last
        return self._apply(found)

    def _apply(self, found: Effective) -> Reloaded:
        differing = [
            name for name in KEYS if getattr(found.config, name) != getattr(self._given, name)
        ]
        changed = [name for name in differing if KEYS[name].live]
        needs_restart = [name for name in differing if not KEYS[name].live]
        values: dict[str, Any] = {name: getattr(found.config, name) for name in changed}
        self.config = self.config.model_copy(update=values)
        self._given = self._given.model_copy(update=values)
        self.sources.update({name: found.sources[name] for name in changed})
        self._last = Reloaded(changed, needs_restart)
        self.news.post(ConfigChanged(self.config))
        for name in changed:
            log.warning("reloaded: %s = %s (%s)", name, values[name], self.sources[name])
        if needs_restart:
            log.warning("reloaded, but a restart is needed for: %s", ", ".join(needs_restart))
        if not differing:
            log.warning("reloaded: no key has changed")
        return self._last

    def say(self, say: Say, stats: Stats) -> None:
        """Of the last reload."""
        del stats
        last = self._last
        if last.problems:
            say(
                kinds.RELOAD_FAILED,
                f"The configuration was not reloaded: {'; '.join(last.problems)}. The old one "
                "stays in use.",
                "Correct it, then run `peercachectl reload`.",
            )
        if last.needs_restart:
            say(
                kinds.RESTART_NEEDED,
                f"New values of {', '.join(last.needs_restart)} take effect only after a restart.",
                "Restart the daemon when convenient.",
            )
