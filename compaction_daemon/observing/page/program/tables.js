// The list of tables.

const ROWS_AT_FIRST = 100;
const STATES = {
  failing: "The last look failed; it is tried again.",
  missing: "There is no table at the path.",
  working: "There is work to do.",
  watched: "Nothing to do at the last look.",
  elsewhere: "Another daemon has the lease.",
  new: "Not looked at yet.",
};

const SORTS = {
  attention: ["What needs attention", (a, b) => rank(a) - rank(b) || small(b) - small(a) || byName(a, b)],
  name: ["Name", (a, b) => byName(a, b)],
  small: ["Most small files", (a, b) => small(b) - small(a) || byName(a, b)],
  dead: ["Most dead rows", (a, b) => dead(b) - dead(a) || byName(a, b)],
  lag: ["Longest lag", (a, b) => lag(b) - lag(a) || byName(a, b)],
  compaction: ["Newest compaction", (a, b) => when(b) - when(a) || byName(a, b)],
};
// What goes wrong at a table, also beside its newest look.
const upkeepFaults = (table) => table.upkeep_errors.map((each) => `${each.chore} fails: ${each.error}`);
const leftAlone = (table) =>
  table.left_alone ? `${counted(table.left_alone.groups, "group")} left alone: ${table.left_alone.error}` : "";
const faultsOf = (table) => [table.error, ...upkeepFaults(table), leftAlone(table)].filter(Boolean).join(" · ");
const rank = (table) =>
  table.state !== "failing" && (table.upkeep_errors.length || table.left_alone)
    ? 0.5
    : Object.keys(STATES).indexOf(table.state);
const small = (table) => (table.debt ? table.debt.small_files : -1);
const dead = (table) => (table.debt ? table.debt.dead_rows : -1);
const lag = (table) => (table.lag ? table.lag.seconds : -1);
const when = (table) => (table.last_compaction ? Date.parse(table.last_compaction) : 0);
const byName = (a, b) => (a.path < b.path ? -1 : a.path > b.path ? 1 : 0);

function stateMark(state, text) {
  return h("span", { class: `state state-${state}`, title: STATES[state] }, text || state);
}
function lagOf(table) {
  if (!table.lag) return ["–"];
  if (!table.lag.consumers) return [h("span", { class: "muted" }, "no consumer")];
  if (!table.lag.versions) return ["none"];
  return [duration(table.lag.seconds), h("small", {}, counted(table.lag.versions, "version"))];
}

class TablesView {
  constructor() {
    this.rows = new Map();
    this.filter = { text: "", state: "", sort: "attention", all: false };
    this.owner = h("p", { class: "muted" });
    this.tiles = h("div", {});
    this.body = h("tbody", { role: "rowgroup" });
    this.none = empty("");
    this.more = h("button", {
      type: "button",
      hidden: true,
      onclick: () => {
        this.filter.all = true;
        this.show();
      },
    });
    this.found = h("p", { class: "found muted", role: "status" });
    this.search = h("input", {
      type: "search",
      id: "search",
      placeholder: "Search tables and errors",
      "aria-label": "Search tables and errors",
      oninput: () => {
        this.filter.text = this.search.value;
        this.show();
      },
    });
    const select = (id, label, options, key) => {
      const onchange = (event) => {
        this.filter[key] = event.target.value;
        this.show();
      };
      const choices = Object.entries(options).map(([value, text]) => h("option", { value }, text));
      return h("div", { class: "field" }, h("label", { for: id }, label), h("select", { id, onchange }, choices));
    };
    const states = { "": "All states", ...Object.fromEntries(Object.keys(STATES).map((state) => [state, state])) };
    const sorts = Object.fromEntries(Object.entries(SORTS).map(([key, [label]]) => [key, label]));
    const names = ["Table", "State", "Small files", "Dead rows", "Trend", "Lag", "Last compaction", "Version"];
    const widths = ["w-name", "w-state", "w-num num", "w-num num", "w-trend", "w-lag num", "w-time num", "w-num num"];
    this.table = h(
      "table",
      { class: "tables", role: "table", "aria-label": "Tables" },
      h(
        "thead",
        { role: "rowgroup" },
        h(
          "tr",
          { role: "row" },
          names.map((name, index) => h("th", { scope: "col", role: "columnheader", class: widths[index] }, name)),
        ),
      ),
      this.body,
    );
    this.root = h(
      "div",
      {},
      h("div", { class: "path" }, h("h1", {}, "Tables"), this.owner),
      this.tiles,
      h(
        "div",
        { class: "tools" },
        this.search,
        select("state", "State", states, "state"),
        select("sort", "Sort by", sorts, "sort"),
        this.found,
      ),
      h("section", { class: "panel", "aria-label": "List of tables" }, this.table, this.none, this.more),
    );
    // Lines are drawn when they come into view: a thousand canvases would take a second.
    this.seen = new IntersectionObserver((entries) =>
      entries.filter((entry) => entry.isIntersecting).forEach((entry) => this.draw(entry.target)),
    );
  }
  update(status) {
    this.status = status;
    const now = Date.parse(status.at),
      tables = status.tables;
    const states = Object.keys(STATES)
      .filter((state) => tables.some((table) => table.state === state))
      .map((state) => stateMark(state, `${count(tables.filter((table) => table.state === state).length)} ${state}`));
    const sum = (read) => tables.reduce((total, table) => total + (read(table) || 0), 0);
    const behind = tables.filter((table) => table.lag && table.lag.versions > 0);
    const limit = status.bytes_per_hour;
    this.owner.replaceChildren("of the daemon ", owner(status.owner));
    this.tiles.replaceChildren(
      tiles([
        ["Tables", count(tables.length), h("span", { class: "states" }, states)],
        [
          "Small files",
          count(sum((table) => table.debt && table.debt.small_files)),
          size(sum((table) => table.debt && table.debt.small_bytes)),
        ],
        ["Dead rows", count(sum((table) => table.debt && table.debt.dead_rows))],
        [
          "Slowest consumer",
          behind.length ? duration(Math.max(...behind.map((table) => table.lag.seconds))) : "none behind",
          behind.length ? `of ${counted(behind.length, "table")}` : null,
        ],
        ["Read in the last hour", size(status.bytes_last_hour), limit ? `of at most ${size(limit)}` : "no limit"],
        ["Steps", count(status.steps), status.last_step ? ["last ", ago(status.last_step, now)] : "none yet"],
        ["Running for", about((now - Date.parse(status.started)) / 1000), ["since ", moment(status.started)]],
      ]),
    );
    this.show();
  }
  show() {
    if (!this.status) return;
    const words = this.filter.text.toLowerCase().split(/\s+/).filter(Boolean);
    const matches = this.status.tables.filter(
      (table) =>
        (!this.filter.state || table.state === this.filter.state) &&
        words.every((word) => `${table.path} ${faultsOf(table)}`.toLowerCase().includes(word)),
    );
    matches.sort(SORTS[this.filter.sort][1]);
    const shown = this.filter.all ? matches : matches.slice(0, ROWS_AT_FIRST);
    const known = new Set(this.status.tables.map((table) => table.path));
    for (const [path, row] of this.rows)
      if (!known.has(path)) {
        row.forget();
        this.rows.delete(path);
      }
    const wanted = shown.map((table) => this.row(table).node);
    // Rows are moved only if they have to be, so that the keyboard's focus stays.
    if (
      wanted.length !== this.body.children.length ||
      wanted.some((node, index) => this.body.children[index] !== node)
    ) {
      const focused = document.activeElement;
      this.body.replaceChildren(...wanted);
      if (focused && this.body.contains(focused)) focused.focus({ preventScroll: true });
    }
    const total = this.status.tables.length;
    setText(this.found, matches.length === total ? "" : `${count(matches.length)} of ${counted(total, "table")}`);
    this.more.hidden = shown.length === matches.length;
    setText(this.more, `Show all ${count(matches.length)} tables`);
    this.none.hidden = matches.length > 0;
    this.table.hidden = matches.length === 0;
    setText(
      this.none,
      total
        ? "No table matches. Clear the search or choose all states."
        : "The daemon watches no table yet. Tables that appear at its paths, globs and folders are listed here within a minute. If you miss one, check the paths in the daemon’s configuration.",
    );
  }
  row(table) {
    let row = this.rows.get(table.path);
    if (!row) {
      row = this.newRow(table.path);
      this.rows.set(table.path, row);
    }
    const now = Date.parse(this.status.at),
      cell = row.cells;
    row.state.className = `state state-${table.state}`;
    setText(row.state, table.state);
    row.state.title = STATES[table.state] || "";
    const faults = faultsOf(table);
    setText(row.fault, faults || (table.held_by ? `held by ${owner(table.held_by).textContent}` : ""));
    row.fault.hidden = !row.fault.textContent;
    row.fault.className = faults ? "fault" : "fault muted";
    setText(cell[2], table.debt ? count(table.debt.small_files) : "–");
    setText(cell[3], table.debt ? count(table.debt.dead_rows) : "–");
    cell[5].replaceChildren(...lagOf(table));
    cell[6].replaceChildren(table.last_compaction ? ago(table.last_compaction, now) : "–");
    setText(cell[7], table.version === null ? "–" : count(table.version));
    const trend = JSON.stringify(table.trend);
    if (row.trend !== trend) {
      row.trend = trend;
      row.points = table.trend;
      row.stale = true;
      row.canvas.hidden = !row.points.length;
      row.flat.hidden = !row.canvas.hidden;
      this.seen.unobserve(row.canvas);
      this.seen.observe(row.canvas);
    }
    // A narrow window leaves out what there is not.
    for (const each of cell)
      each.classList.toggle("none", each.textContent === "–" && !each.querySelector("canvas:not([hidden])"));
    return row;
  }
  newRow(path) {
    const labels = ["", "State", "Small files", "Dead rows", "Trend", "Lag", "Last compaction", "Version"];
    const cells = labels.map((label, index) =>
      h("td", {
        role: "cell",
        "data-label": label,
        class: index === 0 ? "name" : index > 1 && index !== 4 ? "num" : null,
      }),
    );
    const canvas = h("canvas", { class: "spark", width: 130, height: 28, "aria-hidden": "true" });
    const row = {
      cells,
      canvas,
      flat: h("span", {}, "–"),
      state: h("span", {}),
      fault: h("span", {}),
      chart: null,
      stale: true,
      points: [],
      trend: "",
    };
    cells[0].append(h("a", { href: `#/table/${encodeURIComponent(path)}` }, own(path)), row.fault);
    cells[1].append(row.state);
    cells[4].append(canvas, row.flat);
    row.node = h("tr", { role: "row" }, cells);
    row.forget = () => {
      this.seen.unobserve(canvas);
      if (row.chart) row.chart.destroy();
    };
    canvas.row = row;
    return row;
  }
  draw(canvas) {
    const row = canvas.row;
    if (!row.stale) return;
    row.stale = false;
    if (row.chart) row.chart.destroy();
    row.chart = row.points.length
      ? sparkline(
          canvas,
          row.points.map(([at, files]) => ({ x: Date.parse(at), y: files })),
        )
      : null;
  }
  redraw() {
    for (const row of this.rows.values()) {
      row.stale = true;
      this.seen.unobserve(row.canvas);
      this.seen.observe(row.canvas);
    }
  }
  close() {
    this.seen.disconnect();
    for (const row of this.rows.values()) row.forget();
  }
}
