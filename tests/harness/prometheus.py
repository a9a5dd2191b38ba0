"""A real Prometheus that scrapes a cluster, for tests."""

import json
import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.parse import urlencode
from urllib.request import urlopen

from harness.clock import seconds
from harness.waiting import eventually
from peercache_bench.process import free_port

RULES = Path(__file__).parents[2] / "deploy" / "prometheus" / "peercached.rules.yml"
INTERVAL = "250ms"


def reason_to_skip() -> str:
    """Empty if Prometheus is installed."""
    return "" if shutil.which("prometheus") else "no prometheus: tools/bootstrap --prometheus"


class Prometheus:
    """Scrapes `targets` as the job peercached four times a second, with our rules. Their alerts
    wait for `patience` instead of minutes. A context manager."""

    def __init__(self, targets: Sequence[str], patience: str = "500ms") -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="prometheus-")
        folder = Path(self._folder.name)
        self._address = f"127.0.0.1:{free_port('127.0.0.1')}"
        rules = re.sub(r"^(\s+for:) \w+$", rf"\1 {patience}", RULES.read_text(), flags=re.MULTILINE)
        (folder / "rules.yml").write_text(rules)
        settings = {
            "global": {"scrape_interval": INTERVAL, "evaluation_interval": INTERVAL},
            "rule_files": ["rules.yml"],
            "scrape_configs": [
                {
                    "job_name": "peercached",
                    "scrape_timeout": INTERVAL,
                    "static_configs": [{"targets": list(targets)}],
                }
            ],
        }
        (folder / "prometheus.yml").write_text(json.dumps(settings))  # JSON is YAML
        self._log = (folder / "log").open("w")
        self._process = subprocess.Popen(
            [
                "prometheus",
                f"--config.file={folder}/prometheus.yml",
                f"--storage.tsdb.path={folder}/data",
                f"--web.listen-address={self._address}",
            ],
            stdout=self._log,
            stderr=self._log,
        )

    def __enter__(self) -> "Prometheus":
        eventually(self._ready, 30, "Prometheus to be ready")
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
        self._log.close()
        self._folder.cleanup()

    def query(self, expression: str) -> list[dict[str, Any]]:
        """The current samples. AssertionError if Prometheus rejects the query, with the reason."""
        url = f"http://{self._address}/api/v1/query?{urlencode({'query': expression})}"
        try:
            with urlopen(url, timeout=seconds(10)) as answer:
                found: dict[str, Any] = json.load(answer)
        except URLError as error:
            read = getattr(error, "read", bytes)
            raise AssertionError(f"{expression}: {error} {read()!r}") from error
        result: list[dict[str, Any]] = found["data"]["result"]
        return result

    def value(self, expression: str) -> float | None:
        """The value of the only sample, or None without a sample."""
        found = self.query(expression)
        assert len(found) <= 1, found
        return float(found[0]["value"][1]) if found else None

    def firing(self) -> set[tuple[str, str]]:
        """(alert, instance) of the alerts that fire now."""
        return self._alerts('ALERTS{alertstate="firing"}')

    def fired(self) -> set[tuple[str, str]]:
        """The alerts of the last five minutes, because some end before others begin."""
        return self._alerts('max_over_time(ALERTS{alertstate="firing"}[5m])')

    def why_firing(self) -> str:
        """For a person: the firing alerts, and the counters of refusals."""
        refused = [
            {**sample["metric"], "count": sample["value"][1]}
            for sample in self.query("peercached_refused_total > 0")
        ]
        return f"{self.firing()} fire; refused: {refused}"

    def _alerts(self, expression: str) -> set[tuple[str, str]]:
        return {
            (sample["metric"]["alertname"], sample["metric"].get("instance", ""))
            for sample in self.query(expression)
        }

    def _ready(self) -> bool:
        assert self._process.poll() is None, Path(self._log.name).read_text()
        try:
            with urlopen(f"http://{self._address}/-/ready", timeout=seconds(5)) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False
