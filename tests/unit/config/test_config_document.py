"""The committed page matches the schema, and the schema documents every key."""

from __future__ import annotations

from pathlib import Path

from peercached.config.document import document
from peercached.config.keys import KEYS

PAGE = Path(__file__).parents[3] / "docs" / "configuration.md"


def test_committed_config_page_matches_the_schema() -> None:
    assert PAGE.read_text() == document(), "run: python -m peercached.config.document"


def test_every_key_documents_purpose_use_and_accepted_values() -> None:
    for key in KEYS.values():
        assert key.what.endswith(".")
        assert key.when.endswith(".")
        assert key.accepts


def test_every_number_has_bounds() -> None:
    for key in KEYS.values():
        if key.kind in ("size", "integer", "number"):
            assert key.minimum is not None, key.name
            assert key.maximum is not None, key.name
