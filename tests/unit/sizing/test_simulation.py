"""Hit rates of simulated pools."""

import gzip
import random
from pathlib import Path

import pytest
from click.testing import CliRunner

from peercached.cli.ctl import main
from peercached.sizing.simulation import Cluster, replay


def test_unlimited_pools_find_every_block_that_was_asked_for_before() -> None:
    shared, alone = Cluster(2, None), Cluster(2, None, shared=False)
    replay([(1, 2, 3), (1, 2, 4), (1, 2, 3), (1, 2, 4)], [shared, alone])
    assert (shared.found.asked, shared.found.here, shared.found.peer) == (12, 4, 4)
    # Prompts alternate between the nodes, so each node alone sees its own prompt again.
    assert (alone.found.here, alone.found.peer) == (6, 0)


def test_a_prefix_ends_at_the_first_missing_block() -> None:
    cluster = Cluster(1, None)
    replay([(1, 2, 3), (9, 2, 3), (1, 5, 3)], [cluster])
    assert cluster.found.here == 1


def test_the_last_blocks_of_a_prompt_go_first() -> None:
    cluster = Cluster(1, 4)
    replay([(1, 2, 3), (7, 8), (1, 2, 3)], [cluster])
    assert cluster.found.here == 2


def test_more_memory_never_finds_less() -> None:
    dice = random.Random(5)
    requests = [
        tuple(conversation * 100 + at for at in range(dice.randint(1, 20)))
        for conversation in (dice.randint(0, 30) for _ in range(2000))
    ]
    for nodes in (1, 3):
        pools = [Cluster(nodes, blocks) for blocks in (10, 20, 40, 80, 160, None)]
        replay(requests, pools)
        rates = [pool.found.hit_rate for pool in pools]
        assert rates == sorted(rates)
        assert rates[0] < rates[-1]


def run(*arguments: str) -> str:
    return CliRunner().invoke(main, [*arguments]).output


def test_the_command_prints_a_line_for_each_size(tmp_path: Path) -> None:
    trace = tmp_path / "trace.jsonl.gz"
    with gzip.open(trace, "wt") as file:
        file.writelines(f'{{"hash_ids": [0, {i % 7}, {i % 7 + 100}]}}\n' for i in range(50))
    out = run(
        "simulate", str(trace), "--pool", "1GiB", "--nodes", "2", "--model", "llama-3.1-8b",
        "--prefill-rate", "10000",
    )  # fmt: skip
    assert "50 requests, 150 blocks of 512 tokens (64 MiB each), on 2 nodes" in out
    assert "1 GiB (asked for)" in out
    assert "unlimited" in out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--pool", "much", "--model", "llama-3.1-8b"), "much: is not a size"),
        (("--pool", "1GiB", "--model", "llama-9"), "neither a file nor one of"),
        (("--pool", "1GiB", "--model", "llama-3.1-8b"), "line 1: not a request"),
    ],
)
def test_wrong_arguments_are_named(tmp_path: Path, arguments: tuple[str, ...], said: str) -> None:
    (tmp_path / "trace").write_text("{}\n")
    result = CliRunner().invoke(main, ["simulate", str(tmp_path / "trace"), *arguments])
    assert result.exit_code == 2
    assert said in result.output


_REQUEST = b'{"hash_ids": [1, 2]}\n'
_ZIPPED = gzip.compress(_REQUEST, mtime=0)


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("t", b"", "has no requests"),
        ("t", _REQUEST + b"\xff\xfe\n", "line 2: not a request"),
        ("t", b"[" * 100_000, "line 1: not a request"),
        ("t.gz", _REQUEST, "is damaged"),
        ("t.gz", _ZIPPED[:20], "is damaged"),
        ("t.gz", _ZIPPED[:-6] + b"\0" * 6, "is damaged"),
        ("t.gz", _ZIPPED + b"junk", "is damaged"),
    ],
    ids=["empty", "not text", "nested", "not gzip", "cut off", "checksum", "junk behind"],
)
def test_a_damaged_trace_is_named(tmp_path: Path, name: str, content: bytes, said: str) -> None:
    (tmp_path / name).write_bytes(content)
    result = CliRunner().invoke(
        main, ["simulate", str(tmp_path / name), "--pool", "1GiB", "--model", "llama-3.1-8b"]
    )
    assert result.exit_code == 2, result.output
    assert str(tmp_path / name) in result.output
    assert said in result.output


def test_size_says_what_to_configure() -> None:
    out = run("size", "--model", "llama-3.1-70b", "--context", "32768", "--users", "200",
              "--nodes", "4", "--tp", "8", "--shared", "2048")  # fmt: skip
    assert "320 KiB of KV cache per token" in out
    assert "20 MiB under 16 keys" in out
    assert 'pool_size = "489GiB"' in out
    assert "on each of 4 nodes" in out
    assert "directory_capacity" not in out
    small_pages = run("size", "--model", "llama-3.1-70b", "--context", "32768", "--users", "200",
                      "--tp", "8", "--page-tokens", "1")  # fmt: skip
    assert "directory_capacity = 104857600" in small_pages
    assert "neither a file" in run("size", "--model", "x", "--context", "1", "--users", "1")
