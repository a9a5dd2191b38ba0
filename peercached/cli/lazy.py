"""A group of commands that imports only the command that runs.

Completion and `--help` use the table alone: the models of the daemon's documents take half a second
to import.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import click
from click.shell_completion import CompletionItem


@dataclass(frozen=True)
class Lazy:
    """`module` and `attribute` of a command, and the first sentence of its help."""

    module: str
    attribute: str
    about: str


class LazyGroup(click.Group):
    """Commands are listed in the order of the table."""

    def __init__(self, *arguments: Any, table: Mapping[str, Lazy], **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.table = table

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.table)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        return self.load(cmd_name) if cmd_name in self.table else None

    def load(self, name: str) -> click.Command:
        if name not in self.commands:
            where = self.table[name]
            self.commands[name] = getattr(import_module(where.module), where.attribute)
        return self.commands[name]

    def load_all(self) -> dict[str, click.Command]:
        """All commands by name."""
        return {name: self.load(name) for name in self.table}

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Whole sentences, where click would cut them to one line each."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, where.about) for name, where in self.table.items()])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        commands = [
            CompletionItem(name, help=where.about)
            for name, where in self.table.items()
            if name.startswith(incomplete)
        ]
        # Options come from click.Command: click.Group would load each command.
        return commands + click.Command.shell_complete(self, ctx, incomplete)
