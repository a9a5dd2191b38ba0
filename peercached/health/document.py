"""Writes docs/health.md: `python -m peercached.health.document [FILE]`."""

from __future__ import annotations

import sys
import textwrap
from pathlib import Path

from peercached.health.kind import Kind
from peercached.health.kinds import SECTIONS

_HEAD = """\
# What `status` finds

<!-- Made by `python -m peercached.health.document` from peercached/health/kinds.py. -->

This page lists the findings of `peercachectl status` and the dashboard. Each finding is a sentence
with values, and says what to do.

The code of a finding never changes its meaning, so scripts and alerts can rely on it.
`peercachectl status` shows it in brackets, `--json` has it in `health`, and Prometheus in
`peercached_health_sentences{severity, code}`. `peercachectl doctor` repeats the findings.

An *error* stops a function of this node. A *warning* costs pages, speed or safety in part. An
*info* explains a number, or can wait. While `status` shows the cause of a finding for the same
node, it leaves the finding out.
"""


def document() -> str:
    """Returns the whole page."""
    parts = [_HEAD]
    for section in SECTIONS:
        parts.append(f"\n## {section.title}\n\n")
        parts += [_entry(kind) for kind in section.kinds]
    return "".join(parts)


def _entry(kind: Kind) -> str:
    text = f"- `{kind.code}` ({kind.severity}): {kind.meaning}"
    return textwrap.fill(text, 120, subsequent_indent="  ", break_on_hyphens=False) + "\n"


if __name__ == "__main__":
    Path((*sys.argv, "docs/health.md")[1]).write_text(document())
