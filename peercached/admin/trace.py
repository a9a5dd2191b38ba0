"""The trace document: one get of one page, step by step, timed by the daemon that did it."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from peercached.admin.status import SCHEMA_VERSION, Hex128, Part


class TraceStep(Part):
    """One step, or with `within` a part of the step before it."""

    # "pool", "location cache", "copies", "own shard", "owners", "control plane", "owner", "read"
    name: str = ""
    at_us: float = 0.0  # since the get began
    took_us: float = 0.0
    node_id: str = ""  # who was found or asked; empty: nobody
    outcome: str = ""  # a page status ("ok": found), or why an owner did not answer
    transport: Literal["", "rdma", "tcp"] = ""  # of a read
    within: bool = False


class Trace(Part):
    """The whole document."""

    schema_version: int = SCHEMA_VERSION
    namespace: str = ""
    digest: Hex128 = ""
    length: int = 0  # bytes; 0: nobody has a record, so nothing was read
    outcome: str = ""  # what the worker would have been told: a page status
    total_us: float = 0.0
    steps: list[TraceStep] = Field(default_factory=list)
