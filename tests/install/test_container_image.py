"""Builds the unchanged container file, and runs its image as deploy/kubernetes specifies."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from urllib.error import HTTPError, URLError
from urllib.request import urlopen

import pytest
from harness import manifest
from harness.podman import BASE_IMAGE, Podman, hardening, reason_to_skip
from harness.waiting import eventually

from peercache_bench.process import free_port
from peercached import __version__

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]
ROOT = Path(__file__).parents[2]
FILE = ROOT / "deploy" / "container" / "Containerfile"
IMAGE = "peercached"
BUILD_S = 3000.0
PYTHON = "/opt/peercached/bin/python"
SET = """
from peercache_client import Client
page = bytes(range(256)) * 256
with Client("/run/peercached/peercached.sock", namespace="n", timeout_s=10) as client:
    assert client.set(b"k", page)
"""
GET = """
from peercache_client import Client
page = bytes(range(256)) * 256
with Client("/run/peercached/peercached.sock", namespace="n", timeout_s=10) as client:
    assert client.get(b"k", len(page)) == page
print("right")
"""


@pytest.fixture(scope="module")
def podman() -> Iterator[Podman]:
    """podman with the image built."""
    if reason := reason_to_skip():
        pytest.skip(reason)
    with tempfile.TemporaryDirectory(prefix="pc-image-") as name:
        made = Podman(Path(name))
        try:
            made.make_base_image()
            tried = made.attempt("run", "--rm", *made.limits, "--network", "host",
                                 BASE_IMAGE, "true")  # fmt: skip
            if tried.returncode != 0:
                pytest.skip(f"this machine runs no container: {tried.stderr[-500:]}")
            made.build(FILE, ROOT, IMAGE, BUILD_S)
            yield made
        finally:
            made.remove_all()


class Pod:
    """One node's pod of the DaemonSet: runs its init container, then the daemon, on folders below
    `folder`. Only values that each node sets differ: address, ports, heads, memory."""

    def __init__(self, podman: Podman, folder: Path, name: str, host: str, head: str) -> None:
        self._podman = podman
        self.name, self.host = name, host
        self.ports = {port["name"]: free_port(host) for port in manifest.container()["ports"]}
        self._head = head or f"{host}:{self.ports['meta']}"
        self._folder = folder
        for part in ("config", "secret", "run", "admin", "state"):
            (folder / part).mkdir(parents=True)
        config = manifest.of_kind("ConfigMap")["data"]["peercached.toml"]
        (folder / "config" / "peercached.toml").write_text(config)
        secret = folder / "secret" / "cluster.secret"
        secret.write_text("0123456789abcdef" * 4)
        # The mode and group that `defaultMode` and the pod's `fsGroup` give it.
        secret.chmod(0o440)
        os.chown(secret, 0, manifest.pod()["securityContext"]["fsGroup"])

    @property
    def head(self) -> str:
        return self._head

    def _volumes(self, container: dict[str, object]) -> list[str]:
        options = []
        mounts = container["volumeMounts"]
        assert isinstance(mounts, list)
        for mount in mounts:
            if mount["name"] == "tmp":
                options.append(f"--tmpfs={mount['mountPath']}:size=64m")
            else:
                mode = "ro" if mount.get("readOnly") else "rw"
                options.append(f"-v={self._folder / mount['name']}:{mount['mountPath']}:{mode}")
        return options

    def start(self) -> None:
        pod = manifest.pod()
        common = pod["securityContext"]
        (first,) = pod["initContainers"]
        entry, *rest = first["command"]
        self._podman(
            "run", "--rm", *self._podman.limits, "--network=host",
            f"--user={first['securityContext']['runAsUser']}",
            *hardening(first["securityContext"]), *self._volumes(first),
            f"--entrypoint={entry}", IMAGE, *rest,
        )  # fmt: skip
        daemon = manifest.container()
        variables = {
            "NODE_ID": self.name, "HOST": self.host, "DISCOVERY_ADDR": self._head,
            "POOL_SIZE": "64MiB", "METRICS_HOST": self.host, "STOP_DRAIN_S": "5",
            **{f"{port.upper()}_PORT": str(number) for port, number in self.ports.items()},
        }  # fmt: skip
        self._podman(
            "run", "-d", f"--name={self.name}", *self._podman.limits, "--network=host",
            f"--user={common['runAsUser']}:{common['runAsGroup']}",
            *(f"--group-add={one}" for one in (common["fsGroup"], *common["supplementalGroups"])),
            *hardening(daemon["securityContext"]), *self._volumes(daemon),
            *(f"--env=PEERCACHED_{key}={value}" for key, value in variables.items()),
            IMAGE, *daemon["args"],
        )  # fmt: skip

    def probe(self, kind: str) -> int:
        """The status code that the kubelet's probe would see; 0 if nobody answers."""
        asked = manifest.container()[f"{kind}Probe"]["httpGet"]
        try:
            url = f"http://{self.host}:{self.ports[asked['port']]}{asked['path']}"
            with urlopen(url, timeout=5) as answer:
                return int(answer.status)
        except HTTPError as error:
            return error.code
        except URLError:
            return 0

    def engine(self, script: str) -> str:
        """Runs `script` in a worker's container of another user, as the manifest's head says."""
        (group,) = manifest.pod()["securityContext"]["supplementalGroups"]
        return self._podman(
            "run", "--rm", *self._podman.limits, "--network=none", "--user=12345:12345",
            f"--group-add={group}", "--cap-drop=ALL", f"-v={self._folder / 'run'}:/run/peercached",
            f"--entrypoint={PYTHON}", IMAGE, "-c", script,
        )  # fmt: skip

    def ctl(self, *words: str) -> str:
        return self._podman("exec", self.name, "peercachectl", *words)

    def log(self) -> str:
        done = self._podman.attempt("logs", self.name)
        return done.stdout + done.stderr

    def wait_ready(self) -> None:
        def ready() -> bool:
            state = self._podman("inspect", "-f", "{{.State.Status}}", self.name).strip()
            assert state == "running", self.log()
            return self.probe("readiness") == 200

        eventually(ready, 60)

    def stop(self) -> int:
        """Stops the pod as the kubelet does. Returns its exit code."""
        grace_s = manifest.pod()["terminationGracePeriodSeconds"]
        self._podman("stop", "-t", str(grace_s), self.name)
        return int(self._podman("inspect", "-f", "{{.State.ExitCode}}", self.name))


def test_image_runs_unprivileged_and_contains_no_compiler(podman: Podman) -> None:
    def run(*words: str) -> str:
        return podman("run", "--rm", *podman.limits, "--network=none", *words)

    assert run(IMAGE, "--version") == f"peercached {__version__}\n"
    found = run(
        "--entrypoint=/bin/sh", IMAGE, "-c", "id -u; id -g; command -v g++ gcc pip; ls /source; :"
    )
    assert found.split() == ["64200", "64200"]
    devices = podman.attempt("run", "--rm", *podman.limits, "--network=none",
                             "--entrypoint=peercachectl", IMAGE, "devices")  # fmt: skip
    assert "pyverbs" not in devices.stdout + devices.stderr, "it is there, and found"
    exporter = "opentelemetry.exporter.otlp.proto.http.trace_exporter"
    run(f"--entrypoint={PYTHON}", IMAGE, "-c", f"import {exporter}")
    settings = json.loads(podman("image", "inspect", IMAGE))[0]["Config"]
    assert settings["User"] == "64200:64200"
    assert settings["StopSignal"] == "SIGTERM"


def test_the_container_files_own_commands_work(podman: Podman, tmp_path: Path) -> None:
    said = "".join(re.findall(r"^#   (.+\n)", FILE.read_text(), flags=re.MULTILINE))
    *folders, run = said.replace("\\\n", "").splitlines()
    # Not every machine has this device or allows this limit.
    run = run.replace("--device /dev/infiniband ", "").replace("--ulimit memlock=-1 ", "")
    for path in ("/run/peercached", "/etc/peercached", "/var/lib/peercached"):
        folders = [line.replace(path, f"{tmp_path}{path}") for line in folders]
        run = run.replace(f"-v {path}:", f"-v {tmp_path}{path}:")
    for line in folders:
        subprocess.run(shlex.split(line), check=True)
    ports = [free_port("127.0.0.1") for _ in range(3)]
    (tmp_path / "etc" / "peercached").mkdir(parents=True)
    (tmp_path / "etc" / "peercached" / "peercached.toml").write_text(
        'node_id = "from-the-file"\npool_size = "64MiB"\nhost = "127.0.0.1"\n'
        "metrics_port = {}\nmeta_port = {}\ndata_port = {}\n".format(*ports)
    )
    program, verb, *options = shlex.split(run)
    assert (program, verb) == ("podman", "run")
    podman("run", "-d", "--name=alone", *podman.limits, *options)

    def ready() -> bool:
        state = podman("inspect", "-f", "{{.State.Status}}", "alone").strip()
        assert state == "running", podman.attempt("logs", "alone").stderr
        return podman.attempt("exec", "alone", "peercachectl", "status").returncode == 0

    eventually(ready, 60)
    status = json.loads(podman("exec", "alone", "peercachectl", "status", "--json"))
    assert status["node"]["id"] == "from-the-file"
    podman("stop", "-t", "60", "alone")
    assert podman("inspect", "-f", "{{.State.ExitCode}}", "alone").strip() == "0"


def test_two_pods_share_their_pages_and_end_cleanly(podman: Podman, tmp_path: Path) -> None:
    a = Pod(podman, tmp_path / "a", "a", "127.0.0.1", head="")
    b = Pod(podman, tmp_path / "b", "b", "127.0.0.2", head=a.head)
    for pod in (a, b):
        pod.start()
        pod.wait_ready()
        assert pod.probe("startup") == pod.probe("liveness") == 200
    eventually(lambda: len(json.loads(a.ctl("nodes", "--json"))["members"]) == 2, 30)

    a.engine(SET)
    assert b.engine(GET) == "right\n"
    status = json.loads(b.ctl("status", "--json"))
    assert status["operations"]["get_remote"] == 1
    assert [one for one in status["health"] if one["severity"] == "error"] == []

    assert a.stop() == 0, a.log()
    assert a.probe("liveness") == 0
    # Node a has handed its pages to b and left, so b does not wait for it.
    eventually(lambda: len(json.loads(b.ctl("nodes", "--json"))["members"]) == 1, 10)
    assert b.engine(GET) == "right\n"
    assert b.stop() == 0, b.log()
    for line in (a.log() + b.log()).splitlines():
        assert json.loads(line)["message"], line
