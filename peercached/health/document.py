"""Writes docs/health.md: `python -m peercached.health.document [FILE]`."""

from __future__ import annotations

import sys
from pathlib import Path

from peercached.health.kinds import SECTIONS

_HEAD = """\
# What `status` finds

<!-- Made by `python -m peercached.health.document` from peercached/health/kinds.py. -->

`peercachectl status` and the dashboard begin with what needs attention: a sentence with the values,
and what to do. Each finding has a code. The code never changes its meaning, so scripts and alerts
can rely on it. `peercachectl status` shows it in brackets, `--json` has it in `health`, and
Prometheus in `peercached_health_sentences{severity, code}`. `peercachectl doctor` repeats the
errors.

An *error* stops something that this node is for. A *warning* costs pages, speed or safety in part.
An *info* explains a number, or can wait. `status` leaves a finding out while it shows the cause for
the same node.
"""


def document() -> str:
    """Returns the whole page."""
    parts = [_HEAD]
    for section in SECTIONS:
        parts.append(f"\n## {section.title}\n\n")
        parts.append("| code | severity | what it means |\n|---|---|---|\n")
        parts += [
            f"| `{kind.code}` | {kind.severity} | {kind.meaning} |\n" for kind in section.kinds
        ]
    return "".join(parts)


if __name__ == "__main__":
    Path((*sys.argv, "docs/health.md")[1]).write_text(document())
