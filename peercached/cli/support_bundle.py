"""`peercachectl support-bundle`: one file with the facts that a helper needs."""

from __future__ import annotations

import io
import json
import os
import platform
import shutil
import subprocess
import tarfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from peercached.cli import exits
from peercached.cli.command import ctl_command
from peercached.cli.connection import Target
from peercached.cli.output import print_json, size
from peercached.cli.redact import redact

LOG_BYTES_MAX = 8 << 20
_LOG_LINES_MAX = 20_000
_COMMAND_S = 30.0
_ABOUT = """\
Made by peercachectl support-bundle.

status.json    the daemon's whole status, health sentences first
ring.json      the owners of the digests, and whether records are in sync
process.json   the daemon's threads, memory and packages
config.json    the configuration in force, and the source of each value
doctor.json    the findings of peercachectl doctor
devices.json   its RDMA devices, ports and GIDs
versions.json  versions of peercached and of its packages
machine.json   processors, memory, kernel, limits
log.txt        the end of the daemon's log

A file that ends in .error says why its part is missing. Secrets are taken out. Addresses and the
names of nodes, workers and namespaces are not.
"""


@ctl_command("support-bundle")
@click.option("-o", "--output", type=click.Path(path_type=Path), help="Where to write it.")
@click.option("--log", "log_file", type=click.Path(path_type=Path), help="The daemon's log file.")
@click.option("--unit", default="peercached", show_default=True, help="Its systemd unit.")
def support_bundle(
    target: Target, as_json: bool, output: Path | None, log_file: Path | None, unit: str
) -> None:
    """Writes a tar.gz with status, ring, configuration, doctor, devices, versions and the end
    of the log, without secrets. If a part is missing, as when the daemon is down, the bundle has
    the reason instead.

    With --node the daemon's part is of that member, the rest of this host.
    """
    parts = collect(target, log_file, unit)
    name = f"peercached-support-{_node_of(parts)}-{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}"
    path = output or Path(f"{name}.tar.gz")
    secrets = _secrets(parts)
    try:
        _write(path, name, {title: redact(text, secrets) for title, text in parts.items()})
    except FileExistsError as error:
        raise exits.Failure(f"{path} is there already: give another --output") from error
    except OSError as error:
        raise exits.Failure(f"{path} cannot be written: {error.strerror}") from error
    missing = sorted(title for title in parts if title.endswith(".error"))
    if as_json:
        print_json({"file": str(path), "bytes": path.stat().st_size, "parts": sorted(parts)})
        return
    click.echo(f"{path} ({size(path.stat().st_size)})")
    for title in missing:
        click.echo(f"  without {title.removesuffix('.error')}: {parts[title].strip()}", err=True)


def collect(target: Target, log_file: Path | None, unit: str) -> dict[str, str]:
    """Texts by name. A part that fails becomes `NAME.error` with the reason. Never raises."""
    from peercached.cli.doctor import document_of, examined
    from peercached.doctor.devices import find_devices

    def of_daemon(method: str) -> Any:
        with target.admin() as admin:
            return getattr(admin, method)().model_dump(mode="json")

    asked: dict[str, Callable[[], Any]] = {
        "status.json": lambda: of_daemon("status"),
        "ring.json": lambda: of_daemon("ring"),
        "process.json": lambda: of_daemon("process"),
        "config.json": lambda: of_daemon("config"),
        "doctor.json": lambda: document_of(examined(target)),
        "devices.json": lambda: [device.model_dump(mode="json") for device in find_devices()],
        "versions.json": _versions,
        "machine.json": _machine,
        "log.txt": lambda: _log(log_file, unit),
    }
    parts = {"README.txt": _ABOUT}
    for name, ask in asked.items():
        try:
            found = ask()
        except Exception as error:  # a failed part must not stop the others
            parts[f"{name}.error"] = f"{type(error).__name__}: {error}\n"
        else:
            parts[name] = found if isinstance(found, str) else json.dumps(found, indent=1)
    return parts


def _versions() -> dict[str, Any]:
    from peercached.observe.build_info import build_info, installed_packages

    return {
        **build_info(),
        "python": platform.python_version(),
        "packages": installed_packages(),
    }


def _machine() -> dict[str, Any]:
    import resource

    wanted = ("MemTotal", "MemAvailable", "HugePages_Total", "HugePages_Free", "Hugepagesize")
    memory = {
        name: value.strip()
        for name, _, value in (
            line.partition(":") for line in Path("/proc/meminfo").read_text().splitlines()
        )
        if name in wanted
    }
    os_release = Path("/etc/os-release")
    return {
        "kernel": platform.release(),
        "machine": platform.machine(),
        "system": os_release.read_text() if os_release.exists() else "",
        "processors": os.cpu_count(),
        "usable_processors": len(os.sched_getaffinity(0)),
        "memory": memory,
        "load": os.getloadavg(),
        "locked_memory_limit": resource.getrlimit(resource.RLIMIT_MEMLOCK),
        "open_files_limit": resource.getrlimit(resource.RLIMIT_NOFILE),
        "shared_memory_free_bytes": shutil.disk_usage("/dev/shm").free,
    }


def _log(log_file: Path | None, unit: str) -> str:
    if log_file is not None:
        with log_file.open("rb") as file:
            file.seek(max(log_file.stat().st_size - LOG_BYTES_MAX, 0))
            return file.read().decode(errors="replace")
    command = ["journalctl", "--unit", unit, "--no-pager", "--output", "short-iso-precise"]
    done = subprocess.run(
        [*command, "--lines", str(_LOG_LINES_MAX)],
        capture_output=True,
        timeout=_COMMAND_S,
        check=True,
        text=True,
        errors="replace",
    )
    if not done.stdout.strip() or "-- No entries --" in done.stdout:
        raise LookupError(f"the journal has nothing of the unit {unit}: name --log or --unit")
    return done.stdout[-LOG_BYTES_MAX:]


def _node_of(parts: dict[str, str]) -> str:
    try:
        return str(json.loads(parts["status.json"])["node"]["id"])
    except (KeyError, ValueError):
        return platform.node()


def _secrets(parts: dict[str, str]) -> list[bytes]:
    """The contents of secret files named in the configuration, if this user may read them."""
    try:
        settings = json.loads(parts["config.json"])["settings"]
    except (KeyError, ValueError):
        return []
    from peercached.config.private import PRIVATE_KEYS

    secrets = []
    for key in PRIVATE_KEYS:
        path = settings.get(key, {}).get("value")
        try:
            secret = Path(path).read_bytes() if path else b""
        except OSError:
            continue
        secrets += [secret, secret.strip(), *secret.split()]
    return secrets


def _write(path: Path, folder: str, parts: dict[str, str]) -> None:
    """Never overwrites a file. Only the owner may read the result."""
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(handle, "wb") as file, tarfile.open(fileobj=file, mode="w:gz") as archive:
        for name, text in parts.items():
            content = text.encode()
            entry = tarfile.TarInfo(f"{folder}/{name}")
            entry.size, entry.mtime, entry.mode = len(content), int(time.time()), 0o600
            archive.addfile(entry, io.BytesIO(content))
