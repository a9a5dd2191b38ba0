"""The error for a port in use names the process that holds it."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from peercached.observe.port_holder import cannot_listen, port_holder

LISTEN = """
import socket, sys
family, host = getattr(socket, sys.argv[1]), sys.argv[2]
with socket.socket(family) as listener:
    listener.bind((host, 0))
    listener.listen()
    print(listener.getsockname()[1], flush=True)
    sys.stdin.read()
"""


@pytest.mark.parametrize(
    ("family", "bound", "asked", "found"),
    [
        ("AF_INET", "127.0.0.1", "127.0.0.1", True),
        ("AF_INET", "0.0.0.0", "127.0.0.1", True),
        ("AF_INET", "127.0.0.2", "127.0.0.1", False),
        ("AF_INET6", "::ffff:127.0.0.1", "127.0.0.1", True),
        ("AF_INET6", "::", "127.0.0.1", True),
    ],
)
def test_the_process_that_listens_is_named(
    family: str, bound: str, asked: str, found: bool
) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", LISTEN, family, bound],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        port = int(process.stdout.readline())
        name = Path(f"/proc/{process.pid}/comm").read_text().strip()
        expected = f"process {process.pid} ({name})" if found else ""
        assert port_holder(asked, port) == expected
        error = str(cannot_listen("peers", asked, port, "meta_port", "no such address"))
        why = f"{expected} has the port" if found else "no such address"
        assert error == (
            f"cannot listen for peers on {asked}:{port}: {why}. Stop what uses the port, or set "
            "meta_port"
        )
        process.communicate()


def test_a_free_port_and_our_own_have_no_holder(tmp_path: Path) -> None:
    with socket.socket() as ours:
        ours.bind(("127.0.0.1", 0))
        port = ours.getsockname()[1]
        assert port_holder("127.0.0.1", port) == ""
        ours.listen()
        assert port_holder("127.0.0.1", port) == "", f"we are {os.getpid()}"
    assert port_holder("127.0.0.1", port, proc=tmp_path) == "", "no /proc, no name"
    assert port_holder("no.such.host.invalid", port) == ""
