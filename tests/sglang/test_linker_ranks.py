"""Two TP ranks with the linker, as processes with a gloo group."""

import multiprocessing
from pathlib import Path
from typing import Any

import pages
import pytest

TOKENS = 96


def run_rank(rank: int, sockets: list[Path], store: Path, case: str, answers: Any) -> None:
    """Stores on the first node, then loads on the second, where rank 1 of "mha" lacks its last
    page. Tells how many loads and stores it did itself."""
    import on_cpu

    on_cpu.install()
    try:
        import torch.distributed
        from controller_node import Rank, Shape
        from harness.waiting import CALL_S, eventually
        from linker_node import LinkerNode

        from peercache_client.sglang import linker

        linker._LOOKUP_TIMEOUT_S = CALL_S  # type: ignore[misc]  # this machine may be busy
        torch.distributed.init_process_group(
            "gloo", init_method=f"file://{store}", rank=rank, world_size=2
        )
        if case == "mla dedup":
            broadcast_with_gloo()
        shape = Shape(kind=case[:3])
        tokens = pages.tokens("linker ranks", TOKENS)
        options: dict[str, Any] = {
            "rank": Rank(rank, 2),
            "model": f"linker ranks {case}",
            "tp_group": torch.distributed.group.WORLD,
            "mla_dedup": case == "mla dedup",
        }
        with LinkerNode(sockets[0], shape, **options) as one:
            stores = counted(one.linker._stores, "set")
            assert one.prefill(tokens)
            if rank == 1 and case == "mha":
                form, client = one.linker._forms["kv"], one.linker._client
                last = one.cache.get_last_hash_value(one.match(tokens).best_match_node)
                key = [last + form.suffixes[0]]
                assert all(client.remove(key))
                eventually(lambda: not client.contains(key)[0])
            torch.distributed.barrier()
        with LinkerNode(sockets[1], shape, **options) as other:
            loads = counted(other.linker._loads, "get")
            loading = other.load([*tokens, *pages.tokens("more", 16)])
            right = other.holds(loading, tokens[: loading.tokens])
            answers.put((rank, loading.tokens, right, len(stores), len(loads)))
            torch.distributed.barrier()
        torch.distributed.destroy_process_group()
    except BaseException as error:
        answers.put((rank, repr(error), False, 0, 0))
        raise


def counted(owner: Any, name: str) -> list[None]:
    calls: list[None] = []
    method = getattr(owner, name)

    def noted(*arguments: Any) -> Any:
        calls.append(None)
        return method(*arguments)

    setattr(owner, name, noted)
    return calls


def broadcast_with_gloo() -> None:
    """SGLang's broadcaster needs NCCL, and so a GPU."""
    import torch.distributed
    from sglang.srt.mem_cache.unified_cache.linker_mla_dedup import LinkerMLADedupBroadcaster

    def build(pool_group: Any, tp_group: Any, attn_tp_group: Any) -> Any:
        return LinkerMLADedupBroadcaster(pool_group, torch.distributed.new_group(), 0)

    LinkerMLADedupBroadcaster.build = build


@pytest.mark.parametrize(
    ("case", "tokens", "stores", "loads"),
    [
        ("mha", TOKENS - 16, (1, 1), (1, 1)),
        ("mla", TOKENS, (1, 0), (1, 1)),  # rank 0 stores what all ranks have
        ("mla dedup", TOKENS, (1, 0), (1, 0)),  # it also loads for all
    ],
)
def test_ranks_load_their_common_prefix(
    nodes: Any,
    tmp_path: Path,
    case: str,
    tokens: int,
    stores: tuple[int, int],
    loads: tuple[int, int],
) -> None:
    context = multiprocessing.get_context("spawn")
    answers = context.Queue()
    sockets = [node.socket_path for node in nodes]
    ranks = [
        context.Process(target=run_rank, args=(rank, sockets, tmp_path / "store", case, answers))
        for rank in (0, 1)
    ]
    for process in ranks:
        process.start()
    try:
        assert sorted(answers.get(timeout=240) for _ in ranks) == [
            (rank, tokens, True, stores[rank], loads[rank]) for rank in (0, 1)
        ]
    finally:
        for process in ranks:
            process.join(20)
            process.kill()
