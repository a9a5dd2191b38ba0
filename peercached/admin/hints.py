"""The answers to the actions of an envelope of hints."""

from __future__ import annotations

from pydantic import Field

from peercached.admin.status import Document, Part


class HintOutcome(Part):
    """The answer to one action."""

    action_id: str = ""
    action_type: str = ""
    outcome: str = ""  # accepted, clipped, refused, missing or ignored
    pages: int = 0
    bytes: int = 0  # of pages that were brought
    why: str = ""


class HintOutcomes(Document):
    """The whole document."""

    outcomes: list[HintOutcome] = Field(default_factory=list)  # in the order of the actions
