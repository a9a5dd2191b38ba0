"""peercachectl's exit codes, and the conversion of errors to them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import click

OK = 0
ABSENT = 1
USAGE = 2
UNREACHABLE = 3
FAILED = 4
NO_PYVERBS = 5

EXPLAINED = (
    "Exit codes: 0 done, 1 absent (a miss), 2 wrong usage, 3 a daemon was not reached, "
    "4 failed in another way."
)

_NOT_ASKED = {"no_daemon", "deadline", "suspect"}


def of_pages(outcomes: Iterable[str]) -> int:
    """The exit code for these outcomes, which are names of PageStatus."""
    bad = set(outcomes) - {"ok"}
    if bad - {"absent"} - _NOT_ASKED:
        return FAILED
    return UNREACHABLE if bad & _NOT_ASKED else ABSENT if bad else OK


class Failure(click.ClickException):
    """One message on standard error, and an exit code."""

    def __init__(
        self, message: str, exit_code: int = FAILED, program: str = "peercachectl"
    ) -> None:
        super().__init__(message)
        self.program = program
        self.exit_code = exit_code  # type: ignore[misc]

    def show(self, file: object = None) -> None:
        click.echo(f"{self.program}: {self.message}", err=True)


@contextmanager
def explained() -> Iterator[None]:
    """Converts known exceptions of a command to a Failure."""
    from peercached.admin.client import Refused, Unreachable
    from peercached.config import ConfigError

    try:
        yield
    except Unreachable as error:
        raise Failure(str(error), UNREACHABLE) from error
    except Refused as error:
        raise Failure(str(error)) from error
    except ConfigError as error:
        raise Failure(f"cannot tell where the daemon is:\n  {error}", USAGE) from error
