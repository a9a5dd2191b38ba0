"""The error of a listener that cannot have its port. It names the process that has it.

It reads /proc/net/tcp and tcp6 (proc(5)) for the socket's inode, then finds the process that has it
open.
"""

from __future__ import annotations

import os
import socket
import struct
from pathlib import Path

_LISTENS = "0A"
_MAPPED = bytes(10) + b"\xff\xff"  # an IPv4 address on an IPv6 socket, as gRPC binds it


def cannot_listen(purpose: str, host: str, port: int, keys: str, why: str = "") -> OSError:
    """The error for the operator: what we wanted to listen for, where, who is there, and the
    configuration keys that help. `why`: from the operating system, if it gave a reason."""
    holder = port_holder(host, port) if port else ""
    there = f"{holder} has the port" if holder else ""
    found = there or why or "the port is taken, or the address is none of this machine's"
    where = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    return OSError(
        f"cannot listen for {purpose} on {where}: {found}. Stop what uses the port, or set {keys}"
    )


def port_holder(host: str, port: int, proc: Path = Path("/proc")) -> str:
    """`process 4711 (nginx)`: the processes that block binding `host:port`, separated by commas.
    Empty if there is none but ourselves, or if another user owns it: /proc hides that user's
    files."""
    links = {f"socket:[{inode}]" for inode in _listening(host, port, proc)}
    if not links:
        return ""
    found = []
    for folder in proc.iterdir():
        if folder.name.isdigit() and int(folder.name) != os.getpid() and _has_open(folder, links):
            found.append(f"process {folder.name} ({_name(folder)})")
    return ", ".join(sorted(found))


def _listening(host: str, port: int, proc: Path) -> set[str]:
    wanted = _addresses(host)
    inodes = set()
    for table in ("tcp", "tcp6"):
        try:
            lines = (proc / "net" / table).read_text().splitlines()[1:]
        except OSError:
            continue
        for line in lines:
            fields = line.split()
            address, _, number = fields[1].partition(":")
            taken = _packed(address)
            if fields[3] != _LISTENS or int(number, 16) != port:
                continue
            if taken in wanted or not any(taken):
                inodes.add(fields[9])
    return inodes


def _packed(hexadecimal: str) -> bytes:
    """The kernel prints an address as 32-bit words in the machine's byte order."""
    packed = b"".join(
        struct.pack("=I", int(hexadecimal[at : at + 8], 16)) for at in range(0, len(hexadecimal), 8)
    )
    return packed.removeprefix(_MAPPED)


def _addresses(host: str) -> set[bytes]:
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except OSError:
        return set()
    return {socket.inet_pton(family, str(where[0])) for family, _, _, _, where in found}


def _has_open(process: Path, links: set[str]) -> bool:
    try:
        return any(str(entry.readlink()) in links for entry in (process / "fd").iterdir())
    except OSError:  # it has ended, or is another user's
        return False


def _name(process: Path) -> str:
    try:
        return (process / "comm").read_text().strip()
    except OSError:
        return "?"
