"""The chart's objects for the Prometheus operator and Grafana."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from harness.helm import FETCHED, Document, Helm, of_kind
from harness.prometheus import RULES

PARTS = ("podMonitor", "rules", "dashboard")
SCHEMAS = FETCHED / "node_modules" / "@kubernetes-models" / "prometheus-operator" / "_schemas"
FOUND_BY = {"release": "prometheus"}


def rendered(helm: Helm, kind: str, release: str = "peercached") -> Document:
    values = {"monitoring": {part: {"enabled": True, "labels": FOUND_BY} for part in PARTS}}
    found = of_kind(helm.template(values, release=release), kind)
    assert found[-1]["metadata"]["labels"].items() >= FOUND_BY.items()
    return found[-1]


def objections(document: Document) -> list[Any]:
    """Of the operator's own schema, which its authors make of the operator's source."""
    name = f"ComGithubPrometheusOperatorPrometheusOperatorPkgApisMonitoringV1{document['kind']}"
    script = (
        f"import {{validate}} from {json.dumps((SCHEMAS / f'{name}.js').as_uri())};"
        "import {readFileSync} from 'node:fs';"
        "validate(JSON.parse(readFileSync(0)));"
        "console.log(JSON.stringify(validate.errors ?? []));"
    )
    done = subprocess.run(
        ["node", "--input-type=module", "-e", script],
        input=json.dumps(document),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found: list[Any] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize("kind", ["PodMonitor", "PrometheusRule"])
def test_the_operators_schema_takes_it(helm: Helm, kind: str) -> None:
    document = rendered(helm, kind)
    assert not objections(document)
    wrong = {**document, "spec": {"podMetricsEndpoints": 1, "groups": 1}}
    assert objections(wrong)


def test_the_pod_monitor_finds_the_pods_and_names_the_job_as_the_rules_do(helm: Helm) -> None:
    for release in ("peercached", "prod"):
        values = {"monitoring": {"podMonitor": {"enabled": True}}}
        documents = helm.template(values, release=release)
        [monitor], [pods] = of_kind(documents, "PodMonitor"), of_kind(documents, "DaemonSet")
        labels = pods["spec"]["template"]["metadata"]["labels"]
        assert monitor["spec"]["selector"]["matchLabels"].items() <= labels.items()
        [endpoint] = monitor["spec"]["podMetricsEndpoints"]
        [container] = pods["spec"]["template"]["spec"]["containers"]
        assert endpoint["port"] in {port["name"] for port in container["ports"]}
        [job] = {each["replacement"] for each in endpoint["relabelings"]}
        patterns = set(re.findall(r'job=~"([^"]+)"', RULES.read_text()))
        assert patterns
        assert all(re.fullmatch(pattern, job) for pattern in patterns)


def test_the_rules_are_those_that_are_tested_and_promtool_takes_them(
    helm: Helm, tmp_path: Path
) -> None:
    spec = rendered(helm, "PrometheusRule")["spec"]
    assert spec == yaml.safe_load(RULES.read_text())
    if not shutil.which("promtool"):
        pytest.skip("no promtool: tools/bootstrap --prometheus")
    file = tmp_path / "rules.json"
    file.write_text(json.dumps(spec))  # JSON is YAML
    done = subprocess.run(
        ["promtool", "check", "rules", str(file)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_dashboard_is_the_board_of_deploy_grafana(helm: Helm) -> None:
    text = rendered(helm, "ConfigMap")["data"]["peercached.json"]
    board = RULES.parents[1] / "grafana" / "peercached.json"
    assert json.loads(text) == json.loads(board.read_text())


def test_a_package_of_the_chart_has_the_rules_and_the_board(helm: Helm, tmp_path: Path) -> None:
    chart = RULES.parents[1] / "helm" / "peercached"
    packed = helm.run("package", str(chart), "--destination", str(tmp_path))
    assert packed.returncode == 0, packed.stderr
    [archive] = tmp_path.glob("peercached-*.tgz")
    from_package = Helm(tmp_path, archive)
    spec = rendered(from_package, "PrometheusRule")["spec"]
    assert spec == yaml.safe_load(RULES.read_text())
    assert json.loads(rendered(from_package, "ConfigMap")["data"]["peercached.json"])
