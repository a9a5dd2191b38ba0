"""The examples of the README work as they stand: its snippet, and its line for two hosts."""

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from harness import netns
from harness.waiting import eventually

README = (Path(__file__).parents[2] / "README.md").read_text()
BIN = Path(sys.executable).parent
# A host has a name, a /run and a /var/lib of its own.
HOST = 'hostname "$0" && mount -t tmpfs tmpfs /run && mount -t tmpfs tmpfs /var/lib && exec "$@"'


def snippet() -> str:
    [code] = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    return str(code)


def line_for_a_cluster() -> list[str]:
    [line] = re.findall(r"^    (peercached --discovery-addr .*?) +#", README, re.MULTILINE)
    command, *options = shlex.split(line)
    return [str(BIN / command), *options]


class Host:
    """A daemon started as the README says, on a host of its own."""

    def __init__(self, network: netns.Network, name: str, log: Path) -> None:
        self._launcher = network.launcher(name)
        self._log = log
        with log.open("w") as out:
            self.process = subprocess.Popen(
                [*self._launcher, "unshare", "-mu", "sh", "-c", HOST, name, *line_for_a_cluster()],
                stderr=out,
                env={"PATH": os.environ["PATH"], "HOME": str(log.parent)},
            )

    def run(self, *command: str) -> subprocess.CompletedProcess[str]:
        inside = ["nsenter", "-t", str(self.process.pid), "-m", "-n"]
        return subprocess.run(
            [*inside, *command], capture_output=True, text=True, check=False, timeout=60
        )

    @property
    def log(self) -> str:
        return self._log.read_text()


@contextmanager
def two_hosts(folder: Path) -> Iterator[list[Host]]:
    with netns.Network(["a", "b"], prefix="10.0.0") as network:
        hosts = []
        try:
            for name in "ab":
                hosts.append(Host(network, name, folder / name))
            yield hosts
        finally:
            for host in hosts:
                host.process.kill()
                host.process.wait()


@pytest.mark.netns
def test_the_line_for_a_cluster_makes_one_of_two_hosts(tmp_path: Path) -> None:
    if why := netns.reason_to_skip():
        pytest.skip(why)
    with two_hosts(tmp_path) as (a, b):
        for host in (a, b):
            eventually(lambda: "2 members" in host.log, 60, what=lambda: host.log)  # noqa: B023
        found = a.run(str(BIN / "peercachectl"), "nodes")
        assert "10.0.0.1:31998" in found.stdout, found
        assert "10.0.0.2:31998" in found.stdout, found
        status = b.run(str(BIN / "peercachectl"), "status", "--exit-code")
        assert status.returncode <= 1, "nothing but what a first cluster has to be told"

        # The snippet's first part on one host, the second on the other.
        first, second = re.split("# on another host.*\n", snippet())
        page = tmp_path / "page"
        page.write_bytes(os.urandom(131072))
        kv_page = f"open({str(page)!r}, 'rb').read()"
        filled = first.replace("= bytes(131072)", f"= {kv_page}")
        assert filled != first
        attach = "\n".join(line for line in first.splitlines() if not line.startswith("client.b"))
        assert a.run(sys.executable, "-c", filled).stderr == ""
        read = f"assert hit_pages == 1\nassert region.view[131072:262144] == {kv_page}\n"
        got = b.run(sys.executable, "-c", attach + "\n" + second + read)
        assert got.returncode == 0, got.stderr
