"""Sends spans to an OpenTelemetry collector (OTLP over HTTP), on a thread of its own."""

from __future__ import annotations

import logging
import queue
import threading
import time
from urllib.parse import urlsplit

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExportResult

from peercached.tracing.call import Call
from peercached.tracing.spans import SpanMaker

QUEUE_CALLS_MAX = 1024
_SPANS_TOGETHER = 512
# The collector's time for an answer. After that these spans are lost, and the next ones are sent.
TIMEOUT_S = 5.0
_STOP_S = 1.0


class Exporter:
    """`endpoint`: the collector's URL, for example http://127.0.0.1:4318."""

    def __init__(self, endpoint: str, node_id: str) -> None:
        self._maker = SpanMaker(node_id)
        self._reasons = _Reasons()
        self._otlp = OTLPSpanExporter(endpoint=url_of(endpoint), timeout=TIMEOUT_S)
        # None ends the thread.
        self._calls: queue.Queue[Call | None] = queue.Queue(QUEUE_CALLS_MAX)
        self._thread = threading.Thread(target=self._run, name="otlp", daemon=True)
        self.exported = 0  # spans that the collector has taken
        self.failed = 0  # spans that it has not
        self.dropped = 0  # calls that had no room in the queue
        self.error = ""  # why the last attempt failed; empty: it did not

    def start(self) -> None:
        self._thread.start()

    def offer(self, call: Call) -> None:
        """Never waits."""
        try:
            self._calls.put_nowait(call)
        except queue.Full:
            self.dropped += 1

    def stop(self) -> None:
        """Sends the spans that wait, if that is quickly done. Blocks for _STOP_S at most."""
        if not self._thread.is_alive():
            return
        try:
            self._calls.put_nowait(None)
            self._thread.join(_STOP_S)
        except queue.Full:
            pass  # the collector is away: nothing would be sent in time
        self._otlp.shutdown()  # type: ignore[no-untyped-call]

    def _run(self) -> None:
        ends = False
        while not ends:
            call = self._calls.get()
            spans: list[ReadableSpan] = []
            wall_ns = time.time_ns() - time.monotonic_ns()
            while call is not None:
                spans += self._maker.spans(call, wall_ns)
                if len(spans) >= _SPANS_TOGETHER or self._calls.empty():
                    break
                call = self._calls.get()
            ends = call is None
            if spans:
                self._send(spans)

    def _send(self, spans: list[ReadableSpan]) -> None:
        self._reasons.first = ""
        try:
            taken = self._otlp.export(spans) is SpanExportResult.SUCCESS
        except Exception as error:
            taken = False
            self._reasons.first = f"{type(error).__name__}: {error}"
        if taken:
            self.exported += len(spans)
            self.error = ""
        else:
            self.failed += len(spans)
            self.error = self._reasons.first or "it did not say why"


class _Reasons(logging.Handler):
    """Keeps the first sentence that OpenTelemetry logs about an export, for the status: the later
    ones only count retries. The daemon's log would repeat them every few seconds."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.first = ""
        logger = logging.getLogger("opentelemetry")
        logger.addHandler(self)
        logger.propagate = False

    def emit(self, record: logging.LogRecord) -> None:
        self.first = self.first or record.getMessage()[:500]


def url_of(endpoint: str) -> str:
    """As OTEL_EXPORTER_OTLP_ENDPOINT: spans go to a path below it, unless one is given."""
    if urlsplit(endpoint).path.strip("/"):
        return endpoint
    return endpoint.rstrip("/") + "/v1/traces"
