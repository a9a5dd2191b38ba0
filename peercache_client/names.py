"""Names of namespaces and clients, which operators see in logs, terminals and pages."""

from __future__ import annotations

import re
from typing import Final

# Control and direction characters. The daemon refuses the same ones: native/common/foreign_text.h.
_NOT_SHOWN: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff]")


def encoded_name(what: str, text: str, bytes_max: int) -> bytes:
    """In UTF-8. Raises TypeError, ValueError with `what` and the text."""
    if not isinstance(text, str):
        raise TypeError(f"{what} must be str, not {type(text).__name__}")
    encoded = text.encode()
    if len(encoded) > bytes_max:
        raise ValueError(f"{what} has {len(encoded)} bytes: at most {bytes_max}")
    if found := _NOT_SHOWN.search(text):
        raise ValueError(f"{what} {text!r} has the control or direction character {found[0]!r}")
    return encoded
