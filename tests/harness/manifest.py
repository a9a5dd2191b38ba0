"""Reads the manifest in deploy/kubernetes for tests."""

import re
from pathlib import Path
from typing import Any

import yaml

MANIFEST = Path(__file__).parents[2] / "deploy" / "kubernetes" / "peercached.yaml"
ENGINES = MANIFEST.with_name("engines.yaml")


def resources(manifest: Path = MANIFEST) -> list[dict[str, Any]]:
    return [each for each in yaml.safe_load_all(manifest.read_text()) if each]


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


def on_this_machine(configuration: str, folder: Path) -> str:
    """The configuration of a pod, but with its paths in `folder`, and a pool that fits here."""
    secret = folder / "cluster.secret"
    secret.write_bytes(b"0123456789abcdef")
    secret.chmod(0o600)
    text = configuration.replace('"/etc/peercached-secret/cluster.secret"', f'"{secret}"')
    text = re.sub(r'pool_size = "\w+"', 'pool_size = "64MiB"', text)
    return re.sub(r'"(/(run|var/lib)/peercached|/pool)', rf'"{folder}', text)
