"""The ring document: each node's share of the digests, and the state of the records.

It is one daemon's view: its records at every owner, and every holder's records here.
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
    # Our records at this owner. "live": it has all of them for this view.
    our_records: Literal["connecting", "resync", "live"] = "connecting"
    queued: int = 0  # batches of ours that it has not acknowledged
    resyncs: int = 0
    problem: str = ""  # why our records do not arrive there
    # As a holder: our shard has all its records that belong there, for this view.
    its_records_here: bool = False


class Ring(Document):
    """The whole document."""

    view_number: int = 0
    replicas: int = 0  # owners per digest; fewer if the view is smaller
    final: bool = False  # our shard is complete: pages of ours missing in it exist nowhere
    nodes: list[RingNode] = Field(default_factory=list)
