// The trend of the debt and the timeline of versions: two charts with the same versions.

const ROWS_OF_VERSIONS = 100;
const LANES = [
  { key: "OVERWRITE", label: "Overwrite", colour: "--overwrite", shape: "rectRounded" },
  { key: "UPDATE_DELETE", label: "Update", colour: "--change", shape: "triangle" },
  { key: "INSERT", label: "Insert", colour: "--insert", shape: "circle" },
  { key: "NONE", label: "No rows", colour: "--none", shape: "line" },
  { key: "CONFLICT", label: "Conflicts", colour: "--bad", shape: "crossRot" },
  { key: "MINOR", label: "Minor", colour: "--minor", shape: "rect" },
  { key: "MAJOR", label: "Major", colour: "--major", shape: "rectRot" },
];
const CLASS_NAMES = {
  OVERWRITE: "overwrite",
  UPDATE_DELETE: "update or delete",
  INSERT: "insert",
  NONE: "no rows changed",
  MINOR: "minor compaction",
  MAJOR: "major compaction",
};
const MEASURES = {
  small_files: { label: "Small files", colour: "--insert" },
  files: { label: "Files", colour: "--major" },
  dead_rows: { label: "Dead rows", colour: "--change" },
  rows: { label: "Rows", colour: "--minor" },
  bytes: { label: "Size", colour: "--overwrite", format: (value) => size(value) },
};
class Charts {
  constructor(view) {
    this.view = view;
    this.debtCanvas = h("canvas", { "aria-hidden": "true" });
    this.laneCanvas = h("canvas", { "aria-hidden": "true" });
    this.debtBox = h("div", { class: "chart", role: "img" }, this.debtCanvas);
    this.slider = h(
      "div",
      {
        class: "chart lanes",
        role: "slider",
        tabindex: "0",
        id: "timeline-slider",
        "aria-label": "Timeline of versions",
        "aria-orientation": "horizontal",
        onkeydown: (event) => this.key(event),
      },
      this.laneCanvas,
    );
    this.detail = h("div", { class: "detail", "aria-live": "polite", id: "version-detail" });
    this.table = h("div", {});
    const measures = Object.fromEntries(Object.entries(MEASURES).map(([key, { label }]) => [key, label]));
    this.debt = section(
      "debt",
      "Debt and its trend",
      "After each version, from the log alone.",
      h(
        "div",
        { class: "tools" },
        choice("What to draw", "measure", measures, view.measure, (value) => {
          view.measure = value;
          this.draw();
        }),
        choice("Axis", "axis", { version: "By version", time: "By time" }, view.axis, (value) => {
          view.axis = value;
          this.draw();
          view.throughput.draw();
        }),
      ),
      this.debtBox,
    );
    this.debtPlace = h("div", {});
    this.root = h(
      "div",
      {},
      this.debtPlace,
      section(
        "timeline",
        "Timeline",
        "Commits of users above, compactions below. Arrow keys move from version to version.",
        this.slider,
        this.detail,
        this.table,
      ),
    );
  }
  update(report) {
    this.versions = [...report.versions].reverse();
    this.losses = new Map();
    for (const loss of report.losses) {
      if (!this.losses.has(loss.winning_version)) this.losses.set(loss.winning_version, []);
      this.losses.get(loss.winning_version).push(loss);
    }
    const newest = this.versions.length ? this.versions[this.versions.length - 1].version : null;
    const known = this.versions.some((entry) => entry.version === this.view.chosen);
    // Follow the newest version, unless another one was chosen.
    if (!known || this.follows) {
      this.view.chosen = newest;
      this.follows = true;
    }
    this.draw();
    this.fillTable(report);
  }
  x(entry) {
    return this.view.axis === "time" ? Date.parse(entry.timestamp) : entry.version;
  }
  draw() {
    this.close();
    const number = this.versions ? this.versions.length : 0,
      few = number < 2;
    // One version makes no line.
    this.slider.hidden = few;
    if (!few && !this.debt.isConnected) this.debtPlace.replaceChildren(this.debt);
    if (few) {
      const text = "The trend begins with the next version.";
      this.debtPlace.replaceChildren(bare("debt", "Debt and its trend", text));
      const none = empty("The log has no versions that can be read.");
      this.detail.replaceChildren(number ? this.details(this.versions[0]) : none);
      return;
    }
    const points = this.versions.map((entry) => this.x(entry));
    this.debtChart = this.newDebtChart(points);
    this.laneChart = this.newLaneChart(points);
    this.choose(this.view.chosen);
  }
  newDebtChart(points) {
    const { label, colour: name, format = count } = MEASURES[this.view.measure];
    const values = this.versions.map((entry) => entry.size[this.view.measure]);
    const numbers = values.filter((value) => value !== null);
    const range = numbers.length
      ? `now ${format(numbers[numbers.length - 1])}, between ${format(Math.min(...numbers))} and ${format(Math.max(...numbers))}`
      : "unknown";
    this.debtBox.setAttribute("aria-label", `${label}: ${range} in the newest ${counted(values.length, "version")}`);
    return new Chart(this.debtCanvas, {
      type: "line",
      data: {
        datasets: [
          {
            label,
            data: points.map((x, index) => ({ x, y: values[index] })),
            borderColor: colour(name),
            backgroundColor: colour(name, 0.13),
            fill: "origin",
            stepped: true,
            borderWidth: 1.8,
            pointRadius: points.length < 40 ? 2 : 0,
            pointHoverRadius: 4,
          },
        ],
      },
      options: this.options(
        points,
        {
          y: axisY({
            beginAtZero: true,
            ticks: { precision: 0, maxTicksLimit: 6, callback: (value) => format(value) },
          }),
        },
        (item) => `${label}: ${format(item.raw.y)}`,
      ),
      plugins: [chosenLine],
    });
  }
  newLaneChart(points) {
    const inUse = new Set(["INSERT", "MINOR", ...this.versions.map((entry) => entry.operation_class)]);
    if (this.losses.size) inUse.add("CONFLICT");
    const lanes = LANES.filter((lane) => inUse.has(lane.key)),
      at = new Map(lanes.map((lane, index) => [lane.key, index]));
    const point = (entry, index, lane) => ({ x: points[index], y: at.get(lane), version: entry.version });
    const datasets = lanes.map((lane) => ({
      label: lane.label,
      pointStyle: lane.shape,
      // Forms of the same radius do not look equally large.
      pointRadius: { circle: 4, line: 5 }[lane.shape] || 5.5,
      pointHoverRadius: 7,
      backgroundColor: colour(lane.colour),
      borderColor: colour(lane.colour),
      borderWidth: ["crossRot", "line"].includes(lane.shape) ? 2 : 0,
      data: this.versions
        .map((entry, index) => [entry, index])
        .filter(([entry]) =>
          lane.key === "CONFLICT" ? this.losses.has(entry.version) : entry.operation_class === lane.key,
        )
        .map(([entry, index]) => point(entry, index, lane.key)),
    }));
    const rebased = this.versions.map((entry, index) => [entry, index]).filter(([entry]) => entry.rebased_over);
    if (rebased.length)
      datasets.push({
        label: "Rebased",
        pointStyle: "circle",
        pointRadius: 7.5,
        pointHoverRadius: 8,
        borderWidth: 1.6,
        backgroundColor: "transparent",
        borderColor: colour("--warn"),
        data: rebased.map(([entry, index]) => point(entry, index, entry.operation_class)),
      });
    const options = this.options(
      points,
      {
        y: axisY({
          min: -0.6,
          max: lanes.length - 0.4,
          reverse: true,
          afterBuildTicks: (axis) => {
            axis.ticks = lanes.map((_, value) => ({ value }));
          },
          ticks: { callback: (value) => lanes[value].label, autoSkip: false, padding: 4 },
        }),
      },
      (item) => this.caption(item.raw.version),
    );
    options.plugins.legend = {
      display: rebased.length > 0,
      position: "bottom",
      // The lanes have names; a ring is explained.
      labels: { usePointStyle: true, boxHeight: 9, padding: 12, filter: (item) => item.text === "Rebased" },
      onClick: () => {},
    };
    return new Chart(this.laneCanvas, { type: "scatter", data: { datasets }, options, plugins: [chosenLine] });
  }
  options(points, scales, label) {
    return {
      parsing: false,
      normalized: true,
      interaction: { mode: "nearest", axis: "x", intersect: false },
      layout: { padding: { right: 10, top: 4 } },
      scales: { x: axisX(points, this.view.axis === "time"), ...scales },
      onClick: (event, _, chart) => this.click(event, chart),
      plugins: {
        legend: { display: false },
        chosenLine: { colour: colour("--strong-line") },
        tooltip: { callbacks: { title: (items) => this.title(items[0].raw.x), label } },
      },
    };
  }
  title(x) {
    const entry = this.versions.find((each) => this.x(each) === x);
    return entry ? `Version ${count(entry.version)}, ${new Date(entry.timestamp).toLocaleString("sv")}` : "";
  }
  click(event, chart) {
    const x = chart.scales.x.getValueForPixel(event.x);
    let nearest = this.versions[0];
    for (const entry of this.versions) if (Math.abs(this.x(entry) - x) < Math.abs(this.x(nearest) - x)) nearest = entry;
    this.pick(nearest.version);
  }
  key(event) {
    const last = this.versions.length - 1;
    const index = this.versions.findIndex((entry) => entry.version === this.view.chosen);
    const moves = {
      ArrowRight: index + 1,
      ArrowUp: index + 1,
      ArrowLeft: index - 1,
      ArrowDown: index - 1,
      PageUp: index + 10,
      PageDown: index - 10,
      Home: 0,
      End: last,
    };
    if (!(event.key in moves) || event.ctrlKey || event.altKey || event.metaKey) return;
    event.preventDefault();
    this.pick(this.versions[Math.min(last, Math.max(0, moves[event.key]))].version);
  }
  pick(version) {
    this.follows = version === this.versions[this.versions.length - 1].version;
    this.choose(version);
  }
  choose(version) {
    this.view.chosen = version;
    const entry = this.versions.find((each) => each.version === version);
    for (const chart of [this.debtChart, this.laneChart]) {
      chart.chosenX = this.x(entry);
      chart.draw();
    }
    this.slider.setAttribute("aria-valuemin", this.versions[0].version);
    this.slider.setAttribute("aria-valuemax", this.versions[this.versions.length - 1].version);
    this.slider.setAttribute("aria-valuenow", version);
    this.slider.setAttribute("aria-valuetext", `version ${version}: ${this.caption(version)}`);
    this.detail.replaceChildren(this.details(entry));
  }
  caption(version) {
    const entry = this.versions.find((each) => each.version === version),
      lost = this.losses.get(version) || [];
    return [
      what(entry),
      changedFiles(entry),
      entry.rebased_over ? `rebased over ${span(entry.rebased_over)}` : "",
      lost.length ? `${counted(lost.length, "operation")} lost to it` : "",
    ]
      .filter(Boolean)
      .join(", ");
  }
  details(entry) {
    const lost = this.losses.get(entry.version) || [],
      size_ = entry.size;
    return h(
      "div",
      {},
      facts([
        ["Version", h("strong", {}, count(entry.version))],
        ["Committed", moment(entry.timestamp)],
        ["Time version", entry.time_version ? "set to this time" : "stays"],
        ["What", own(what(entry))],
        ["Files", changedFiles(entry) || "none"],
        entry.rows_written !== null ? ["Rows written", count(entry.rows_written)] : null,
        entry.engine ? ["Engine", own(entry.engine)] : null,
        ...applicationFacts(entry),
        entry.rebased_over
          ? [
              "Rebased over",
              `${span(entry.rebased_over)}${entry.rebase_rules.length ? ` (${entry.rebase_rules.join(", ")})` : ""}`,
            ]
          : null,
        entry.user_metadata ? ["User's text", own(entry.user_metadata)] : null,
        ...costFacts(entry),
        [
          "After it",
          `${counted(size_.files, "file")}, ${count(size_.small_files)} small, ${size_.rows === null ? "rows unknown" : counted(size_.rows, "row")}`,
        ],
      ]),
      lost.length
        ? h(
            "ul",
            { class: "reasons" },
            lost.map((loss) => h("li", {}, h("span", { class: "bad" }, "lost"), h("span", {}, own(lossText(loss))))),
          )
        : null,
    );
  }
  fillTable(report) {
    const columns = [
      { name: "Version", num: true },
      { name: "Committed" },
      { name: "What" },
      { name: "Files", long: true },
      { name: "Rows written", num: true },
      { name: "Rebased over" },
      { name: "Lost to it", num: true },
      { name: "Small files after", num: true },
      { name: "Dead rows after", num: true },
      { name: "Engine" },
    ];
    const row = (entry) => [
      count(entry.version),
      moment(entry.timestamp),
      own(what(entry)),
      changedFiles(entry),
      entry.rows_written === null ? "" : count(entry.rows_written),
      entry.rebased_over ? span(entry.rebased_over) : "",
      (this.losses.get(entry.version) || []).length || "",
      count(entry.size.small_files),
      count(entry.size.dead_rows),
      own(entry.engine),
    ];
    const list = later("versions", `The newest ${counted(report.versions.length, "version")} as a table`, () => {
      const rows = report.versions.map(row),
        box = h("div", {}, grid("Versions", columns, rows.slice(0, ROWS_OF_VERSIONS), { tall: true }));
      if (rows.length > ROWS_OF_VERSIONS) {
        const more = h(
          "button",
          { type: "button", onclick: () => box.replaceChildren(grid("Versions", columns, rows, { tall: true })) },
          `Show all ${count(rows.length)} versions`,
        );
        box.append(more);
      }
      return box;
    });
    renew(this.table, list);
  }
  close() {
    for (const chart of [this.debtChart, this.laneChart]) if (chart) chart.destroy();
    this.debtChart = this.laneChart = null;
  }
}
// The ledger and the log are files, in which any writer could put any text.
const className = (name) => (Object.hasOwn(CLASS_NAMES, name) ? CLASS_NAMES[name] : name);
function what(entry) {
  const name = className(entry.operation_class);
  return entry.operation ? `${name} (${entry.operation})` : name;
}
function changedFiles(entry) {
  const parts = [];
  if (entry.files_removed) parts.push(`−${counted(entry.files_removed, "file")} (${size(entry.bytes_removed)})`);
  if (entry.files_added) parts.push(`+${counted(entry.files_added, "file")} (${size(entry.bytes_added)})`);
  return parts.join(" ");
}
// Who wrote it: the batch of a stream, or the applications that it names.
function applicationFacts({ batch, applications }) {
  if (!batch) return applications.length ? [["Application", brief(applications.join(", "))]] : [];
  const of = batch.query_id === null ? null : h("small", {}, "query ", brief(batch.query_id));
  return [
    ["Stream", [brief(streamName(batch)), of]],
    [
      "Batch",
      [count(batch.batch_id), batch.seconds === null ? null : h("small", {}, `took ${duration(batch.seconds)}`)],
    ],
  ];
}
// What a compaction should have cost, and did.
function costFacts({ predicted, actual }) {
  if (!predicted || !actual) return [];
  const text = (each) =>
    `${size(each.bytes_read)} read, ${size(each.bytes_written)} written, ${duration(each.seconds)}`;
  return [
    ["Predicted cost", text(predicted)],
    ["Actual cost", text(actual)],
  ];
}
const span = ([first, last]) => (first === last ? count(first) : `${count(first)}–${count(last)}`);
