"""Hosts with networks of their own on one machine: network namespaces on one bridge.

    host a: eth0 10.77.0.1 ---+
    host b: eth0 10.77.0.2 ---+--- bridge, in a namespace of its own
    host c: eth0 10.77.0.3 ---+

The bridge port of a cut host drops everything. As with a dead switch port, its peers get neither an
error nor a reset, only silence. `split` moves hosts to a second bridge, where they reach only each
other. `part` gives two hosts wrong hardware addresses for each other. `replace` gives a host's
addresses to another host. That one refuses connections, like a firewall with REJECT. `etc` gives a
host files of its own in /etc, such as hosts and resolv.conf. Network namespaces do not affect Unix
sockets, so the test process is a worker on every host at once.
"""

import ctypes
import itertools
import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from harness.cluster import Cluster

_numbers = itertools.count(1)

_ETC = Path("/etc/netns")  # `ip netns exec` mounts a namespace's files over those of /etc
_BRIDGE_PORT_DISABLED = "0"
_BRIDGE_PORT_FORWARDING = "3"
_NOBODYS_MAC = "02:00:00:00:00:fe"


def reason_to_skip() -> str | None:
    """Why this machine cannot have network namespaces, or None."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    if not (shutil.which("ip") and shutil.which("bridge")):
        return "the commands ip and bridge (package iproute2) are missing"
    probe = subprocess.run(["unshare", "--net", "true"], capture_output=True, check=False)
    if probe.returncode != 0:
        return f"no network namespaces here: {probe.stderr.decode().strip()}"
    return None


def _run(*command: str) -> None:
    _read(*command)


def _read(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, check=False, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)} failed: {done.stderr.strip()}")
    return done.stdout.strip()


def _make_room_for_neighbours(hosts: int) -> None:
    """The kernel bounds the neighbours of all namespaces together, at 1,024 by default. Beyond that
    hosts cannot reach each other."""
    for name in ("gc_thresh3", "gc_thresh2", "gc_thresh1"):
        limit = Path("/proc/sys/net/ipv4/neigh/default", name)
        if int(limit.read_text()) < 2 * hosts**2:
            limit.write_text(f"{2 * hosts**2}")


class Network:
    """Hosts by name, in order. `remove`, or the end of the block, deletes the network."""

    def __init__(self, hosts: Sequence[str], prefix: str = "10.77.0") -> None:
        # Never the same name twice, because the kernel removes an old namespace late.
        self._tag = f"pc{os.getpid()}-{next(_numbers)}"
        self._switch = f"{self._tag}-switch"
        self._hosts = {name: f"{prefix}.{number}" for number, name in enumerate(hosts, start=1)}
        try:
            self._build()
        except BaseException:
            self.remove()
            raise

    def __enter__(self) -> "Network":
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()

    def _build(self) -> None:
        _make_room_for_neighbours(len(self._hosts))
        _run("ip", "netns", "add", self._switch)
        _run("ip", "-n", self._switch, "link", "set", "lo", "up")
        for bridge in ("bridge", "other"):
            _run("ip", "-n", self._switch, "link", "add", bridge, "type", "bridge")
            _run("ip", "-n", self._switch, "link", "set", bridge, "up")
        for name, address in self._hosts.items():
            netns = self.netns(name)
            _run("ip", "netns", "add", netns)
            _run(
                *("ip", "-n", self._switch, "link", "add", self._port(name), "type", "veth"),
                *("peer", "name", "eth0", "netns", netns),
            )
            _run(
                "ip", "-n", self._switch, "link", "set", self._port(name), "master", "bridge", "up"
            )
            _run("ip", "-n", netns, "link", "set", "lo", "up")
            _run("ip", "-n", netns, "address", "add", f"{address}/24", "dev", "eth0")
            _run("ip", "-n", netns, "link", "set", "eth0", "up")

    def remove(self) -> None:
        replacements = map(self._replacement, self._hosts)
        for netns in [self._switch, *map(self.netns, self._hosts), *replacements]:
            subprocess.run(["ip", "netns", "delete", netns], capture_output=True, check=False)
            shutil.rmtree(_ETC / netns, ignore_errors=True)

    def netns(self, host: str) -> str:
        return f"{self._tag}-{host}"

    def address(self, host: str) -> str:
        return self._hosts[host]

    def etc(self, host: str, name: str, text: str) -> None:
        """Writes a file that commands on this host see in /etc. Running
        commands see it if they saw the file before."""
        folder = _ETC / self.netns(host)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)

    def launcher(self, host: str) -> list[str]:
        """The prefix that runs a command on this host."""
        return ["ip", "netns", "exec", self.netns(host)]

    def beside(self, address: str) -> list[str]:
        """Gives that address to the bridge. Returns the prefix that runs a command there."""
        _run("ip", "-n", self._switch, "address", "add", f"{address}/24", "dev", "bridge")
        return ["ip", "netns", "exec", self._switch]

    def enter(self, host: str) -> None:
        """From now on this thread, and all threads and processes that it starts, are there."""
        with Path("/run/netns", self.netns(host)).open() as namespace:
            if ctypes.CDLL(None, use_errno=True).setns(namespace.fileno(), 0) != 0:
                raise OSError(ctypes.get_errno(), f"setns to {host} failed")

    def start(self, cluster: Cluster) -> None:
        self.place(cluster)
        cluster.start()

    def place(self, cluster: Cluster) -> None:
        """Puts each daemon on the host of its name. The first daemon is the head of all."""
        head = f"{self.address(cluster[0].node_id)}:{cluster[0].meta_port}"
        for daemon in cluster.daemons:
            daemon.host = self.address(daemon.node_id)
            daemon.launcher = self.launcher(daemon.node_id)
            daemon.heads = [head]

    def cut(self, host: str) -> None:
        """Silently drops everything to and from this host, until `heal`."""
        self._set_port(host, _BRIDGE_PORT_DISABLED)

    def heal(self, host: str) -> None:
        self._set_port(host, _BRIDGE_PORT_FORWARDING)

    def replace(self, host: str) -> list[str]:
        """Unplugs this host and gives its addresses to another, until `restore`. Returns the prefix
        that runs a command on the other host."""
        self.cut(host)
        netns = self._replacement(host)
        mac = _read("ip", "netns", "exec", self.netns(host), "cat", "/sys/class/net/eth0/address")
        port = f"as-{host}"
        _run("ip", "netns", "add", netns)
        _run(
            *("ip", "-n", self._switch, "link", "add", port, "type", "veth"),
            *("peer", "name", "eth0", "address", mac, "netns", netns),
        )
        _run("ip", "-n", self._switch, "link", "set", port, "master", "bridge", "up")
        _run("ip", "-n", netns, "link", "set", "lo", "up")
        _run("ip", "-n", netns, "address", "add", f"{self.address(host)}/24", "dev", "eth0")
        _run("ip", "-n", netns, "link", "set", "eth0", "up")
        return ["ip", "netns", "exec", netns]

    def restore(self, host: str) -> None:
        # The kernel removes a namespace late, and with it the port.
        _run("ip", "-n", self._switch, "link", "delete", f"as-{host}")
        _run("ip", "netns", "delete", self._replacement(host))
        self.heal(host)

    def _replacement(self, host: str) -> str:
        return f"{self.netns(host)}-other"

    def slow_down(self, host: str, bits_per_s: int, port: int = 0) -> None:
        """Limits what this host sends: everything, or only from this TCP port."""
        tc = ("ip", "netns", "exec", self.netns(host), "tc")
        rate = ("rate", f"{bits_per_s}bit", "burst", "128k")
        if not port:
            _run(*tc, "qdisc", "replace", "dev", "eth0", "root", "tbf", *rate, "latency", "100ms")
            return
        on = ("dev", "eth0", "parent", "1:")
        _run(*tc, "qdisc", "replace", "dev", "eth0", "root", "handle", "1:", "htb", "default", "1")
        _run(*tc, "class", "replace", *on, "classid", "1:1", "htb", "rate", "10gbit")
        _run(*tc, "class", "replace", *on, "classid", "1:2", "htb", *rate)
        match = ("u32", "match", "ip", "sport", str(port), "0xffff", "flowid", "1:2")
        _run(*tc, "filter", "add", *on, "protocol", "ip", *match)

    def split(self, hosts: Sequence[str]) -> None:
        """Silently separates these hosts from the rest, until `unite`. Each side stays whole."""
        self._move(hosts, "other")

    def unite(self, hosts: Sequence[str]) -> None:
        self._move(hosts, "bridge")

    def part(self, one: str, other: str) -> None:
        """Silently drops everything between these two, until `meet`. The rest reach both."""
        self._neighbour(one, other, "replace", "lladdr", _NOBODYS_MAC, "nud", "permanent")

    def meet(self, one: str, other: str) -> None:
        self._neighbour(one, other, "del")

    def bar(self, host: str, other: str, port: int, how: str = "blackhole") -> None:
        """Silently drops packets from `host` to that TCP port of `other`, like a firewall, until
        `unbar`. All other packets pass, in both directions. With "prohibit", `host` gets an
        error."""
        self._barred("add", host, other, "dport", port, how)

    def unbar(self, host: str, other: str, port: int, how: str = "blackhole") -> None:
        self._barred("del", host, other, "dport", port, how)

    def mute(self, host: str, other: str, port: int) -> None:
        """Silently drops packets from that TCP port of `host` to `other`, until `unmute`."""
        self._barred("add", host, other, "sport", port)

    def unmute(self, host: str, other: str, port: int) -> None:
        self._barred("del", host, other, "sport", port)

    def _barred(
        self, what: str, host: str, other: str, which: str, port: int, how: str = "blackhole"
    ) -> None:
        to = ("to", self.address(other), "ipproto", "tcp", which, str(port))
        _run("ip", "-n", self.netns(host), "rule", what, "pref", "5", *to, how)

    def narrow(self, host: str, mtu_bytes: int = 1500) -> None:
        """Silently drops larger packets that this host sends, because a device on the way has
        another MTU."""
        netns, port = self.netns(host), self._port(host)
        # Otherwise the kernel hands over many packets as one.
        _run("ip", "-n", netns, "link", "set", "eth0", "gso_max_segs", "1")
        _run("ip", "-n", self._switch, "link", "set", port, "mtu", str(mtu_bytes))

    def _neighbour(self, one: str, other: str, what: str, *how: str) -> None:
        for here, there in ((one, other), (other, one)):
            address = self.address(there)
            _run("ip", "-n", self.netns(here), "neigh", what, address, "dev", "eth0", *how)

    def _move(self, hosts: Sequence[str], bridge: str) -> None:
        for host in hosts:
            _run("ip", "-n", self._switch, "link", "set", self._port(host), "master", bridge)

    @staticmethod
    def _port(host: str) -> str:
        """The bridge's end of the host's cable. Not the bare name: `ip` reads "a" as "address"."""
        return f"to-{host}"

    def _set_port(self, host: str, state: str) -> None:
        _run("bridge", "-n", self._switch, "link", "set", "dev", self._port(host), "state", state)
