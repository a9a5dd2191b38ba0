"""The aarch64 wheels run on an emulated processor, in one cluster with a daemon of this machine's
architecture. The emulator executes the other architecture's instructions, but it keeps this
processor's order of memory accesses."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from harness import emulated
from harness.waiting import eventually

from peercache_bench.process import free_port
from peercache_client import Client

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

PAGE = bytes(range(256)) * 256
READY_S = 120
DAEMON = "import sys; from peercached.cli.entry import main; sys.argv[0] = 'peercached'; main()"
CLIENT = """
import platform, sys
from peercache_client import Client
assert platform.machine() == "aarch64"
page = bytes(range(256)) * 256
with Client(sys.argv[1], namespace="n", timeout_s=20) as client:
    for word in sys.argv[2:]:
        if word.startswith("set-"):
            assert client.set(word[4:].encode(), page)
        else:
            assert client.get(word[4:].encode(), len(page)) == page
print("right")
"""


@pytest.fixture(
    scope="module", params=emulated.RELEASES, ids=lambda version: "python{}.{}".format(*version)
)
def python(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> emulated.EmulatedPython:
    if platform.machine() == emulated.MACHINE:
        pytest.skip("this machine is an aarch64 one: test_packages.py runs these wheels")
    if not emulated.available():
        pytest.skip(
            f"the aarch64 wheels were NOT run: there is no {emulated.EMULATOR}: "
            "apt-get install qemu-user-static"
        )
    try:
        return emulated.make(request.param, tmp_path_factory.mktemp("packages"))
    except FileNotFoundError as error:
        pytest.skip(f"the aarch64 wheel was NOT run: {error}")


@contextmanager
def daemon(command: list[str], variables: dict[str, str], socket: Path, head: str) -> Iterator[str]:
    """Runs a daemon in the cluster of `head` until the end of the block. Yields the address that
    others join it by."""
    ports = [free_port("127.0.0.1") for _ in range(2)]
    address = f"127.0.0.1:{ports[0]}"
    log = socket.with_suffix(".log")
    with log.open("w") as output:
        process = subprocess.Popen(
            [
                *command, "--socket-path", str(socket), "--pool-size", "64MiB", "--host",
                "127.0.0.1", "--meta-port", str(ports[0]), "--data-port", str(ports[1]),
                "--metrics-port", "0", "--node-id", socket.stem, "--discovery-addr",
                head or address,
            ],
            env=variables, cwd="/", stdout=output, stderr=output,
        )  # fmt: skip
    try:

        def ready() -> bool:
            assert process.poll() is None, log.read_text()
            return "ready: " in log.read_text()

        eventually(ready, READY_S, log.read_text)
        yield address
    finally:
        process.terminate()
        process.wait(READY_S)
    assert process.returncode == 0, log.read_text()


def test_modules_import_on_their_architecture(python: emulated.EmulatedPython) -> None:
    script = "import platform, peercached._native, peercache_client._ipc; print(platform.machine())"
    assert python.run("-c", script) == "aarch64\n"


def test_a_page_goes_both_ways_between_the_architectures(
    python: emulated.EmulatedPython, tmp_path: Path
) -> None:
    here, there = tmp_path / "here.sock", tmp_path / "there.sock"
    native = [sys.executable, "-c", DAEMON]
    with ExitStack() as running:
        head = running.enter_context(daemon(native, dict(os.environ), here, ""))
        running.enter_context(daemon(python.command("-c", DAEMON), python.variables, there, head))
        with Client(here, namespace="n", timeout_s=20) as client:
            assert client.set(b"from-here", PAGE)
            said = python.run(
                "-c", CLIENT, there, "set-from-there", "get-from-there", "get-from-here"
            )
            assert said == "right\n"
            assert client.get(b"from-there", len(PAGE)) == PAGE
