"""The configuration document: each value in force and its source. It contains no secrets, only the
names of secret files."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from peercached.admin.status import SCHEMA_VERSION, Part


class Setting(Part):
    """One key."""

    value: Any = None
    source: str = ""
    live: bool = False  # changes with `peercachectl reload`; no restart needed


class EffectiveConfig(Part):
    """The whole document; the keys are in the schema's order."""

    schema_version: int = SCHEMA_VERSION
    settings: dict[str, Setting] = Field(default_factory=dict)
