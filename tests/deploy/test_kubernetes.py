"""The Kubernetes manifest against the published schemas and the daemon's own configuration."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from harness.fixtures import MakeCluster
from harness.manifest import ENGINES, MANIFEST, container, of_kind, on_this_machine, pod, resources
from harness.scrape import get

from peercached.cli.ctl import main as ctl
from peercached.config import load

OLDEST, NEWEST = "1.29", "1.32"


@pytest.mark.parametrize("version", [OLDEST, NEWEST])
def test_every_resource_fits_its_schema_strictly(version: str) -> None:
    validator = pytest.importorskip("kubernetes_validate")
    for each in (*resources(), *resources(ENGINES)):
        validator.validate(each, version, strict=True)
    wrong = of_kind("DaemonSet")
    wrong["spec"]["template"]["spec"]["hostNetwrok"] = True
    with pytest.raises(Exception, match="hostNetwrok"):
        validator.validate(wrong, version, strict=True)


def test_its_configuration_is_one_the_daemon_takes(tmp_path: Path) -> None:
    text = on_this_machine(of_kind("ConfigMap")["data"]["peercached.toml"], tmp_path)
    file = tmp_path / "p.toml"
    file.write_text(text)
    variables = {each["name"]: "10.0.0.3" for each in container()["env"]}
    config = load(file, variables, {}).config
    grace_s = pod()["terminationGracePeriodSeconds"]
    assert grace_s >= config.stop_drain_s + 20, "time to hand over, and time to leave"


def test_every_volume_is_there_and_engines_find_the_socket() -> None:
    volumes = {volume["name"] for volume in pod()["volumes"]}
    for each in (*pod()["containers"], *pod()["initContainers"]):
        assert {mount["name"] for mount in each["volumeMounts"]} <= volumes
    paths = {v["name"]: v["hostPath"]["path"] for v in pod()["volumes"] if "hostPath" in v}
    assert paths["run"] == "/run/peercached"
    assert "admin" not in paths, "engines can mount folders of the host only"
    group, run = pod()["securityContext"], MANIFEST.read_text()
    assert f"run with the group {group['supplementalGroups'][0]} (supplementalGroups)" in run
    assert pod()["hostNetwork"] is True


def test_the_engines_open_the_workers_socket_and_are_configured_as_the_commands_say() -> None:
    group = pod()["securityContext"]["supplementalGroups"]
    (run,) = (volume["hostPath"]["path"] for volume in pod()["volumes"] if volume["name"] == "run")
    sglang, vllm = (each["spec"] for each in resources(ENGINES))
    for spec, command, options in (
        (sglang, "sglang-config", "--hicache-storage-backend-extra-config="),
        (vllm, "vllm-config", "--kv-transfer-config="),
    ):
        assert spec["securityContext"]["supplementalGroups"] == group
        (engine,) = spec["containers"]
        # Read-only: an engine must not put another socket in its place.
        mount = {"name": "peercached", "mountPath": run, "readOnly": True}
        assert mount in engine["volumeMounts"]
        (folder,) = (each for each in spec["volumes"] if each["name"] == "peercached")
        assert folder["hostPath"] == {"path": run, "type": "Directory"}
        (written,) = (each for each in engine["args"] if each.startswith(options))
        printed = CliRunner().invoke(ctl, [command, "--json"])
        assert json.loads(written.removeprefix(options)) == json.loads(printed.stdout)


def test_probes_use_endpoints_the_daemon_answers(make_cluster: MakeCluster) -> None:
    cluster = make_cluster(1)
    wanted = {container()[f"{kind}Probe"]["httpGet"]["path"] for kind in ("startup", "liveness")}
    wanted.add(container()["readinessProbe"]["httpGet"]["path"])
    assert wanted == {"/healthz", "/readyz"}
    for path in sorted(wanted):
        assert get(cluster[0], path) == (200, "ok\n")
    from peercached.admin.client import AdminClient

    with AdminClient(str(cluster[0].admin_path)) as admin:
        admin.drain(1 << 30, 60.0, stay=True)
    status, said = get(cluster[0], "/readyz")
    assert status == 503
    assert said.startswith("it drains")
    assert get(cluster[0], "/healthz")[0] == 200
