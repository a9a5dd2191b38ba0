"""Checks of the container file that need no build."""

from __future__ import annotations

import re
import sys
from pathlib import Path

from packaging.requirements import Requirement

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

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
    # The certificates are for the object store.
    for library in ("libsodium23", "libssl3", "liburing2", "ca-certificates"):
        assert library in stages()[1].split()


def test_a_checkout_is_built_without_its_environments() -> None:
    ignored = (ROOT / ".dockerignore").read_text().split()
    assert {".git", ".venv*", "build", "dist"} <= set(ignored)


def test_the_user_and_the_ports_are_the_manifests() -> None:
    manifest = (ROOT / "deploy" / "kubernetes" / "peercached.yaml").read_text()
    assert "supplementalGroups: [64201]" in manifest
    assert "groupadd --system --gid 64201 peercached-workers" in TEXT
    (uid,) = set(re.findall(r"USER (\d+)", TEXT))
    assert f"runAsUser: {uid}" in manifest
    (exposed,) = re.findall(r"^EXPOSE (.+)$", TEXT, flags=re.MULTILINE)
    assert exposed.split() == re.findall(r"containerPort: (\d+)", manifest)


def locked(name: str) -> dict[str, str]:
    """The versions in a lock. Every package has hashes."""
    text = (ROOT / "deploy" / "container" / name).read_text()
    packages = re.split(r"^(?=[a-z])", text, flags=re.MULTILINE)[1:]
    assert all("--hash=sha256:" in package for package in packages)
    return dict(re.findall(r"^([a-z0-9-]+)==(\S+)", text, flags=re.MULTILINE))


def test_packages_in_the_image_are_locked_by_hash() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    extras = project["project"]["optional-dependencies"]
    for name, wanted in (
        ("run.lock", [*project["project"]["dependencies"], *extras["otel"], *extras["cold"]]),
        ("build.lock", project["build-system"]["requires"]),
    ):
        versions = locked(name)
        for requirement in map(Requirement, wanted):
            if requirement.marker is None:
                assert requirement.specifier.contains(versions[requirement.name]), requirement
    installs = re.findall(r"pip (?:install|wheel) .*", TEXT)
    assert len(installs) == 4
    assert all("--require-hashes" in one or "--no-deps" in one for one in installs)


def test_base_image_can_be_pinned() -> None:
    assert [stage.split()[0] for stage in stages()] == ["${BASE}", "${BASE}"]
