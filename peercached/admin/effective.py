"""The configuration document: what is in force, and where each value came from. No key holds a
secret; keys name the files that do."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from peercached.admin.status import SCHEMA_VERSION, Part


class Setting(Part):
    """One key."""

    value: Any = None
    source: str = ""
    live: bool = False  # changes with `peercachectl reload`, without a restart


class EffectiveConfig(Part):
    """The whole document, keys in the schema's order."""

    schema_version: int = SCHEMA_VERSION
    settings: dict[str, Setting] = Field(default_factory=dict)
