"""The daemon's log: text for people or JSON lines for collectors, with a rate limit.

A dead peer fails every batch, thousands of times a second, and the first few warnings say it all.
So only a few warnings and errors from one place in the code pass per interval. The next one that
passes says how many were suppressed. Logging never waits for a reader (lines.py).
"""

from __future__ import annotations

import json
import logging
import os
import sys
import threading
import time
from collections import OrderedDict
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import TextIO

from peercached.observe.lines import LineWriter

REPEATS_MAX = 5
INTERVAL_S = 10.0
PLACES_MAX = 1024


# Syslog's numbers. The journal reads them from the start of a line (sd-daemon(3)).
_PRIORITIES = ((logging.ERROR, 3), (logging.WARNING, 4), (logging.INFO, 6))


def set_up(level: str, form: str, stream: TextIO | None = None) -> None:
    """Sends all logging to `stream` (default: standard error). Replaces an earlier set-up.

    level: "debug", "info", "warning", "error". form: "text", "json".
    """
    stream = stream or sys.stderr
    root = logging.getLogger()
    before = next((h for h in root.handlers if isinstance(h, LineWriter)), None)
    handler = before if before and before.stream is stream else LineWriter(stream)
    journal = is_journal(stream, os.environ.get("JOURNAL_STREAM", ""))
    formatter = JsonFormatter() if form == "json" else TextFormatter(with_time=not journal)
    handler.setFormatter(JournalFormatter(formatter) if journal else formatter)
    handler.filters[:] = [RepetitionFilter()]
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    # asyncio's debug messages are about the event loop, not about the daemon.
    logging.getLogger("asyncio").setLevel(max(logging.INFO, root.level))


def flush() -> None:
    """Waits until the lines so far are written, for a second at most."""
    for handler in logging.getLogger().handlers:
        handler.flush()


def is_journal(stream: TextIO, variable: str) -> bool:
    """Whether `stream` is systemd's journal: $JOURNAL_STREAM has its device and inode."""
    try:
        status = os.fstat(stream.fileno())
    except (OSError, ValueError):
        return False
    return variable == f"{status.st_dev}:{status.st_ino}"


class JournalFormatter(logging.Formatter):
    """Puts the priority at the start of each line. The journal reads it there and removes it."""

    def __init__(self, inner: logging.Formatter) -> None:
        super().__init__()
        self._inner = inner

    def format(self, record: logging.LogRecord) -> str:
        priority = next((p for level, p in _PRIORITIES if record.levelno >= level), 7)
        return "\n".join(f"<{priority}>{line}" for line in self._inner.format(record).split("\n"))


class TextFormatter(logging.Formatter):
    """`2026-01-31T12:00:00.123Z WARNING peercached.peer: the message`"""

    def __init__(self, with_time: bool = True) -> None:
        super().__init__()
        self._with_time = with_time

    def format(self, record: logging.LogRecord) -> str:
        text = f"{record.levelname} {record.name}: {_message(record)}"
        if self._with_time:
            text = f"{_time(record)} {text}"
        trace = _traceback(self, record)
        return f"{text}\n{trace}" if trace else text


class JsonFormatter(logging.Formatter):
    """One JSON object per line: time, level, logger, message, and traceback if there is one."""

    def format(self, record: logging.LogRecord) -> str:
        entry = {
            "time": _time(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": _message(record),
        }
        trace = _traceback(self, record)
        if trace:
            entry["traceback"] = trace
        return json.dumps(entry, ensure_ascii=False)


def _time(record: logging.LogRecord) -> str:
    moment = datetime.fromtimestamp(record.created, timezone.utc)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _message(record: logging.LogRecord) -> str:
    held_back = getattr(record, "held_back", 0)
    return _presentable(record.getMessage()) + (
        f" (and {held_back} more like it)" if held_back else ""
    )


def _presentable(text: str) -> str:
    """Escapes unprintable characters of foreign text. A line feed could forge a log line, and an
    escape sequence could overwrite the terminal."""
    if text.isprintable():
        return text
    return "".join(
        c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text
    )


def _traceback(formatter: logging.Formatter, record: logging.LogRecord) -> str:
    return formatter.formatException(record.exc_info) if record.exc_info else ""


@dataclass
class _Place:
    since: float
    passed: int = 0
    held_back: int = 0


class RepetitionFilter(logging.Filter):
    """Suppresses warnings and errors from one place beyond REPEATS_MAX per INTERVAL_S.

    It remembers at most PLACES_MAX places. Thread safe.
    """

    def __init__(self) -> None:
        super().__init__()
        self._places: OrderedDict[tuple[str, int], _Place] = OrderedDict()
        self._lock = threading.Lock()

    def filter(self, record: logging.LogRecord) -> bool:
        if record.levelno < logging.WARNING:
            return True
        now = time.monotonic()
        key = (record.pathname, record.lineno)
        with self._lock:
            place = self._places.get(key)
            if place is None:
                place = self._places[key] = _Place(since=now)
                if len(self._places) > PLACES_MAX:
                    self._places.popitem(last=False)
            self._places.move_to_end(key)
            if now - place.since >= INTERVAL_S:
                place.since, place.passed = now, 0
            if place.passed >= REPEATS_MAX:
                place.held_back += 1
                return False
            place.passed += 1
            record.held_back, place.held_back = place.held_back, 0
        return True
