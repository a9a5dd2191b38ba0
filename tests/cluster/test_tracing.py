"""Gets of traced requests arrive at an OpenTelemetry collector, step by step."""

from __future__ import annotations

import itertools
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from typing import IO, Any

import pytest
from harness.cluster import Daemon
from harness.collector import Collector, Span, collecting
from harness.fixtures import MakeCluster
from harness.pages import keys_of
from harness.raw_worker import RawWorker
from harness.waiting import eventually

from peercache_bench.daemons import Process, exec_command
from peercache_bench.process import free_port
from peercached import __version__

KEYS = keys_of("traced", 8)
PAGE_BYTES = 65_536
TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
SAMPLED, UNSAMPLED = f"00-{TRACE}-{PARENT}-01", f"00-{TRACE}-{PARENT}-00"
SERVER, CLIENT = 2, 3  # kinds of spans

# An engine with OpenTelemetry: one request, which gets all pages.
_ENGINE = """
import asyncio
import sys
from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider, sampling
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from peercache_client import AsyncClient, Client

endpoint, socket, page_bytes, how, *keys = sys.argv[1:]
page_bytes = int(page_bytes)
sampler = sampling.ALWAYS_ON if how != "unsampled" else sampling.ALWAYS_OFF
provider = TracerProvider(sampler=sampler, resource=Resource({"service.name": "engine"}))
exporter = OTLPSpanExporter(endpoint=endpoint + "/v1/traces")
provider.add_span_processor(SimpleSpanProcessor(exporter))
trace.set_tracer_provider(provider)
offsets = [page_bytes * i for i in range(len(keys))]

async def get_by_coroutine():
    client = AsyncClient(socket, "test")
    region = await client.alloc(page_bytes * len(keys))
    return await client.batch_get(keys, region, offsets, page_bytes)

def get_into_buffers():
    buffers = [bytearray(page_bytes) for _ in keys]
    return Client(socket, "test").batch_get_buffers(keys, buffers)

def get_into_region():
    client = Client(socket, "test")
    return client.batch_get(keys, client.alloc(page_bytes * len(keys)), offsets, page_bytes)

with trace.get_tracer("engine").start_as_current_span("request") as span:
    if how == "coroutine":
        statuses = asyncio.run(get_by_coroutine())
    elif how == "buffers":
        statuses = get_into_buffers()
    else:
        statuses = get_into_region()
    assert all(statuses), statuses
    print(format(span.get_span_context().trace_id, "032x"))
provider.shutdown()
"""


def engine_gets(collector: Collector, daemon: Daemon, how: str = "region") -> str:
    """Runs the engine. Returns the number of its trace."""
    arguments = (collector.endpoint, str(daemon.socket_path), str(PAGE_BYTES), how)
    command = [sys.executable, "-c", _ENGINE, *arguments, *(key.decode() for key in KEYS)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def traced_get(daemon: Daemon, traceparent: str = SAMPLED) -> None:
    """A get of one page by a program without OpenTelemetry."""
    pages = daemon.attach()
    [status] = pages.client.batch_get(
        KEYS[:1], pages.region, [0], PAGE_BYTES, traceparent=traceparent
    )
    assert status


def tracing(daemon: Daemon) -> dict[str, Any]:
    found = daemon.status()["tracing"]
    assert isinstance(found, dict)
    return found


def findings(daemon: Daemon) -> dict[str, str]:
    return {one["code"]: one["sentence"] for one in daemon.status()["health"]}


def daemon_spans(collector: Collector, trace_id: str) -> list[Span]:
    return [span for span in collector.trace(trace_id) if span.service == "peercached"]


def named(spans: list[Span], name: str) -> Span:
    [found] = [span for span in spans if span.name == name]
    return found


def test_a_trace_leads_from_the_engines_request_to_the_peer_that_gave_the_pages(
    make_cluster: MakeCluster,
) -> None:
    with collecting() as collector:
        cluster = make_cluster(2, otlp_endpoint=collector.endpoint, directory_copies=0)
        assert all(cluster[1].attach().set(KEYS))
        trace_id = engine_gets(collector, cluster[0])
        eventually(lambda: daemon_spans(collector, trace_id), what="spans of the daemon")
        spans = collector.trace(trace_id)
    request, client, get = (
        named(spans, name) for name in ("request", "peercache get", "peercached.get")
    )
    assert (request.parent_id, client.parent_id) == ("", request.span_id)
    assert (get.parent_id, get.kind, client.kind) == (client.span_id, SERVER, CLIENT)
    assert client.attributes == {"peercache.pages": len(KEYS), "peercache.ok": len(KEYS)}
    assert get.attributes == {
        "peercache.node": "a",
        "peercache.namespace": "test",
        "peercache.pages": len(KEYS),
        "peercache.ok": len(KEYS),
        "peercache.bytes": len(KEYS) * PAGE_BYTES,
    }
    steps = [span for span in spans if span.parent_id == get.span_id]
    names = [step.name for step in steps]
    assert names[:2] == ["peercached.pool", "peercached.copies"]
    assert names[-1] == "peercached.read"
    assert steps[-1].attributes == {
        "peercache.outcome": "ok",
        "peercache.pages": len(KEYS),
        "peercache.found": len(KEYS),
        "peercache.peer": "b",
        "peercache.transport": "tcp",
    }
    lookups = [step.attributes["peercache.found"] for step in steps[1:-1]]
    assert sum(map(int, lookups)) == len(KEYS), steps
    # Each step after the one before, and all of them inside the span around.
    for before, after in itertools.pairwise(steps):
        assert before.end_ns <= after.begin_ns
    assert sum(step.took_ns for step in steps) <= get.took_ns
    slack_ns = 50_000_000  # between the wall clocks of two processes, read at different times
    assert get.took_ns <= client.took_ns <= request.took_ns
    assert client.begin_ns - slack_ns <= get.begin_ns <= get.end_ns <= client.end_ns + slack_ns
    for part in (span for span in spans if span.name == "peercached.owner"):
        owners = named(spans, "peercached.owners")
        assert (part.parent_id, part.attributes["peercache.peer"]) == (owners.span_id, "b")
        assert owners.begin_ns <= part.begin_ns <= part.end_ns <= owners.end_ns


def test_a_page_in_the_nodes_own_pool_has_a_copy_as_part_of_the_pools_step(
    make_cluster: MakeCluster,
) -> None:
    with collecting() as collector:
        cluster = make_cluster(1, otlp_endpoint=collector.endpoint)
        assert all(cluster[0].attach().set(KEYS))
        traced_get(cluster[0])
        spans = eventually(lambda: daemon_spans(collector, TRACE), what="spans of the daemon")
    get, pool, copy = spans
    assert [span.name for span in spans] == [
        "peercached.get", "peercached.pool", "peercached.copy"
    ]  # fmt: skip
    assert (get.parent_id, pool.parent_id, copy.parent_id) == (PARENT, get.span_id, pool.span_id)


@pytest.mark.parametrize("how", ["coroutine", "buffers"])
def test_each_way_to_get_pages_is_part_of_the_current_span(
    make_cluster: MakeCluster, how: str
) -> None:
    with collecting() as collector:
        cluster = make_cluster(1, otlp_endpoint=collector.endpoint)
        assert all(cluster[0].attach().set(KEYS))
        trace_id = engine_gets(collector, cluster[0], how)
        eventually(lambda: daemon_spans(collector, trace_id), what="spans of the daemon")
        spans = collector.trace(trace_id)
    client = named(spans, "peercache get")
    assert client.parent_id == named(spans, "request").span_id
    assert named(spans, "peercached.get").parent_id == client.span_id


def test_a_request_that_is_not_sampled_leaves_no_span(make_cluster: MakeCluster) -> None:
    with collecting() as collector:
        cluster = make_cluster(1, otlp_endpoint=collector.endpoint)
        assert all(cluster[0].attach().set(KEYS))
        engine_gets(collector, cluster[0], "unsampled")
        for traceparent in (UNSAMPLED, "00-" + "0" * 32 + f"-{PARENT}-01", "nonsense"):
            traced_get(cluster[0], traceparent)
        traced_get(cluster[0])
        # The last one is exported, so the others would have been.
        eventually(lambda: collector.spans, what="spans of the sampled get")
        assert {span.trace_id for span in collector.spans} == {TRACE}
        assert sum(span.name == "peercached.get" for span in collector.spans) == 1


def test_without_a_collector_gets_are_served_and_the_status_says_why_no_span_arrives(
    make_cluster: MakeCluster,
) -> None:
    port = free_port("127.0.0.1")
    endpoint = f"http://127.0.0.1:{port}"
    cluster = make_cluster(1, otlp_endpoint=endpoint)
    assert all(cluster[0].attach().set(KEYS))
    traced_get(cluster[0])

    def lost() -> str:
        return findings(cluster[0]).get("traces_lost", "")

    sentence = eventually(lost, 30, "the finding")
    assert endpoint in sentence and "refused" in sentence, sentence
    assert tracing(cluster[0])["failed_spans"] > 0
    with collecting(port) as collector:

        def is_exported() -> bool:
            traced_get(cluster[0])
            return bool(collector.spans)

        eventually(is_exported, 30, "the collector is back")
        eventually(lambda: not lost(), 30, "the finding ends")
    assert "Traceback" not in cluster[0].log_text()


def test_a_flood_of_traced_gets_is_dropped_and_never_waits(make_cluster: MakeCluster) -> None:
    """The collector takes connections and never answers."""
    with collecting() as collector:
        collector.status = 503  # the exporter tries again until its timeout
        cluster = make_cluster(1, otlp_endpoint=collector.endpoint)
        pages = cluster[0].attach()
        assert all(pages.set(KEYS))

        def dropped() -> bool:
            for _ in range(500):
                assert all(
                    pages.client.batch_get(
                        KEYS[:1], pages.region, [0], PAGE_BYTES, traceparent=SAMPLED
                    )
                )
            return bool(tracing(cluster[0])["dropped_calls"])

        eventually(dropped, 60, "calls that were dropped")
        began = time.monotonic()
        assert cluster[0].stop() == 0
        assert time.monotonic() - began < 5, "the stop does not wait for the collector"


def test_a_missing_package_is_a_sentence_in_the_status(make_cluster: MakeCluster) -> None:
    cluster = make_cluster(1, start=False, otlp_endpoint="http://127.0.0.1:4318")

    def without_opentelemetry(
        command: Sequence[str], log: IO[bytes], environment: Mapping[str, str]
    ) -> Process:
        at = command.index("-m")
        program = (
            "import runpy, sys; sys.modules['opentelemetry'] = None; "
            f"runpy.run_module({command[at + 1]!r}, run_name='__main__', alter_sys=True)"
        )
        return exec_command([sys.executable, "-c", program, *command[at + 2 :]], log, environment)

    cluster[0].spawn = without_opentelemetry
    cluster.start()
    sentence = findings(cluster[0])["tracing_off"]
    assert "opentelemetry" in sentence, sentence
    assert all(cluster[0].attach().set(KEYS))
    traced_get(cluster[0])
    assert "opentelemetry" in tracing(cluster[0])["error"]


def test_a_client_of_before_spans_gets_the_answer_that_it_knows(make_cluster: MakeCluster) -> None:
    """Its HELLO names no features. The daemon's features would come behind the version."""
    cluster = make_cluster(1)
    with RawWorker(cluster[0].socket_path, hello=False) as old:
        assert old.hello().body.endswith(__version__.encode())
    with RawWorker(cluster[0].socket_path, hello=False) as new:
        answer = new.hello(features=1).body
        assert answer.endswith(
            __version__.encode() + (1 | 2 | 4 | 8 | 16 | 32 | 128 | 256 | 512).to_bytes(4, "little")
        )
