"""Two TP ranks as processes with a gloo group: the rank with fewer pages decides for both."""

import multiprocessing
from pathlib import Path
from typing import Any

import pages
import pytest

TOKENS = 96


def run_rank(rank: int, sockets: list[Path], store: Path, kind: str, answers: Any) -> None:
    """Prefills on the first node, then asks on the second, where rank 1 lacks its last page."""
    import on_cpu

    on_cpu.install()
    import torch
    import torch.distributed
    from controller_node import Rank, Shape
    from harness.waiting import eventually
    from radix_node import RadixNode

    try:
        torch.distributed.init_process_group(
            "gloo", init_method=f"file://{store}", rank=rank, world_size=2
        )
        shape = Shape(kind=kind)
        tokens = pages.tokens("ranks", TOKENS)
        options: dict[str, Any] = {
            "rank": Rank(rank, 2),
            "model": f"ranks {kind}",
            "tp_group": torch.distributed.group.WORLD,
        }
        with RadixNode(sockets[0], shape, **options) as prefill:
            prefill.prefill(tokens)
        torch.distributed.barrier()
        with RadixNode(sockets[1], shape, **options) as decode:
            backend = decode.controller.storage_backend
            if rank == 1 and kind == "mha":
                last = decode.controller.get_hash_str(tokens, None, page_size=16)[-1]
                form = backend._forms["kv"]
                assert all(backend._client.remove([last + form.suffixes[0]]))
                # The owner of the record hears of the removal a moment later.
                eventually(lambda: not backend._client.contains([last + form.suffixes[0]])[0])
            torch.distributed.barrier()
            fetched = decode.fetch(tokens)
            rows = decode.load(tokens[:fetched])
            expected = decode.expected(tokens[:fetched])
            answers.put((rank, fetched, all(map(torch.equal, rows, expected))))
            torch.distributed.barrier()
        torch.distributed.destroy_process_group()
    except BaseException as error:
        answers.put((rank, repr(error), False))
        raise


@pytest.mark.parametrize(("kind", "fetched"), [("mha", TOKENS - 16), ("mla", TOKENS)])
def test_ranks_agree_on_their_common_prefix(
    nodes: Any, tmp_path: Path, kind: str, fetched: int
) -> None:
    context = multiprocessing.get_context("spawn")
    answers = context.Queue()
    sockets = [node.socket_path for node in nodes]
    ranks = [
        context.Process(target=run_rank, args=(rank, sockets, tmp_path / "store", kind, answers))
        for rank in (0, 1)
    ]
    for process in ranks:
        process.start()
    try:
        assert sorted(answers.get(timeout=120) for _ in ranks) == [
            (0, fetched, True),
            (1, fetched, True),
        ]
    finally:
        for process in ranks:
            process.join(20)
            process.kill()
