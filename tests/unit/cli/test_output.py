"""Tables for terminals of any width."""

import io

import pytest
from rich.console import Console

from peercached.cli import output

COLUMNS = ("node", "address", ">ring share", "state")
ROWS = [("a", "10.123.123.101:31998", "50.0 %", "this node"), ("b", "10.123.123.102:31998", "", "")]


def printed(monkeypatch: pytest.MonkeyPatch, width: int) -> list[str]:
    file = io.StringIO()
    console = Console(
        width=width,
        file=file,
        highlight=False,
        markup=False,
        soft_wrap=True,
        force_terminal=True,
        color_system=None,
    )
    monkeypatch.setattr(output, "console", lambda: console)
    output.print_table(COLUMNS, ROWS)
    return [line.rstrip() for line in file.getvalue().splitlines()]


def test_a_table_that_fits_has_a_line_per_row(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = printed(monkeypatch, 80)
    assert lines[2].split() == ["a", "10.123.123.101:31998", "50.0", "%", "this", "node"]
    assert len(lines) == 4


def test_on_a_narrow_terminal_no_address_is_broken(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = printed(monkeypatch, 36)
    assert lines[:2] == ["a", "  address 10.123.123.101:31998, ring"]
    assert lines[-2:] == ["b", "  address 10.123.123.102:31998"]
    assert max(map(len, lines)) <= 36
