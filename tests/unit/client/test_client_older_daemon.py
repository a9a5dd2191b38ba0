"""Client and daemon of different versions: the daemon names what it knows in HELLO, and the client
sends nothing else."""

import logging
import time

import pytest
from harness import ipc_stand_in as ipc
from harness.ipc_stand_in import IpcStandIn
from harness.waiting import eventually

from peercache_client import Client, Status, notes, wire
from peercache_client.wire import Flag

SPANS, PINS, TOOK = 1, 2, 4  # features


def test_an_older_daemon_gets_no_pins(
    client: Client, daemon: IpcStandIn, caplog: pytest.LogCaptureFixture
) -> None:
    """It would close the connection after this op, and other calls would wait for a new one."""
    assert client.set("a", b"page")
    with caplog.at_level(logging.WARNING):
        assert client.pin(["a", "b"], 60) == [Status.error] * 2
        assert client.pin(["a"], 60, prefix=True, here=True) == [Status.error]
        assert client.unpin(["a"]) == [Status.error]
        client.touch(["a"])
    assert daemon.asked(ipc.PIN) == daemon.asked(ipc.EXISTS) == []
    notes.flush()
    refusals = [each.message for each in caplog.records if "refuses" in each.message]
    assert len(refusals) == 1
    assert "the daemon of version fake knows no pins: update it" in refusals[0]
    assert client.get("a", 4) == b"page"
    assert daemon.attachments_made == 1
    assert daemon.connections == 1, "it goes on with the same connection"


def test_an_older_daemon_is_asked_for_presence_without_a_forecast(
    client: Client, daemon: IpcStandIn
) -> None:
    assert client.set("a", b"page")
    for every in (False, True):
        assert client.forecast(["a", "b"], every=every) == ([True, False], [], [], ())
    assert not any(request.flags & Flag.forecast for request in daemon.requests)
    assert daemon.connections == 1


def test_a_daemon_that_names_pins_gets_them(client: Client, daemon: IpcStandIn) -> None:
    restart(client, daemon, PINS)
    assert client.set("a", b"page")
    assert client.pin(["a", "b"], 60) == [Status.ok, Status.absent]
    assert client.unpin(["a"]) == [Status.ok]
    pin, unpin = daemon.asked(ipc.PIN)
    assert (pin.for_ms, unpin.for_ms) == (60_000, 0)


def test_only_a_daemon_that_names_it_is_told_how_long_calls_took(
    client: Client, daemon: IpcStandIn
) -> None:
    for features in (0, TOOK):
        restart(client, daemon, features)
        daemon.requests.clear()
        began = time.monotonic()
        client.set("a", b"page")
        client.batch_exists(["a"])
        client.get("a", 4)
        client.ping()
        waited_us = (time.monotonic() - began) * 1e6
        told = [request.took for request in daemon.requests]
        if features:
            assert [took & 3 for took in told[-3:]] == [1, 3, 2], "each with the next request"
            assert 0 < sum(took >> 2 for took in told[-3:]) <= waited_us
        else:
            assert set(told) == {0}


def test_features_of_a_later_daemon_are_not_used(client: Client, daemon: IpcStandIn) -> None:
    restart(client, daemon, 0xFFFF_FFFF)
    assert client.set("a", b"page")
    assert client.get("a", 4) == b"page"
    assert client.pin(["a"], 60) == [Status.ok]
    assert {request.flags for request in daemon.requests} == {0}


def test_each_connection_has_the_features_of_its_own_daemon(
    client: Client, daemon: IpcStandIn
) -> None:
    """The daemon may be replaced by an older or a newer one while the client runs."""
    for features in (PINS, SPANS, PINS, 0):
        restart(client, daemon, features)
        daemon.requests.clear()
        assert client.set("a", b"page")
        assert client.pin(["a"], 60) == [Status.ok if features & PINS else Status.error]
        assert len(daemon.asked(ipc.PIN)) == bool(features & PINS)


def test_a_full_pin_reply_may_have_a_sentence(
    client: Client, daemon: IpcStandIn, caplog: pytest.LogCaptureFixture
) -> None:
    restart(client, daemon, PINS)
    daemon.pin_sentence = b"beyond the bound"
    keys = [f"{number:05}" for number in range(wire.PAGES_MAX)]
    with caplog.at_level(logging.WARNING):
        assert client.pin(keys, 60, timeout_s=60) == [Status.absent] * wire.PAGES_MAX
    notes.flush()
    assert "beyond the bound" in caplog.text


def restart(client: Client, daemon: IpcStandIn, features: int) -> None:
    daemon.stop()
    client.ping()
    daemon.features = features
    daemon.start()
    eventually(client.ping, what="the client to find the daemon again")
