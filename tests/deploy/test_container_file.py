"""The container file, as far as that goes without building it."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "deploy" / "container" / "Containerfile").read_text()


def stages() -> list[str]:
    return TEXT.split("\nFROM ")[1:]


def test_what_builds_is_not_in_what_runs() -> None:
    assert len(stages()) == 2
    assert "g++" in stages()[0]
    assert "g++" not in stages()[1]
    assert "USER 64200:64200" in stages()[1]


def test_bootstrap_asks_for_the_headers_that_it_installs() -> None:
    bootstrap = (ROOT / "tools" / "bootstrap").read_text()
    for package in ("libxxhash-dev", "libsodium-dev", "libibverbs-dev"):
        assert package in stages()[0]
        assert package in bootstrap


def test_the_user_and_the_ports_are_the_manifests() -> None:
    manifest = (ROOT / "deploy" / "kubernetes" / "peercached.yaml").read_text()
    (uid,) = set(re.findall(r"USER (\d+)", TEXT))
    assert f"runAsUser: {uid}" in manifest
    (exposed,) = re.findall(r"^EXPOSE (.+)$", TEXT, flags=re.MULTILINE)
    assert exposed.split() == re.findall(r"containerPort: (\d+)", manifest)
