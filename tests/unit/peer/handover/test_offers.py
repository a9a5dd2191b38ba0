"""A peer's answer to an offer counts only for pages that were offered to it."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast

from peercached.directory.placement import Node
from peercached.membership import NodeAddress
from peercached.peer.handover.parts import Offers, Part
from peercached.proto import peer_pb2 as pb

OFFERED, FOREIGN = bytes(16), bytes([1]) * 16


def test_repeated_and_foreign_digests_of_a_faulty_peer_do_not_count() -> None:
    async def call(*_: Any, **__: Any) -> pb.AdoptReply:
        return pb.AdoptReply(digests=OFFERED + FOREIGN + OFFERED)

    failures = cast(Any, SimpleNamespace(call=call))
    rows = {OFFERED: OFFERED + bytes(32)}
    part = Part(b"ns", 0, 0, 0, rows, spilled=True)
    node = Node(1, NodeAddress("b", 1, "10.0.0.2", 1, 2))
    answer = asyncio.run(Offers(cast(Any, None), failures, 1.0).offer(node, part, rows))
    assert list(answer.taken) == [OFFERED]
