"""Keys that are reloaded while the pool is being mapped are in force when the node serves."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from peercached import reactions
from peercached import run as start
from peercached.config import Config, Effective
from peercached.config.keys import KEYS
from peercached.data_plane.make import make_engine
from peercached.service.settings import Settings
from peercached.service.signals import Stop
from peercached.service.supervised import Supervised


class Watched(Supervised):
    """Stops the node when it serves, with the timers of a real stop left out."""

    def __init__(self, settings: Settings, stop: Stop) -> None:
        super().__init__(settings)
        self._stop = stop

    def ready(self, status: Any) -> None:
        del status
        self._stop.asked.set()

    def stopping(self, at_most_s: float) -> None:
        del at_most_s


def effective(config: Config) -> Effective:
    return Effective(config, dict.fromkeys(KEYS, "default"))


async def test_quotas_that_come_while_the_pool_is_mapped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = Config(
        node_id="n",
        host="127.0.0.1",
        socket_path=str(tmp_path / "socket"),
        admin_socket=str(tmp_path / "admin"),
        pool_size=1 << 20,
        metrics_enabled=False,
    )
    settings = Settings(
        effective(config),
        lambda: effective(config.model_copy(update={"namespace_quotas": ["late=0.5"]})),
    )
    loop = asyncio.get_running_loop()

    def reload_first(*arguments: Any) -> Any:
        asyncio.run_coroutine_threadsafe(settings.reload(), loop).result()
        return make_engine(*arguments)

    in_force = []
    monkeypatch.setattr(start, "make_engine", reload_first)
    monkeypatch.setattr(
        reactions, "set_quotas", lambda _, config: in_force.extend(config.namespace_quotas)
    )
    stop = Stop()
    await start.run(settings, stop, Watched(settings, stop))
    assert in_force == ["late=0.5"]
