"""Checks of the container file that need no build."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "deploy" / "container" / "Containerfile").read_text()


def stages() -> list[str]:
    return TEXT.split("\nFROM ")[1:]


def test_runtime_stage_has_no_compiler() -> None:
    assert len(stages()) == 2
    assert "g++" in stages()[0]
    assert "g++" not in stages()[1]
    assert "USER 64200:64200" in stages()[1]


def test_build_stage_installs_every_header_bootstrap_checks() -> None:
    bootstrap = (ROOT / "tools" / "bootstrap").read_text()
    asked = set(re.findall(r"^    have_header \S+ (\S+)$", bootstrap, flags=re.MULTILINE))
    assert len(asked) > 3
    assert asked - {"libgtest-dev"} - set(stages()[0].split()) == set()


def test_runtime_stage_installs_the_linked_libraries() -> None:
    for library in ("libsodium23", "libssl3", "liburing2"):
        assert library in stages()[1].split()


def test_a_checkout_is_built_without_its_environments() -> None:
    ignored = (ROOT / ".dockerignore").read_text().split()
    assert {".git", ".venv*", "build", "dist"} <= set(ignored)


def test_the_user_and_the_ports_are_the_manifests() -> None:
    manifest = (ROOT / "deploy" / "kubernetes" / "peercached.yaml").read_text()
    (uid,) = set(re.findall(r"USER (\d+)", TEXT))
    assert f"runAsUser: {uid}" in manifest
    (exposed,) = re.findall(r"^EXPOSE (.+)$", TEXT, flags=re.MULTILINE)
    assert exposed.split() == re.findall(r"containerPort: (\d+)", manifest)
