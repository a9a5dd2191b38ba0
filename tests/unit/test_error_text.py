"""Errors of the operating system in plain words."""

from __future__ import annotations

import errno
import os

import pytest

from peercached.error_text import error_text, reason

FULL = os.strerror(errno.ENOSPC)


@pytest.mark.parametrize(
    ("error", "words", "with_path"),
    [
        (OSError(errno.ENOSPC, FULL), FULL, FULL),
        (OSError(errno.ENOSPC, FULL, "/f"), FULL, f"/f: {FULL}"),
        (OSError(errno.ENOSPC, FULL, b"/f"), FULL, f"/f: {FULL}"),
        (OSError("our own text"), "our own text", "our own text"),
        (ValueError("wrong"), "wrong", "wrong"),
    ],
)
def test_an_error_has_no_number(error: Exception, words: str, with_path: str) -> None:
    assert (reason(error), error_text(error)) == (words, with_path)
