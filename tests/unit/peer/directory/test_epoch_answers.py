"""A node that starts believes the epochs that most of the asked hosts know."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest
from harness.fake_engine import FakeEngine, digest_of

from peercached.directory import first_clears
from peercached.directory.epoch_store import EpochStore
from peercached.directory.epochs import EPOCH_MAX
from peercached.directory.placement import Node
from peercached.membership import NodeAddress
from peercached.peer.directory.epoch_catch_up import catch_up
from peercached.peer.directory.shared_epochs import SharedEpochs
from peercached.peer.rpc.wire import epoch_messages
from peercached.proto import peer_pb2 as pb

MOST = 3


def test_one_host_cannot_fill_the_table_of_a_node_that_starts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(first_clears, "FIRST_CLEARS_MAX", MOST)
    true = {digest_of(f"true {number}"): EPOCH_MAX - 1 for number in range(4 * MOST)}
    made_up = {digest_of(f"made up {number}"): 1 for number in range(4 * MOST)}
    # Three ids of one host lie, two others tell the truth.
    told = {("a", "x"): true, ("b", "y"): true}
    told |= {(liar, "z"): true | made_up for liar in ("c", "d", "e")}
    nodes = [
        Node(index, NodeAddress(node_id, 1, host, index, 2))
        for index, (node_id, host) in enumerate(told, 1)
    ]
    answers = {n.address.endpoint: told[n.address.node_id, n.address.host] for n in nodes}

    class Peers:
        def link(self, endpoint: str) -> Any:
            async def call(*_: Any, **__: Any) -> pb.EpochsReply:
                return pb.EpochsReply(epochs=epoch_messages(answers[endpoint].items()))

            return SimpleNamespace(call_within=call)

    engine = FakeEngine()
    epochs = SharedEpochs(
        cast(Any, engine),
        EpochStore("", ""),
        first_clears.FirstClears(lambda: 0.0),
        cast(Any, SimpleNamespace(find_process=lambda member: member)),
        cast(Any, SimpleNamespace(has_debt=lambda member: False)),
        cast(Any, None),
    )
    answered = asyncio.run(catch_up(epochs, cast(Any, Peers()), nodes, {"c"}, 1.0))
    assert answered == len(nodes)
    assert true.items() <= engine.epochs.items()
    assert len(engine.epochs) == len(true) + MOST
