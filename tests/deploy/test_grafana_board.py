"""deploy/grafana: the board is valid and reads only metrics that a daemon exposes."""

import json
import runpy
from pathlib import Path
from typing import Any

import yaml
from harness.promql import names_in, names_of

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "deploy" / "grafana"
BOARD: dict[str, Any] = json.loads((FOLDER / "peercached.json").read_text())


def queries() -> list[tuple[str, str]]:
    """(title, expression) of every query and annotation."""
    return [
        (panel["title"], target["expr"])
        for panel in BOARD["panels"]
        for target in panel.get("targets", ())
    ] + [(mark["name"], mark["expr"]) for mark in BOARD["annotations"]["list"]]


def test_committed_board_matches_the_output_of_make_board() -> None:
    made = runpy.run_path(str(FOLDER / "make_board.py"))["text"]()
    assert (FOLDER / "peercached.json").read_text() == made, "run: deploy/grafana/make_board.py"


def test_there_are_numbers_charts_a_heatmap_and_a_table() -> None:
    kinds = {panel["type"] for panel in BOARD["panels"]}
    assert kinds == {"row", "stat", "timeseries", "heatmap", "table"}
    assert BOARD["panels"][0]["title"] == "Hit ratio", "the first number is what the cache is for"


def test_panels_have_unique_ids_and_do_not_overlap() -> None:
    assert len({panel["id"] for panel in BOARD["panels"]}) == len(BOARD["panels"])
    taken: set[tuple[int, int]] = set()
    for panel in BOARD["panels"]:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken, panel["title"]
        assert place["x"] + place["w"] <= 24
        taken |= cells


def test_queries_read_metrics_that_a_daemon_has(scraped: str) -> None:
    rules = yaml.safe_load((ROOT / "deploy/prometheus/peercached.rules.yml").read_text())
    recorded = {r["record"] for group in rules["groups"] for r in group["rules"] if "record" in r}
    there = names_of(scraped) | recorded
    for title, query in queries():
        read = names_in(query)
        assert read or query.startswith("sum(up{"), query
        assert read <= there, (title, read - there)


def test_every_query_asks_for_the_chosen_nodes() -> None:
    for title, query in queries():
        assert 'job=~"$job", instance=~"$instance"' in query, title
