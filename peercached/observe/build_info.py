"""The sources of this installation, and the packages that it uses."""

from __future__ import annotations

import contextlib
from importlib import metadata

from peercached import __version__

_PACKAGES = (
    "grpcio", "protobuf", "uvloop", "pydantic", "cryptography", "prometheus-client",
    "click", "rich",
)  # fmt: skip


def build_info() -> dict[str, str]:
    """Version, and of the data plane: its version, commit, compiler and sanitizer."""
    try:
        from peercached import _native
    except ImportError as error:
        return {"version": __version__, "native": f"cannot be loaded: {error}"}
    return {
        "version": __version__,
        **{f"native_{name}": value for name, value in _native.build_info().items()},
    }


def installed_packages() -> dict[str, str]:
    """The versions of those that are installed."""
    found = {}
    for name in _PACKAGES:
        with contextlib.suppress(metadata.PackageNotFoundError):
            found[name] = metadata.version(name)
    return found
