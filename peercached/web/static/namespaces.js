// The pages of namespaces at this node. They have names here with metrics_namespace_names.

import * as format from "./format.js";
import { byId, cell, element } from "./dom.js";
import { SortedTable } from "./table.js";

const SHOWN_MAX = 20;

const foundKeys = ({ demand }) => Object.values(demand.found).reduce((a, b) => a + b, 0);
const foundIfTwice = (namespace) => foundKeys(namespace) + (namespace.demand.evicted["2x"] ?? 0);
const share = ({ demand }, keys) => (demand.asked ? keys / demand.asked : null);

const KEYS = {
  namespace: ({ name, id }) => name ?? id,
  pages: ({ pool_pages: pages }) => pages,
  pool: ({ pool_bytes: bytes }) => bytes,
  quota: ({ quota_bytes: bytes }) => bytes,
  "looked for": ({ demand }) => demand.asked,
  "hit rate": (namespace) => share(namespace, foundKeys(namespace)) ?? -1,
  "2x pool": (namespace) => share(namespace, foundIfTwice(namespace)) ?? -1,
};

export class Namespaces {
  constructor() {
    this.table = new SortedTable("namespaces", "pool", KEYS, ({ name = "", id }) => `${name} ${id}`, row);
    this.table.descending = true;
    this.table.rowsMax = SHOWN_MAX;
  }

  show(namespaces) {
    byId("namespaces-part").hidden = namespaces.length === 0;
    byId("namespaces-hint").hidden = namespaces.some(({ name }) => name);
    this.table.show(namespaces);
  }
}

function row(namespace) {
  const { name, id, pool_pages: pages, pool_bytes: bytes, quota_bytes: quota, demand } = namespace;
  const made = element("tr", {},
    cell("namespace", name ? element("span", {}, name, element("small", { textContent: id })) : id),
    cell("pages", format.count(pages)),
    cell("pool", format.bytes(bytes)),
    cell("quota", quota ? format.bytes(quota) : "–"),
    cell("looked for", format.count(demand.asked)),
    cell("hit rate", format.percent(share(namespace, foundKeys(namespace)))),
    cell("2x pool", format.percent(share(namespace, foundIfTwice(namespace)))));
  made.firstChild.classList.add("mono");
  return made;
}
