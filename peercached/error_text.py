"""The text of an error for people.

str() of an error of the operating system begins with a number, `[Errno 28]`, and ends with the
path in quotes, if it has one. Many messages name the path already.
"""

from __future__ import annotations

import os


def reason(error: BaseException) -> str:
    """`No space left on device`: without number and path."""
    return str(getattr(error, "strerror", None) or error)


def error_text(error: BaseException) -> str:
    """`PATH: No space left on device`, if the error has a path."""
    path = getattr(error, "filename", None)
    return f"{os.fsdecode(path)}: {reason(error)}" if path else reason(error)
