"""The option `--config FILE`, for both commands."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from peercached.environment import FILE_VARIABLE

_Command = TypeVar("_Command", bound=Callable[..., Any])


def file_option(command: _Command) -> _Command:
    """The option `--config FILE`, or its environment variable."""
    return click.option(
        "--config",
        "config_file",
        type=click.Path(path_type=Path),
        envvar=FILE_VARIABLE,
        metavar="FILE",
        help="Configuration in TOML; see docs/configuration.md.",
    )(command)
