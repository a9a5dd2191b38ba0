// What namespaces hold at this node. They have no names here: the port is open to all.

import * as format from "./format.js";
import { byId, cell, element, replaceChildren } from "./dom.js";

const SHOWN_MAX = 20;

export function showNamespaces(namespaces) {
  byId("namespaces-part").hidden = namespaces.length === 0;
  replaceChildren(byId("namespaces").tBodies[0], namespaces.slice(0, SHOWN_MAX).map(row));
}

function row({ id, pool_pages: pages, pool_bytes: bytes, quota_bytes: quota, demand }) {
  const found = Object.values(demand.found).reduce((a, b) => a + b, 0);
  const larger = demand.evicted["2x"] ?? 0;
  const share = (keys) => (demand.asked ? format.percent(keys / demand.asked) : "–");
  const made = element("tr", {},
    cell("id", id),
    cell("pages", format.count(pages)),
    cell("pool", format.bytes(bytes)),
    cell("quota", quota ? format.bytes(quota) : "–"),
    cell("looked for", format.count(demand.asked)),
    cell("hit rate", share(found)),
    cell("2x pool", share(found + larger)));
  made.firstChild.classList.add("mono");
  return made;
}
