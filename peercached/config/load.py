"""Merges the four sources into one configuration, and records the source of each value.

Later sources win: defaults, file, environment, command line. All problems are collected and raised
together, so that an operator can repair a file in one pass.
"""

from __future__ import annotations

import difflib
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from peercached.config.automatic import fill
from peercached.config.checks import impossible
from peercached.config.from_peercache import NOT_NEEDED, SAME
from peercached.config.keys import KEYS
from peercached.config.memory import memory_limit_bytes
from peercached.config.problem import ConfigError, Problem
from peercached.config.schema import Config
from peercached.environment import ENVIRONMENT_PREFIX, FILE_VARIABLE

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

# A variable has only text. A file writes them without quotes.
_BOOLEANS = {"true": True, "false": False}

# Kubernetes sets such variables for each service near a container, named after the service. Those
# of a service called "peercached" are no configuration.
_SERVICE_LINK = re.compile(
    r"PEERCACHED_(\w+_)?(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)"
)
_SERVICE_URL = re.compile(r"(tcp|udp|sctp)://")


@dataclass(frozen=True)
class Effective:
    """A configuration, and the source of each key's value."""

    config: Config
    sources: dict[str, str]


@dataclass(frozen=True)
class _Given:
    value: Any
    source: str


def load(
    file: Path | None = None,
    environment: Mapping[str, str] | None = None,
    options: Mapping[str, Any] | None = None,
) -> Effective:
    """The effective configuration. ConfigError lists all problems.

    `environment`: the process's whole environment; `options`: the keys given on the command line.
    """
    environment = environment or {}
    given, problems = gather(file, environment, options or {})
    try:
        config = Config.model_validate({name: item.value for name, item in given.items()})
    except ValidationError as error:
        problems.extend(_explain(error, given))
        raise ConfigError(problems) from None
    found, how, unfound = fill(config, environment)
    config = config.model_copy(update=found)
    sources = {name: given[name].source if name in given else "default" for name in KEYS}
    sources.update({name: how[name] for name in found})
    problems.extend(unfound)
    problems.extend(
        Problem(each.key, each.what, each.remedy, each.value, sources[each.key])
        for each in impossible(config, memory_limit_bytes(huge_pages=config.huge_pages))
    )
    if problems:
        raise ConfigError(problems)
    return Effective(config, sources)


def gather(
    file: Path | None, environment: Mapping[str, str], options: Mapping[str, Any]
) -> tuple[dict[str, _Given], list[Problem]]:
    """Returns the value of each key that any source sets, and a problem for each unknown key and
    each TOML table. The command line overrides the environment, and that overrides the file. The
    values are not checked yet."""
    given: dict[str, _Given] = {}
    problems: list[Problem] = []
    if file is not None:
        for name, item in _from_file(file).items():
            if isinstance(item.value, dict):
                problems.append(
                    Problem(
                        f"[{name}]",
                        "tables mean nothing here",
                        "write all keys at the top level, without tables",
                        source=item.source,
                    )
                )
            elif name in KEYS:
                given[name] = item
            else:
                problems.append(_unknown(name, item, list(KEYS)))
    variables = {key.variable: key for key in KEYS.values()}
    for variable, text in sorted(environment.items()):
        if not variable.startswith(ENVIRONMENT_PREFIX) or variable == FILE_VARIABLE:
            continue
        item = _Given(text, f"environment {variable}")
        if key := variables.get(variable):
            if key.kind == "boolean":
                item = replace(item, value=_BOOLEANS.get(text, text))
            given[key.name] = item
        elif not _SERVICE_LINK.fullmatch(variable) and not _SERVICE_URL.match(text):
            problems.append(_unknown(variable, item, list(variables)))
    for name, value in options.items():
        given[name] = _Given(value, f"option {KEYS[name].option}")
    return given, problems


def _from_file(file: Path) -> dict[str, _Given]:
    try:
        text = file.read_bytes().decode()
        document = tomllib.loads(text)
    except OSError as error:
        reason, remedy = f"cannot be read ({error.strerror})", "name a file that this user may read"
    except UnicodeDecodeError as error:
        reason, remedy = f"is not UTF-8 (byte {error.start})", "save it as UTF-8"
    except tomllib.TOMLDecodeError as error:
        reason, remedy = (
            f"is not TOML: {error}",
            "write each key once, as: key = value, texts in quotes",
        )
    else:
        lines = _lines(text)
        return {
            name: _Given(value, f"file {file}:{lines[name]}" if name in lines else f"file {file}")
            for name, value in document.items()
        }
    raise ConfigError([Problem("--config", reason, remedy, value=str(file))])


def _lines(text: str) -> dict[str, int]:
    """Line numbers of keys, for messages only. The parser does not report them."""
    numbers: dict[str, int] = {}
    for number, line in enumerate(text.splitlines(), 1):
        found = re.match(r"""\s*\[{0,2}\s*["']?([A-Za-z0-9_-]+)["']?\s*[=.\]]""", line)
        if found:
            numbers.setdefault(found[1], number)
    return numbers


def _unknown(name: str, item: _Given, known: list[str]) -> Problem:
    bare = name.removeprefix(ENVIRONMENT_PREFIX).lower()
    if bare in SAME:
        remedy = f"it is called {SAME[bare]} here"
    elif bare in NOT_NEEDED:
        remedy = f"{NOT_NEEDED[bare]}; remove it"
    else:
        # Dashes for underscores is the most common slip, so compare with underscores.
        asked = name.replace("-", "_")
        near = difflib.get_close_matches(asked, known, n=1, cutoff=0.6)
        hint = f"did you mean {near[0]}? " if near else ""
        remedy = f"{hint}`peercached config` lists the keys; correct or remove it"
    return Problem(
        name, "there is no such key", remedy, value=_show(item.value), source=item.source
    )


def _explain(error: ValidationError, given: Mapping[str, _Given]) -> list[Problem]:
    problems = []
    for detail in error.errors():
        name = str(detail["loc"][0])
        key, item = KEYS[name], given[name]
        if detail["type"] == "value_error":
            what, _, remedy = str(detail["ctx"]["error"]).partition("; ")
        else:
            what = _WHAT.get(detail["type"].split("_")[0], "is not valid")
            remedy = f"give {key.accepts}"
        problems.append(Problem(name, what, remedy, value=_show(item.value), source=item.source))
    return problems


# By the first word of pydantic's error.
_WHAT = {
    "greater": "is too small",
    "less": "is too large",
    "literal": "is not one of the choices",
    "int": "is not a whole number",
    "float": "is not a number",
    "bool": "is neither true nor false",
    "string": "is not text, or too short",
    "list": "is not a list",
}

_SHOWN_CHARACTERS_MAX = 200


def _show(value: Any) -> str:
    text = repr(value)
    if len(text) > _SHOWN_CHARACTERS_MAX:
        text = text[:_SHOWN_CHARACTERS_MAX] + "…"
    return text
