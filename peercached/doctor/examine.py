"""Gathers the facts about this machine and runs all checks."""

from __future__ import annotations

import contextlib
import grp
import os
import pwd
import re
import subprocess
from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from peercached.admin.status import Status, Worker
from peercached.config import Config, private
from peercached.config.values import split_address
from peercached.data_plane.transport import rdma_devices
from peercached.doctor import access, firewall, gpu, kernel, memory, packages, peers, ports
from peercached.doctor.devices import ProbeFailed, PyverbsMissing, find_devices
from peercached.doctor.finding import Finding, Level
from peercached.doctor.gpu_facts import find_gpus
from peercached.doctor.store import check_store
from peercached.error_text import reason
from peercached.names import addresses, is_here, is_literal, is_loopback

CAP_IPC_LOCK = 14
_FILTER_S = 5.0
_LEVELS: dict[str, Level] = {"error": "failure", "warning": "warning", "info": "ok"}


def examine(config: Config, status: Status | None, why_no_status: str) -> list[Finding]:
    """`status`: of the daemon on this host; None if none answers, with the reason."""
    findings = _daemon(status, why_no_status)
    findings += packages.check_packages(_installed("peercached"), _installed("peercache-client"))
    findings += _access(config, status)
    findings += _rdma(config, status)
    findings += gpu.check_gpus(config.gpu, find_gpus(config.gpu, status))
    free, page_bytes = huge_pages(Path("/proc/meminfo").read_text())
    findings.append(
        memory.check_huge_pages(
            config.huge_pages, status is not None, config.pool_size, free, page_bytes
        )
    )
    if config.data_sealed:
        protocols = Path("/proc/sys/net/ipv4/tcp_available_ulp")
        findings.append(kernel.check_tls(protocols.read_text() if protocols.exists() else ""))
    findings.append(_firewall(config, rdma=config.protocol != "tcp" and bool(rdma_devices())))
    findings += check_store(config.cold_store, None if status is None else status.cold)
    findings += peers.check_heads(peers.ask(_heads(config)))
    if status is not None:
        findings += peers.check_members(peers.ask(_members(status)))
    return findings


def _daemon(status: Status | None, why: str) -> list[Finding]:
    if status is None:
        return [Finding("daemon", "skipped", f"none answers, so no member is asked: {why}")]
    taken = status.transport
    why = f": {taken.why}" if taken.why else ""
    about = f"; pages travel over {taken.protocol}{why}" if taken.protocol else ""
    runs = Finding("daemon", "ok", f"{status.node.id} runs (pid {status.node.pid}){about}")
    said = (Finding("daemon", _LEVELS[e.severity], e.sentence, e.remedy) for e in status.health)
    return [runs, *said]


def _access(config: Config, status: Status | None) -> list[Finding]:
    closed = {}  # groups that engines should not have: gid -> name
    findings = []
    with contextlib.suppress(KeyError):
        group = grp.getgrnam(private.DAEMON_GROUP)
        closed[group.gr_gid] = group.gr_name
        users = {user.pw_name for user in pwd.getpwall() if user.pw_gid == group.gr_gid}
        others = users.union(group.gr_mem) - {"root", private.DAEMON_GROUP}
        findings += access.check_members(sorted(others))
    if status is None:  # else its health names the readers
        return findings + access.check_readers(private.Readers(config, _daemons_user()).now())
    for key in private.PRIVATE_KEYS:
        gid = private.reading_group(getattr(config, key))
        if gid is not None:
            closed[gid] = private.group_name(gid)
    workers = [found for one in status.workers if (found := _process(one))]
    with contextlib.suppress(OSError):
        daemon = Path("/proc", str(status.node.pid)).stat().st_uid
        findings += access.check_workers(workers, daemon, closed)
    return findings


def _daemons_user() -> int:
    try:
        return pwd.getpwnam(private.DAEMON_GROUP).pw_uid
    except KeyError:
        return os.geteuid()


def _process(worker: Worker) -> access.Process | None:
    """None if it is gone, or in another pid namespace."""
    try:
        text = Path("/proc", str(worker.pid), "status").read_text()
    except OSError:
        return None
    uid, gids = uid_and_gids(text)
    return access.Process(worker.pid, worker.name, uid, gids) if uid == worker.uid else None


def uid_and_gids(status: str) -> tuple[int, frozenset[int]]:
    """Parses /proc/PID/status: the effective uid, and all gids."""
    numbers = {
        name: [int(word) for word in words.split()]
        for name, words in re.findall(r"^(Uid|Gid|Groups):(.*)$", status, re.MULTILINE)
    }
    return numbers["Uid"][1], frozenset(numbers["Gid"] + numbers["Groups"])


def _installed(distribution: str) -> str | None:
    try:
        return version(distribution)
    except PackageNotFoundError:
        return None


def _rdma(config: Config, status: Status | None) -> list[Finding]:
    if config.protocol == "tcp":
        return [Finding("RDMA", "skipped", "protocol is tcp")]
    needed = ports.needs_rdma(config)
    devices = rdma_devices()
    cards = [card for card in kernel.RDMA_MODULE if any(_cards_of(card))]
    verbs = Path("/sys/class/infiniband_verbs/abi_version").exists()
    findings = [kernel.check_drivers(devices, cards, verbs, needed)]
    if not devices:
        return findings
    doors = {
        str(path): os.access(path, os.R_OK | os.W_OK)
        for path in Path("/dev/infiniband").glob("uverbs*")
    }
    findings.append(kernel.check_doors(doors, needed))
    findings.append(_memlock(config, status, needed))
    try:
        found = find_devices()
    except (PyverbsMissing, ProbeFailed) as error:
        remedy = "Install it; the daemon works without it, these checks do not."
        text = f"ports, GIDs and MTU were not looked at: {error}"
        return [*findings, Finding("pyverbs", "warning", text, remedy)]
    return findings + ports.check_ports(config, found, _netdev_mtus())


def _cards_of(driver: str) -> Iterable[Path]:
    return Path("/sys/bus/pci/drivers", driver).glob("*:*:*.*")


def _netdev_mtus() -> dict[str, int]:
    mtus = {}
    for path in Path("/sys/class/net").glob("*/mtu"):
        try:
            mtus[path.parent.name] = int(path.read_text())
        except OSError:
            continue  # the device vanished meanwhile
    return mtus


def _memlock(config: Config, status: Status | None, needed: bool) -> Finding:
    """Uses the daemon's own limit if it can be read: it usually differs from the shell's."""
    pid, whose = "self", "this user"
    if status is not None and os.access(f"/proc/{status.node.pid}/limits", os.R_OK):
        pid, whose = str(status.node.pid), "the daemon"
    limits = Path("/proc", pid, "limits").read_text()
    capabilities = Path("/proc", pid, "status").read_text()
    return memory.check_memlock(
        locked_limit_bytes(limits), may_lock(capabilities), config.pool_size, whose, needed
    )


def locked_limit_bytes(limits: str) -> int | None:
    """Parses /proc/PID/limits. Bytes; None: unlimited."""
    found = re.search(r"^Max locked memory\s+(\S+)", limits, re.MULTILINE)
    return int(found[1]) if found and found[1] != "unlimited" else None


def may_lock(status: str) -> bool:
    """Whether /proc/PID/status shows CAP_IPC_LOCK."""
    found = re.search(r"^CapEff:\s+([0-9a-f]+)", status, re.MULTILINE)
    return bool(found and int(found[1], 16) >> CAP_IPC_LOCK & 1)


def huge_pages(meminfo: str) -> tuple[int, int]:
    """Parses /proc/meminfo: (free huge pages, bytes per page); (0, 2 MiB) without support."""
    free = re.search(r"^HugePages_Free:\s+(\d+)", meminfo, re.MULTILINE)
    each = re.search(r"^Hugepagesize:\s+(\d+) kB", meminfo, re.MULTILINE)
    return int(free[1]) if free else 0, int(each[1]) << 10 if each else 2 << 20


def _firewall(config: Config, rdma: bool) -> Finding:
    wanted = {}
    if config.discovery_addr:
        wanted[config.meta_port] = "tcp"
        if config.data_port:
            wanted[config.data_port] = "tcp"
    if rdma:
        wanted[firewall.ROCE_V2_PORT] = "udp"
    whys = []
    for command, check in (
        (["nft", "-j", "list", "ruleset"], firewall.check_nft),
        (["iptables-save"], firewall.check_iptables),
    ):
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=_FILTER_S, check=True
            )
            return check(done.stdout, wanted)
        except (OSError, subprocess.SubprocessError, ValueError) as error:
            whys.append(f"{command[0]}: {_why(error)}")
    return Finding("firewall", "skipped", f"the rules cannot be read ({'; '.join(whys)})")


def _why(error: Exception) -> str:
    if isinstance(error, subprocess.CalledProcessError):
        said = str(error.stderr).strip().splitlines()
        return said[0] if said else f"exit code {error.returncode}"
    return reason(error)


def _heads(config: Config) -> list[peers.Target]:
    heads = [split_address(head) for head in config.discovery_addr]
    return [
        peers.Target("head", host, port)
        for host, port in heads
        if port != config.meta_port or not _is_this_host(host, config.host)
    ]


def _is_this_host(host: str, own: str) -> bool:
    try:
        found = addresses(host, peers.LOOKUP_S)
    except OSError:
        return False
    own_is_loopback = is_literal(own) and is_loopback(own)
    return own in found or (not own_is_loopback and any(map(is_here, found)))


def _members(status: Status) -> list[peers.Target]:
    targets = []
    for member in status.membership.members:
        if not member.is_self:
            who = member.node_id
            targets.append(peers.Target(f"{who} (peers' calls)", member.host, member.peer_port))
            targets.append(peers.Target(f"{who} (pages)", member.host, member.data_port))
    return targets
