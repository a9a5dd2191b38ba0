"""The RDMA devices of this machine as JSON: `python3 probe.py`.

The interpreter that has pyverbs runs it (Debian: the system's), so it imports no peercached code.
Exit code 3: no pyverbs. The fields are defined in devices.py.
"""

import json
import os
import socket
import sys
from typing import Any

NO_PYVERBS = 3
_LANES = {1: 1, 2: 4, 4: 8, 8: 12, 16: 2}
_LANE_GBPS = {1: 2.5, 2: 5.0, 4: 10.0, 8: 10.0, 16: 14.0, 32: 25.0, 64: 50.0, 128: 100.0}
_STATES = {0: "no state", 1: "down", 2: "init", 3: "armed", 4: "active", 5: "active deferred"}
_LAYERS = {1: "InfiniBand", 2: "Ethernet"}
_GID_TYPES = {0: "IB", 1: "RoCE v1", 2: "RoCE v2"}


def _read(path: str, default: str = "") -> str:
    try:
        with open(path, encoding="ascii") as file:  # noqa: PTH123
            return file.read().strip()
    except OSError:
        return default


def _netdev(index: int) -> str:
    try:
        return socket.if_indextoname(index)
    except OSError:
        return ""


def _port(number: int, port: Any, gids: list[Any]) -> dict[str, Any]:
    return {
        "number": number,
        "state": _STATES.get(port.state, f"state {port.state}"),
        "link_layer": _LAYERS.get(port.link_layer, f"link layer {port.link_layer}"),
        "lid": port.lid,
        "mtu_bytes": 128 << port.active_mtu,
        "mtu_max_bytes": 128 << port.max_mtu,
        "rate_gbps": _LANES.get(port.active_width, 0) * _LANE_GBPS.get(port.active_speed, 0.0),
        "gids": [
            {
                "index": gid.gid_index,
                "gid": gid.gid_str(),
                "type": _GID_TYPES.get(gid.gid_type, f"type {gid.gid_type}"),
                "netdev": _netdev(gid.ndev_ifindex),
            }
            for gid in gids
            if gid.port_num == number
        ],
    }


def _device(verbs: Any, name: str) -> dict[str, Any]:
    with verbs.Context(name=name) as context:
        limits = context.query_device()
        ports = {n: context.query_port(n) for n in range(1, limits.phys_port_cnt + 1)}
        gids = context.query_gid_table(sum(port.gid_tbl_len for port in ports.values()))
        return {
            "firmware": limits.fw_version
            if isinstance(limits.fw_version, str)
            else limits.fw_version.decode(),
            "max_mr_bytes": limits.max_mr_size,
            "max_qps": limits.max_qp,
            "max_reads": limits.max_qp_rd_atom,
            "ports": [_port(number, port, gids) for number, port in ports.items()],
        }


def main() -> int:
    try:
        from pyverbs import device as verbs
        from pyverbs.pyverbs_error import PyverbsError
    except ImportError as error:
        print(error, file=sys.stderr)
        return NO_PYVERBS
    # Without the kernel module there is no device list, and pyverbs raises.
    found = verbs.get_device_list() if os.path.isdir("/sys/class/infiniband_verbs") else []  # noqa: PTH112
    devices = []
    for each in found:
        name = each.name.decode()
        numa_node = int(_read(f"/sys/class/infiniband/{name}/device/numa_node", "-1"))
        document: dict[str, Any] = {"name": name, "numa_node": numa_node}
        try:
            document.update(_device(verbs, name))
        except PyverbsError as error:
            document["error"] = str(error)
        devices.append(document)
    print(json.dumps(devices))
    return 0


if __name__ == "__main__":
    sys.exit(main())
