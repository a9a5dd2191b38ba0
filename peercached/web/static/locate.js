// The look-up box: who answers for a key, and who has its page.

import { byId, cell, element } from "./dom.js";
import * as format from "./format.js";

export function start() {
  byId("locate").addEventListener("submit", async (event) => {
    event.preventDefault();
    const asked = new URLSearchParams(new FormData(event.target));
    const answer = byId("located");
    answer.replaceChildren(element("p", { textContent: "Asking the owners …" }));
    try {
      const response = await fetch(`api/v1/locate?${asked}`, { cache: "no-store" });
      if (!response.ok) throw new Error(await response.text());
      answer.replaceChildren(...described(await response.json()));
    } catch (error) {
      answer.replaceChildren(element("p", { className: "error", textContent: `${error.message}` }));
    }
  });
}

function described(found) {
  const sure = found.owners.some((owner) => owner.final);
  const owners = found.owners.map((owner) => owner.node_id);
  const silent = sure ? [] : [...new Set([...owners, ...found.suspects])];
  const holders = found.holders.length
    ? `${found.holders.length === 1 ? "One node has" : `${found.holders.length} nodes have`} the page.`
    : silent.length
      ? `No holder is known; ${silent.join(", ")} did not answer for sure, so it may exist all the same.`
      : "No node has the page.";
  const parts = [
    element("p", { className: found.holders.length ? "good" : "warning", textContent: holders }),
  ];
  if (found.holders.length) {
    parts.push(table(["holder", "page is", "length", "incarnation", "state"],
      found.holders.map((holder) => [
        holder.node_id,
        holder.resident ? "in the pool" : "on disk",
        format.bytes(holder.length),
        holder.incarnation,
        holder.suspect ? "suspect" : "ok",
      ])));
  }
  parts.push(
    element("p", {}),
    table(["owner of its record", "state"], found.owners.map((owner) => [
      owner.node_id,
      owner.answered ? (owner.suspect ? "answered, suspect" : "answered") : owner.error,
    ])),
    element("p", {}),
    element("p", { className: "quiet", textContent:
      `Digest ${found.digest}, epoch ${found.epoch}${found.cached ? "; its place is cached here" : ""}.` }));
  return parts;
}

function table(heads, rows) {
  return element("table", { className: "rows" },
    element("thead", {}, element("tr", {}, ...heads.map((head) => element("th", { textContent: head })))),
    element("tbody", {}, ...rows.map((cells) =>
      element("tr", {}, ...cells.map((text, i) => cell(heads[i], text))))));
}
