// Elements, always from text: nothing that a node says is ever parsed as HTML.

export const byId = (id) => document.getElementById(id);

export function element(name, properties = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(properties)) {
    if (key.startsWith("data-")) made.setAttribute(key, value);
    else made[key] = value;
  }
  made.append(...children.filter((child) => child != null));
  return made;
}

export const cell = (label, ...children) => element("td", { "data-label": label }, ...children);

// Equal children stay in place: selections, focus and scroll positions survive a poll.
export function replaceChildren(parent, children) {
  const shown = parent.dataset.shown;
  const wanted = children.map((child) => child.outerHTML).join("");
  if (shown === wanted) return;
  parent.dataset.shown = wanted;
  parent.replaceChildren(...children);
}
