"""Writes docs/configuration.md: `python -m peercached.config.document [FILE]`."""

from __future__ import annotations

import sys
from itertools import groupby
from pathlib import Path

from peercached.config.keys import KEYS, Key
from peercached.environment import ENVIRONMENT_PREFIX, FILE_VARIABLE

_HEAD = f"""\
# Configuration

<!-- Made by `python -m peercached.config.document` from peercached/config/schema.py. -->

`peercached` needs no configuration to serve one host. Every key can be given in four places;
later ones win:

1. the default,
2. the TOML file named by `--config FILE` (or the variable `{FILE_VARIABLE}`): `pool_size = "8gb"`,
3. the environment: `{ENVIRONMENT_PREFIX}POOL_SIZE=8gb`,
4. the command line: `--pool-size 8gb`.

`peercached config` prints the effective values and where each came from; `peercached config
--check` only says whether they can work: exit code 0, or 2 if they cannot. It is 1 if this user
could not start the daemon on this host just now, because of a name that does not resolve, too
little free memory, or a socket's folder. A key that does not exist, also as a
`{ENVIRONMENT_PREFIX}…` variable, is an error that names the nearest one. No key holds a secret:
secrets are in files, and keys name them.
"""

_LIVE = "- Changes while the daemon runs: `peercachectl reload`, or SIGHUP\n"
_SHARED = (
    "- The same on every node: a node with another value is refused when it joins, and `status` "
    "tells both values\n"
)


def document() -> str:
    """The whole page."""
    parts = [_HEAD]
    for section, keys in groupby(KEYS.values(), key=lambda key: key.section):
        parts.append(f"\n## {section}\n")
        parts.extend(_entry(key) for key in keys)
    return "".join(parts)


def _entry(key: Key) -> str:
    return (
        f"\n### `{key.name}`\n\n"
        f"{key.what}\n\n"
        f"- Default: {key.default}\n"
        f"- Values: {key.accepts}\n"
        f"- Option {_option(key)}, variable `{key.variable}`\n"
        f"{_LIVE if key.live else ''}"
        f"{_SHARED if key.shared else ''}"
        f"- When to change it: {key.when[0].lower() + key.when[1:]}\n"
    )


def _option(key: Key) -> str:
    if key.kind == "boolean":
        return f"`{key.option}` or `--no-{key.option.removeprefix('--')}`"
    return f"`{key.option}`"


if __name__ == "__main__":
    Path((*sys.argv, "docs/configuration.md")[1]).write_text(document())
