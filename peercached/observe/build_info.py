"""What this installation was built from."""

from __future__ import annotations

from peercached import __version__


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
