"""Takes secrets out of text that leaves the site. None should be in it: this is the second lock."""

from __future__ import annotations

import re

_TAKEN_OUT = "[taken out]"
_SECRET_BYTES_MIN = 8
# What stays, as a group, and what goes.
_PATTERNS = (
    # PEM blocks of keys, whole, also where line ends are escaped.
    re.compile(r"()-----BEGIN [A-Z ]*PRIVATE KEY-----.*?-----END [A-Z ]*KEY-----", re.DOTALL),
    # user:password@ of URLs.
    re.compile(r"(://)[^/\s:@]+:[^/\s@]+(?=@)"),
    # Values of whatever is called so.
    re.compile(r"((?:password|passwd|secret_key|access_token)[\"']?\s*[=:]\s*)[^\s,;}]+", re.I),
)


def redact(text: str, secrets: list[bytes]) -> str:
    """`text` without any of `secrets` (as they are, or in hexadecimal), private keys, passwords."""
    for secret in secrets:
        if len(secret) < _SECRET_BYTES_MIN:
            continue
        for form in (secret.decode(errors="ignore"), secret.hex()):
            if len(form) >= _SECRET_BYTES_MIN:
                text = text.replace(form, _TAKEN_OUT)
    for pattern in _PATTERNS:
        text = pattern.sub(rf"\1{_TAKEN_OUT}", text)
    return text
