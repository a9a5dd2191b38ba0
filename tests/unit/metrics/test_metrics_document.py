"""docs/metrics.md lists exactly the metrics that the code exports."""

from __future__ import annotations

from pathlib import Path

from peercached.admin.status import Status
from peercached.metrics.all import families
from peercached.metrics.document import document, exposed_name

PAGE = Path(__file__).parents[3] / "docs" / "metrics.md"


def test_committed_metrics_page_matches_the_code() -> None:
    assert PAGE.read_text() == document(), "run: python -m peercached.metrics.document"


def test_the_page_has_every_family() -> None:
    page = PAGE.read_text()
    for family in families(Status(), ()):
        assert f"`{exposed_name(family)}`" in page or family.name.startswith("process_")
