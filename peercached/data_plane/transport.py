"""How pages travel, for people: what the log says at start, and the sentences of `status`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from peercached.health import Say, kinds

_DEVICES = Path("/sys/class/infiniband")


def rdma_devices(folder: Path = _DEVICES) -> list[str]:
    """The kernel's RDMA devices by name, usable or not."""
    try:
        return sorted(entry.name for entry in folder.iterdir())
    except OSError:
        return []


def rail_name(rail: Mapping[str, Any]) -> str:
    return f"{rail['device']}:{rail['port']}"


def describe(transport: Mapping[str, Any]) -> list[str]:
    """Lines for the log: the protocol taken and why, then each rail."""
    taken = transport["protocol"].upper()
    why = f": {transport['why']}" if transport["why"] else ""
    lines = [f"pages travel over {taken}{why}"]
    for rail in transport["rails"]:
        if not rail["up"]:
            lines.append(f"rail {rail['rail']}: {rail_name(rail)} is down: {rail['why']}")
            continue
        netdev = f" on {rail['netdev']}" if rail["netdev"] else ""
        near = f", NUMA node {rail['numa_node']}" if rail["numa_node"] >= 0 else ""
        lines.append(
            f"rail {rail['rail']}: {rail_name(rail)}{netdev}, GID {rail['gid_index']} "
            f"({rail['gid']}), MTU {rail['mtu']}, {rail['rate_gbps']:g} Gb/s{near}"
        )
    return lines


def say_transport(say: Say, wanted: str, transport: Mapping[str, Any], devices: list[str]) -> None:
    """Says the problems of the transport. `wanted`: the key protocol; `devices`: the machine's."""
    if wanted == "auto" and transport["protocol"] == "tcp" and devices:
        say(
            kinds.RDMA_UNUSED,
            "RDMA is not used although this machine has RDMA devices "
            f"({', '.join(devices)}): {transport['why']}. Pages use TCP.",
            "Run `peercachectl doctor`, fix what it reports, then restart the daemon. If TCP is "
            'intended, set protocol = "tcp".',
        )
    rails = transport["rails"]
    down = [rail for rail in rails if not rail["up"]]
    for rail in down:
        say(
            kinds.RAIL_DOWN,
            f"Rail {rail['rail']} ({rail_name(rail)}) is down: {rail['why']}.",
            "It is tried again by itself. If it stays: look at the cable, the switch port and "
            "`peercachectl doctor`.",
        )
    for rail in rails:
        if doubted := rail["doubted"]:
            say_doubted(say, rail, doubted)
    fallen = transport["fallback_reads"]
    if rails and len(down) == len(rails):
        by_tcp = wanted == "auto"
        instead = f"come over TCP ({fallen} reads so far)" if by_tcp else "are misses"
        say(
            kinds.NO_RAIL_BUT_TCP if by_tcp else kinds.NO_RAIL,
            f"No rail is up: the pages of peers that have RDMA {instead}.",
            "Repair one of the rails. The daemon uses it again by itself.",
        )
    elif peers := transport.get("fallback_peers", 0):
        say(
            kinds.PEERS_BY_TCP,
            f"No rail reaches {peers} of the peers that have RDMA: their pages come over TCP "
            f"({fallen} reads so far).",
            "Rails are retried and used again when a READ succeeds. If it lasts, run "
            "`peercachectl doctor` on both nodes and check the fabric between them.",
        )
    elif fallen:
        say(
            kinds.READS_BY_TCP,
            f"{fallen} reads of peers that have RDMA went over TCP while no rail reached them.",
            "",
        )


_NAMED_MAX = 3


def say_doubted(say: Say, rail: Mapping[str, Any], doubted: list[Mapping[str, Any]]) -> None:
    """`doubted`: the peers that the rail is not relied on to reach."""
    names = ", ".join(one["node_id"] for one in doubted[:_NAMED_MAX])
    more = len(doubted) - _NAMED_MAX
    say(
        kinds.RAIL_DOUBTED,
        f"Rail {rail['rail']} ({rail_name(rail)}) does not reach "
        f"{names}{f' and {more} more' if more > 0 else ''}: {doubted[0]['why']}.",
        "If no other finding names the peer, the peer itself is healthy. The rail is retried by "
        "itself. If it lasts, check cable, switch, address and MTU between the two.",
    )
