"""A small OpenTelemetry collector: takes spans by OTLP over HTTP, and keeps them for a test."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.common.v1.common_pb2 import KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span as WireSpan


@dataclass(frozen=True)
class Span:
    service: str
    name: str
    trace_id: str
    span_id: str
    parent_id: str
    kind: int
    begin_ns: int
    end_ns: int
    attributes: dict[str, str | int]

    @property
    def took_ns(self) -> int:
        return self.end_ns - self.begin_ns


class Collector:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._spans: list[Span] = []
        self.endpoint = ""
        self.status = 200  # of its answers

    @property
    def spans(self) -> list[Span]:
        with self._lock:
            return list(self._spans)

    def trace(self, trace_id: str) -> list[Span]:
        """By their begin."""
        found = [span for span in self.spans if span.trace_id == trace_id]
        return sorted(found, key=lambda span: (span.begin_ns, -span.end_ns))

    def take(self, body: bytes) -> None:
        request = ExportTraceServiceRequest.FromString(body)
        with self._lock:
            for of_resource in request.resource_spans:
                service = _values(of_resource.resource.attributes)["service.name"]
                for of_scope in of_resource.scope_spans:
                    self._spans += [_span(str(service), span) for span in of_scope.spans]


def _span(service: str, span: WireSpan) -> Span:
    return Span(
        service,
        span.name,
        span.trace_id.hex(),
        span.span_id.hex(),
        span.parent_span_id.hex(),
        span.kind,
        span.start_time_unix_nano,
        span.end_time_unix_nano,
        _values(span.attributes),
    )


def _values(pairs: Iterable[KeyValue]) -> dict[str, str | int]:
    """Of attributes that are numbers or texts."""
    return {
        pair.key: pair.value.int_value
        if pair.value.WhichOneof("value") == "int_value"
        else pair.value.string_value
        for pair in pairs
    }


@contextmanager
def collecting(port: int = 0) -> Iterator[Collector]:
    """A collector on 127.0.0.1. `port`: 0 takes a free one."""
    collector = Collector()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            assert self.path == "/v1/traces", self.path
            if collector.status == 200:
                collector.take(body)
            answer = ExportTraceServiceResponse().SerializeToString()
            self.send_response(collector.status)
            self.send_header("content-type", "application/x-protobuf")
            self.send_header("content-length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, format: str, *arguments: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", port), Handler) as server:
        server.daemon_threads = True
        collector.endpoint = f"http://127.0.0.1:{server.server_address[1]}"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield collector
        finally:
            server.shutdown()
            thread.join()
