"""Scales the times in a daemon's options to this machine."""

import math
from collections.abc import Mapping
from typing import Any

from harness.clock import seconds
from peercached.config.keys import KEYS

Options = Mapping[str, str | int | float]


def paced(options: Options) -> dict[str, Any]:
    """Scales numbers of seconds and milliseconds from the reference machine (harness.clock), up to
    the key's maximum. Names may be as in the schema or as on the command line."""

    def at_our_pace(name: str, value: str | int | float) -> str | int | float:
        name = name.replace("-", "_")
        if isinstance(value, str) or not name.endswith(("_s", "_ms")):
            return value
        return type(value)(min(seconds(value), KEYS[name].maximum or math.inf))

    return {name: at_our_pace(name, value) for name, value in options.items()}
