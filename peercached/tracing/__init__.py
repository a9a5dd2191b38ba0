"""Exports the gets of traced requests to an OpenTelemetry collector.

The data plane keeps the steps of a get if its caller records a span (`call_traces.h` in
native/engine). `tracing.py` takes them on the event loop and names the nodes. `exporter.py` sends
them from a thread of its own, as the spans that `spans.py` makes. Each queue on the way is bounded
and drops calls that it has no room for. So no call ever waits for a collector.
"""
