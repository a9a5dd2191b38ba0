"""The parts that all peercachectl commands share: target, `--json`, exit codes."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any

import click

from peercached.cli.connection import Target, target_from, target_options
from peercached.cli.exits import EXPLAINED, USAGE, Failure, explained


def ctl_command(
    name: str, epilog: str = EXPLAINED
) -> Callable[[Callable[..., None]], click.Command]:
    """Decorator for a command `f(target, as_json, ...)`. `epilog`: its exit codes."""

    def make(function: Callable[..., None]) -> click.Command:
        @functools.wraps(function)
        def callback(as_json: bool, **options: Any) -> None:
            before = click.get_current_context().find_object(Target) or Target()
            target = target_from(options).over(before)
            with explained():
                function(target=target, as_json=as_json, **options)

        command = click.option("--json", "as_json", is_flag=True, help="JSON, for scripts.")(
            target_options(callback)
        )
        return click.command(name, epilog=epilog)(command)

    return make


def namespace_option(function: Callable[..., Any]) -> Callable[..., Any]:
    """The option `--namespace NAME`."""
    return click.option(
        "-n",
        "--namespace",
        default="default",
        show_default=True,
        metavar="NAME",
        help="The namespace of the keys.",
    )(function)


def confirm(question: str, unattended: str) -> None:
    """Aborts unless the operator says yes. Failure with `unattended` if nobody can answer."""
    if not sys.stdin.isatty():
        raise Failure(unattended, USAGE)
    click.confirm(question, abort=True)


def key_bytes(text: str) -> bytes:
    """The key's bytes exactly as the shell passed them, UTF-8 or not."""
    return text.encode("utf-8", "surrogateescape")


def shown(key: str) -> str:
    """A printable form of the key: bytes that are not UTF-8 become escapes."""
    return key_bytes(key).decode("utf-8", "backslashreplace")
