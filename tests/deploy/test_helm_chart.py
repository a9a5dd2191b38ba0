"""The Helm chart: what it makes fits Kubernetes, the daemon, and the plain manifest."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from math import ceil
from pathlib import Path
from typing import Any

import pytest
from harness import manifest
from harness.helm import HEADS, IMAGE, Document, Helm, configurations, of_kind

from peercached import __version__
from peercached.config import Config
from peercached.config.paths import admin_socket_of
from peercached.config.values import parse_size

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

OLDEST, NEWEST = "1.29", "1.37"
POD_NETWORK: dict[str, Any] = {"hostNetwork": False, "etcdEndpoints": ["etcd.example.org:2379"]}
SETS: dict[str, dict[str, Any]] = {
    "defaults": {},
    "etcd": {"etcdEndpoints": ["10.1.0.1:2379", "[fd00::2]:2379"]},
    "headless": {"hostNetwork": False, "headlessService": True},
    "pod network": {
        **POD_NETWORK,
        "networkPolicy": {
            "enabled": True,
            "metricsFrom": [{"namespaceSelector": {"matchLabels": {"name": "monitoring"}}}],
        },
    },
    "GPUs and memory nodes": {
        "gpuNodes": {"config": {"gpu": "cuda"}},
        "memoryNodes": {"enabled": True, "config": {"spill_bytes_per_s": "1GiB"}},
        "runtimeClassName": "nvidia",
        "monitoring": {name: {"enabled": True} for name in ("podMonitor", "rules", "dashboard")},
    },
    "huge pages and RDMA": {
        "gpuNodes": {
            "pool": {"size": "1TiB", "backing": "hugepages"},
            "rdma": {"resource": "rdma/hca_shared_devices_a", "count": 2, "lockAsRoot": True},
            "cpu": {"limit": "4"},
            "config": {"protocol": "rdma", "device_names": ["mlx5_0", "mlx5_1:2"]},
        },
        "image": {**IMAGE, "digest": "sha256:" + "0" * 64},
    },
    "warm restarts": {
        "gpuNodes": {"enabled": False},
        "memoryNodes": {
            "enabled": True,
            "pool": {"size": "1500MiB", "backing": "file", "extraMemory": "5GiB"},
            "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [{"matchExpressions": [{"key": "a", "operator": "Exists"}]}]
            }}},
        },
    },
    "tuned": {
        "gpuNodes": {"pool": {"size": "96Gi"}},
        "config": {
            "meta_port": 4001, "data_port": 4002, "metrics_port": 4003, "stop_drain_s": 90.5,
            "directory_capacity": 100_000_000, "directory_copies": 50_000_000,
            "namespace_quotas": ["tenant-\"a\"/*=0.25", "<&>=0.5"], "rdma_pkey": "0x8001",
            "disk_enabled": True, "disk_path": "/var/lib/peercached/disk", "log_format": None,
        },
        "clusterSecret": {"generate": True},
        "imagePullSecrets": [{"name": "registry"}],
        "priorityClassName": "",
        "podAnnotations": {"a": "b"}, "podLabels": {"c": "d"},
        "envFrom": [{"secretRef": {"name": "peercached-store"}}],
        "extraVolumes": [{"name": "tls", "secret": {"secretName": "tls"}}],
        "extraVolumeMounts": [{"name": "tls", "mountPath": "/tls", "readOnly": True}],
        "updateStrategy": {"maxUnavailable": "10%"},
    },
}  # fmt: skip
EACH = pytest.mark.parametrize("values", SETS.values(), ids=list(SETS))
# Labels and annotations of Helm and for several releases in a cluster.
OF_HELM = (
    "helm.sh/chart",
    *(f"app.kubernetes.io/{name}" for name in ("instance", "version", "managed-by", "component")),
    "checksum/config",
)


def pods(documents: list[Document]) -> dict[str, Any]:
    sets = of_kind(documents, "DaemonSet")
    return {each["metadata"]["name"]: each["spec"]["template"]["spec"] for each in sets}


def without_helm(document: Any) -> Any:
    """The document as a person would have written it."""
    if isinstance(document, list):
        return [without_helm(each) for each in document]
    if not isinstance(document, dict):
        return document
    kept = {key: without_helm(each) for key, each in document.items() if key not in OF_HELM}
    if kept.get("imagePullPolicy") == "IfNotPresent":  # what Kubernetes takes for such an image
        del kept["imagePullPolicy"]
    if "peercached.toml" in kept:
        kept["peercached.toml"] = tomllib.loads(kept["peercached.toml"])
    return kept


def test_the_plain_manifest_is_what_the_chart_makes_by_default(helm: Helm) -> None:
    def by_kind(documents: list[Document]) -> dict[str, Document]:
        return {each["kind"]: without_helm(each) for each in documents}

    chart = by_kind(helm.template({}))
    plain = by_kind(manifest.resources())
    assert chart.keys() == plain.keys()
    for kind, document in plain.items():
        assert chart[kind] == document


@EACH
def test_lint_has_no_objection(helm: Helm, values: dict[str, Any]) -> None:
    done = helm.lint(values)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Fail" not in done.stderr, "lint only mentions what install would refuse"


@EACH
def test_every_resource_fits_its_schema_strictly(helm: Helm, values: dict[str, Any]) -> None:
    validator = pytest.importorskip("kubernetes_validate")
    documents = helm.template(values)
    names = [(each["kind"], each["metadata"]["name"]) for each in documents]
    assert len(set(names)) == len(names)
    for each in documents:
        assert each["metadata"]["namespace"] == "peercached"
        if not each["apiVersion"].startswith("monitoring.coreos.com/"):
            for version in (OLDEST, NEWEST):
                validator.validate(each, version, strict=True)


@EACH
def test_the_daemon_takes_every_configuration(
    helm: Helm, values: dict[str, Any], tmp_path: Path
) -> None:
    documents = helm.template(values)
    for name, text in configurations(documents).items():
        file = tmp_path / "peercached.toml"
        file.write_text(manifest.on_this_machine(text, tmp_path))
        [container] = pods(documents)[name]["containers"]
        assert container.get("envFrom", []) == values.get("envFrom", [])
        variables = {each["name"]: "10.0.0.3" for each in container["env"]}
        done = subprocess.run(
            [Path(sys.executable).parent / "peercached", "config", "--check", "--config", file],
            env={"PATH": os.environ["PATH"], **variables},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"{text}\n{done.stderr}"
        told = tomllib.loads(text)
        role = "memory" if name.endswith("-memory") else "full"
        assert told.get("role", "full") == role
        for key, value in values.get("config", {}).items():
            assert told.get(key) == value


def test_a_headless_service_names_all_daemons(helm: Helm) -> None:
    documents = helm.template({"headlessService": True, "memoryNodes": {"enabled": True}})
    [service] = of_kind(documents, "Service")
    name, port = service["metadata"], service["spec"]["ports"][0]["port"]
    for text in configurations(documents).values():
        heads = tomllib.loads(text)["discovery_addr"]
        assert heads == [f"{name['name']}.{name['namespace']}.svc:{port}"]
    for each in of_kind(documents, "DaemonSet"):
        labels = each["spec"]["template"]["metadata"]["labels"]
        assert service["spec"]["selector"].items() <= labels.items()


@EACH
def test_the_memory_limit_holds_the_pool_and_the_rest(helm: Helm, values: dict[str, Any]) -> None:
    documents = helm.template(values)
    for name, text in configurations(documents).items():
        told = tomllib.loads(text)
        [container] = pods(documents)[name]["containers"]
        limits = container["resources"]["limits"]
        key = "memoryNodes" if name.endswith("-memory") else "gpuNodes"
        pool = parse_size(told["pool_size"])
        records = sum(
            told.get(one, Config.model_fields[one].default)
            for one in ("directory_capacity", "directory_copies")
        )
        # docs/sizing.md, "The rest".
        rest = (1 << 30) + (128 << 20) + 48 * records
        rest += (2 << 30) if told.get("gpu") == "cuda" else 0
        rest += parse_size(values.get(key, {}).get("pool", {}).get("extraMemory", "0MiB"))
        in_memory = rest + (0 if told.get("huge_pages") else pool)
        assert in_memory <= parse_size(limits["memory"]) <= in_memory + (1 << 30)
        assert container["resources"]["requests"]["memory"] == limits["memory"]
        if told.get("huge_pages"):
            assert parse_size(limits["hugepages-2Mi"]) == pool
        else:
            assert "hugepages-2Mi" not in limits


@EACH
def test_pods_have_their_volumes_and_the_ports_and_time_of_the_configuration(
    helm: Helm, values: dict[str, Any]
) -> None:
    documents = helm.template(values)
    defaults = {name: field.default for name, field in Config.model_fields.items()}
    for name, text in configurations(documents).items():
        told, pod = {**defaults, **tomllib.loads(text)}, pods(documents)[name]
        [container] = pod["containers"]
        volumes = {volume["name"] for volume in pod["volumes"]}
        for each in (container, *pod["initContainers"]):
            assert {mount["name"] for mount in each["volumeMounts"]} <= volumes
        folders = {mount["mountPath"] for mount in container["volumeMounts"]}
        used = ["socket_path", "cluster_secret_file", *["pool_file"] * bool(told["pool_file"])]
        admin = str(Path(admin_socket_of(told["socket_path"])).parent)
        needed = {str(Path(told[key]).parent) for key in used} | {told["state_dir"], admin}
        assert needed <= folders
        # Engines mount folders of the host, and have the group of the workers' socket only.
        on_host = {one["name"] for one in pod["volumes"] if "hostPath" in one}
        mounts = {one["mountPath"]: one["name"] for one in container["volumeMounts"]}
        assert mounts[admin] not in on_host
        told_group = int(told["socket_group"])
        assert pod["securityContext"]["supplementalGroups"] == [told_group]
        assert told_group != pod["securityContext"]["fsGroup"], "which reads the secret"
        for port in container["ports"]:
            assert port["containerPort"] == told[f"{port['name']}_port"]
            assert port.get("hostPort", port["containerPort"]) == port["containerPort"]
            assert ("hostPort" in port) == pod.get("hostNetwork", False)
        assert pod["terminationGracePeriodSeconds"] == ceil(told["stop_drain_s"]) + 30


def test_only_the_daemon_that_pins_as_root_has_a_capability(helm: Helm) -> None:
    for values in SETS.values():
        as_root = values.get("gpuNodes", {}).get("rdma", {}).get("lockAsRoot", False)
        for pod in pods(helm.template(values)).values():
            [container] = pod["containers"]
            limits = container["securityContext"]
            assert limits["capabilities"].get("add", []) == ["IPC_LOCK"] * as_root
            assert limits["capabilities"]["drop"] == ["ALL"]
            assert limits["readOnlyRootFilesystem"]
            assert not limits["allowPrivilegeEscalation"]
            assert pod["securityContext"]["runAsNonRoot"] is not as_root
            # The folders belong to the user that the daemon runs as.
            [folders] = pod["initContainers"]
            owners = set(re.findall(r"-o (\d+)", folders["command"][-1]))
            user = pod["securityContext"]["runAsUser"]
            assert owners == {str(user)} == {str(0 if as_root else 64200)}


def test_only_the_daemon_that_copies_to_gpus_sees_them_and_the_processes_of_the_host(
    helm: Helm,
) -> None:
    opened = []
    for values in SETS.values():
        for name, pod in pods(helm.template(values)).items():
            variables = {each["name"]: each.get("value") for each in pod["containers"][0]["env"]}
            found = {
                "hostPID": pod.get("hostPID"),
                "runtime": pod.get("runtimeClassName"),
                "devices": variables.get("NVIDIA_VISIBLE_DEVICES"),
                "libraries": variables.get("NVIDIA_DRIVER_CAPABILITIES"),
            }
            if any(found.values()):
                opened.append((name, *found.values()))
    assert opened == [("peercached", True, "nvidia", "all", "compute,utility")]


def test_a_device_plugins_resource_is_asked_for(helm: Helm) -> None:
    [pod] = pods(helm.template(SETS["huge pages and RDMA"])).values()
    assert pod["containers"][0]["resources"]["limits"]["rdma/hca_shared_devices_a"] == 2
    assert pod["containers"][0]["image"] == f"{IMAGE['repository']}@sha256:{'0' * 64}"


def test_the_two_daemon_sets_own_different_pods(helm: Helm) -> None:
    documents = helm.template(SETS["GPUs and memory nodes"])
    full, memory = of_kind(documents, "DaemonSet")
    assert full["spec"]["selector"] != memory["spec"]["selector"]
    for each in (full, memory):
        labels = each["spec"]["template"]["metadata"]["labels"]
        assert each["spec"]["selector"]["matchLabels"].items() <= labels.items()
        assert "helm.sh/chart" not in labels, "a new chart alone must not restart the daemons"


def test_a_changed_configuration_restarts_the_daemons_that_it_changes(helm: Helm) -> None:
    def sums(values: dict[str, Any]) -> list[str]:
        templates = [
            each["spec"]["template"] for each in of_kind(helm.template(values), "DaemonSet")
        ]
        return [each["metadata"]["annotations"]["checksum/config"] for each in templates]

    full, memory = sums({"memoryNodes": {"enabled": True}})
    changed = {"memoryNodes": {"enabled": True, "config": {"log_level": "debug"}}}
    assert sums(changed)[0] == full
    assert sums(changed)[1] != memory


def test_network_policies_let_in_members_and_those_who_read_metrics(helm: Helm) -> None:
    documents = helm.template(SETS["pod network"])
    [policy] = of_kind(documents, "NetworkPolicy")
    [pod] = of_kind(documents, "DaemonSet")
    labels = pod["spec"]["template"]["metadata"]["labels"]
    assert policy["spec"]["podSelector"]["matchLabels"].items() <= labels.items()
    members, metrics = policy["spec"]["ingress"]
    [peer] = members["from"]
    assert peer["podSelector"]["matchLabels"].items() <= labels.items()
    assert [each["port"] for each in members["ports"]] == [31998, 31999]
    assert [each["port"] for each in metrics["ports"]] == [31997]
    assert metrics["from"] == SETS["pod network"]["networkPolicy"]["metricsFrom"]
    [container] = pods(documents)["peercached"]["containers"]
    fields = {each["name"]: each["valueFrom"]["fieldRef"] for each in container["env"]}
    assert fields["PEERCACHED_HOST"]["fieldPath"] == "status.podIP"


def test_a_release_of_another_name_is_named_after_it(helm: Helm) -> None:
    documents = helm.template({}, release="prod")
    assert {each["metadata"]["name"] for each in documents} == {"peercached-prod"}
    assert configurations(documents).keys() == {"peercached-prod"}


def test_the_chart_has_the_version_of_the_daemon(helm: Helm) -> None:
    shown = helm.run("show", "chart", str(manifest.MANIFEST.parents[1] / "helm" / "peercached"))
    assert f"version: {__version__}\n" in shown.stdout
    assert f"appVersion: {__version__}\n" in shown.stdout
    assert HEADS[0] in manifest.of_kind("ConfigMap")["data"]["peercached.toml"]
