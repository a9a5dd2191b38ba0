"""The document of `GET /api/v1/curves`."""

from __future__ import annotations

from pydantic import Field

from peercached.admin.status import Document


class Curves(Document):
    """The last hour of one node, oldest point first (history/curves.py). All lists have one entry
    for each point."""

    node_id: str = ""
    at: list[int] = Field(default_factory=list)  # seconds since 1970
    seconds: list[float] = Field(default_factory=list)  # that the point covers
    series: dict[str, list[float | int | None]] = Field(default_factory=dict)
