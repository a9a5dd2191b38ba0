"""A JSON document in state_dir, for what must outlive the daemon.

The file is replaced as a whole, so a process that dies at any moment leaves the old document or the
new one. Only the daemon's user can read it. Its "format" is a number that rises when the meaning of
a field changes.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from peercached.error_text import reason

log = logging.getLogger(__name__)

Parsed = TypeVar("Parsed")

# Errors when a damaged document is parsed: wrong types, missing fields, huge or nested values.
_DAMAGES = (
    OSError,
    ValueError,
    TypeError,
    KeyError,
    AttributeError,
    OverflowError,
    RecursionError,
)


class Unreadable(ValueError):
    """The file exists, but cannot be used. The text names the file and the reason."""


class StateFile:
    """Keeps nothing if `folder` is empty. Not thread safe; all calls block on file I/O."""

    def __init__(self, folder: str, name: str, format: int) -> None:
        self.path = Path(folder) / name if folder else None
        self.problem = ""  # why the last save() failed; empty: it did not
        self._format = format

    def load(self, parse: Callable[[Any], Parsed]) -> Parsed | None:
        """Returns the parsed document. None if there is no file. Raises Unreadable."""
        if self.path is None:
            return None
        try:
            document = json.loads(self.path.read_text())
            if document["format"] != self._format:
                raise ValueError(
                    f"it has format {document['format']}, and this version reads {self._format}"
                )
            return parse(document)
        except FileNotFoundError:
            return None
        except _DAMAGES as error:
            why = reason(error).partition("\n")[0]
            raise Unreadable(
                f"{self.path} cannot be read ({type(error).__name__}: {why})"
            ) from error

    def replace(self, fields: Mapping[str, Any], durable: bool = False) -> None:
        """Raises OSError. Bytes become hexadecimal. `durable`: a power cut does not undo it."""
        if self.path is None:
            return
        text = json.dumps({"format": self._format, **fields}, default=bytes.hex)
        draft = self.path.with_suffix(".new")
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
        with os.fdopen(os.open(draft, flags, 0o600), "w") as file:
            os.fchmod(file.fileno(), 0o600)  # an old draft may have another mode
            file.write(text)
            if durable:
                file.flush()
                os.fsync(file.fileno())
        draft.replace(self.path)
        if durable:
            # Sync the folder, too, or a power cut may bring the older file back.
            folder = os.open(self.path.parent, os.O_RDONLY | os.O_DIRECTORY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)

    def save(self, fields: Mapping[str, Any], loss: str, durable: bool = False) -> bool:
        """The same, but logs a failure, once until a save succeeds. `loss`: what a restart will
        forget. Returns whether it succeeded."""
        try:
            self.replace(fields, durable)
        except OSError as error:
            if not self.problem:
                log.warning("cannot write %s: %s (%s)", self.path, reason(error), loss)
            self.problem = f"{self.path}: {reason(error)}"
            return False
        self.problem = ""
        return True
