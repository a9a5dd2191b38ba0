"""The configuration's keys as click options, generated from the schema and checked by it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import click

from peercached.cli.file_option import file_option
from peercached.config.keys import KEYS, Key

_Command = TypeVar("_Command", bound=Callable[..., Any])


def config_options(command: _Command) -> _Command:
    """`--config FILE` and one option per key. Options have no defaults; the schema has them."""
    for key in reversed(KEYS.values()):
        command = _option(key)(command)
    return file_option(command)


def _option(key: Key) -> Callable[[_Command], _Command]:
    about = f"{key.what.replace('`', '')} Default: {key.default.replace('`', '')}."
    if key.kind == "boolean":
        declaration = f"{key.option}/--no-{key.option.removeprefix('--')}"
        return click.option(declaration, key.name, default=None, help=about)
    special = {"choice": "|".join(key.choices), "integer": "N"}
    metavar = special.get(key.kind, key.kind.upper())
    is_list = key.kind == "list"
    return click.option(key.option, key.name, multiple=is_list, metavar=metavar, help=about)


def given(values: Mapping[str, Any]) -> dict[str, Any]:
    """The keys given on the command line. Lists are joined, so that both list forms may be
    mixed."""
    options = {}
    for name, value in values.items():
        if value is None or value == ():
            continue
        options[name] = ",".join(value) if isinstance(value, tuple) else value
    return options
