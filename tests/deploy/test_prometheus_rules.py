"""deploy/prometheus: valid rules that read existing metrics, and alerts that link to a runbook."""

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from harness.promql import names_in, names_of

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "deploy" / "prometheus"
RULES = [
    rule
    for group in yaml.safe_load((FOLDER / "peercached.rules.yml").read_text())["groups"]
    for rule in group["rules"]
]
ALERTS = [rule for rule in RULES if "alert" in rule]


def promtool(*arguments: str, read: str = "") -> None:
    if not shutil.which("promtool"):
        pytest.skip("no promtool: tools/bootstrap --prometheus")
    done = subprocess.run(
        ["promtool", *arguments],
        cwd=FOLDER,
        input=read,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_promtool_accepts_a_scrape(scraped: str) -> None:
    promtool("check", "metrics", read=scraped)


def test_promtool_takes_the_rules() -> None:
    promtool("check", "rules", "peercached.rules.yml")


def test_each_alert_fires_in_its_story_and_a_healthy_cluster_is_silent() -> None:
    promtool("test", "rules", "peercached.test.yml")


def test_each_alert_has_a_story() -> None:
    stories = (FOLDER / "peercached.test.yml").read_text()
    untold = [rule["alert"] for rule in ALERTS if rule["alert"] not in stories]
    assert not untold


@pytest.mark.parametrize("rule", ALERTS, ids=lambda rule: rule["alert"])
def test_alert_has_severity_annotations_and_a_valid_runbook_link(rule: dict[str, Any]) -> None:
    assert rule["labels"]["severity"] in ("critical", "warning", "info")
    assert set(rule["annotations"]) == {"summary", "description", "runbook_url"}
    page, _, anchor = rule["annotations"]["runbook_url"].partition("#")
    headings = re.findall(r"^#+ (.+)$", (ROOT / page).read_text(), re.MULTILINE)
    anchors = {
        re.sub(r"[^a-z0-9 -]", "", heading.lower()).replace(" ", "-") for heading in headings
    }
    assert anchor in anchors


def test_rules_read_metrics_that_a_daemon_has(scraped: str) -> None:
    there = names_of(scraped) | {rule["record"] for rule in RULES if "record" in rule}
    for rule in RULES:
        read = names_in(rule["expr"])
        assert read or "up{" in rule["expr"]
        assert read <= there, rule
