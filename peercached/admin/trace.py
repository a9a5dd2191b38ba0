"""The trace document: the steps of one get, timed by the daemon."""

from __future__ import annotations

from pydantic import Field

from peercached.admin.status import Document, Hex128, Part


class TraceStep(Part):
    """One step. With `within` it is a part of the step before it."""

    # "pool", "copies", "location cache", "own shard", "owners", "control plane", "owner",
    # "promote", "disk", "copy", "read", "store"
    name: str = ""
    at_us: float = 0.0  # since the start of the get
    took_us: float = 0.0
    node_id: str = ""  # the node found or asked; empty: none
    outcome: str = ""  # a page status ("ok": found), or why an owner did not answer
    transport: str = ""  # of the step "read"
    within: bool = False


class Trace(Document):
    """The whole document."""

    namespace: str = ""
    digest: Hex128 = ""
    length: int = 0  # bytes; 0: no record exists, so nothing was read
    outcome: str = ""  # the page status that a worker would get
    total_us: float = 0.0
    steps: list[TraceStep] = Field(default_factory=list)
