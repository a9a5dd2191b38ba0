"""The configuration that can be read again while the daemon runs.

Only keys marked `live` in the schema change then; of the others the operator is told that they
wait for a restart. A configuration that cannot work changes nothing.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from peercached.config import Config, ConfigError, Effective
from peercached.config.keys import KEYS
from peercached.health import Say, kinds

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Reloaded:
    """What reading the configuration again has done."""

    changed: list[str] = field(default_factory=list)  # in force now
    needs_restart: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)  # not empty: nothing has changed


class Settings:
    """`config` is in force; `sources` says where each value came from. `read` reads all sources
    again, and may block. Not thread safe."""

    def __init__(self, effective: Effective, read: Callable[[], Effective]) -> None:
        self.config = effective.config
        self.sources = dict(effective.sources)
        self._read = read
        self._listeners: list[Callable[[Config], None]] = []
        self._last = Reloaded()

    @staticmethod
    def fixed(config: Config) -> Settings:
        """A configuration that nobody will change."""
        effective = Effective(config, dict.fromkeys(KEYS, "default"))
        return Settings(effective, lambda: effective)

    def on_change(self, listener: Callable[[Config], None]) -> None:
        """Called with the configuration in force after each reload."""
        self._listeners.append(listener)

    async def reload(self) -> Reloaded:
        """Reads all sources again; what can change is in force when this returns."""
        loop = asyncio.get_running_loop()
        try:
            # Files and names may block.
            found = await loop.run_in_executor(None, self._read)
        except ConfigError as error:
            self._last = Reloaded(problems=[str(problem) for problem in error.problems])
            for problem in self._last.problems:
                log.error("not reloaded: %s", problem)
            return self._last
        return self._apply(found)

    def _apply(self, found: Effective) -> Reloaded:
        differing = [
            name for name in KEYS if getattr(found.config, name) != getattr(self.config, name)
        ]
        changed = [name for name in differing if KEYS[name].live]
        needs_restart = [name for name in differing if not KEYS[name].live]
        values: dict[str, Any] = {name: getattr(found.config, name) for name in changed}
        self.config = self.config.model_copy(update=values)
        self.sources.update({name: found.sources[name] for name in changed})
        self._last = Reloaded(changed, needs_restart)
        for listener in self._listeners:
            listener(self.config)
        for name in changed:
            log.warning("reloaded: %s = %s (%s)", name, values[name], self.sources[name])
        if needs_restart:
            log.warning("reloaded, but a restart is needed for: %s", ", ".join(needs_restart))
        if not differing:
            log.warning("reloaded: no key has changed")
        return self._last

    def say(self, say: Say) -> None:
        """Sentences for `status`."""
        last = self._last
        if last.problems:
            say(
                kinds.RELOAD_FAILED,
                f"The configuration was not reloaded: {'; '.join(last.problems)}.",
                "Put it right and run `peercachectl reload`; until then the old one is in force.",
            )
        if last.needs_restart:
            say(
                kinds.RESTART_NEEDED,
                f"The configuration has new values of {', '.join(last.needs_restart)}, which are "
                "not in force.",
                "Restart the daemon when it suits.",
            )
