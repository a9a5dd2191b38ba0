"""Requests from a trace file in the Mooncake project's format.

The trace's timestamps only give the order. The replay runs at full speed, or at --rate. An answer's
blocks appear in the `hash_ids` of the next turn, not in the request's own. So decode workers have
nothing to set.
"""

from collections.abc import Iterator
from pathlib import Path

from demo.workload import Request
from peercached.sizing import trace


def read_trace(path: Path) -> Iterator[Request]:
    """The file's requests in order. Raises TraceError, or OSError if it cannot be read."""
    for blocks in trace.read_trace(path):
        yield Request(blocks)
