"""A group of commands that says in one sentence that its output could not be written."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TextIO

import click

from peercached.cli.exits import FAILED, Failure


class OutputErrorsGroup(click.Group):
    """`name`: the program, in that sentence. `failed`: its exit code."""

    def __init__(self, *arguments: Any, failed: int = FAILED, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._failed = failed

    def main(self, *arguments: Any, **options: Any) -> Any:
        """Ends the process with the exit code of the error, also if nobody can read its text."""
        for name in ("stdin", "stdout", "stderr"):
            if getattr(sys, name) is None:  # the caller has closed it
                setattr(sys, name, Path(os.devnull).open("r+"))  # noqa: SIM115
        try:
            code = super().main(*arguments, **options | {"standalone_mode": False})
        except click.ClickException as error:
            try:
                error.show()
            except OSError:  # the exit code says it all the same
                _to_nobody(sys.stderr)
            code = error.exit_code
        except click.Abort:
            code = self._failed
        sys.exit(code if isinstance(code, int) else 0)

    def make_context(self, *arguments: Any, **options: Any) -> click.Context:
        with self._output_errors_told():  # --help and --version print here
            return super().make_context(*arguments, **options)

    def invoke(self, ctx: click.Context) -> Any:
        with self._output_errors_told():
            return super().invoke(ctx)

    @contextlib.contextmanager
    def _output_errors_told(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            # Nobody reads the output, or its disk is full.
            _to_nobody(sys.stdout)
            if isinstance(error, BrokenPipeError):  # such as `| head`
                raise click.exceptions.Exit(self._failed) from error
            text = f"{error.filename or 'standard output'}: {error.strerror or error}"
            raise Failure(text, self._failed, self.name or "") from error


def _to_nobody(stream: TextIO) -> None:
    """Python writes what is left at the exit. An error then would replace the exit code."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
