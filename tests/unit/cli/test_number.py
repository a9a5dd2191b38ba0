"""Options that are numbers."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from peercached.cli import exits
from peercached.cli.ctl import main


@pytest.mark.parametrize("number", ["nan", "inf", "-1", "much"])
@pytest.mark.parametrize(
    "command",
    [("--timeout", "{}", "status"), ("wait", "--timeout", "{}"), ("events", "--since", "{}")],
)
def test_only_finite_numbers_in_the_range_are_accepted(
    command: tuple[str, ...], number: str
) -> None:
    result = CliRunner().invoke(main, [part.format(number) for part in command])
    assert result.exit_code == exits.USAGE
    assert number in result.output
