"""The content of `cold_key_file`: one line, the master key of sealed objects (cold/sealing.py)."""

from __future__ import annotations

from pathlib import Path

from peercached.config.cluster_secret import SecretProblem, private_content
from peercached.config.private import remedy

# Whoever reads the store can try keys on its objects. So it must be beyond guessing.
KEY_BYTES_MIN = 32


def read_cold_key(path: Path) -> bytes:
    """SecretProblem if the daemon cannot use the file."""
    how = f"make one with: openssl rand -hex 32 > {path}; then {remedy(path)}"
    key = private_content(path, how).strip()
    if b"\n" in key:
        raise SecretProblem("has several lines", how)
    if len(key) < KEY_BYTES_MIN:
        raise SecretProblem(
            f"has a key of {len(key)} bytes without the white space around them; "
            f"{KEY_BYTES_MIN} are the least",
            how,
        )
    return key
