"""A group of commands that imports only the command that runs.

Completion and `--help` use the table alone: the models of the daemon's documents take half a second
to import.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

import click
from click.shell_completion import CompletionItem

from peercached.cli.output_errors import OutputErrorsGroup


class LazyGroup(OutputErrorsGroup):
    """`table`: the commands in order, each with the first sentence of its help. The command
    `one-name` is `one_name` in the module of this package that `modules` names, by default the one
    with its own name."""

    def __init__(
        self,
        *arguments: Any,
        table: Mapping[str, str],
        modules: Mapping[str, str],
        **options: Any,
    ) -> None:
        super().__init__(*arguments, **options)
        self.table = table
        self.modules = modules

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.table)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        return self.load(cmd_name) if cmd_name in self.table else None

    def load(self, name: str) -> click.Command:
        if name not in self.commands:
            attribute = name.replace("-", "_")
            module = import_module(f"peercached.cli.{self.modules.get(name, attribute)}")
            self.commands[name] = getattr(module, attribute)
        return self.commands[name]

    def load_all(self) -> dict[str, click.Command]:
        """All commands by name."""
        return {name: self.load(name) for name in self.table}

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Whole sentences, where click would cut them to one line each."""
        with formatter.section("Commands"):
            formatter.write_dl(list(self.table.items()))

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        commands = [
            CompletionItem(name, help=about)
            for name, about in self.table.items()
            if name.startswith(incomplete)
        ]
        # Options come from click.Command: click.Group would load each command.
        return commands + click.Command.shell_complete(self, ctx, incomplete)
