// A table whose rows a viewer sorts and filters.

import { byId, element, replaceChildren } from "./dom.js";

export class SortedTable {
  // `keys`: heading -> what an item is sorted by. `words`: the text of an item that the filter
  // searches. `row`: its table row. Text is sorted from A at first, a number from the largest.
  constructor(id, by, keys, words, row) {
    Object.assign(this, { by, keys, words, row, items: [], descending: false, rowsMax: Infinity });
    this.table = byId(id);
    this.filter = byId(`${id}-filter`);
    for (const heading of this.table.tHead.rows[0].cells) {
      const name = heading.textContent;
      if (!(name in keys)) continue;
      heading.replaceChildren(element("button", { textContent: name, type: "button" }));
      heading.firstChild.addEventListener("click", () => this.sortBy(name));
    }
    this.filter.addEventListener("input", () => this.draw());
  }

  sortBy(name) {
    const isText = this.items.length > 0 && typeof this.keys[name](this.items[0]) === "string";
    this.descending = this.by === name ? !this.descending : !isText;
    this.by = name;
    this.draw();
  }

  show(items) {
    this.items = items;
    this.draw();
  }

  draw() {
    for (const heading of this.table.tHead.rows[0].cells) {
      const sorted = heading.textContent === this.by;
      heading.ariaSort = sorted ? (this.descending ? "descending" : "ascending") : "none";
    }
    const key = this.keys[this.by];
    const wanted = this.filter.value.trim().toLowerCase();
    const found = this.items.filter((item) => this.words(item).toLowerCase().includes(wanted));
    found.sort((a, b) => (key(a) < key(b) ? -1 : key(a) > key(b) ? 1 : 0));
    if (this.descending) found.reverse();
    replaceChildren(this.table.tBodies[0], found.slice(0, this.rowsMax).map(this.row));
  }
}
