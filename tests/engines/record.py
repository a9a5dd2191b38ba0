"""Records of the releases that our adapters were tested with.

ENGINE.json has what the adapter uses of the engine's source. answers.toml has reasons: why an
adapter does not have a method of the engine's class.
"""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any, NamedTuple

import tomllib

from engines import touched
from engines.signatures import Gone, Source

HERE = Path(__file__).parent
ENGINES = ("lmcache", "sglang", "vllm")


class Record(NamedTuple):
    version: str
    names: dict[str, Any]  # of Source.describe(), by name with dots

    def has(self, name: str) -> bool:
        """Whether it is recorded, or is a member of a class that is."""
        owner, _, member = name.rpartition(".")
        return name in self.names or member in self.members(owner)

    def members(self, name: str) -> dict[str, str]:
        found = self.names.get(name)
        return found if isinstance(found, dict) else {}


def read(engine: str) -> Record:
    return Record(**json.loads((HERE / f"{engine}.json").read_text()))


def write(engine: str, record: Record) -> None:
    text = json.dumps(record._asdict(), indent=1, sort_keys=True)
    (HERE / f"{engine}.json").write_text(text + "\n")


def of_source(engine: str, version: str, source: Source) -> Record:
    """Reads the names that the adapter uses. It leaves out those that the release lacks."""
    found: dict[str, Any] = {}
    for name in touched.names(engine):
        if isinstance(found.get(name.rpartition(".")[0]), dict):
            continue  # a member of that class
        with contextlib.suppress(Gone):
            found[name] = source.describe(name)
    return Record(version, found)


def answers(engine: str, base: str) -> dict[str, str]:
    """By method of the engine's class: why ours does not have it. `base` "later": by name, why the
    adapter does not need it of the recorded release."""
    told = tomllib.loads((HERE / "answers.toml").read_text())
    found: dict[str, str] = told[engine].get(base.rpartition(".")[2], {})
    return found
