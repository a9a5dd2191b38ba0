"""The configuration document: each value in force and its source. It contains no secrets, only the
names of secret files."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from peercached.admin.status import Document, Part


class Setting(Part):
    """One key."""

    value: Any = None
    source: str = ""
    live: bool = False  # changes with `peercachectl reload`; no restart needed


class EffectiveConfig(Document):
    """The whole document; the keys are in the schema's order."""

    settings: dict[str, Setting] = Field(default_factory=dict)
