"""Writes docs/configuration.md: `python -m peercached.config.document [FILE]`."""

from __future__ import annotations

import sys
import textwrap
from itertools import groupby
from pathlib import Path

from peercached.config.keys import KEYS, Key
from peercached.config.values import format_size
from peercached.environment import ENVIRONMENT_PREFIX, FILE_VARIABLE

_HEAD = f"""\
# Configuration

<!-- Made by `python -m peercached.config.document` from peercached/config/schema.py. -->

This page lists all keys (settings) of the daemon. To serve one host, `peercached` needs none of
them.

You can give each key in four places. Later ones win:

1. the default
2. the TOML file named by `--config FILE` or the variable `{FILE_VARIABLE}`: `pool_size = "8gb"`
3. the environment: `{ENVIRONMENT_PREFIX}POOL_SIZE=8gb`
4. the command line: `--pool-size 8gb`; for a boolean, `--huge-pages` or `--no-huge-pages`

In the file, text is in quotes, and a boolean is `true` or `false` without quotes. A list can also
be one text with commas. A size is in bytes (`1073741824`) or has a unit in powers of 1024
(`512MiB`, `8Gi`, `1.5T`). Times have their unit in the key's name (`_s`, `_ms`).

`peercached config` prints the effective values and their sources. `peercached config --check` only
checks them. Its exit code is 0 if they can work and 2 if they cannot. It is 1 if this user cannot
start the daemon on this host now, for example because a name does not resolve. An unknown key or
`{ENVIRONMENT_PREFIX}…` variable is an error that names the nearest key.

*Live* keys change in a running daemon with `peercachectl reload` or SIGHUP; others need a restart.
A node with another value of a *shared* key cannot join, and `status` tells both values. No key
holds a secret: keys name files.
"""

_WIDTH = 120


def document() -> str:
    """The whole page."""
    parts = [_HEAD]
    for section, keys in groupby(KEYS.values(), key=lambda key: key.section):
        parts.append(f"\n## {section}\n")
        parts.extend(_entry(key) for key in keys)
    return "".join(parts)


def _entry(key: Key) -> str:
    marks = f"{' Live.' if key.live else ''}{' Shared.' if key.shared else ''}"
    return (
        f"\n### `{key.name}`\n\n"
        f"{_filled(f'{_values(key)}. Default: {key.default}.{marks}')}\n\n"
        f"{_filled(f'{key.what} {key.when}')}\n"
    )


def _filled(text: str) -> str:
    return textwrap.fill(text, _WIDTH, break_long_words=False, break_on_hyphens=False)


def _values(key: Key) -> str:
    if key.kind == "choice":
        return ", ".join(f"`{choice}`" for choice in key.choices)
    if key.minimum is None or key.maximum is None:
        return key.kind.capitalize()
    return f"{key.kind.capitalize()}, {_bound(key, key.minimum)} to {_bound(key, key.maximum)}"


def _bound(key: Key, bound: float) -> str:
    if key.kind == "size":
        return format_size(int(bound))
    return str(int(bound)) if bound.is_integer() else str(bound)


if __name__ == "__main__":
    Path((*sys.argv, "docs/configuration.md")[1]).write_text(document())
