"""Removes secrets from text that leaves the site, in case any got into it."""

from __future__ import annotations

import re

from peercached.config.values import USERINFO

_TAKEN_OUT = "[taken out]"
_SECRET_BYTES_MIN = 8
# Group 1 is kept; the rest of the match is removed.
_PATTERNS = (
    # Whole PEM blocks of keys, even with escaped line ends.
    re.compile(r"()-----BEGIN [A-Z ]*PRIVATE KEY-----.*?-----END [A-Z ]*KEY-----", re.DOTALL),
    USERINFO,
    # Values of settings with such names.
    re.compile(r"((?:password|passwd|secret_key|access_token)[\"']?\s*[=:]\s*)[^\s,;}]+", re.I),
)


def redact(text: str, secrets: list[bytes]) -> str:
    """`text` without private keys, passwords, and `secrets` (as text or in hexadecimal)."""
    for secret in secrets:
        if len(secret) < _SECRET_BYTES_MIN:
            continue
        for form in (secret.decode(errors="ignore"), secret.hex()):
            if len(form) >= _SECRET_BYTES_MIN:
                text = text.replace(form, _TAKEN_OUT)
    for pattern in _PATTERNS:
        text = pattern.sub(rf"\1{_TAKEN_OUT}", text)
    return text
