"""The ring document: each node's share of the digests, and the state of the records.

It is one daemon's view: its records at every member, and every member's records here.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from peercached.admin.status import Document, Part


class RingNode(Part):
    """One member, both as an owner and as a holder."""

    node_id: str = ""
    is_self: bool = False
    suspect: bool = False
    # As an owner: fractions of all digests.
    share_first: float = 0.0  # digests that it is the first owner of
    share_owned: float = 0.0  # digests that it owns as any replica
    # Our records at this node; see directory/followers.py. "none": it keeps none, as it owns none.
    our_records: Literal["none", "connecting", "scan", "silent", "live"] = "none"
    queued: int = 0  # changes of our records that it is not known to have
    # As a holder: all its records are here.
    its_records_here: bool = False


class Ring(Document):
    """The whole document."""

    view_number: int = 0
    replicas: int = 0  # owners per digest; fewer if the view is smaller
    # All records of what we own are here: what is missing among them is nowhere.
    final: bool = False
    nodes: list[RingNode] = Field(default_factory=list)
