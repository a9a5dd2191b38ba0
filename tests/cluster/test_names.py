"""Names instead of addresses, in `host` and in `discovery_addr`.

Every host knows a name in its own way, a name has several addresses, and its resolver is late, slow
or dead."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
from harness import dns
from harness.certificates import Certificates
from harness.clock import seconds
from harness.cluster import Cluster, Daemon
from harness.fixtures import MakeCluster
from harness.netns import Network
from harness.pages import keys_of
from harness.waiting import eventually

from peercached.admin.client import Unreachable

pytestmark = pytest.mark.netns

META_PORT = 31998
HOSTS = "abc"


class Names:
    """A cluster of hosts with names, and the name server of all hosts, which is on host c."""

    def __init__(self, network: Network, cluster: Cluster, folder: Path) -> None:
        self.network, self.cluster = network, cluster
        self.addresses = {name: network.address(name) for name in HOSTS}
        self._zone = folder / "zone.json"
        network.place(cluster)
        for daemon in cluster.daemons:
            daemon.meta_port = META_PORT
            network.etc(daemon.node_id, "resolv.conf", f"nameserver {self.addresses['c']}\n")
            self.hosts_file(daemon.node_id, "")
        self.serves()
        command = [*network.launcher("c"), sys.executable, dns.__file__, str(self._zone)]
        self._server = subprocess.Popen([*command, self.addresses["c"]], stdout=subprocess.PIPE)
        assert self._server.stdout is not None
        assert self._server.stdout.readline() == b"ready\n"

    def close(self) -> None:
        self._server.kill()
        self._server.communicate()

    def hosts_file(self, host: str, text: str) -> None:
        self.network.etc(host, "hosts", f"127.0.0.1 localhost\n{text}")

    def as_debian_does(self) -> None:
        """Each host's own name is 127.0.1.1 there."""
        for host in HOSTS:
            others = (f"{self.addresses[one]} {one}\n" for one in HOSTS if one != host)
            self.hosts_file(host, f"127.0.1.1 {host}\n{''.join(others)}")

    def all_in_hosts_files_and_the_server_dead(self) -> None:
        self._write({"delay_s": 0})
        for host in HOSTS:
            self.hosts_file(host, "".join(f"{at} {one}\n" for one, at in self.addresses.items()))

    def serves(self, delay_s: float = 0.0, **names: list[str]) -> None:
        known = {name: [address] for name, address in self.addresses.items()} | names
        self._write({"delay_s": delay_s, "names": known})

    def serves_no_name(self) -> None:
        self._write({"delay_s": 0, "names": {}})

    def _write(self, zone: object) -> None:
        part = self._zone.with_suffix(".part")
        part.write_text(json.dumps(zone))
        part.rename(self._zone)

    def heads(self, *names: str) -> None:
        for daemon in self.cluster.daemons:
            daemon.heads = [f"{name}:{META_PORT}" for name in names]

    def hosts(self, **given: str) -> None:
        for daemon in self.cluster.daemons:
            daemon.host = given.get(daemon.node_id, daemon.host)


@pytest.fixture
def names(network: Network, make_cluster: MakeCluster, tmp_path: Path) -> Iterator[Names]:
    cluster = make_cluster(3, start=False)
    made = Names(network, cluster, tmp_path)
    yield made
    for daemon in cluster.daemons:
        daemon.clean_up()
    made.close()


def check_pages(names: Names) -> None:
    """Each page is read at each node, and the peers were told addresses."""
    for holder in names.cluster.daemons:
        keys = keys_of(f"of {holder.node_id}", 16)
        assert all(holder.attach().set(keys))
        for reader in names.cluster.daemons:
            assert reader.attach().has(keys)
        told = {m["node_id"]: m["host"] for m in holder.status()["membership"]["members"]}
        assert told == names.addresses


def sentences(daemon: Daemon) -> str:
    try:
        return " ".join(f"{e['sentence']} {e['remedy']}" for e in daemon.status()["health"])
    except Unreachable:
        return ""


def one_cluster(names: Names) -> None:
    names.cluster.wait_complete(seconds(60))
    for daemon in names.cluster.daemons:
        eventually(partial(lambda one: "head" not in sentences(one).lower(), daemon), 20)


ADDRESS = {"a": "auto", "b": "b", "c": "c"}
RESOLVERS: dict[str, Callable[[Names], None]] = {
    "dns": Names.serves,
    "debian": Names.as_debian_does,
    "dead, but in /etc/hosts": Names.all_in_hosts_files_and_the_server_dead,
}


QUICK = (("addresses", "debian"), ("names", "dns"), ("names", "dead, but in /etc/hosts"))


@pytest.mark.parametrize(
    ("heads", "resolver"),
    [
        pytest.param(heads, resolver, marks=[] if (heads, resolver) in QUICK else pytest.mark.slow)
        for heads in ("addresses", "names")
        for resolver in RESOLVERS
    ],
)
def test_hosts_and_heads_by_name_form_one_cluster(names: Names, resolver: str, heads: str) -> None:
    RESOLVERS[resolver](names)
    names.heads(*(names.addresses[n] if heads == "addresses" else n for n in "abc"))
    names.hosts(**ADDRESS)
    began = time.monotonic()
    names.cluster.start(seconds(60))
    print(f"{heads}, {resolver}: one cluster after {time.monotonic() - began:.1f} s")
    one_cluster(names)
    check_pages(names)
    masters = [m["node_id"] for m in names.cluster[2].status()["membership"]["masters"]]
    assert masters == ["a", "b", "c"]


def test_with_tls_a_certificate_for_the_name_is_enough(names: Names, tmp_path: Path) -> None:
    certificates = Certificates(tmp_path / "certificates")
    for daemon in names.cluster.daemons:
        certificates.issue(daemon.node_id, daemon.node_id)
        files = certificates.options(daemon.node_id)
        daemon.options |= {key.replace("_", "-"): path for key, path in files.items()}
    names.heads("a", "b")
    names.hosts(a="a", b="b", c="c")
    names.cluster.start(seconds(60))
    check_pages(names)


def test_a_name_with_the_addresses_of_all_nodes_makes_them_all_heads(names: Names) -> None:
    """And it may get others: at first it has two dead ones and c."""
    names.serves(heads=["10.77.0.77", "10.77.0.78", names.addresses["c"]])
    names.heads("heads")
    names.hosts(a="auto", b="b")
    names.cluster[0].start()
    eventually(lambda: "10.77.0.77" in sentences(names.cluster[0]), 30)
    names.serves(heads=list(names.addresses.values()))
    for daemon in names.cluster.daemons[1:]:
        daemon.start()
    one_cluster(names)
    check_pages(names)


def test_names_that_resolve_after_the_start_are_heads_then(names: Names) -> None:
    names.serves_no_name()
    names.heads("a", "b", "heads")
    for daemon in names.cluster.daemons:
        daemon.start()
    for daemon in names.cluster.daemons:
        eventually(partial(lambda one: "the name a does not resolve" in sentences(one), daemon), 30)
        assert "/etc/hosts" in sentences(daemon)
    names.serves(heads=[names.addresses["c"]])
    one_cluster(names)
    check_pages(names)
    # A name that is unknown again changes nothing.
    names.serves_no_name()
    names.cluster[1].stop()
    eventually(lambda: names.cluster[0].connected_members() == ["a", "c"], 30)


def test_a_slow_resolver_keeps_nobody_waiting(names: Names) -> None:
    delay_s = 4.0
    names.serves(delay_s)
    names.heads("a", "b")
    names.hosts(a="a", b="b", c="c")
    names.cluster[0].start()
    names.cluster[1].start()
    for daemon in names.cluster.daemons[:2]:
        daemon.wait_ready(60)
        daemon.wait_members(["a", "b"], 60)
    names.cluster[2].start()
    longest_s, lost = 0.0, False

    def three() -> bool:
        nonlocal longest_s, lost
        for daemon in names.cluster.daemons[:2]:
            began = time.monotonic()
            members = set(daemon.members())
            longest_s = max(longest_s, time.monotonic() - began)
            lost = lost or not members.issuperset("ab")
        return names.cluster[2].alive and len(members) == 3

    eventually(three, 60)
    one_cluster(names)
    check_pages(names)
    print(f"the longest status took {longest_s:.2f} s")
    assert longest_s < delay_s - 1
    assert not lost


def test_a_host_without_an_address_is_refused_with_its_key_and_may_come_later(names: Names) -> None:
    names.serves_no_name()
    names.heads(names.addresses["a"])
    daemon = names.cluster[0]
    for host, said in (
        ("a", "host = a: does not resolve (Name or service not known); mend the name"),
        ("elsewhere", f"resolves to {names.addresses['b']}, which this host does not have"),
    ):
        names.hosts_file("a", f"{names.addresses['b']} elsewhere\n")
        daemon.host = host
        daemon.start()
        assert daemon.wait_exit(30) == 1, "systemd starts it again"
        assert said in daemon.log_text()
    daemon.host = "auto"
    names.heads("a", "b")
    daemon.start()
    assert daemon.wait_exit(30) == 1
    assert "host = auto: found no address of this host that routes to a head" in daemon.log_text()
    names.serves()
    daemon.start()
    daemon.wait_ready()


FORWARDER = """
import itertools, selectors, socket, sys, threading
def copy(a, b):
    try:
        while data := a.recv(65536):
            b.sendall(data)
    except OSError:
        pass
    for one in (a, b):
        try:
            one.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
address, port, *nodes = sys.argv[1:]
door = socket.create_server((address, int(port)))
for node in itertools.cycle(nodes):
    caller, _ = door.accept()
    try:
        there = socket.create_connection((node, int(port)), 1)
    except OSError:
        caller.close()
        continue
    there.settimeout(None)
    for ends in ((caller, there), (there, caller)):
        threading.Thread(target=copy, args=ends, daemon=True).start()
"""


def test_nodes_behind_a_forwarder_find_each_other(names: Names) -> None:
    """Such as a load balancer, or a Service of Kubernetes: a node may reach itself there."""
    forwarder = "10.77.0.99"
    beside = names.network.beside(forwarder)
    command = [*beside, sys.executable, "-c", FORWARDER, forwarder, str(META_PORT)]
    with subprocess.Popen([*command, *names.addresses.values()]) as process:
        try:
            names.serves(heads=[forwarder])
            names.heads("heads")
            for daemon in names.cluster.daemons:
                daemon.start()
            one_cluster(names)
            check_pages(names)
        finally:
            process.kill()
