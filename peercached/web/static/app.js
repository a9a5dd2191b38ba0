// Asks this node every 2 seconds for itself and for the cluster, and shows what changed.

import { byId, element, replaceChildren } from "./dom.js";
import * as format from "./format.js";
import { Charts } from "./charts.js";
import { History, KINDS, hitRate, hitRateOfTwice, percentile } from "./history.js";
import { Events } from "./events.js";
import { Namespaces } from "./namespaces.js";
import { Nodes } from "./nodes.js";
import { Process } from "./process.js";
import * as locate from "./locate.js";

const POLL_MS = 2000;
// Of a larger cluster, the page knows only what it has seen itself, and the past of its own node.
const RECALLED_NODES_MAX = 32;
const RANKS = ["error", "warning", "info"];

const history = new History();
const charts = new Charts();
const events = new Events();
const nodes = new Nodes();
const namespaces = new Namespaces();
const process = new Process(json, () => byId("scope").value);
let latenciesBefore = null; // kind -> counts
let tokensTold = false; // by some worker of the cluster

async function json(path) {
  const response = await fetch(path, { cache: "no-store", signal: AbortSignal.timeout(10000) });
  if (!response.ok) throw new Error(`${path}: ${(await response.text()).trim()}`);
  return response.json();
}

async function poll() {
  try {
    const [cluster, node, seen] = await Promise.all([
      json("api/v1/cluster"), json("api/v1/node"), json(`api/v1/events?after=${events.last}`),
    ]);
    const at = Date.now();
    const isFirst = !history.last;
    history.add(cluster.nodes, at, latencies(node.latencies));
    if (isFirst) await recall(cluster);
    show(cluster, node);
    events.show(seen, node.node.incarnation);
    process.look();
    byId("offline").hidden = true;
  } catch (error) {
    byId("offline").textContent = `This node does not answer: ${error.message}. Still trying.`;
    byId("offline").hidden = false;
    verdict("error", "no answer");
  }
  setTimeout(poll, POLL_MS);
}

// The nodes' memory of the last hour. A node that cannot be asked has no past.
async function recall({ node_id: ownId, nodes }) {
  const partial = nodes.length > RECALLED_NODES_MAX;
  const ids = partial ? [ownId] : nodes.map((node) => node.node_id);
  const found = await Promise.allSettled(
    ids.map((id) => json(`api/v1/curves?node=${encodeURIComponent(id)}`)));
  const documents = found.flatMap(({ value }) => value ?? []);
  history.recall(documents, ownId, partial);
}

// Half and 99 % of the calls since the last poll, for each kind; all labels of it together.
function latencies(found) {
  const now = new Map();
  const bounds = new Map();
  for (const { kind, counts, bounds_us } of found) {
    if (!KINDS.includes(kind)) continue;
    const sum = now.get(kind) ?? counts.map(() => 0);
    now.set(kind, sum.map((count, i) => count + counts[i]));
    bounds.set(kind, bounds_us);
  }
  const before = latenciesBefore;
  latenciesBefore = now;
  if (!before) return null;
  return KINDS.flatMap((kind) => {
    const counts = now.get(kind);
    const last = before.get(kind);
    if (!counts || !last) return [null, null];
    const grown = counts.map((count, i) => Math.max(0, count - last[i]));
    return [0.5, 0.99].map((share) => percentile(bounds.get(kind), grown, share));
  });
}

function show(cluster, node) {
  document.title = `${cluster.node_id} – peercached`;
  byId("where").textContent =
    `${cluster.node_id} · version ${node.node.version} · view ${cluster.view_number}`;
  byId("gathered").textContent = cluster.gathered_by
    ? `gathered by master ${cluster.gathered_by}` : "gathered by no master: this node alone";
  showHealth(cluster);
  tokensTold = cluster.nodes.some(({ summary }) => summary?.tokens_asked);
  showTiles(cluster);
  showScope(cluster);
  nodes.show(cluster, history);
  namespaces.show(node.namespaces);
  draw();
}

function draw() {
  charts.draw(history.samples, byId("scope").value, { tokensTold });
}

// The same sentence of several nodes is one line.
function sentences(cluster) {
  const said = new Map();
  const say = (who, severity, sentence, remedy, code = "") => {
    const one = said.get(sentence) ?? { who: [], severity, sentence, remedy, code };
    one.who.push(who);
    said.set(sentence, one);
  };
  if (cluster.problem) say(cluster.node_id, "warning", `Not all masters answer: ${cluster.problem}.`, "");
  for (const node of cluster.nodes) {
    if (node.state === "silent") {
      say(node.node_id, "error", `It does not answer: ${node.problem}.`,
        "Look at that host and at its log: journalctl -u peercached.");
      continue; // what it said before is not true any more
    }
    for (const each of node.summary?.health ?? []) {
      say(node.node_id, each.severity, each.sentence, each.remedy, each.code);
    }
  }
  return [...said.values()].sort((a, b) => RANKS.indexOf(a.severity) - RANKS.indexOf(b.severity));
}

function named(who) {
  return who.length > 4 ? `${who.slice(0, 3).join(", ")} and ${who.length - 3} more` : who.join(", ");
}

function showHealth(cluster) {
  const said = sentences(cluster);
  const lines = said.map(({ who, severity, sentence, remedy, code }) =>
    element("li", { className: severity },
      element("span", { className: "who", textContent: named(who) }),
      element("span", { textContent: sentence }),
      code ? element("span", { className: "code", textContent: code }) : null,
      remedy ? element("span", { className: "remedy", textContent: remedy }) : null));
  replaceChildren(byId("health"), lines.length ? lines
    : [element("li", { className: "good" }, element("span", { textContent: "All is well." }))]);
  const worst = said[0]?.severity;
  if (worst === "error") verdict("error", "needs attention");
  else if (worst === "warning") verdict("warning", "look at it");
  else verdict("good", "healthy");
}

function verdict(kind, words) {
  byId("verdict").className = `pill ${kind}`;
  byId("verdict").textContent = words;
}

function showTiles(cluster) {
  const sum = History.sum(history.last, "");
  const recent = history.recent("");
  const alive = cluster.nodes.filter((node) => node.state === "alive").length;
  const lost = cluster.departed.filter((node) => node.lost).length;
  const tiles = [
    [recent.known ? format.percent(hitRate(recent.keys)) : "–", hitRateWords(recent)],
    [`${alive} of ${cluster.nodes.length + lost}`, "nodes alive"],
    [recent.known ? format.rate(recent.rates.get_bytes) : "–", "got by workers"],
    [recent.known ? format.rate(recent.rates.set_bytes) : "–", "set by workers"],
    [format.bytes(sum.used), `of ${format.bytes(sum.capacity)} pool in use`],
  ];
  if (tokensTold) tiles.splice(1, 0, [format.perSecond(recent.rates.tokens), "tokens found"]);
  if (sum.disk_capacity) {
    tiles.push([format.bytes(sum.disk_used), `of ${format.bytes(sum.disk_capacity)} disk in use`]);
  }
  replaceChildren(byId("tiles"), tiles.map(([number, words]) =>
    element("div", { className: "tile" },
      element("b", { textContent: number }), element("span", { textContent: words }))));
}

function hitRateWords(recent) {
  const words = "hit rate, last 30 s";
  if (!recent.known || !recent.keys.evicted) return words;
  return `${words}; ${format.percent(hitRateOfTwice(recent.keys))} with twice the pools`;
}

function showScope(cluster) {
  const select = byId("scope");
  const ids = cluster.nodes.map((node) => node.node_id);
  const shown = [...select.options].slice(1).map((option) => option.value);
  if (ids.join("\n") === shown.join("\n")) return;
  const chosen = select.value;
  select.replaceChildren(select.options[0],
    ...ids.map((id) => element("option", { value: id, textContent: id })));
  select.value = ids.includes(chosen) ? chosen : "";
}

byId("scope").addEventListener("change", () => {
  draw();
  process.look(true);
});
locate.start();
poll();
