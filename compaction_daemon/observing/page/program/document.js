// Elements of the document. Every value becomes text, never markup.

function h(tag, attributes, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else node.setAttribute(name, value === true ? "" : String(value));
  }
  node.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return node;
}
const byId = (id) => document.getElementById(id);
// Text that comes from a table: apart from the direction of what is around it.
const own = (text) => h("bdi", {}, text === null || text === undefined ? "" : String(text));
// Ids by their beginnings: who needs all of them points at the text.
const shortened = (text) => String(text).replace(/\b([0-9a-f]{8})(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b/g, "$1…");
const brief = (text) => h("bdi", { title: shortened(text) === String(text) ? null : text }, shortened(text));
const code = (text) => h("code", {}, own(text));

function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}
function section(id, title, note, ...children) {
  return h(
    "section",
    { class: "panel", id, "aria-labelledby": `${id}-title` },
    h("header", {}, h("h2", { id: `${id}-title` }, title), note ? h("p", {}, note) : null),
    children,
  );
}
// A part with nothing to show: its title, and why in one line.
const bare = (id, title, text) =>
  h(
    "section",
    { class: "panel bare", id, "aria-labelledby": `${id}-title` },
    h("h2", { id: `${id}-title` }, title),
    h("p", {}, text),
  );
const empty = (text) => h("p", { class: "empty" }, text);

// A column of numbers, of long texts, or of texts that stay on one line.
const kind = (column) => (column.num ? "num" : column.long ? "long" : column.keep ? "keep" : null);
function grid(label, columns, rows, { tall = false } = {}) {
  const head = h(
    "tr",
    {},
    columns.map((column) => h("th", { scope: "col", class: kind(column) }, column.name)),
  );
  const body = rows.map((row) =>
    h(
      "tr",
      {},
      row.map((cell, index) => h("td", { class: kind(columns[index]) }, cell)),
    ),
  );
  // Something that scrolls can be reached with the keyboard, and so has a role and a name.
  return h(
    "div",
    { class: tall ? "scroll tall" : "scroll", tabindex: "0", role: "region", "aria-label": label, "data-key": label },
    h("table", {}, h("caption", { class: "hidden" }, label), h("thead", {}, head), h("tbody", {}, body)),
  );
}
function tiles(entries) {
  return h(
    "dl",
    { class: "tiles" },
    entries
      .filter(Boolean)
      .map(([name, value, note]) =>
        h("div", {}, h("dt", {}, name), h("dd", {}, value, note ? h("small", {}, note) : null)),
      ),
  );
}
function facts(entries) {
  return h(
    "dl",
    { class: "facts" },
    entries.filter(Boolean).map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value))),
  );
}
function choice(legend, name, options, chosen, onchange) {
  return h(
    "fieldset",
    { class: "choice" },
    h("legend", { class: "hidden" }, legend),
    Object.entries(options).map(([value, label]) =>
      h(
        "label",
        {},
        h("input", { type: "radio", name, value, checked: value === chosen, onchange: () => onchange(value) }),
        h("span", {}, label),
      ),
    ),
  );
}
// A list that is made when it is opened, since it can be long. The key names it among the lists of its section.
function later(key, summary, make) {
  const node = h("details", { "data-key": key }, h("summary", {}, summary));
  node.reveal = () => {
    node.open = true;
    if (node.children.length === 1) node.append(make());
  };
  node.addEventListener("toggle", () => {
    if (node.open) node.reveal();
  });
  return node;
}
// Put newer nodes in the place of older ones. What was open, scrolled or focused there stays so.
function renew(place, ...nodes) {
  const find = (key) => [...place.querySelectorAll("[data-key]")].find((node) => node.dataset.key === key);
  const open = [...place.querySelectorAll("details[open]")].map((node) => node.dataset.key);
  const scrolled = [...place.querySelectorAll(".scroll")].map((node) => [
    node.dataset.key,
    node.scrollTop,
    node.scrollLeft,
  ]);
  const active = document.activeElement,
    focused = place.contains(active) ? active.closest("[data-key]") : null;
  place.replaceChildren(...nodes);
  for (const key of open) if (find(key)) find(key).reveal();
  for (const [key, top, left] of scrolled) if (find(key)) find(key).scrollTo(left, top);
  const node = focused && find(focused.dataset.key);
  if (node) (node.querySelector("summary") || node).focus({ preventScroll: true });
}
