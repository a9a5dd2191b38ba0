"""Virtual environments for the packages of `make dist`, and a daemon that serves one of them."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from peercache_bench.process import free_port

CLIENT = """
import sys
before = set(sys.modules)
from peercache_client import Client
page = bytes(range(256)) * 256
with Client(sys.argv[1], namespace="n") as client:
    assert client.set(b"k", page)
    assert client.get(b"k", len(page)) == page
    assert not client.get(b"other", len(page))
imported = {name.partition(".")[0] for name in set(sys.modules) - before}
print("right", *sorted(imported - set(sys.stdlib_module_names)))
"""


def run(*command: str | Path, **options: object) -> str:
    """Runs a command and returns its output. A failure is an AssertionError with all output. The
    command gets no variables that could lead it back into this checkout."""
    clean = {"PATH": "/usr/bin:/bin", "HOME": os.environ.get("HOME", "/root")}
    clean |= {k: v for k, v in os.environ.items() if k.startswith(("PIP_", "SSL_", "REQUESTS_"))}
    done = subprocess.run(
        [str(word) for word in command],
        capture_output=True,
        text=True,
        check=False,
        env=clean,
        cwd="/",
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def environment(python: str, folder: Path, wheel: Path, *options: str | Path) -> Path:
    """The bin/ of a new virtual environment of that Python that has the wheel."""
    run(python, "-m", "venv", folder)
    run(folder / "bin/python", "-m", "pip", "install", "-q", *options, wheel)
    return folder / "bin"


def serves(installed: Path, client: Path, folder: Path) -> None:
    """Runs a daemon, and the client of another environment with it. The client must get the bytes
    that it set, and import nothing but itself and the standard library."""
    socket = folder / "p.sock"
    ports = [str(free_port("127.0.0.1")) for _ in range(2)]
    daemon = subprocess.Popen(
        [
            installed / "peercached", "--socket-path", socket, "--pool-size", "64MiB",
            "--meta-port", ports[0], "--data-port", ports[1], "--metrics-port", "0",
        ],
        stderr=subprocess.PIPE, text=True, cwd="/",
    )  # fmt: skip
    try:
        assert daemon.stderr is not None
        for line in daemon.stderr:
            if "ready: " in line:
                break
        else:
            raise AssertionError(f"it ended with {daemon.wait()}")
        assert run(client / "python", "-c", CLIENT, socket) == "right peercache_client\n"
        assert "1 page" in run(installed / "peercachectl", "--socket", socket, "status")
    finally:
        daemon.terminate()
        daemon.communicate(timeout=30)
    assert daemon.returncode == 0
