// Charts over the samples of history.js, drawn by uPlot.

import * as format from "./format.js";
import { byId, element } from "./dom.js";
import { History } from "./history.js";

const HEIGHT = 190;
// Wide enough for "1,200,000 /s" on the left, and for half a time of day on the right.
const LABEL_WIDTH = 84;
const MARGINS = [8, 28, 0, 0];
const TIME_STEPS_S = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600];
const TIERS = [
  ["pool", "found_pool", "--series-1"],
  ["peer", "found_peer", "--series-2"],
  ["disk", "found_disk", "--series-3"],
  ["peer's disk", "found_peer_disk", "--series-4"],
  ["object store", "found_store", "--series-1-far"],
];

// name, how a value is shown, the top of an empty chart (or of any: max), [label, colour, dashed,
// filled], values of one sample
const CHARTS = [
  {
    id: "hits",
    title: "Hit rate by tier, of keys looked for",
    show: format.percent,
    max: 1,
    stacked: true,
    // The top line is the hit rate. Drawn from the back.
    series: [...TIERS].reverse().map(([label, , colour]) => ({ label, colour, filled: true })),
    values: (sum) => {
      const { asked } = sum.keys;
      if (!sum.known || !asked) return TIERS.map(() => null);
      let stacked = 0;
      return TIERS.map(([, name]) => (stacked += (sum.keys[name] ?? 0) / asked)).reverse();
    },
  },
  {
    id: "tokens",
    title: "Tokens found, so not computed again",
    hidden: ({ tokensTold }) => !tokensTold,
    show: format.perSecond,
    empty: 10,
    series: [{ label: "tokens", colour: "--series-2" }],
    values: (sum) => [sum.known ? sum.rates.tokens : null],
  },
  {
    id: "throughput",
    title: "Throughput of workers' pages",
    show: format.rate,
    empty: 1 << 20,
    incrs: Array.from({ length: 50 }, (_, i) => 2 ** i),
    series: [
      { label: "got", colour: "--series-1" },
      { label: "set", colour: "--series-3" },
      { label: "from peers by RDMA", colour: "--series-4", dashed: true },
      { label: "by TCP", colour: "--series-2", dashed: true },
    ],
    values: ({ known, rates }) => (known
      ? [rates.get_bytes, rates.set_bytes, rates.rdma_bytes, rates.tcp_bytes] : Array(4).fill(null)),
  },
  {
    id: "latency",
    title: "Latency of batches in this node's engine",
    show: format.seconds,
    log: true,
    empty: 1e-3,
    ownNode: true,
    series: [
      { label: "get p50", colour: "--series-1" },
      { label: "get p99", colour: "--series-1-far", dashed: true },
      { label: "exists p50", colour: "--series-2" },
      { label: "exists p99", colour: "--series-2-far", dashed: true },
      { label: "set p50", colour: "--series-3" },
      { label: "set p99", colour: "--series-3-far", dashed: true },
    ],
    values: (_, latencies) => latencies ?? [null, null, null, null, null, null],
  },
  {
    id: "turnover",
    title: "Pages set, evicted, and spilled or moved",
    show: format.perSecond,
    empty: 10,
    series: [
      { label: "set", colour: "--series-3" },
      { label: "evicted", colour: "--series-4" },
      { label: "to other nodes", colour: "--series-1" },
    ],
    values: ({ known, rates }) => (known
      ? [rates.set_pages, rates.evictions, rates.given] : Array(3).fill(null)),
  },
  {
    id: "room",
    title: "Pool and disk in use",
    show: format.percent,
    max: 1,
    series: [
      { label: "pool", colour: "--series-1" },
      { label: "disk", colour: "--series-3" },
    ],
    values: (sum) => [
      sum.capacity ? sum.used / sum.capacity : null,
      sum.disk_capacity ? sum.disk_used / sum.disk_capacity : null,
    ],
  },
];

// Values without neighbours: no line leads to them.
const isolated = (values) => [...values.keys()].filter((i) =>
  values[i] != null && values[i - 1] == null && values[i + 1] == null);

// Of a series, at the cursor (`i`), or else the last one that there is.
function shownValue(chart, data, s, i) {
  const at = i ?? data[s].findLastIndex((one) => one != null);
  const value = data[s][at];
  return chart.stacked && value != null ? value - (data[s + 1]?.[at] ?? 0) : value;
}

const colourOf = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

export class Charts {
  constructor() {
    this.plots = [];
    this.make();
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.make());
    new ResizeObserver(() => this.resize()).observe(byId("charts"));
  }

  // Colours are drawn, not styled: another scheme needs other plots.
  make() {
    for (const { plot } of this.plots) plot.destroy();
    const cards = CHARTS.map((chart) =>
      element("div", { className: "chart", id: `chart-${chart.id}` },
        element("h3", { textContent: chart.title })));
    byId("charts").replaceChildren(...cards);
    this.plots = CHARTS.map((chart, i) => ({ chart, plot: plotFor(chart, cards[i]) }));
    if (this.last) this.draw(...this.last);
  }

  resize() {
    for (const { plot } of this.plots) {
      const width = plot.root.parentElement.clientWidth - 24;
      if (width > 0 && width !== plot.width) plot.setSize({ width, height: HEIGHT });
    }
  }

  // `facts`: about the whole cluster, for charts that are not always shown.
  draw(samples, nodeId, facts) {
    this.last = [samples, nodeId, facts];
    const times = samples.map((sample) => sample.at / 1000);
    const sums = samples.map((sample) => History.sum(sample, nodeId));
    for (const { chart, plot } of this.plots) {
      const rows = sums.map((sum, i) => chart.values(sum, samples[i].latencies));
      plot.setData([times, ...chart.series.map((_, s) => rows.map((row) => row[s] ?? null))]);
      plot.setLegend(undefined, false);
      plot.root.parentElement.hidden = chart.hidden?.(facts) ?? false;
    }
  }
}

function scaleOf(chart) {
  // Whole decades: the largest and the smallest latency differ by a thousand times.
  if (chart.log) {
    const decade = (value, round) => 10 ** round(Math.log10(value));
    return {
      distr: 3,
      range: (_, low, high) => (low > 0
        ? [decade(low, Math.floor), decade(high * 1.01, Math.ceil)] : [1e-6, chart.empty]),
    };
  }
  return { range: (_, low, high) => [0, chart.max ?? (high > 0 ? high * 1.1 : chart.empty)] };
}

function plotFor(chart, card) {
  const quiet = { stroke: colourOf("--quiet"), grid: { stroke: colourOf("--line"), width: 1 },
    ticks: { stroke: colourOf("--line"), width: 1 }, font: "11px system-ui, sans-serif" };
  return new uPlot({
    width: Math.max(card.clientWidth - 24, 200),
    height: HEIGHT,
    padding: MARGINS,
    cursor: { y: false },
    legend: { live: true, markers: { dash: (_, s) => (chart.series[s - 1].dashed ? "dashed" : "solid") } },
    scales: { y: scaleOf(chart) },
    axes: [
      { ...quiet, space: 70, incrs: TIME_STEPS_S, values: (_, ticks) => ticks.map(format.time) },
      { ...quiet, size: LABEL_WIDTH, incrs: chart.incrs, values: (_, ticks) => ticks.map((at) => (at == null ? "" : chart.show(at))) },
    ],
    series: [
      {},
      ...chart.series.map(({ label, colour, dashed, filled }) => ({
        label,
        stroke: colourOf(colour),
        width: 2,
        dash: dashed ? [4, 4] : undefined,
        fill: filled ? colourOf(colour) : undefined,
        points: {
          show: false, size: 6, fill: colourOf(colour), filter: (plot, s) => isolated(plot.data[s]),
        },
        spanGaps: false,
        value: (plot, _, s, i) => chart.show(shownValue(chart, plot.data, s, i)),
      })),
    ],
  }, [[], ...chart.series.map(() => [])], card);
}
