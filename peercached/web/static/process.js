// The daemon as a process: its threads, and what it runs on. Asked for only while the part is open.

import * as format from "./format.js";
import { byId, cell, element, replaceChildren } from "./dom.js";

const ASK_MS = 5000;

export class Process {
  constructor(ask, nodeId) {
    this.ask = ask;
    this.nodeId = nodeId;
    this.askedAt = 0;
    byId("process-part").addEventListener("toggle", () => this.look(true));
  }

  // `now`: do not wait until the next look is due.
  async look(now = false) {
    if (!byId("process-part").open || (!now && Date.now() < this.askedAt + ASK_MS)) return;
    this.askedAt = Date.now();
    const id = this.nodeId();
    try {
      this.show(await this.ask(id ? `api/v1/process?node=${encodeURIComponent(id)}` : "api/v1/process"));
    } catch (error) {
      replaceChildren(byId("process"), [element("p", { textContent: error.message })]);
    }
  }

  show({ node_id: nodeId, pid, environment: on, threads, ...rest }) {
    const packages = Object.entries(on.packages).map(([name, version]) => `${name} ${version}`);
    const facts = [
      ["process", `${pid} of node ${nodeId}`],
      ["version", Object.entries(on.build).filter(([, value]) => value)
        .map(([name, value]) => `${name} ${value}`).join(", ")],
      ["machine", `${on.kernel} on ${on.machine}, ${on.processors} processors`],
      ["memory", `${format.bytes(rest.resident_bytes)} of the machine's ${format.bytes(on.memory_bytes)}`],
      ["files", `${format.count(rest.open_files)} of ${format.count(rest.open_files_max)} open`],
      ["Python", `${on.python}, ${packages.join(", ")}`],
    ];
    replaceChildren(byId("process"), facts.flatMap(([name, value]) =>
      [element("dt", { textContent: name }), element("dd", { textContent: value })]));
    replaceChildren(byId("threads").tBodies[0], threads.map((of) =>
      element("tr", {},
        cell("thread", of.name),
        cell("threads", format.count(of.threads)),
        cell("processor time", `${of.cpu_s.toFixed(1)} s`))));
  }
}
