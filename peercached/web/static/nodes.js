// The table of nodes. One that died stays in it, marked, as long as this page is open.

import * as format from "./format.js";
import { byId, cell, element, replaceChildren } from "./dom.js";
import { hitRate } from "./history.js";

const GONE_KEPT_MS = 15 * 60 * 1000;
const STATES = { alive: "good", leaving: "warning", silent: "error", gone: "error" };

export class Nodes {
  constructor() {
    this.known = new Map(); // node id -> {node, seen}
  }

  show(nodes, history, at) {
    for (const node of nodes) this.known.set(node.node_id, { node, seen: at });
    const here = new Set(nodes.map((node) => node.node_id));
    const rows = [];
    for (const [id, { node, seen }] of [...this.known].sort((a, b) => (a[0] < b[0] ? -1 : 1))) {
      if (here.has(id)) rows.push(row(node, node.state, "", history.recent(id)));
      else if (at - seen > GONE_KEPT_MS) this.known.delete(id);
      else rows.push(row(node, "gone", `for ${format.age((at - seen) / 1000)}`, null));
    }
    replaceChildren(byId("nodes").tBodies[0], rows);
  }
}

function row(node, state, note, recent) {
  const summary = state === "gone" ? null : node.summary;
  const marks = [node.is_self ? "this node" : "", node.is_master ? "master" : "", node.host];
  const why = note || node.problem || (node.suspect ? "suspect: not read from" : "");
  const stateCell = cell("state",
    element("span", {}, element("span", { className: STATES[state] ?? "", textContent: state }),
      why ? element("small", { textContent: why }) : null));
  const made = element("tr", { className: state === "gone" ? "gone" : "" },
    cell("node", element("span", {}, node.node_id,
      element("small", { textContent: marks.filter(Boolean).join(" · ") }))),
    stateCell,
    use("pool", summary && [summary.pool_used_bytes, summary.pool_capacity_bytes]),
    use("disk", summary && summary.disk_enabled
      ? [summary.disk_used_bytes, summary.disk_capacity_bytes] : null),
    cell("hit rate", recent && recent.known ? format.percent(hitRate(recent.pages)) : "–"),
    cell("got", recent && recent.known ? format.rate(recent.rates.get_bytes) : "–"),
    cell("set", recent && recent.known ? format.rate(recent.rates.set_bytes) : "–"),
    cell("ring share", state === "gone" ? "–" : format.percent(node.ring_share)),
    cell("workers", summary ? format.count(summary.workers) : "–"),
    cell("up for", summary ? format.age(summary.uptime_s) : "–"),
    cell("incarnation", node.incarnation));
  made.dataset.node = node.node_id;
  made.dataset.state = state;
  made.firstChild.classList.add("name");
  made.lastChild.classList.add("mono");
  return made;
}

function use(label, room) {
  if (!room) return cell(label, "–");
  const [used, capacity] = room;
  return cell(label, element("span", {},
    element("meter", { max: 1, value: capacity ? used / capacity : 0 }),
    element("small", { textContent: `${format.bytes(used)} of ${format.bytes(capacity)}` })));
}
