"""LMCache's own check and bench of adapters, with ours and with its `fs` in the same run.

    make test-lmcache ARGS="-k own_tools -rP"    prints the figures of the bench

A run with the figures of docs/lmcache.md needs a machine that does nothing else, and
PEERCACHED_L2_BENCH="--num-keys 64 --data-size-kb 2048 --in-flight 4 --rounds 10".
"""

import importlib.util
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from harness.clock import seconds
from harness.fixtures import FAST, cluster_maker

Option = Callable[[str, str], str]

_CHECK = (
    "lmcache.v1.basic_check"
    if importlib.util.find_spec("lmcache.v1.basic_check")
    else "lmcache.inprocess.v1.basic_check"  # since 0.5.7
)
_BENCH = "--num-keys 16 --data-size-kb 256 --in-flight 2 --rounds 2"
_PRIVATE_L1 = ["-m", "lmcache.cli.main", "bench", "l2"]
_SHARED_L1 = [str(Path(__file__).with_name("bench_l2.py"))]
_MIB_PER_GB = 1e9 / 2**20


@pytest.fixture(scope="module")
def option(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """`option("ours", namespace)` or `option("fs", folder)`: the value of `--l2-adapter`."""
    with ExitStack() as stack:
        node = cluster_maker(stack, {**FAST, "pool-size": "3GiB"}, start_s=30.0)(1)[0]

        def make(adapter: str, place: str) -> str:
            if adapter == "fs":
                return json.dumps({"type": "fs", "base_path": str(tmp_path_factory.mktemp(place))})
            params = {"socket_path": str(node.socket_path), "namespace": place}
            where = {"module_path": "peercache_client.lmcache", "class_name": "PeerCacheAdapter"}
            return json.dumps({"type": "plugin", **where, "adapter_params": params})

        yield make


def run(*words: str) -> str:
    done = subprocess.run(
        [sys.executable, *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
        text=True,
        timeout=seconds(240),
        env={**os.environ, "LMCACHE_TRACK_USAGE": "false"},
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


@pytest.mark.parametrize("adapter", ["ours", "fs"])
def test_own_tools_check(option: Option, adapter: str) -> None:
    said = run("-m", _CHECK, "--mode", "test_l2_adapter", "--l2-adapter", option(adapter, "check"))
    passed = dict(re.findall(r"\| (\w+(?: \(\w+\))?) .*? (\d+/\d+) ", said))
    every = ("LOOKUP (absent)", "STORE", "LOOKUP (exist)", "LOAD")
    assert passed == dict.fromkeys(every, "5/5"), said


@pytest.mark.parametrize(
    ("adapter", "bench", "copies"),
    [("ours", _SHARED_L1, False), ("ours", _PRIVATE_L1, True), ("fs", _PRIVATE_L1, False)],
    ids=["ours in place", "ours with a private L1", "fs"],
)
def test_own_tools_bench(option: Option, adapter: str, bench: list[str], copies: bool) -> None:
    options = os.environ.get("PEERCACHED_L2_BENCH", _BENCH).split()
    l2 = ["--l2-adapter", option(adapter, f"copies={copies}")]
    said = run(*bench, *l2, "--no-skip-verify", "--lookup-max-hit-rate", "0.5", *options)
    assert "keys data verified OK" in said, said
    [stored, asked, loaded] = map(int, re.findall(r"Total keys: +(\d+)", said))
    good = list(map(int, re.findall(r"Total success: +(\d+)", said)))
    assert good == [stored, asked // 2, loaded], said
    assert ("each page is copied once more" in said) == copies, said
    store, _, load = (
        float(most) / _MIB_PER_GB for most in re.findall(r"Throughput max \(MB/s\): +(\S+)", said)
    )
    print(f"best round, in GB/s: store {store:.2f}, load {load:.2f}")
