"""`peercachectl`: pin, unpin, pages, move."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from harness.fake_daemon import FakeSource, serving

from peercached.cli import exits
from peercached.cli.ctl import main
from peercached.cli.pins import seconds_of


class Bench:
    def __init__(self, folder: Path, source: FakeSource) -> None:
        self.folder, self.source = folder, source

    def __call__(self, *arguments: str) -> Result:
        return CliRunner().invoke(
            main, ["--socket", str(self.folder / "run" / "d.sock"), *arguments]
        )


@pytest.fixture
def ctl() -> Iterator[Bench]:
    with tempfile.TemporaryDirectory() as name:
        source = FakeSource()
        with serving(Path(name) / "run-admin" / "d.sock", source):
            yield Bench(Path(name), source)


def test_times_have_units() -> None:
    times = {"600": 600, "90s": 90, "10m": 600, "10 min": 600, "1h": 3600, "1.5m": 90}
    assert {text: seconds_of(text) for text in times} == times
    for wrong in ("", "m", "-1s", "10d", "1h30m"):
        with pytest.raises(ValueError, match="is not a time"):
            seconds_of(wrong)


def test_the_exit_code_of_pin_tells_the_worst_outcome(ctl: Bench) -> None:
    pin = ("pin", "a", "b", "-n", "ns", "--for", "10m")
    ctl.source.pinned = (["ok", "ok"], "")
    assert ctl(*pin, "--here", "--prefix").exit_code == exits.OK
    assert ctl.source.asked == [("pin", "ns", [b"a", b"b"], 600.0, True, True)]
    ctl.source.pinned = (["ok", "absent"], "")
    assert ctl(*pin).exit_code == exits.ABSENT
    ctl.source.pinned = (["absent", "no_space"], "5 bytes beyond 7")
    result = ctl(*pin)
    assert result.exit_code == exits.FAILED and "5 bytes beyond 7" in result.output
    document = json.loads(ctl(*pin, "--json").stdout)
    assert document["outcome"] == {"a": "absent", "b": "no_space"}
    ctl.source.pinned = (["absent", "suspect"], "c does not answer now")
    assert ctl(*pin).exit_code == exits.UNREACHABLE, "it may be there"
    ctl.source.pinned = (["no_space", "suspect"], "c does not answer now; 5 bytes beyond 7")
    assert ctl(*pin).exit_code == exits.FAILED, "another attempt is of no use"
    assert ctl("pin", "a").exit_code == exits.USAGE, "a pin needs a time"


def test_unpin_says_which_pages_were_pinned(ctl: Bench) -> None:
    ctl.source.pinned = (["ok", "absent"], "")
    result = ctl("unpin", "a", "b", "-n", "ns")
    assert result.exit_code == exits.ABSENT
    assert result.output.splitlines() == ["unpinned  a", "absent  b"]
    ctl.source.pinned = (["ok", "suspect"], "c did not answer in time")
    result = ctl("unpin", "a", "b")
    assert result.exit_code == exits.UNREACHABLE
    assert "1 page not unpinned: c did not answer in time" in result.output


def test_pages_takes_one_list_and_names_the_node(ctl: Bench) -> None:
    nothing = "No page is pinned in the pool of here (other nodes: --node NAME).\n"
    assert ctl("pages", "--pinned").output == nothing
    ctl.source.asked.clear()
    ctl.source.listed = [
        {
            "digest": bytes(16),
            "namespace_id": bytes(16),
            "bytes": 4096,
            "reads": 5,
            "holders": ["a"],
        }
    ]
    assert ctl("pages").exit_code == exits.USAGE
    assert ctl("pages", "--hot", "--pinned").exit_code == exits.USAGE
    table = ctl("pages", "--hot", "-n", "ns", "--limit", "7").output
    assert table.startswith("Hot pages in the pool of here ")
    assert "4 KiB" in table and f"id {'0' * 32}" in table
    assert ctl.source.asked == [("pages", "hot", 7, "ns")]
    assert json.loads(ctl("pages", "--pinned", "--json").output)["node_id"] == "here"


def test_move_fails_if_a_page_was_not_taken(ctl: Bench) -> None:
    ctl.source.moved = {"pages": 2, "bytes": 8192}
    result = ctl("move", "a", "b", "--to", "c", "-n", "ns")
    assert (result.exit_code, result.output) == (
        exits.OK,
        "Moved 2 pages (8 KiB) from here to c.\n",
    )
    assert ctl.source.asked == [("move", "ns", [b"a", b"b"], "c")]
    ctl.source.moved = {"pages": 1, "absent": 1}
    result = ctl("move", "a", "b", "--to", "c")
    assert result.exit_code == exits.ABSENT and "1 page not in the pool of here" in result.output
    ctl.source.moved = {"refused": 2, "why_not": "it drains, too"}
    result = ctl("move", "a", "b", "--to", "c")
    assert result.exit_code == exits.FAILED
    assert "c did not take 2 pages: it drains, too" in result.output
    assert json.loads(ctl("move", "a", "--to", "c", "--json").stdout)["refused"] == 2
