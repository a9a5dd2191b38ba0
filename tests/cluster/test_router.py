"""The example router, with real daemons, engines without a model, and real HTTP."""

import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from harness.clock import seconds
from harness.cluster import Cluster
from harness.fixtures import MakeCluster
from harness.routed import EXAMPLE, PAGE_BYTES, PAGES, Routed, free_port
from harness.waiting import eventually

from peercache_client.connector import ConnectorMetadata, PrefixIndex

SIZE: int = PAGES["page_size"]  # type: ignore[assignment]


SLOW = ("--tokens-per-s=1000", "--fetched-tokens-per-s=1000000")


def prompt(name: int, pages: int) -> list[int]:
    return [name * 1000 + place for place in range(pages * SIZE)]


def post(url: str, body: bytes) -> bytes:
    request = urllib.request.Request(url, body, {"content-type": "application/json"})
    with urllib.request.urlopen(request, timeout=seconds(30)) as answer:
        content: bytes = answer.read()
        return content


def known(routed: Routed, tokens: Sequence[int], node: str) -> None:
    """The daemons have heard of the pages: the next request goes there."""
    eventually(lambda: routed.complete(tokens)[0] == node, 10)


def test_a_turn_goes_where_the_conversation_is(three_nodes: Cluster, tmp_path: Path) -> None:
    with Routed(tmp_path, three_nodes.daemons) as routed:
        homes = {}
        for name in range(6):
            for _ in range(2):  # other questions take no turn of a node
                urllib.request.urlopen(f"{routed.url}/v1/models", timeout=seconds(30)).close()
            homes[name], said = routed.complete(prompt(name, 40))
            assert said["usage"]["prompt_tokens_details"]["cached_tokens"] == 0
        assert set(homes.values()) == {"a", "b", "c"}, "new prompts go in turn"
        for name, home in homes.items():
            known(routed, prompt(name, 50), home)
            node, said = routed.complete(prompt(name, 60))
            assert node == home
            cached = said["usage"]["prompt_tokens_details"]
            assert cached["cached_here_tokens"] == cached["cached_tokens"] == 50 * SIZE
        assert routed.status()["counts"]["by_prefix"] >= 6


def test_a_busy_node_is_left_for_one_that_fetches(three_nodes: Cluster, tmp_path: Path) -> None:
    with Routed(tmp_path, three_nodes.daemons, engine_options=SLOW) as routed:
        home, _ = routed.complete(prompt(1, 20))
        known(routed, prompt(1, 20), home)
        with ThreadPoolExecutor(3) as pool:
            # Most of it is there already, so it goes there, and keeps it busy for a while.
            long = pool.submit(routed.complete, prompt(1, 20) + prompt(2, 150))
            eventually(lambda: routed.status()["nodes"][home]["requests"] == 1)
            node, said = routed.complete(prompt(1, 20) + prompt(3, 2))
            assert long.result()[0] == home
        assert node != home
        cached = said["usage"]["prompt_tokens_details"]
        assert (cached["cached_here_tokens"], cached["cached_tokens"]) == (0, 20 * SIZE)
        # These daemons take no hints, so the next ones are left out.
        eventually(lambda: routed.status()["daemons"].get("hints_failed") == 1)


def test_requests_go_on_when_a_node_dies(make_cluster: MakeCluster, tmp_path: Path) -> None:
    cluster = make_cluster(3)
    with Routed(tmp_path, cluster.daemons) as routed:
        homes = {name: routed.complete(prompt(name, 10))[0] for name in range(6)}
        for name, home in homes.items():
            known(routed, prompt(name, 10), home)
        stop, answered, failed = threading.Event(), [], []

        def ask() -> None:
            while not stop.is_set():
                for name in homes:
                    try:
                        answered.append(routed.complete(prompt(name, 10))[0])
                    except OSError as error:
                        failed.append(error)

        with ThreadPoolExecutor(1) as pool:
            asking = pool.submit(ask)
            eventually(lambda: len(answered) >= 6)
            cluster[0].kill()
            routed.engines["a"].kill()
            count = len(answered)
            eventually(lambda: len(answered) >= count + 30)
            stop.set()
            asking.result()
        # At most the request that the dead engine was answering.
        assert len(failed) <= 1
        assert set(answered[-6:]) <= {"b", "c"}
        assert routed.status()["nodes"]["a"]["requests"] == 0


def test_without_daemons_requests_go_in_turn(make_cluster: MakeCluster, tmp_path: Path) -> None:
    cluster = make_cluster(2)
    with Routed(tmp_path, cluster.daemons, prefix_timeout_ms=200) as routed:
        home, _ = routed.complete(prompt(1, 10))
        known(routed, prompt(1, 10), home)
        for daemon in cluster.daemons:
            daemon.freeze()
        # The engines are well, although their clients wait for the daemons.
        before = routed.status()["counts"].get("by_turn", 0)
        nodes = [routed.complete(prompt(1, 10))[0] for _ in range(4)]
        assert nodes.count("a") == nodes.count("b") == 2
        assert routed.status()["counts"]["by_turn"] == before + 4
        for daemon in cluster.daemons:
            daemon.thaw()
        before = routed.status()["counts"]["by_prefix"]
        eventually(
            lambda: (
                bool(routed.complete(prompt(1, 10)))
                and routed.status()["counts"]["by_prefix"] > before
            ),
            20,
        )


def test_wrong_requests_are_refused_and_answers_stream(
    three_nodes: Cluster, tmp_path: Path
) -> None:
    with Routed(tmp_path, three_nodes.daemons[:1]) as routed:
        for wrong in (b"{", b"[" * 100_000, b'{"prompt": [%s-1]}' % (b"-1, " * 40)):
            with pytest.raises(urllib.error.HTTPError) as refused:
                post(f"{routed.url}/v1/completions", wrong)
            assert refused.value.code == 400, wrong[:20]
            assert routed.complete(prompt(1, 2)), wrong[:20]
        body = b'{"prompt": [1, 2, 3], "stream": true, "max_tokens": 3, "token_s": 0.01}'
        lines = [line for line in post(f"{routed.url}/v1/completions", body).split(b"\n") if line]
        assert len(lines) == 4
        assert lines[-1] == b"data: [DONE]"


def test_a_token_file_that_is_gone_stops_hints_only(
    make_cluster: MakeCluster, tmp_path: Path
) -> None:
    cluster = make_cluster(2, each=[{"router_port": free_port()} for _ in range(2)])
    token = tmp_path / "token"
    token.write_text("token\n")
    with Routed(tmp_path, cluster.daemons, engine_options=SLOW, token_file=str(token)) as routed:
        home, _ = routed.complete(prompt(1, 20))
        known(routed, prompt(1, 20), home)
        token.unlink()
        with ThreadPoolExecutor(1) as pool:
            long = pool.submit(routed.complete, prompt(1, 20) + prompt(2, 150))
            eventually(lambda: routed.status()["nodes"][home]["requests"] == 1)
            assert routed.complete(prompt(1, 20))[0] != home
            eventually(lambda: routed.status()["daemons"].get("hints_failed") == 1)
            long.result()
    log = (tmp_path / "router.log").read_text()
    assert f"token_file {token} cannot be read" in log and "Traceback" not in log
    command = [sys.executable, "-m", "peercached_router", str(tmp_path / "router.toml")]
    again = subprocess.run(
        command, cwd=EXAMPLE, capture_output=True, text=True, timeout=seconds(30), check=False
    )
    assert again.returncode == 1 and f"token_file {token} cannot be read" in again.stderr


def test_the_chosen_node_is_told_to_fetch(make_cluster: MakeCluster, tmp_path: Path) -> None:
    cluster = make_cluster(2, each=[{"router_port": free_port()} for _ in range(2)])
    with Routed(tmp_path, cluster.daemons, engine_options=SLOW) as routed:
        home, _ = routed.complete(prompt(1, 20))
        known(routed, prompt(1, 20), home)
        with ThreadPoolExecutor(1) as pool:
            long = pool.submit(routed.complete, prompt(1, 20) + prompt(2, 150))
            eventually(lambda: routed.status()["nodes"][home]["requests"] == 1)
            node, _ = routed.complete(prompt(1, 20))
            assert node != home
            eventually(lambda: routed.status()["daemons"].get("hints_accepted") == 1)
            # The engine itself sets nothing that the cluster has.
            url = f"http://{cluster[0].metrics_address()}"
            index = PrefixIndex(ConnectorMetadata(**PAGES), (PAGE_BYTES,), url)  # type: ignore[arg-type]
            eventually(lambda: index.prefix_by_node(prompt(1, 20)).get(node) == 20 * SIZE)
            long.result()
