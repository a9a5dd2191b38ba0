"""The dashboard in a real browser: the states, charts and messages that an operator sees."""

import json
import os
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from harness.background import Background
from harness.clock import seconds
from harness.cluster import Cluster, Daemon
from harness.fixtures import MakeCluster
from harness.pages import keys_of
from harness.spilling import BUDGET, spilled
from harness.waiting import eventually

from peercached.cli.output import size

NAMESPACE = "test"
# Counts the pixels of a chart that have the colour of a CSS variable.
_INK = """
const canvas = document.querySelector(`#chart-${arguments[0]} canvas`);
const pixels = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
const wanted = getComputedStyle(document.documentElement).getPropertyValue(arguments[1]).trim();
const [r, g, b] = [1, 3, 5].map((at) => parseInt(wanted.slice(at, at + 2), 16));
let drawn = 0;
for (let i = 0; i < pixels.length; i += 4) {
  const near = Math.abs(pixels[i] - r) + Math.abs(pixels[i + 1] - g) + Math.abs(pixels[i + 2] - b);
  if (pixels[i + 3] > 200 && near < 12) drawn += 1;
}
return drawn;
"""
# Charts with pixels drawn at the canvas' left or right edge: a label is cut off there.
_CUT = """
return [...document.querySelectorAll(".chart")].filter((chart) => {
  const canvas = chart.querySelector("canvas");
  const inked = (x) => canvas.getContext("2d").getImageData(x, 0, 1, canvas.height).data
    .some((value, i) => i % 4 === 3 && value > 0);
  return inked(0) || inked(canvas.width - 1);
}).map((chart) => chart.id);
"""
# A page that is open for hours: 2000 polls, in which one of two nodes gets 7 bytes a poll.
_LONG_OPEN = """
const done = arguments[0];
import("/history.js").then(({ History }) => {
  const history = new History();
  const summary = (i, bytes) => ({
    asked: 0, found: {}, evicted: {}, tokens_found: 0, get_bytes: bytes * i, set_bytes: 0,
    set_pages: 0, pool_evictions: 0, pool_used_bytes: i, pool_capacity_bytes: 4000,
    disk_used_bytes: 0, disk_capacity_bytes: 0, uptime_s: 2 * i,
  });
  for (let i = 0; i < 2000; i += 1) {
    const node = (id, bytes) => (
      { node_id: id, incarnation: "1", state: "alive", summary: summary(i, bytes) });
    history.add([node("a", 7), node("b", 0)], 2000 * i, null);
  }
  const sums = history.samples.map((sample) => History.sum(sample, "a"));
  const steps = history.samples.map(({ at }, i, all) => (i ? (at - all[i - 1].at) / 1000 : 0));
  const past = new History();
  const series = { get_bytes: [5, 6] };
  past.recall([{ node_id: "a", at: [10, 20], seconds: [10, 10], series }], "a", true);
  done({
    rates: [...new Set(sums.map((sum) => sum.rates.get_bytes))],
    steps: [...new Set(steps.slice(1))],
    covered: history.samples.at(-1).at / 1000 - history.samples[0].at / 1000,
    used: sums[0].used > 0 && sums[0].used < sums.at(-1).used,
    own: past.samples.map((sample) => History.sum(sample, "a").rates.get_bytes),
    all: past.samples.map((sample) => History.sum(sample, "").known),
  });
});
"""

# Draws thirty samples. In one of them, in the middle, there were calls, sets and moves.
_ONE_POINT = """
const done = arguments[0];
import("/charts.js").then(({ Charts }) => {
  const room = { used: 1, capacity: 2, disk_used: 0, disk_capacity: 0 };
  const grown = { asked: 4, found_pool: 4, set_pages: 30, evictions: 20, given: 10 };
  const samples = Array.from({ length: 30 }, (_, i) => ({
    at: 1e12 + 2000 * i,
    nodes: new Map([["a", { room, seconds: 2, grown: i === 15 ? grown : null }]]),
    latencies: i === 15 ? [1e-4, 2e-4, 1e-3, 2e-3, 1e-2, 2e-2] : null,
  }));
  new Charts().draw(samples, "", { tokensTold: false });
  setTimeout(done, 200);
});
"""
_LEGEND = (
    "return [...document.querySelectorAll(`#chart-${arguments[0]} .u-value`)]"
    ".map((value) => value.textContent)"
)
_MARKERS = (
    "return [...document.querySelectorAll('#chart-latency .u-marker')]"
    ".map((one) => one.style.borderStyle)"
)
_FORMATTED = """
const [numbers, done] = arguments;
import("/format.js").then(({ bytes, rate, perSecond }) =>
  done(numbers.map((one) => [bytes(one), rate(one), perSecond(one)])));
"""


def url(daemon: Daemon) -> str:
    return f"http://{daemon.host}:{daemon.status()['node']['metrics_port']}/"


# One script call, because the page may replace the element between two calls.
def text(page: Any, selector: str) -> str:
    script = "return document.querySelector(arguments[0])?.innerText ?? ''"
    return str(page.execute_script(script, selector))


def state(page: Any, node_id: str) -> str:
    row = "document.querySelector(`#nodes tr[data-node='${arguments[0]}']`)"
    script = f"return {row}?.dataset.state"
    return str(page.execute_script(script, node_id) or "")


def ink(page: Any, chart: str, colour: str) -> int:
    return int(page.execute_script(_INK, chart, colour))


def kept(page: Any, name: str) -> None:
    """Saves a screenshot for a person, if PEERCACHED_SCREENSHOTS names a folder."""
    if folder := os.environ.get("PEERCACHED_SCREENSHOTS"):
        page.save_screenshot(str(Path(folder) / f"{name}.png"))


def complaints(page: Any) -> list[str]:
    """Console errors: failed scripts, and content that the Content-Security-Policy blocked."""
    return [entry["message"] for entry in page.get_log("browser") if entry["level"] == "SEVERE"]


@contextmanager
def busy(cluster: Cluster) -> Iterator[list[bytes]]:
    """Within the block, sets pages at the last node and gets them at the first without pause."""
    keys = keys_of("shown", 64)
    writer, reader = cluster.daemons[-1].attach(), cluster[0].attach()
    assert all(writer.set(keys))

    def work() -> None:
        reader.get(keys)
        writer.set(keys)

    with Background(work):
        yield keys


def test_dashboard_shows_members_charts_and_the_located_key(
    make_cluster: MakeCluster, open_page: Any
) -> None:
    cluster = make_cluster(3)
    with busy(cluster) as keys:
        page = open_page(url(cluster[0]))
        eventually(lambda: [state(page, n) for n in "abc"] == ["alive"] * 3, 20)
        assert "3 of 3" in text(page, "#tiles")
        assert "Peers are not authenticated" in text(page, "#health"), "and what to do about it"
        assert "cluster_secret_file" in text(page, "#health .remedy")
        eventually(lambda: ink(page, "hits", "--series-2") > 500, 20, "pages of a peer are drawn")
        eventually(lambda: ink(page, "throughput", "--series-1") > 50, 20)
        eventually(lambda: ink(page, "latency", "--series-1") > 20, 20)
        eventually(lambda: ink(page, "room", "--series-1") > 50, 20)
        assert page.execute_script(_CUT) == []
        kept(page, "light")

        page.find_element("name", "namespace").send_keys(NAMESPACE)
        page.find_element("name", "key").send_keys(keys[0].decode())
        page.find_element("css selector", "#locate button").click()
        eventually(lambda: "One node has the page" in text(page, "#located"), 10)
        assert "c" in text(page, "#located tbody")

        assert "%" in text(page, "#namespaces tbody")
        assert NAMESPACE not in text(page, "#namespaces")
        page.find_element("id", "nodes-filter").send_keys("127.0.0.2")
        eventually(lambda: [state(page, n) for n in "abc"] == ["", "alive", ""], 10)
        page.find_element("id", "nodes-filter").clear()
        page.find_element("id", "nodes-filter").send_keys(" ")
        eventually(lambda: state(page, "a") == "alive", 10)
        page.find_element("css selector", "#nodes th button").click()
        first = "return document.querySelector('#nodes tbody tr').dataset.node"
        eventually(lambda: page.execute_script(first) == "c", 10, "sorted by name, descending")

        page.find_element("css selector", "#scope option[value='c']").click()
        eventually(lambda: ink(page, "hits", "--series-2") == 0, 10, "c gets nothing from peers")

        assert text(page, "#threads tbody") == "", "it is not open"
        page.find_element("css selector", "#process-part summary").click()
        eventually(lambda: "of node c" in text(page, "#process"), 10)
        assert "accept workers" in text(page, "#threads tbody")
        assert complaints(page) == []


def test_fresh_page_draws_what_the_nodes_remember(
    make_cluster: MakeCluster, open_page: Any
) -> None:
    cluster = make_cluster(2)
    with busy(cluster):
        eventually(lambda: _points_with_gets(cluster[0]) >= 2, 60)
    page = open_page(url(cluster[0]))
    eventually(lambda: state(page, "b") == "alive", 20)
    assert ink(page, "hits", "--series-2") > 200, "although nobody has read since it was opened"
    assert ink(page, "throughput", "--series-1") > 20
    assert ink(page, "latency", "--series-1") > 10
    kept(page, "fresh")
    page.find_element("css selector", "#scope option[value='b']").click()
    eventually(lambda: ink(page, "hits", "--series-2") == 0, 10, "b gets nothing from peers")
    assert ink(page, "throughput", "--series-3") > 20, "what b set"
    assert complaints(page) == []


def test_legends_show_the_last_values_while_no_cursor_is_there(
    make_cluster: MakeCluster, open_page: Any
) -> None:
    cluster = make_cluster(2)
    with busy(cluster):
        page = open_page(url(cluster[0]))
        eventually(lambda: ink(page, "latency", "--series-1") > 20, 20)

        def has_values(chart: str, unit: str) -> bool:
            _, *values = page.execute_script(_LEGEND, chart)
            return all(unit in value for value in values)

        eventually(lambda: has_values("throughput", "B/s"), 10)
        found = ["0 %", "0 %", "100 %", "0 %"]  # by tier, although the lines are stacked
        eventually(lambda: page.execute_script(_LEGEND, "hits")[1:] == found, 10)
        get_p50, get_p99 = page.execute_script(_LEGEND, "latency")[1:3]
        assert get_p50.endswith("s") and get_p99.endswith("s")


def test_values_without_neighbours_are_drawn_and_p50_differs_from_p99(
    make_cluster: MakeCluster, open_page: Any
) -> None:
    page = open_page(url(make_cluster(1)[0]))
    page.set_script_timeout(seconds(30))
    page.execute_async_script(_ONE_POINT)
    kept(page, "one-point")
    assert ink(page, "hits", "--series-1") > 5
    for number in (1, 2, 3):
        assert ink(page, "latency", f"--series-{number}") > 5
        assert ink(page, "latency", f"--series-{number}-far") > 5
    assert ink(page, "turnover", "--series-1") > 5, "pages that went to other nodes"
    _, *markers = page.execute_script(_MARKERS)
    for p50, p99 in zip(markers[::2], markers[1::2], strict=True):
        assert ("solid" in p50, "dashed" in p99) == (True, True), markers


def test_spilled_pages_are_drawn(make_cluster: MakeCluster, open_page: Any) -> None:
    cluster = make_cluster(2, pool_size="16MiB", spill_bytes_per_s=BUDGET)
    page = open_page(url(cluster[0]))
    eventually(lambda: state(page, "b") == "alive", 20)
    assert ink(page, "turnover", "--series-1") == 0
    writer = cluster[0].attach(page_bytes=65536)
    for turn in range(20):
        writer.set(keys_of(f"turn {turn}", 20))
    eventually(lambda: spilled(cluster[0])["pages"] > 0, 20)
    eventually(lambda: ink(page, "turnover", "--series-1") > 5, 20)


def test_tokens_have_a_tile_and_a_chart_only_if_a_worker_tells_them(
    make_cluster: MakeCluster, open_page: Any
) -> None:
    cluster = make_cluster(1)
    worker = cluster[0].attach()
    keys = keys_of("told", 8)
    assert all(worker.set(keys))
    assert worker.client.batch_exists(keys) == 8
    page = open_page(url(cluster[0]))
    eventually(lambda: "pool in use" in text(page, "#tiles"), 20)
    assert "tokens" not in text(page, "#tiles")
    assert not page.find_element("id", "chart-tokens").is_displayed()
    assert worker.client.batch_exists(keys, page_tokens=64) == 8
    eventually(lambda: "tokens found" in text(page, "#tiles"), 20)
    assert page.find_element("id", "chart-tokens").is_displayed()


def test_numbers_have_the_units_of_peercachectl(make_cluster: MakeCluster, open_page: Any) -> None:
    page = open_page(url(make_cluster(1)[0]))
    page.set_script_timeout(seconds(30))
    numbers = [0, 1, 999, 1000, 1023, 1024, 1536, 123_456, 1_000_000, 5 << 20, 123 << 30, 7 << 42]
    assert page.execute_async_script(_FORMATTED, numbers) == [
        [size(one), f"{size(one)}/s", f"{one:,.0f} /s"] for one in numbers
    ]


def test_namespaces_are_named_if_readers_may_see_their_names(
    make_cluster: MakeCluster, open_page: Any
) -> None:
    cluster = make_cluster(1, metrics_namespace_names=True)
    cluster[0].attach(namespace="a model")
    page = open_page(url(cluster[0]))
    eventually(lambda: "a model" in text(page, "#namespaces tbody"), 20)
    assert not page.find_element("id", "namespaces-hint").is_displayed()


def test_page_that_is_open_for_hours_keeps_about_an_hour(
    make_cluster: MakeCluster, open_page: Any
) -> None:
    page = open_page(url(make_cluster(1)[0]))
    page.set_script_timeout(seconds(30))
    found = page.execute_async_script(_LONG_OPEN)
    assert found["rates"] == [3.5], "bytes per second, however old"
    assert found["steps"] == [10, 2], "fine at the end"
    assert 3600 < found["covered"] < 4600
    assert found["used"]
    assert found["own"] == [0.5, 0.6]
    assert found["all"] == [False, False], "no sum of nodes of which some are unknown"


def _points_with_gets(daemon: Daemon) -> int:
    with urllib.request.urlopen(f"{url(daemon)}api/v1/curves", timeout=seconds(10)) as answer:
        return sum(map(bool, json.load(answer)["series"]["get_bytes"]))


def test_a_dead_node_is_shown_within_seconds_and_the_verdict_changes(
    make_cluster: MakeCluster, open_page: Any
) -> None:
    cluster = make_cluster(3)
    page = open_page(url(cluster[0]))
    eventually(lambda: state(page, "c") == "alive", 20)
    cluster[2].kill()
    eventually(lambda: state(page, "c") in ("silent", "gone"), 6)
    kept(page, "dead")
    eventually(lambda: state(page, "c") == "gone", 20)
    assert "2 of 3" in text(page, "#tiles")
    assert "it did not answer for" in text(page, "#nodes tr[data-node='c']")
    assert "c at" in text(page, "#health")
    eventually(lambda: "c" in text(page, "#events li[data-kind='lost']"), 6)
    assert state(page, "a") == "alive"


def test_page_shows_no_answer_after_its_node_dies(
    make_cluster: MakeCluster, open_page: Any
) -> None:
    cluster = make_cluster(1)
    page = open_page(url(cluster[0]))
    eventually(lambda: state(page, "a") == "alive", 20)
    cluster[0].kill()
    eventually(lambda: "does not answer" in text(page, "#offline"), 15)
    assert text(page, "#verdict") == "no answer"


@pytest.mark.parametrize(("name", "dark", "phone"), [("dark", True, False), ("phone", False, True)])
def test_dashboard_renders_in_dark_mode_and_on_a_phone(
    make_cluster: MakeCluster, open_page: Any, name: str, dark: bool, phone: bool
) -> None:
    cluster = make_cluster(2)
    with busy(cluster):
        size = (390, 844) if phone else (1280, 1400)
        page = open_page(url(cluster[0]), *size, dark=dark, phone=phone)
        eventually(lambda: state(page, "b") == "alive", 20)
        eventually(lambda: ink(page, "hits", "--series-2") > 200, 20)
        eventually(lambda: ink(page, "throughput", "--series-1") > 20, 20)
        assert page.execute_script(_CUT) == []
        kept(page, name)
        ground = page.execute_script("return getComputedStyle(document.body).backgroundColor")
        brightness = sum(int(part) for part in ground[4:-1].split(","))
        assert (brightness < 200) is dark, ground
        wide = page.execute_script(
            "return document.documentElement.scrollWidth - document.documentElement.clientWidth"
        )
        assert wide <= 0, "nobody has to scroll sideways"
        assert complaints(page) == []


def test_located_key_text_is_never_rendered_as_markup(
    make_cluster: MakeCluster, open_page: Any
) -> None:
    cluster = make_cluster(1, each=[{"faults": "blind=0"}])
    page = open_page(url(cluster[0]))
    eventually(lambda: state(page, "a") == "alive", 20)
    page.find_element("name", "namespace").send_keys("<img src=x onerror=alert(1)>")
    page.find_element("name", "key").send_keys("<b>k</b>")
    page.find_element("css selector", "#locate button").click()
    eventually(lambda: "No node has the page" in text(page, "#located"), 10)
    assert page.find_elements("css selector", "#located b, #located img") == []
