"""Writes what values.schema.json says of the daemon's keys: `python deploy/helm/make_schema.py`.

The source is peercached/config/schema.py. A key that is `true` in values.schema.json is set by the
chart: a template refuses it and says what to set instead.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from peercached.config.keys import KEYS, Key

SCHEMA = Path(__file__).parent / "peercached" / "values.schema.json"

_TYPES: dict[str, Any] = {
    "size": {"type": ["integer", "string"]},
    "list": {"type": ["array", "string"], "items": {"type": "string"}},
    "boolean": {"type": "boolean"},
    "text": {"type": "string"},
}
# A pod must name its ports, so none may be "any free port".
_AT_LEAST_1 = {"data_port", "metrics_port"}
_HEXADECIMAL = {"rdma_pkey"}


def _rule(key: Key) -> dict[str, Any]:
    if key.kind == "choice":
        return {"enum": list(key.choices)}
    if key.name in _HEXADECIMAL or key.unit == "bytes/s":
        return _TYPES["size"]
    if key.kind in _TYPES:
        return _TYPES[key.kind]
    bounds = {"minimum": 1 if key.name in _AT_LEAST_1 else key.minimum, "maximum": key.maximum}
    plain = {
        what: int(at) if at == int(at) else at for what, at in bounds.items() if at is not None
    }
    return {"type": key.kind, **plain}


def text() -> str:
    """The whole file."""
    schema = json.loads(SCHEMA.read_text())
    before = schema["definitions"]["config"]["properties"]
    schema["definitions"]["config"]["properties"] = {
        name: True if before.get(name) is True else _rule(key) for name, key in KEYS.items()
    }
    return json.dumps(schema, indent=2) + "\n"


if __name__ == "__main__":
    SCHEMA.write_text(text())
