"""Strangers' connections, as the daemon sees them on its own sockets."""

import errno
import os
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import patch

import pytest
from harness.clock import seconds

from peercached.peer.rpc import connection_limits
from peercached.peer.rpc.connection_limits import ConnectionLimits, host_of


class Door:
    """A listener in this process, the ConnectionLimits that watch it, and a fake clock."""

    def __init__(self, stack: ExitStack, host: str = "127.0.0.1") -> None:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._stack = stack
        self.now = 100.0
        self.listener = stack.enter_context(socket.create_server((host, 0), family=family))
        self.address = self.listener.getsockname()
        clock = SimpleNamespace(monotonic=lambda: self.now)
        stack.enter_context(patch.object(connection_limits, "time", clock))
        self.limits = ConnectionLimits(cast(Any, SimpleNamespace(serves=True)))
        self.limits._port = self.address[1]

    def connect(self) -> tuple[socket.socket, socket.socket, str]:
        """The client's socket, the server's socket, and gRPC's name for the connection."""
        theirs = self._stack.enter_context(
            socket.create_connection(self.address[:2], timeout=seconds(5))
        )
        ours = self._stack.enter_context(self.listener.accept()[0])
        host, port = theirs.getsockname()[:2]
        name = f"ipv6:%5B{host}%5D:{port}" if ":" in host else f"ipv4:{host}:{port}"
        return theirs, ours, name


@pytest.fixture(params=["127.0.0.1", "::1"])
def door(request: pytest.FixtureRequest) -> Iterator[Door]:
    with ExitStack() as stack:
        try:
            yield Door(stack, request.param)
        except OSError:
            pytest.skip("no IPv6 here")


def is_open(theirs: socket.socket) -> bool:
    theirs.setblocking(False)
    try:
        return theirs.recv(1) != b""
    except BlockingIOError:
        return True


def test_unproven_connections_are_closed_and_proven_ones_stay(door: Door) -> None:
    peer, _, name = door.connect()
    stranger, _, stranger_name = door.connect()
    early, _, early_name = door.connect()
    door.limits.proven(early_name)  # before the first look at the sockets
    door.limits.look()
    door.limits.proven(name)
    door.limits.spoke(stranger_name)  # a refused call proves nothing
    door.now += connection_limits.PROOF_S + 1
    door.limits.look()
    assert is_open(peer)
    assert is_open(early)
    assert not is_open(stranger)
    assert door.limits.shut_unproven == 1
    assert door.limits.shut_strangers == 0, "a peer is at that address"
    assert door.limits.document()["meta_connections"] == 3


def test_a_connection_of_an_address_without_a_peer_is_a_strangers(
    door: Door, caplog: pytest.LogCaptureFixture
) -> None:
    stranger, _, _ = door.connect()
    door.limits.look()
    door.now += connection_limits.PROOF_S + 1
    door.limits.look()
    assert not is_open(stranger)
    assert door.limits.shut_strangers == 1
    assert "did not authenticate" in caplog.text


def test_crowd_of_unproven_connections_loses_its_oldest(
    door: Door, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection_limits, "UNPROVEN_PER_HOST_MAX", 3)
    crowd = []
    for _ in range(5):
        crowd.append(door.connect())
        door.limits.look()
        door.now += 0.1
    assert [is_open(theirs) for theirs, _, _ in crowd] == [False, False, True, True, True]
    assert door.limits.shut_crowd == 2


def test_only_callers_that_sent_something_but_made_no_call_count(door: Door) -> None:
    probe, silent, _ = door.connect()
    caller, failed, _ = door.connect()
    _, refused, name = door.connect()
    door.limits.look()
    door.limits.spoke(name)
    probe.shutdown(socket.SHUT_WR)
    caller.sendall(b"no TLS")
    door.limits.look()
    for ended in (silent, failed, refused):
        ended.close()
    door.limits.look()
    assert door.limits.silent == 1
    assert door.limits.document()["meta_connections"] == 0


def test_connections_that_peers_give_up_while_the_process_stands_still_are_not_silent(
    door: Door,
) -> None:
    door.limits.look()
    door.now += 50  # stopped, or starved
    for _ in range(3):  # accepted one after the other when it runs again
        _, given_up, _ = door.connect()
        door.limits.look()
        given_up.close()
        door.now += 0.5
        door.limits.look()
    assert door.limits.silent == 0
    for _ in range(10):
        door.now += 1
        door.limits.look()
    caller, failed, _ = door.connect()
    caller.sendall(b"no TLS")
    door.limits.look()
    failed.close()
    door.limits.look()
    assert door.limits.silent == 1


@pytest.mark.parametrize("look_without", ["first", "last"])
def test_a_stranger_is_shut_although_descriptors_were_lacking(
    door: Door, monkeypatch: pytest.MonkeyPatch, look_without: str
) -> None:
    def no_descriptor(fd: int) -> int:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    def look(without: bool) -> None:
        with monkeypatch.context() as patched:
            if without:
                patched.setattr(os, "dup", no_descriptor)
            door.limits.look()

    stranger, _, _ = door.connect()
    peer, _, name = door.connect()
    door.limits.proven(name)
    look(without=look_without == "first")  # it would be found now
    look(without=False)
    door.now += connection_limits.PROOF_S + 1
    look(without=look_without == "last")  # it would be shut now
    assert door.limits.shut_unproven == (look_without == "first")
    door.limits.look()
    assert not is_open(stranger)
    assert is_open(peer)
    assert door.limits.shut_unproven == 1


def test_sockets_of_others_are_left_alone(door: Door) -> None:
    with ExitStack() as stack:
        elsewhere = Door(stack)
        theirs, _, _ = elsewhere.connect()
        door.limits.look()
        door.now += 1000
        door.limits.look()
        assert is_open(theirs)
        assert door.limits.document()["meta_connections"] == 0


@pytest.mark.parametrize(
    ("peer", "host"),
    [
        ("ipv4:10.0.0.1:1234", "10.0.0.1"),
        ("ipv6:%5B::1%5D:1234", "::1"),
        ("unknown", "an ended connection"),
    ],
)
def test_the_address_of_a_caller(peer: str, host: str) -> None:
    assert host_of(peer) == host
