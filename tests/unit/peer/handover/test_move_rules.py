"""Whether a page may move at all."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from peercached.peer.handover.move import Move


def test_a_node_that_has_missed_removals_hands_no_page_on() -> None:
    """The peer would serve a page that was removed."""
    own, other = (
        SimpleNamespace(address=SimpleNamespace(node_id=name), leaving=False, suspect=False)
        for name in "ab"
    )
    placement = SimpleNamespace(own=own, nodes={0: own, 1: other})
    nothing = cast(Any, None)
    move = Move(nothing, cast(Any, placement), nothing, cast(Any, SimpleNamespace(owes=True)))
    with pytest.raises(ValueError, match="has not heard of all removals yet"):
        asyncio.run(move.move([bytes(16)], "b", 1.0))
    other.suspect = True
    with pytest.raises(ValueError, match=r"b does not answer now \(suspect\)"):
        asyncio.run(move.move([bytes(16)], "b", 1.0))
