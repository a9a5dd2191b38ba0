"""Settings that must be equal on all nodes of a cluster.

All nodes compute from them which nodes own a record. With other values a node would ask the wrong
owners, and miss pages without any error. So nodes compare them before one joins the other.
"""

from __future__ import annotations

from collections.abc import Iterable

from peercached.config.keys import KEYS
from peercached.config.schema import Config

VALUE_SHOWN_MAX = 32


def shared_settings(config: Config) -> tuple[str, ...]:
    """As `key=value`. Both sides format values alike."""
    return tuple(f"{key.name}={getattr(config, key.name)}" for key in KEYS.values() if key.shared)


def difference(own_id: str, own: Iterable[str], other_id: str, other: Iterable[str]) -> str:
    """A sentence with both values of each setting that differs; empty if all are equal. A setting
    that one side does not name is not compared: another release may not have it."""
    theirs = _by_key(other)
    differs = [
        f"{key} is {_shown(theirs[key])} on {other_id} and {value} on {own_id}"
        for key, value in _by_key(own).items()
        if key in theirs and theirs[key] != value
    ]
    if not differs:
        return ""
    return (
        f"{', '.join(differs)}: give all nodes of the cluster the same value, and restart the "
        "refused node (to change the value on all nodes, stop all daemons first)"
    )


def _by_key(settings: Iterable[str]) -> dict[str, str]:
    parts = (setting.partition("=") for setting in settings)
    return {key: value for key, _, value in parts}


def _shown(value: str) -> str:
    return value[:VALUE_SHOWN_MAX] if value.isprintable() else repr(value[:VALUE_SHOWN_MAX])
