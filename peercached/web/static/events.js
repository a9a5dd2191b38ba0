// The events that this node saw, newest first.

import * as format from "./format.js";
import { byId, element, replaceChildren } from "./dom.js";

const SHOWN_MAX = 50;
const MARKS = { lost: "error", finding: "warning", joined: "good", restarted: "good", over: "good" };

export class Events {
  constructor() {
    this.last = 0; // number of the newest event known
    this.rows = [];
    this.incarnation = null;
  }

  show(seen, incarnation) {
    if (this.incarnation !== incarnation) { // a killed daemon may have lost its last events
      const restarted = this.incarnation !== null;
      Object.assign(this, { last: 0, rows: [], incarnation });
      if (restarted) return; // the next poll asks for all
    }
    for (const event of seen.events) {
      this.last = event.number;
      this.rows.unshift(row(event));
    }
    this.rows.length = Math.min(this.rows.length, SHOWN_MAX);
    replaceChildren(byId("events"), this.rows.length ? this.rows
      : [element("li", {}, element("span", { textContent: "Nothing yet." }))]);
  }
}

function row({ at, kind, node_id: nodeId, text }) {
  const made = element("li", {},
    element("time", { textContent: format.time(at), title: new Date(at * 1000).toLocaleString() }),
    element("span", { className: MARKS[kind] ?? "", textContent: kind }),
    element("span", { className: "who", textContent: nodeId }),
    element("span", { textContent: text }));
  made.dataset.kind = kind;
  return made;
}
