"""Packet filters of this host that may drop packets from peers. The results are hints: a rule's
effect depends on earlier rules. RDMA cards bypass the host's filter, soft-RoCE does not."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from peercached.doctor.finding import Finding

ROCE_V2_PORT = 4791


def check_nft(text: str, wanted: Mapping[int, str]) -> Finding:
    """`text`: output of `nft -j list ruleset`; `wanted`: port -> "udp" or "tcp"."""
    entries = json.loads(text).get("nftables", []) if text.strip() else []
    chains = [entry["chain"] for entry in entries if "chain" in entry]
    shut = {
        (chain["family"], chain["table"], chain["name"])
        for chain in chains
        if chain.get("hook") == "input" and chain.get("policy") == "drop"
    }
    if not shut:
        return _fine()
    # Chains in the same tables may be jumped to, so an accept in any of them counts.
    tables = {(family, table) for family, table, _ in shut}
    accepts = [
        json.dumps(entry["rule"]["expr"])
        for entry in entries
        if "rule" in entry
        and (entry["rule"]["family"], entry["rule"]["table"]) in tables
        and _accepts(entry["rule"]["expr"])
    ]
    closed = [port for port in wanted if not any(_has_port(text, port) for text in accepts)]
    names = ", ".join(sorted(" ".join(chain) for chain in shut))
    return _finding(closed, wanted, f"nftables drops packets that no rule accepts ({names})")


def _accepts(expressions: list[Any]) -> bool:
    return any("accept" in each for each in expressions if isinstance(each, dict))


def _has_port(text: str, port: int) -> bool:
    return re.search(rf"\b{port}\b", text) is not None


def check_iptables(text: str, wanted: Mapping[int, str]) -> Finding:
    """`text`: output of `iptables-save`."""
    if not re.search(r"^:INPUT DROP", text, re.MULTILINE):
        return _fine()
    accepts = [line for line in text.splitlines() if line.endswith("-j ACCEPT")]
    closed = [port for port in wanted if not any(_has_port(line, port) for line in accepts)]
    return _finding(closed, wanted, "iptables drops packets that no rule accepts (INPUT)")


def _fine() -> Finding:
    return Finding("firewall", "ok", "this host's packet filter drops nothing by default")


def _finding(closed: list[int], wanted: Mapping[int, str], policy: str) -> Finding:
    if not wanted:
        return Finding("firewall", "ok", f"{policy}; a daemon without discovery_addr has no peers")
    if not closed:
        return Finding("firewall", "ok", f"{policy}, and rules accept our ports")
    ports = ", ".join(f"{wanted[port]} {port}" for port in closed)
    return Finding(
        "firewall",
        "warning",
        f"{policy}, and no rule accepts {ports}",
        f"Accept {ports} from the peers"
        + (
            f" (udp {ROCE_V2_PORT} is RoCE v2: soft-RoCE needs it, cards pass the filter by)."
            if ROCE_V2_PORT in closed
            else "."
        ),
    )
