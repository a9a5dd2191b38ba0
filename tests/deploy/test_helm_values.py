"""Values of the chart that cannot work are refused before anything is installed."""

from __future__ import annotations

import json
import re
import runpy
from typing import Any

import pytest
import yaml
from harness.helm import CHART, Helm

SCHEMA = json.loads((CHART / "values.schema.json").read_text())
KEYS: dict[str, Any] = SCHEMA["definitions"]["config"]["properties"]


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"image": {"repository": ""}}, "image.repository is empty: name the image"),
        ({"heads": []}, "heads is empty: name two or three nodes as host:31998"),
        ({"heads": ["10.0.0.1"]}, 'heads: "10.0.0.1" is no address with a port'),
        ({"heads": ["a:1"], "etcdEndpoints": ["b:2"]}, "heads and etcdEndpoints are both set"),
        ({"heads": ["a:1"], "headlessService": True}, "headlessService is true, and heads"),
        ({"hostNetwork": False}, "heads need fixed addresses: set headlessService"),
        ({"networkPolicy": {"enabled": True}}, "use the hosts' firewall"),
        ({"gpuNodes": {"enabled": False}}, "both false: enable one"),
        (
            {"memoryNodes": {"enabled": True, "nodeSelector": {"peercached": "yes"}}},
            "a node can run one daemon only",
        ),
        ({"memoryNodes": {"enabled": True}, "config": {"gpu": "cuda"}}, "they copy to no GPU"),
        ({"gpuNodes": {"pool": {"size": "64G"}}}, 'gpuNodes.pool.size: "64G" is no size'),
        ({"gpuNodes": {"pool": {"size": "0GiB"}}}, 'gpuNodes.pool.size: "0GiB" is no size'),
        ({"gpuNodes": {"pool": {"backing": "shm"}}}, '"memory", "hugepages", "file"'),
        ({"config": {"pol_size": "1GiB"}}, "config: Additional property pol_size is not allowed"),
        ({"config": {"verify": "all"}}, 'config.verify must be one of the following: "checksum"'),
        (
            {"config": {"metrics_port": 0}},
            "config.metrics_port: Must be greater than or equal to 1",
        ),
        (
            {"memoryNodes": {"config": {"max_masters": "1"}}},
            "memoryNodes.config.max_masters: Invalid type",
        ),
        ({"gpuNodes": {"node_selector": {}}}, "Additional property node_selector is not allowed"),
        ({"updateStrategy": {"maxUnavailable": 0}}, "maxUnavailable: Must be greater"),
        ({"clusterSecret": {"name": ""}}, "clusterSecret.name: String length must be"),
    ],
)
def test_a_wrong_value_is_named_with_what_to_do(
    helm: Helm, values: dict[str, Any], said: str
) -> None:
    assert said in helm.refusal(values)


def test_no_value_may_be_removed_with_null(helm: Helm) -> None:
    """Templates would fail with "nil pointer", or make a manifest without it."""
    assert "image is required" in helm.refusal({"image": None})
    assert "gpuNodes.cpu: limit is required" in helm.refusal({"gpuNodes": {"cpu": {"limit": None}}})

    def check(schema: dict[str, Any], values: dict[str, Any]) -> None:
        for name, value in values.items():
            assert name in schema["required"]
            rule = schema["properties"][name]
            if "$ref" in rule:
                rule = SCHEMA["definitions"][rule["$ref"].rpartition("/")[2]]
            if "properties" in rule and rule["properties"] is not KEYS:
                check(rule, value)

    check(SCHEMA, yaml.safe_load((CHART / "values.yaml").read_text()))


def test_committed_schema_matches_the_output_of_make_schema() -> None:
    made = runpy.run_path(str(CHART.parent / "make_schema.py"))["text"]()
    assert (CHART / "values.schema.json").read_text() == made, "run: deploy/helm/make_schema.py"


def test_each_key_that_the_chart_sets_is_refused_with_what_to_set_instead(helm: Helm) -> None:
    for name in (name for name, rule in KEYS.items() if rule is True):
        said = helm.refusal({"gpuNodes": {"config": {name: "x"}}})
        assert re.search(rf"gpuNodes.config.{name}: the chart sets this key; remove it: \w", said)
