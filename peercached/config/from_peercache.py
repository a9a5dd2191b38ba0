"""Translates the configuration of PeerCache into one for this daemon.

PeerCache reads a JSON object: SGLang's `--hicache-storage-backend-extra-config`. It ignores keys
that it does not know. Here each key is translated, or a comment says why it is not needed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pydantic import ValidationError

from peercached.config.keys import KEYS
from peercached.config.schema import Config

SAME = {
    "discovery_addr": "discovery_addr",
    "node_id": "node_id",
    "local_hostname": "host",
    "global_segment_size": "pool_size",
    "heartbeat_interval": "heartbeat_interval_s",
    "member_ttl": "member_ttl_s",
    "max_masters": "max_masters",
    "directory_replicas": "directory_replicas",
    "max_channels_per_peer": "max_channels_per_peer",
    "metrics_enabled": "metrics_enabled",
    "metrics_bind_host": "metrics_host",
    "metrics_port": "metrics_port",
    "metrics_dashboard": "metrics_dashboard",
}
_SPECIAL = ("protocol", "device_name", "device_names", "ib_port", "gid_index")
_DISK = {"disk_enabled": True, "disk_path": "/data/peercache/", "disk_size": "100gb"}

NOT_NEEDED = {
    "vnodes": "all nodes have the same number of positions on the ring",
    "mode": "every node is a peer",
    "role": "every node is a peer",
    "write_policy": "pages stay at the node that sets them, and all nodes read them",
    "directory_read_cache_ttl": "nodes keep copies of each other's records",
    "rdma_bind_host": "device_names says where RDMA listens",
    "rdma_port": "RDMA needs no port",
    "control_bind_host": "host is the one address",
    "control_port": "peers' calls use meta_port",
    "meta_bind_host": "host is the one address",
    "backend_name": "for SGLang: see peercachectl sglang-config",
    "module_path": "for SGLang: see peercachectl sglang-config",
    "class_name": "for SGLang: see peercachectl sglang-config",
    "interface_v1": "for SGLang: see peercachectl sglang-config",
}


@dataclass
class Translation:
    values: dict[str, Any] = field(default_factory=dict)  # of our keys
    notes: dict[str, str] = field(default_factory=dict)  # our key -> what to know
    left_out: dict[str, str] = field(default_factory=dict)  # their key -> why

    def toml(self) -> str:
        lines = [
            "# Made from a configuration of PeerCache. One daemon serves all ranks of its host."
        ]
        for name in KEYS:
            if name not in self.values:
                continue
            if name in self.notes:
                lines.append(f"# {self.notes[name]}")
            # JSON's texts, numbers, booleans and lists of texts are TOML's, too.
            lines.append(f"{name} = {json.dumps(self.values[name], ensure_ascii=False)}")
        if self.left_out:
            lines += ["", "# Left out:"]
            lines += [f"#   {name}: {why}" for name, why in sorted(self.left_out.items())]
        return "\n".join(lines) + "\n"


def translate(text: str) -> Translation:
    """ValueError with the reason if `text` is no such configuration, or a value cannot be used."""
    try:
        theirs = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"not JSON ({error})") from None
    if not isinstance(theirs, dict):
        raise ValueError("not a JSON object")
    made = Translation()
    for name, value in theirs.items():
        if name in SAME:
            made.values[SAME[name]] = value
        elif name in NOT_NEEDED:
            made.left_out[name] = NOT_NEEDED[name]
        elif name not in _SPECIAL and name not in _DISK:
            made.left_out[name] = "not a key of PeerCache, which ignores it"
    _add_transport(theirs, made)
    _add_disk(theirs, made)
    if "pool_size" in made.values:
        made.notes["pool_size"] = "Of the whole host: PeerCache divides it among the ranks."
    try:
        Config.model_validate(made.values)
    except ValidationError as error:
        first = error.errors()[0]
        name = str(first["loc"][0])
        raise ValueError(f"{name} = {made.values[name]!r}: {first['msg']}") from None
    return made


def _add_transport(theirs: Mapping[str, Any], made: Translation) -> None:
    if "protocol" in theirs:
        rdma = theirs["protocol"] == "rdma"
        made.values["protocol"] = "auto" if rdma else theirs["protocol"]
        if rdma:
            made.notes["protocol"] = (
                'RDMA where there is a device, else TCP, as before. "rdma" would insist on RDMA.'
            )
    devices = theirs.get("device_names") or theirs.get("device_name") or ""
    names = devices if isinstance(devices, list) else str(devices).split(",")
    port = theirs.get("ib_port", 1)
    found = [str(name).strip() for name in names if str(name).strip()]
    if found:
        made.values["device_names"] = [name if port == 1 else f"{name}:{port}" for name in found]
    elif port != 1:
        made.left_out["ib_port"] = "give device_names as DEVICE:PORT"
    gid = theirs.get("gid_index", 3)
    if gid in (3, -1):
        if "gid_index" in theirs:
            made.left_out["gid_index"] = "the daemon finds the GID of each rail"
    else:
        made.values["rdma_gid_index"] = gid


def _add_disk(theirs: Mapping[str, Any], made: Translation) -> None:
    """PeerCache's disk tier is on unless it is turned off."""
    disk = {name: theirs.get(name, default) for name, default in _DISK.items()}
    if disk["disk_enabled"] is False:
        return
    made.values |= disk
    if "disk_enabled" not in theirs:
        made.notes["disk_enabled"] = (
            "On by default in PeerCache. The folder must be empty at first."
        )
    else:
        made.notes["disk_enabled"] = "The folder must be empty at first."
