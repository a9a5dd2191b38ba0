// The table of nodes: the members, and those that left within a day.

import * as format from "./format.js";
import { cell, element } from "./dom.js";
import { hitRate } from "./history.js";
import { SortedTable } from "./table.js";

const STATES = { alive: "good", leaving: "warning", silent: "error", gone: "error" };

// The sort keys of rows, by the heading's text. `recent` is of history.js.
const KEYS = {
  node: ({ node }) => node.node_id,
  state: ({ state }) => Object.keys(STATES).indexOf(state),
  pool: ({ node }) => node.summary?.pool_used_bytes ?? -1,
  "hit rate": ({ recent }) => (recent?.known ? hitRate(recent.keys) ?? -1 : -1),
  got: ({ recent }) => recent?.rates.get_bytes ?? -1,
  set: ({ recent }) => recent?.rates.set_bytes ?? -1,
  workers: ({ node }) => node.summary?.workers ?? -1,
  "up for": ({ node }) => node.summary?.uptime_s ?? -1,
};

export class Nodes {
  constructor() {
    const words = ({ node, state }) => `${node.node_id} ${node.host} ${state}`;
    this.table = new SortedTable("nodes", "node", KEYS, words, row);
  }

  show(cluster, history) {
    this.table.show([
      ...cluster.nodes.map((node) =>
        ({ node, state: node.state, note: "", recent: history.recent(node.node_id) })),
      ...cluster.departed.map((node) => ({
        node, state: "gone", note: `for ${format.age(node.age_s)}: ${node.why}`, recent: null,
      })),
    ]);
  }
}

function row({ node, state, note, recent }) {
  const summary = state === "gone" ? null : node.summary;
  const marks = [summary?.role === "memory" ? "memory only" : "", node.is_self ? "this node" : "", node.is_master ? "master" : "", node.host];
  const why = note || node.problem || (node.suspect ? "suspect: not read from" : "");
  const stateCell = cell("state",
    element("span", {}, element("span", { className: STATES[state] ?? "", textContent: state }),
      why ? element("small", { textContent: why }) : null));
  const made = element("tr", { className: state === "gone" ? "gone" : "" },
    cell("node", element("span", {}, node.node_id,
      element("small", { textContent: marks.filter(Boolean).join(" · ") }))),
    stateCell,
    use("pool", summary && [summary.pool_used_bytes, summary.pool_capacity_bytes],
      summary?.pool_adopted_bytes),
    use("disk", summary && summary.disk_enabled
      ? [summary.disk_used_bytes, summary.disk_capacity_bytes] : null),
    cell("hit rate", recent && recent.known ? format.percent(hitRate(recent.keys)) : "–"),
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

// `adopted`: bytes of pages that came from other nodes or from the object store.
function use(label, room, adopted = 0) {
  if (!room) return cell(label, "–");
  const [used, capacity] = room;
  const words = `${format.bytes(used)} of ${format.bytes(capacity)}`;
  return cell(label, element("span", {},
    element("meter", { max: 1, value: capacity ? used / capacity : 0 }),
    element("small", {
      textContent: adopted ? `${words}, ${format.bytes(adopted)} from elsewhere` : words,
    })));
}
