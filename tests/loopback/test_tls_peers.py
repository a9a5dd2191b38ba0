"""Certificates at the meta port of a whole daemon: which are accepted, and how they are
replaced."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from harness.callers import HOST, SECRET, Shown, Site, link_to, security
from harness.clock import seconds
from harness.loop_node import LoopNode, eventually, free_port, in_sync

from peercached.peer.rpc import connection_limits
from peercached.peer.rpc.auth import AuthError
from peercached.peer.rpc.authority import files_of
from peercached.peer.rpc.failures import Unreachable
from peercached.peer.rpc.tls import Tls


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path / "site")


async def test_nodes_of_one_authority_meet_and_health_checks_are_no_strangers(
    site: Site, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The checks connect, stay a second, and send nothing."""
    monkeypatch.setattr(connection_limits, "LOOK_S", seconds(0.1))

    async with (
        LoopNode("a", secret=SECRET, tls=site.tls("a")) as first,
        LoopNode("b", heads=[first], secret=SECRET, tls=site.tls("b")) as second,
    ):
        await in_sync(first, second)
        await first.set("x")
        assert await second.find("x") == {("x", "a")}
        checks = [socket.create_connection((HOST, first.port)) for _ in range(30)]
        await eventually(lambda: security(first)["meta_connections"] >= 30)
        await asyncio.sleep(seconds(1))
        for check in checks:
            check.close()
        await eventually(lambda: security(first)["meta_connections"] < 30)
        assert security(first)["meta_ended_silent"] == 0
        assert "TLS" not in first.sentences()
    assert "a connection to meta_port" not in caplog.text


async def test_with_tls_nodes_are_authenticated_also_without_a_secret(site: Site) -> None:
    async with LoopNode("a", secret=b"", tls=site.tls("a")) as node:
        assert "not authenticated" not in node.sentences()
        link = link_to(node, site.tls("b"), secret=b"")
        await link.ready()
        await link.close()


def cases() -> dict[str, Callable[[Site, Path], Any]]:
    def another_authority(site: Site, folder: Path) -> Any:
        return Shown(Site(folder / "elsewhere").files("b"), trusts=site.files("x").ca)

    return {
        "another authority's": another_authority,
        "expired": lambda site, _: Shown(site.files("b", lifetime=timedelta(hours=-1))),
        "none": lambda site, _: Shown(site.files("b"), anonymous=True),
        "no TLS at all": lambda site, _: None,
    }


@pytest.mark.parametrize("what", cases())
async def test_peer_without_a_valid_certificate_is_refused_counted_and_reported(
    what: str, site: Site, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with LoopNode("a", secret=SECRET, tls=site.tls("a")) as node:
        link = link_to(node, cases()[what](site, tmp_path))
        with pytest.raises(Unreachable):
            await link.ready()
        await link.close()
        await eventually(lambda: security(node)["meta_ended_silent"] >= 1)
        assert "failed the TLS handshake" in node.sentences()
        assert node.engine.readers == {}
        good = link_to(node, site.tls("c"), node_id="c")
        await good.ready()
        await good.close()
    assert f"a connection to meta_port from {HOST} ended before its first call" in caplog.text


@pytest.mark.parametrize(
    ("claims", "text"),
    [({"node_id": "c"}, "is node b's, not c's"), ({"host": "127.0.0.9"}, "not for host 127.0.0.9")],
)
async def test_certificate_cannot_be_used_for_another_node_or_host(
    site: Site, claims: dict[str, Any], text: str
) -> None:
    async with LoopNode("a", secret=SECRET, tls=site.tls("a")) as node:
        link = link_to(node, site.tls("b"), **claims)
        with pytest.raises(AuthError, match=text):
            await link.ready()
        await link.close()
        assert security(node)["misfit_certificates"] == 1
        assert "certificate does not match" in node.sentences()
        assert node.engine.readers == {}


async def test_a_server_that_shows_another_hosts_certificate_is_not_talked_to(site: Site) -> None:
    port = free_port()
    tls = Tls(site.files("a", host="127.0.0.7"), "a", "127.0.0.7")
    async with LoopNode("a", port, [port], secret=SECRET, tls=tls) as node:
        link = link_to(node, Shown(site.files("b")))
        with pytest.raises(Unreachable):
            await link.ready()
        await link.close()


def shown_by(port: int, site: Site) -> int:
    """The serial number of the certificate that the server at this port presents."""
    files = files_of(site.folder, "a")
    context = ssl.create_default_context(cafile=files.ca)
    context.load_cert_chain(files.certificate, files.key)
    context.set_alpn_protocols(["h2"])
    with (
        socket.create_connection((HOST, port), timeout=seconds(5)) as plain,
        context.wrap_socket(plain, server_hostname=HOST) as wrapped,
    ):
        found = wrapped.getpeercert(binary_form=True)
    assert found is not None
    return x509.load_der_x509_certificate(found).serial_number


async def test_new_files_serve_new_connections_and_the_old_ones_go_on(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("peercached.peer.rpc.watched_files.LOOK_S", 0.1)

    def loop_shown(port: int) -> asyncio.Future[int]:
        return asyncio.get_running_loop().run_in_executor(None, shown_by, port, site)

    async with (
        LoopNode("a", secret=SECRET, tls=site.tls("a")) as first,
        LoopNode("b", heads=[first], secret=SECRET, tls=site.tls("b")) as second,
    ):
        await in_sync(first, second)
        before = await loop_shown(first.port)
        site.files("a")
        site.files("b")
        await eventually(lambda: security(first)["tls_reloads"] == 1)
        await eventually(lambda: security(second)["tls_reloads"] == 1)
        assert await loop_shown(first.port) != before
        await second.set("x")
        assert await first.find("x") == {("x", "b")}

        # A new authority replaces the old one. Both are trusted for a while, so broken
        # connections recover.
        other = Site(site.folder / "next")
        site.trust(other)
        await eventually(lambda: security(first)["tls_reloads"] == 2)
        await eventually(lambda: security(second)["tls_reloads"] == 2)
        for name in ("a", "b"):
            site.take_over(other, name)
        await eventually(lambda: security(first)["tls_reloads"] == 3)
        await eventually(lambda: security(second)["tls_reloads"] == 3)
        shut = second.daemon.peers.link(first.daemon.placement.own.address.endpoint)
        channel = shut._channel
        # Cutting the connection forces a new one, which uses the new certificate.
        for inode, one in list(first.daemon.limits._by_inode.items()):
            first.daemon.limits._shut(one, inode)
        await second.set("y")
        await eventually(lambda: shut.stub is not None and shut._channel is not channel)
        await in_sync(first, second)
        assert await first.find("x", "y") == {("x", "b"), ("y", "b")}
