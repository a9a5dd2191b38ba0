"""Links of callers that are no whole daemon."""

from __future__ import annotations

from typing import Any, cast

from peercached.directory.placement import Placement
from peercached.membership import NodeAddress
from peercached.peer.rpc.auth import Secret
from peercached.peer.rpc.client import OwnSide, PeerLink


def placement_of(own: NodeAddress, engine: object = None) -> Placement:
    """Of a node that is alone."""
    return Placement(cast(Any, engine), own, lambda *_: (b"", b""), 1)


def link_from(
    own: NodeAddress, endpoint: str, secret: Secret, tls: Any = None, timeout_s: float = 10.0
) -> PeerLink:
    return PeerLink(endpoint, OwnSide(placement_of(own), secret, tls, timeout_s))
