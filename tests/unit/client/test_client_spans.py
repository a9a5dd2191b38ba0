"""The client tells a daemon of the caller's span, if both can."""

from __future__ import annotations

from pathlib import Path

import pytest
from harness.ipc_stand_in import GET, IpcStandIn

from peercache_client import Client, spans

TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


def test_a_daemon_of_before_spans_gets_the_request_that_it_knows(tmp_path: Path) -> None:
    """It closes the connection after an unknown flag."""
    with IpcStandIn(tmp_path / "s") as daemon, Client(tmp_path / "s") as client:
        region = client.alloc(4096)
        client.batch_get(["key"], region, [0], 4096, traceparent=f"00-{TRACE}-{PARENT}-01")
        assert [request.flags for request in daemon.asked(GET)] == [0]
        assert client.stats()["reconnects"] == 0


@pytest.mark.parametrize("flags", ["01", "03", "ff"])
def test_a_sampled_traceparent_is_taken(flags: str) -> None:
    span = spans.begin("get", f"00-{TRACE}-{PARENT}-{flags}")
    assert span is not None and span.caller[:16].hex() == TRACE
    later = spans.begin("get", f"01-{TRACE}-{PARENT}-{flags}-more")
    assert later is not None and later.caller[:16].hex() == TRACE


@pytest.mark.parametrize(
    "traceparent",
    [
        f"00-{TRACE}-{PARENT}-00",
        f"00-{TRACE}-{PARENT}-02",
        f"00-{'0' * 32}-{PARENT}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"ff-{TRACE}-{PARENT}-01",
        f"00-{TRACE.upper()}-{PARENT}-01",
        f"00-{TRACE}-{PARENT}",
        f"00-{TRACE}-{PARENT}-01\n",
        "",
    ],
)
def test_a_traceparent_that_is_malformed_or_not_sampled_counts_as_none(traceparent: str) -> None:
    assert spans.begin("get", traceparent) is None


def test_a_traceparent_of_another_type_is_an_error(tmp_path: Path) -> None:
    client = Client(tmp_path / "no daemon")
    region = client.alloc(4096)
    with pytest.raises(TypeError, match="traceparent must be str, not bytes"):
        client.batch_get(["key"], region, [0], 4096, traceparent=b"00")  # type: ignore[arg-type]
