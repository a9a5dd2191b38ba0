"""Images and containers in a storage of their own, with a base image made here.

This uses no image registry. It makes the base image from Debian's packages, under the name in the
container file's FROM.
"""

import os
import shutil
import ssl
import subprocess
from collections.abc import Sequence
from pathlib import Path

# The name in `FROM`. The image omits documentation, as Debian's slim image does.
BASE_IMAGE = "docker.io/library/debian:bookworm-slim"
_BASE = Path.home() / ".cache" / "peercached" / "bookworm-slim.tar"
_LEFT_OUT = ("man", "doc", "info", "locale", "groff", "lintian", "linda")


def reason_to_skip() -> str:
    """Empty if this machine can build and run images, as far as known without trying."""
    if os.geteuid() != 0:
        return "needs root"
    missing = [tool for tool in ("podman", "runc", "mmdebstrap") if not shutil.which(tool)]
    if missing:
        return f"{', '.join(missing)} is not installed: tools/bootstrap --image"
    return ""


class Podman:
    """podman with its images under `folder`. A failure is an AssertionError with the output."""

    def __init__(self, folder: Path) -> None:
        self._site = folder / "site"
        self._command = [
            "podman", "--root", str(folder / "images"), "--runroot", str(folder / "run"),
            "--storage-driver", "vfs", "--runtime", "runc", "--cgroup-manager", "cgroupfs",
            "--events-backend", "file",
        ]  # fmt: skip
        # podman's default limits need CAP_SYS_RESOURCE.
        self.limits = ("--ulimit=nofile=4096:4096", "--ulimit=nproc=4096:4096")

    def __call__(self, *words: str | Path, timeout_s: float = 120.0) -> str:
        """Runs podman and returns its output."""
        done = self.attempt(*words, timeout_s=timeout_s)
        assert done.returncode == 0, f"podman {words}\n{done.stdout[-8000:]}\n{done.stderr[-8000:]}"
        return done.stdout

    def attempt(
        self, *words: str | Path, timeout_s: float = 120.0
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*self._command, *map(str, words)],
            capture_output=True, text=True, timeout=timeout_s, check=False,
        )  # fmt: skip

    def make_base_image(self) -> None:
        if not _BASE.exists():
            _BASE.parent.mkdir(parents=True, exist_ok=True)
            made = _BASE.with_suffix(".new.tar")
            without = (f"--dpkgopt=path-exclude=/usr/share/{each}/*" for each in _LEFT_OUT)
            subprocess.run(
                ["mmdebstrap", "-q", "--variant=minbase", *without, "bookworm", made], check=True
            )
            made.rename(_BASE)
        self("import", _BASE, BASE_IMAGE)

    def build(self, file: Path, context: Path, name: str, timeout_s: float) -> str:
        """Builds an unchanged container file and returns the output. Gives pip this machine's CA
        certificates, because it may need them to reach the package index."""
        self._site.mkdir(exist_ok=True)
        if (known := ssl.get_default_verify_paths().cafile) is not None:
            shutil.copy(known, self._site / "ca.crt")
            (self._site / "pip.conf").write_text("[global]\ncert = /run/site/ca.crt\n")
        else:
            (self._site / "pip.conf").write_text("")
        return self(
            "build", "--pull-never", "--layers=false", "--network", "host", *self.limits,
            "-v", f"{self._site}:/run/site:ro", "-v", f"{self._site}/pip.conf:/etc/pip.conf:ro",
            "-f", file, "-t", name, context, timeout_s=timeout_s,
        )  # fmt: skip

    def remove_all(self) -> None:
        self.attempt("rm", "-a", "-f", "-t", "5")
        self.attempt("rmi", "-a", "-f")


def hardening(context: dict[str, object]) -> Sequence[str]:
    """podman's options for the parts of a Kubernetes `securityContext` that we use."""
    capabilities = context["capabilities"]
    assert isinstance(capabilities, dict)
    options = [f"--cap-drop={each}" for each in capabilities["drop"]]
    options += [f"--cap-add={each}" for each in capabilities.get("add", ())]
    if context["allowPrivilegeEscalation"] is False:
        options.append("--security-opt=no-new-privileges")
    if context.get("readOnlyRootFilesystem"):
        options += ["--read-only", "--read-only-tmpfs=false"]
    return options
