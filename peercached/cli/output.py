"""Output of both commands: plain tables, and units that are easy to read."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import click
import rich.box
from rich.console import Console
from rich.measure import Measurement
from rich.padding import Padding
from rich.progress import BarColumn, DownloadColumn, Progress, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

_PIPE_COLUMNS = 200
_WIDEST_COLUMNS = 10_000


class _Console(Console):
    def on_broken_pipe(self) -> None:
        raise  # noqa: PLE0704 (rich handles the error now; output_errors.py tells it)


def console() -> Console:
    """Standard output. Into a pipe, lines are not cut to a terminal's width."""
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else _PIPE_COLUMNS
    return _Console(width=width, highlight=False, markup=False, emoji=False, soft_wrap=True)


def print_json(document: Any) -> None:
    """Prints one document for scripts: our key order, and ASCII, which every terminal can show."""
    click.echo(json.dumps(document, indent=2))


def print_table(columns: Iterable[str], rows: Iterable[Iterable[Any]]) -> None:
    """Prints a table. Columns that begin with ">" are numbers, aligned right. On a terminal that is
    too narrow for it, each row becomes a paragraph: its first cell, then the others with names."""
    columns = list(columns)
    cells = [[str(cell) for cell in row] for row in rows]
    out = console()
    table = _table(columns, cells)
    whole = out.options.update_width(_WIDEST_COLUMNS)
    if not out.is_terminal or Measurement.get(out, whole, table).maximum <= out.width:
        out.print(table)
        return
    names = [column.removeprefix(">") for column in columns]
    for row in cells:
        named = zip(names[1:], row[1:], strict=True)
        facts = ", ".join(f"{name} {cell}" for name, cell in named if cell)
        out.print(row[0])
        out.print(Padding(Text(facts), (0, 0, 0, 2)), soft_wrap=False)


def _table(columns: Iterable[str], rows: Iterable[Iterable[str]]) -> Table:
    table = Table(box=rich.box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for column in columns:
        table.add_column(
            column.removeprefix(">"),
            justify="right" if column.startswith(">") else "left",
            overflow="fold",
        )
    for row in rows:
        table.add_row(*row)
    return table


@contextmanager
def progress(total_bytes: int, *, shown: bool) -> Iterator[Callable[[int], None]]:
    """A bar on standard error, if that is a terminal and `shown`. Call the function with the bytes
    that are done."""
    bar = Progress(
        BarColumn(),
        DownloadColumn(binary_units=True),
        TimeElapsedColumn(),
        console=Console(stderr=True),
        transient=True,
        disable=not (shown and sys.stderr.isatty()),
    )
    with bar:
        task = bar.add_task("", total=max(total_bytes, 1))
        yield lambda done: bar.update(task, completed=done)


def size(count_bytes: int | float) -> str:
    """A size with three digits and a binary unit."""
    value = float(count_bytes)
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if value < 1024 or unit == "TiB":
            break
        value /= 1024
    return f"{value:.0f} {unit}" if unit == "B" or value >= 100 else f"{value:.3g} {unit}"


def count(number: int) -> str:
    """A number with thousands separators."""
    return f"{number:,}"


def plural(number: int, one: str, many: str = "") -> str:
    """`1 page`, `2 pages`."""
    return f"{count(number)} {one if number == 1 else many or one + 's'}"


def words(*conditions: tuple[str, object]) -> str:
    """The words with a true condition, separated by commas."""
    return ", ".join(word for word, holds in conditions if holds)


def duration(seconds: float) -> str:
    """A duration in its two largest units."""
    whole = int(seconds)
    for unit, length, next_unit, next_length in (
        ("d", 86400, "h", 3600),
        ("h", 3600, "min", 60),
        ("min", 60, "s", 1),
    ):
        if whole >= length:
            return f"{whole // length} {unit} {whole % length // next_length} {next_unit}"
    return f"{whole} s"


def share(part: int | float, whole: int | float) -> str:
    """A percentage, or a dash if the whole is 0."""
    return f"{100 * part / whole:.1f} %" if whole else "-"


def percent(fraction: float | None) -> str:
    """A fraction as a percentage, or a dash for None."""
    return "-" if fraction is None else f"{100 * fraction:.1f} %"
