"""Reloading the configuration: keys that change at once, keys that need a restart, and refusals."""

from __future__ import annotations

import asyncio
from pathlib import Path

from harness.said import sentences

from peercached.config import Config
from peercached.config.load import load
from peercached.news import Event
from peercached.service.settings import ConfigChanged, Settings


def settings_of(file: Path) -> Settings:
    def read() -> object:
        return load(file, {}, {})

    return Settings(read(), read)  # type: ignore[arg-type]


class Reader:
    def __init__(self, heard: list[Config]) -> None:
        self._heard = heard

    def take(self, event: Event) -> None:
        assert isinstance(event, ConfigChanged)
        self._heard.append(event.config)


def reload(settings: Settings) -> tuple[list[str], list[str], list[str]]:
    done = asyncio.run(settings.reload())
    return done.changed, done.needs_restart, done.problems


def test_live_keys_change_and_the_others_wait(tmp_path: Path) -> None:
    file = tmp_path / "p.toml"
    file.write_text('log_level = "info"\nmax_masters = 7\n')
    settings = settings_of(file)
    heard: list[Config] = []
    settings.news.read_by(Reader(heard))
    file.write_text('stop_drain_s = 3\nlog_level = "debug"\nmax_masters = 8\n')
    assert reload(settings) == (["stop_drain_s", "log_level"], ["max_masters"], [])
    assert settings.config.log_level == "debug"
    assert settings.config.max_masters == 7
    assert heard == [settings.config]
    assert settings.sources["log_level"] == f"file {file}:2"
    assert settings.sources["max_masters"] == f"file {file}:2", "the old value's source"
    assert "max_masters" in sentences(lambda say: settings.say(say, {}))[0]


def test_a_configuration_that_cannot_work_changes_nothing(tmp_path: Path) -> None:
    file = tmp_path / "p.toml"
    file.write_text('log_level = "debug"\n')
    settings = settings_of(file)
    before = settings.config
    file.write_text('log_level = "info"\nmax_masters = 0\nno_such_key = 1\n')
    changed, needs_restart, problems = reload(settings)
    assert (changed, needs_restart) == ([], [])
    assert "max_masters = 0" in "".join(problems) or "no_such_key" in "".join(problems)
    assert settings.config is before
    assert "was not reloaded" in sentences(lambda say: settings.say(say, {}))[0]
    file.unlink()
    assert "cannot be read" in reload(settings)[2][0]


def test_reload_problem_is_cleared_once_the_file_is_valid(tmp_path: Path) -> None:
    file = tmp_path / "p.toml"
    file.write_text("max_masters = 7\n")
    settings = settings_of(file)
    file.write_text("max_masters = 0\n")
    reload(settings)
    file.write_text("max_masters = 7\n")
    assert reload(settings) == ([], [], [])
    assert sentences(lambda say: settings.say(say, {})) == []
