"""The address that peers are told, for each way to name this host."""

from __future__ import annotations

import pytest

from peercached.config import Config, own_host
from peercached.config.own_host import NoOwnHost

NAMES = {
    "debian": ["127.0.1.1"],
    "own": ["127.0.1.1", "10.0.0.2"],
    "many": ["10.0.0.1", "10.0.0.2"],
    "far": ["10.0.0.1"],
    "localhost": ["127.0.0.1"],
}


@pytest.fixture(autouse=True)
def _host_2(monkeypatch: pytest.MonkeyPatch) -> None:
    def addresses(host: str) -> list[str]:
        if host in NAMES:
            return NAMES[host]
        if host[0].isdigit():
            return [host]
        raise OSError("no such name")

    monkeypatch.setattr(own_host, "addresses", addresses)
    monkeypatch.setattr(own_host, "is_here", lambda at: at == "10.0.0.2" or at.startswith("127."))
    monkeypatch.setattr(
        own_host, "_route", lambda at: "192.168.7.7" if at == "192.0.2.1" else "10.0.0.2"
    )


@pytest.mark.parametrize(
    ("host", "heads", "told"),
    [
        ("10.0.0.9", ["far:1"], "10.0.0.9"),
        ("own", ["far:1"], "10.0.0.2"),
        ("many", ["far:1"], "10.0.0.2"),
        ("debian", ["far:1"], "10.0.0.2"),
        ("debian", ["debian:1", "far:1"], "10.0.0.2"),
        ("debian", ["localhost:1"], "127.0.0.1"),
        ("debian", [], "127.0.1.1"),
        ("auto", [], "127.0.0.1"),
        ("auto", ["localhost:1"], "127.0.0.1"),
        ("auto", ["unknown:1", "far:1"], "10.0.0.2"),
        ("auto", ["debian:1"], "192.168.7.7"),
    ],
)
def test_peers_elsewhere_are_never_told_a_loopback_address(
    host: str, heads: list[str], told: str
) -> None:
    assert own_host.own_host(Config(host=host, discovery_addr=heads))[0] == told


@pytest.mark.parametrize(
    ("host", "said"),
    [
        ("unknown", "host = unknown: does not resolve (no such name); mend the name"),
        ("far", "host = far: resolves to 10.0.0.1, which this host does not have"),
        ("auto", "host = auto: found no address of this host that routes to a head (unknown:1"),
    ],
)
def test_a_host_without_an_address_is_named_with_its_remedy(host: str, said: str) -> None:
    with pytest.raises(NoOwnHost) as caught:
        own_host.own_host(Config(host=host, discovery_addr=["unknown:1"]))
    assert str(caught.value).startswith(said)
