"""Runs the Helm that `tools/bootstrap --helm` fetches on the chart in deploy/helm."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]
CHART = ROOT / "deploy" / "helm" / "peercached"
FETCHED = ROOT / "build" / "helm"
HEADS = ["10.0.0.1:31998", "10.0.0.2:31998"]
IMAGE = {"repository": "registry.example.org/peercached"}

Document = dict[str, Any]


def reason_to_skip() -> str:
    """Empty if Helm was fetched."""
    helm = FETCHED / "helm"
    return "" if helm.exists() else "no Helm: tools/bootstrap --helm fetches it, and needs npm"


class Helm:
    """`folder`: for values files, and as a home without a kubeconfig."""

    def __init__(self, folder: Path, chart: Path = CHART) -> None:
        self._folder = folder
        self._chart = chart

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(FETCHED / "helm"), *arguments],
            env={"PATH": os.environ["PATH"], "HOME": str(self._folder)},
            capture_output=True,
            text=True,
            check=False,
        )

    def template(
        self, values: dict[str, Any], *options: str, release: str = "peercached"
    ) -> list[Document]:
        """The chart's objects for `values`, which need no image and no heads."""
        done = self._template(values, *options, release=release)
        assert done.returncode == 0, done.stderr
        return [each for each in yaml.safe_load_all(done.stdout) if each]

    def refusal(self, values: dict[str, Any]) -> str:
        """The message for values that the chart refuses."""
        done = self._template(values, release="peercached")
        assert done.returncode != 0, f"{values} is not refused"
        return done.stderr

    def lint(self, values: dict[str, Any]) -> subprocess.CompletedProcess[str]:
        return self.run("lint", "--strict", str(self._chart), "--values", self._file(values))

    def _template(
        self, values: dict[str, Any], *options: str, release: str
    ) -> subprocess.CompletedProcess[str]:
        file = self._file(values)
        where = ("--namespace", "peercached", "--values", file)
        return self.run("template", release, str(self._chart), *where, *options)

    def _file(self, values: dict[str, Any]) -> str:
        is_found = not {"etcdEndpoints", "headlessService"}.isdisjoint(values)
        given = {"image": IMAGE, **({} if is_found else {"heads": HEADS})}
        file = self._folder / "values.json"
        file.write_text(json.dumps({**given, **values}))  # JSON is YAML
        return str(file)


def of_kind(documents: list[Document], kind: str) -> list[Document]:
    return [each for each in documents if each["kind"] == kind]


def configurations(documents: list[Document]) -> dict[str, str]:
    """The daemon's configuration by the name of its DaemonSet."""
    maps = {each["metadata"]["name"]: each for each in of_kind(documents, "ConfigMap")}
    found = {}
    for each in of_kind(documents, "DaemonSet"):
        volumes = {one["name"]: one for one in each["spec"]["template"]["spec"]["volumes"]}
        name = volumes["config"]["configMap"]["name"]
        found[each["metadata"]["name"]] = maps[name]["data"]["peercached.toml"]
    return found
