"""The log is readable for people and collectors, and never floods."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from peercached.observe import log


@pytest.fixture(autouse=True)
def _own_root_logger() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


class Stream(io.StringIO):
    def getvalue(self) -> str:
        for handler in logging.getLogger().handlers:
            handler.flush()  # another thread writes
        return super().getvalue()


def lines_of(form: str, level: str = "info") -> tuple[logging.Logger, io.StringIO]:
    stream = Stream()
    log.set_up(level, form, stream)
    return logging.getLogger("peercached.test"), stream


def test_json_lines_are_one_object_each_even_with_a_traceback() -> None:
    logger, stream = lines_of("json")
    try:
        raise ValueError("naïve\nvalue")
    except ValueError:
        logger.exception("failed: %s", "x\ny")
    (line,) = stream.getvalue().splitlines()
    entry = json.loads(line)
    assert entry["level"] == "error"
    assert entry["logger"] == "peercached.test"
    assert entry["message"] == "failed: x\\ny", "whoever prints it must not print two lines"
    assert "naïve" in entry["traceback"]
    assert entry["time"].endswith("Z")


def test_text_lines_show_time_level_and_logger() -> None:
    logger, stream = lines_of("text")
    logger.info("hello %d", 3)
    assert "Z INFO peercached.test: hello 3\n" in stream.getvalue()


def test_the_level_holds() -> None:
    logger, stream = lines_of("text", "warning")
    logger.info("quiet")
    assert stream.getvalue() == ""


def record(line: int = 1, level: int = logging.WARNING) -> logging.LogRecord:
    return logging.LogRecord("n", level, "file.py", line, "m", (), None)


def test_repeated_warnings_are_held_back_and_counted_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = 0.0
    monkeypatch.setattr(log, "time", SimpleNamespace(monotonic=lambda: now))
    held = log.RepetitionFilter()
    passed = [held.filter(record()) for _ in range(100)]
    assert passed == [True] * log.REPEATS_MAX + [False] * (100 - log.REPEATS_MAX)
    now += log.INTERVAL_S
    late = record()
    assert held.filter(late)
    assert f"({100 - log.REPEATS_MAX} more" not in late.getMessage()
    text = log.TextFormatter().format(late)
    assert text.endswith(f"m (and {100 - log.REPEATS_MAX} more like it)")
    after = record()
    assert held.filter(after)
    assert log.TextFormatter().format(after).endswith(": m")


def test_one_noisy_place_does_not_silence_another() -> None:
    held = log.RepetitionFilter()
    for _ in range(100):
        held.filter(record(line=1))
    assert held.filter(record(line=2))


def test_information_is_never_held_back() -> None:
    held = log.RepetitionFilter()
    assert all(held.filter(record(level=logging.INFO)) for _ in range(100))


def test_the_memory_of_places_is_bounded() -> None:
    held = log.RepetitionFilter()
    for line in range(3 * log.PLACES_MAX):
        held.filter(record(line=line))
    assert len(held._places) == log.PLACES_MAX
