"""Reads the manifest in deploy/kubernetes for tests."""

from pathlib import Path
from typing import Any

import yaml

MANIFEST = Path(__file__).parents[2] / "deploy" / "kubernetes" / "peercached.yaml"


def resources() -> list[dict[str, Any]]:
    return [each for each in yaml.safe_load_all(MANIFEST.read_text()) if each]


def of_kind(kind: str) -> dict[str, Any]:
    (found,) = (each for each in resources() if each["kind"] == kind)
    return found


def pod() -> dict[str, Any]:
    found = of_kind("DaemonSet")["spec"]["template"]["spec"]
    assert isinstance(found, dict)
    return found


def container() -> dict[str, Any]:
    (found,) = pod()["containers"]
    assert isinstance(found, dict)
    return found
