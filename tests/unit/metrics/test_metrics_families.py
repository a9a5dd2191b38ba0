"""From the status document to Prometheus text: correct, complete, bounded, well named."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
from dataclasses import replace
from typing import Any

import pytest
from harness.status_document import status_document
from prometheus_client.parser import text_string_to_metric_families

from peercached.admin.status import Status
from peercached.metrics.all import families
from peercached.metrics.bounded import CLASSES_MAX, NAMESPACES_MAX, OTHERS, PEERS_MAX
from peercached.metrics.exposition import exposition
from peercached.observe.latency import BOUNDS_US, Latency, LatencyCounts


def latencies() -> list[Latency]:
    """Two reads of a peer, 3 us and 100 us, and one slow read of a rail beyond all buckets."""
    timed = LatencyCounts("peer_read")
    timed.add(3e-6)
    timed.add(100e-6)
    slow = LatencyCounts("rail_read")
    slow.add(100.0)
    return [
        replace(timed.so_far(), label="b"),
        replace(slow.so_far(), label="mlx5_0:1"),
        LatencyCounts("set").so_far(),
    ]


def busy() -> Status:
    return Status.model_validate(status_document())


def text_of(status: dict[str, Any]) -> str:
    return asyncio.run(exposition(families(Status.model_validate(status), latencies()))).decode()


def samples(status: dict[str, Any]) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text_of(status))
        for sample in family.samples
    }


def value(status: dict[str, Any], name: str, **labels: str) -> float:
    return samples(status)[f"peercached_{name}", frozenset(labels.items())]


def test_an_empty_document_has_all_families_and_no_error() -> None:
    names = [family.name for family in families(Status(), ())]
    assert len(names) == len(set(names))
    assert set(names) == {family.name for family in families(busy(), latencies())}


def test_every_family_has_a_prefix_and_a_documentation_sentence() -> None:
    for family in families(Status(), ()):
        assert family.documentation.endswith((".", "?")) or family.name.startswith("process_")
        assert family.name.startswith(("peercached_", "process_"))


def test_promtool_accepts_the_metrics_text() -> None:
    if not shutil.which("promtool"):
        pytest.skip("no promtool: apt-get install prometheus")
    checked = subprocess.run(
        ["promtool", "check", "metrics"],
        input=text_of(status_document()),
        capture_output=True,
        text=True,
        check=False,
    )
    assert (checked.returncode, checked.stdout, checked.stderr) == (0, "", "")


def test_hit_miss_and_byte_metrics_match_the_status_document() -> None:
    status = status_document()
    status["operations"] |= {
        "get": {"ok": 9, "absent": 3, "deadline": 1, "suspect": 0},
        "get_local": 5,
        "get_remote": 4,
        "bytes_got": 9 << 17,
    }
    assert value(status, "hits_total", tier="pool") == 5
    assert value(status, "hits_total", tier="peer") == 4
    assert value(status, "misses_total", reason="absent") == 3
    assert value(status, "misses_total", reason="suspect") == 0
    assert value(status, "pages_total", operation="get", outcome="ok") == 9
    assert value(status, "bytes_total", operation="get") == 9 << 17
    assert ("peercached_misses_total", frozenset({("reason", "ok")})) not in samples(status)


def test_demand_metrics_match_the_status_document_and_name_no_namespace() -> None:
    status = status_document()
    assert value(status, "asked_keys_total") == 100
    assert value(status, "found_keys_total", tier="pool") == 6
    assert value(status, "found_keys_total", tier="peer") == 3
    assert value(status, "evicted_keys_total", pool="2") == 10
    assert value(status, "found_tokens_total") == 576
    assert value(status, "namespace_found_keys_total", namespace_id="0a" * 16) == 9
    for name in ("llama", "tenant"):
        assert name not in text_of(status), "a name may contain a tenant's salt"
    one = status["namespaces"][0]
    status["namespaces"] = [{**one, "id": f"{i:032x}", "pool_pages": 1} for i in range(200)]
    found = {
        dict(labels)["namespace_id"]: number
        for (name, labels), number in samples(status).items()
        if name == "peercached_namespace_pool_pages"
    }
    assert sorted(found) == [f"{i:032x}" for i in range(NAMESPACES_MAX)]


def test_gpu_metrics_match_the_status_document() -> None:
    status = status_document()
    gpu = {"gpu": "0c" * 16}
    assert value(status, "gpu_regions", **gpu) == 3
    assert value(status, "gpu_copied_bytes_total", **gpu) == 65536
    assert value(status, "gpu_lost", **gpu) == 0
    status["gpus"][0]["why_lost"] = "an illegal address was met"
    assert value(status, "gpu_lost", **gpu) == 1


def test_refusal_and_quota_metrics_match_the_status_document() -> None:
    status = status_document()
    assert value(status, "refused_total", door="meta_port", reason="no_secret") == 2
    assert value(status, "refused_total", door="meta_port", reason="no_session") == 3
    assert value(status, "refused_total", door="meta_port", reason="wrong_certificate") == 4
    assert value(status, "refused_total", door="data_port", reason="no_token") == 5
    assert value(status, "refused_total", door="socket", reason="wrong_user") == 0
    assert value(status, "namespace_quota_bytes", namespace_id="0b" * 16) == 10
    assert value(status, "tls_remaining_seconds") == 3600
    status["quotas"] = [
        {"id": f"{i:032x}", "namespace": f"n{i}", "bytes": i, "quota_bytes": 5000}
        for i in range(1000)
    ]
    shown = [labels for name, labels in samples(status) if name == "peercached_namespace_bytes"]
    assert len(shown) == 32
    assert value(status, "namespace_bytes", namespace_id=f"{999:032x}") == 999
    assert not [1 for name, _ in samples(status) if name.startswith("peercached_namespace_disk")]
    status["quotas"] = [
        {**one, "disk_bytes": i, "disk_quota_bytes": 7000, "disk_skipped": 3}
        for i, one in enumerate(status["quotas"])
    ]
    assert value(status, "namespace_disk_bytes", namespace_id=f"{999:032x}") == 999
    assert value(status, "namespace_disk_quota_bytes", namespace_id=f"{999:032x}") == 7000
    assert value(status, "namespace_disk_quota_skipped_total", namespace_id=f"{999:032x}") == 3


def test_peer_series_are_bounded_and_their_sum_is_kept() -> None:
    status = status_document()
    one = status["transfer"][0]
    status["transfer"] = [{**one, "node_id": f"n{i:04}", "bytes": i} for i in range(1000)]
    found = {
        dict(labels)["peer"]: value
        for (name, labels), value in samples(status).items()
        if name == "peercached_peer_bytes_total"
    }
    assert len(found) == PEERS_MAX + 1
    assert sum(found.values()) == sum(range(1000))
    assert found["n0003"] == 3
    assert found[OTHERS] == sum(range(PEERS_MAX, 1000))


def test_the_largest_size_classes_keep_their_names() -> None:
    status = status_document()
    status["pool"]["classes"] = [
        {"stride_bytes": 4096 * i, "slots": 10, "used": 1, "spans": 1, "evictions": i, "pinned": 1}
        for i in range(1, 101)
    ]
    found = {
        dict(labels)["slot_bytes"]: value
        for (name, labels), value in samples(status).items()
        if name == "peercached_pool_class_evictions_total"
    }
    assert len(found) == CLASSES_MAX + 1
    assert sum(found.values()) == sum(range(1, 101))
    assert found[str(4096 * 100)] == 100
    assert value(status, "pool_class_pinned_slots", slot_bytes=OTHERS) == 100 - CLASSES_MAX


def test_histogram_buckets_are_cumulative() -> None:
    found = {
        dict(labels)["le"]: value
        for (name, labels), value in samples(status_document()).items()
        if name == "peercached_peer_read_seconds_bucket"
    }
    assert (found["1.6e-05"], found["6.4e-05"], found["0.000256"], found["+Inf"]) == (1, 1, 2, 2)
    status = status_document()
    assert value(status, "peer_read_seconds_count", peer="b") == 2
    assert value(status, "peer_read_seconds_sum", peer="b") == pytest.approx(103e-6)
    # Longer than the largest bound, so only the +Inf bucket counts it.
    assert value(status, "rail_read_seconds_bucket", rail="mlx5_0:1", le="16.777216") == 0
    assert value(status, "rail_read_seconds_bucket", rail="mlx5_0:1", le="+Inf") == 1


@pytest.mark.parametrize("bound_us", BOUNDS_US)
def test_a_bound_belongs_to_its_bucket(bound_us: int) -> None:
    timed = LatencyCounts("set")
    timed.add(bound_us / 1e6)
    assert timed.so_far().counts[BOUNDS_US.index(bound_us)] == 1


def test_a_thousand_peers_histograms_are_few_and_lose_nothing() -> None:
    timed = LatencyCounts("peer_read")
    timed.add(1e-3)
    many = [replace(timed.so_far(), label=f"n{i:04}") for i in range(1000)]
    text = asyncio.run(exposition(families(Status(), many))).decode()
    found = {
        sample.labels["peer"]: sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name == "peercached_peer_read_seconds_count"
    }
    assert len(found) == PEERS_MAX + 1
    assert (sum(found.values()), found[OTHERS]) == (1000, 1000 - PEERS_MAX)


def test_without_a_disk_its_families_have_no_samples() -> None:
    assert not [name for name, _ in samples({}) if "_disk_" in name]
    assert value(status_document(), "disk_keys") == 1000
    assert value(status_document(), "disk_state", state="read_only") == 0


def test_a_name_with_quotes_and_newlines_stays_one_label() -> None:
    status = status_document()
    status["transfer"][0]["node_id"] = 'a"b\n\\c'
    assert value(status, "peer_pages_total", peer='a"b\n\\c') == status["transfer"][0]["pages"]


def test_the_loop_runs_on_during_a_scrape() -> None:
    async def story() -> int:
        turns = 0

        async def count() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        counting = asyncio.ensure_future(count())
        await exposition(families(busy(), latencies()))
        counting.cancel()
        return turns

    assert asyncio.run(story()) > 50
