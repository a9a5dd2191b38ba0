"""Options that are numbers."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from peercached.cli import exits
from peercached.cli.ctl import main


@pytest.mark.parametrize("number", ["nan", "inf", "-1", "much"])
@pytest.mark.parametrize(
    "command", [("--timeout", "{}", "status"), ("wait", "--for", "{}"), ("events", "--since", "{}")]
)
def test_what_is_no_finite_number_in_the_range_is_refused(
    command: tuple[str, ...], number: str
) -> None:
    result = CliRunner().invoke(main, [part.format(number) for part in command])
    assert result.exit_code == exits.USAGE
    assert number in result.output
