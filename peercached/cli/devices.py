"""`peercachectl devices`: the RDMA devices of this host."""

from __future__ import annotations

import click

from peercached.cli import exits
from peercached.cli.command import ctl_command
from peercached.cli.connection import Target
from peercached.cli.output import print_json, print_table, size

_EXITS = "Exit codes: 0 done, 2 wrong usage, 4 failed, 5 pyverbs is not installed."

_ANY_BYTES = 1 << 62  # devices without a limit report this much or more


@ctl_command("devices", _EXITS)
def devices(target: Target, as_json: bool) -> None:
    """RDMA devices, ports and GIDs of this host, as the kernel has them; no daemon is asked.

    The key `device_names` takes these names.
    """
    target.must_be_here("it looks at the hardware")
    from peercached.doctor.devices import ProbeFailed, PyverbsMissing, find_devices

    try:
        found = find_devices()
    except PyverbsMissing as error:
        raise exits.Failure(str(error), exits.NO_PYVERBS) from error
    except ProbeFailed as error:
        raise exits.Failure(f"{error}; `peercachectl doctor` looks for the cause") from error
    if as_json:
        print_json([device.model_dump(mode="json") for device in found])
        return
    if not found:
        click.echo("This host has no RDMA device; `peercachectl doctor` looks for the cause.")
        return
    ports = [(device, port) for device in found for port in device.ports]
    if ports:
        print_table(
            ["port", "state", "link", ">rate", ">MTU", "netdev", ">NUMA", ">largest MR", ">reads"],
            (
                (
                    device.port_name(port),
                    port.state,
                    port.link_layer,
                    f"{port.rate_gbps:g} Gb/s",
                    f"{port.mtu_bytes} of {port.mtu_max_bytes}",
                    port.netdev,
                    device.numa_node if device.numa_node >= 0 else "-",
                    "any" if device.max_mr_bytes >= _ANY_BYTES else size(device.max_mr_bytes),
                    device.max_reads,
                )
                for device, port in ports
            ),
        )
        click.echo()
        print_table(
            ["port", ">GID index", "GID", "type", "address", "netdev"],
            (
                (device.port_name(port), gid.index, gid.gid, gid.type, gid.address(), gid.netdev)
                for device, port in ports
                for gid in port.gids
            ),
        )
    for device in found:
        if device.error:
            click.echo(f"{device.name} cannot be opened: {device.error}")
