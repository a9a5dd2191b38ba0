"""The hashes of the connector's pages in events: SGLang's, for one piece at one rank."""

from pathlib import Path
from typing import Any

import pytest
from harness import ipc_stand_in as ipc
from harness.engine import PAGE_SIZE, Engine, tokens_of
from harness.ipc_stand_in import IpcStandIn

from peercache_client.block_hashes import event_hash
from peercache_client.page_hash import page_hashes

SIGNED, UNTOLD = 0x88, 0xFF
PAGES = 6


def stored_names(daemon: IpcStandIn, path: Path, **options: Any) -> list[tuple[int, bytes]]:
    with Engine(path, chunk_pages=4, timeout_s=20, **options).register() as engine:
        tokens = tokens_of("events", PAGES, more=3)
        assert engine.store("r", tokens, range(PAGES)) == PAGES * PAGE_SIZE
        sets = [request for request in daemon.requests if request.op == ipc.SET]
        assert {request.block_tokens for request in sets} <= {0, PAGE_SIZE}
        names = [name for request in sets for name in request.names]
        assert len(names) == PAGES * engine.buffers
        return names


@pytest.mark.parametrize("shared", [True, False], ids=["in place", "copied"])
@pytest.mark.parametrize(
    ("rank", "tells"),
    [
        ({}, True),
        ({"tp_rank": 1, "tp_size": 2}, False),
        ({"pp_rank": 1, "pp_size": 2}, False),
        ({"tp_rank": 1, "tp_size": 2, "is_mla_model": True}, True),
    ],
    ids=["first rank", "other TP rank", "other PP rank", "TP rank with the same keys"],
)
def test_the_first_piece_of_a_page_has_the_name(
    daemon: IpcStandIn, shared: bool, rank: dict[str, Any], tells: bool
) -> None:
    daemon.features = ipc.FEATURE_NAMES
    names = stored_names(daemon, daemon.path, shared=shared, layers=2, **rank)
    hashes = [event_hash(one) for one in page_hashes(tokens_of("events", PAGES), PAGE_SIZE)]
    expected = [
        (SIGNED, number.to_bytes(8, "little", signed=True)) if tells else (UNTOLD, b"")
        for number in hashes
        if number is not None
    ]
    assert names[::4] == expected
    assert all(name == (UNTOLD, b"") for i, name in enumerate(names) if i % 4)
