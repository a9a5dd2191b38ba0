"""The ring document: who owns which part of the digests, and how far the records have come.

Seen from one daemon: what it sends to every owner, and what every holder has sent to it.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from peercached.admin.status import SCHEMA_VERSION, Part


class RingNode(Part):
    """One member, as an owner and as a holder."""

    node_id: str = ""
    is_self: bool = False
    suspect: bool = False
    # As an owner: fractions of all digests.
    share_first: float = 0.0  # that it owns first
    share_owned: float = 0.0  # that it owns as any replica
    # Our records there: "live" is all of them, for this view.
    our_records: Literal["connecting", "resync", "live"] = "connecting"
    queued: int = 0  # batches of ours that it has not acknowledged
    resyncs: int = 0
    problem: str = ""  # why our records do not get there
    # As a holder: we have all its records that are ours to keep, for this view.
    its_records_here: bool = False


class Ring(Part):
    """The whole document."""

    schema_version: int = SCHEMA_VERSION
    view_number: int = 0
    replicas: int = 0  # owners of a digest; fewer in a smaller view
    final: bool = False  # what this daemon's shard does not have of its own digests is nowhere
    nodes: list[RingNode] = Field(default_factory=list)
