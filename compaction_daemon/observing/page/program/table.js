// One table.

class TableView {
  constructor(path) {
    this.path = path;
    this.axis = "version";
    this.measure = "small_files";
    this.chosen = null;
    this.slices = new Map();
    this.head = h("div", {});
    this.problems = h("div", {});
    this.charts = new Charts(this);
    this.throughput = new ThroughputPart(this);
    this.parts = h("div", {});
    this.root = h("div", {}, this.head, this.problems, this.charts.root, this.throughput.root, this.parts);
    this.places = new Map();
    for (const name of ["work", "consumers", "plan", "conflicts", "refusals", "sizes", "settings", "columns"]) {
      const place = h("div", {});
      this.places.set(name, place);
    }
    const at = (name) => this.places.get(name);
    this.parts.append(
      at("work"),
      at("consumers"),
      at("plan"),
      h("div", { class: "pair" }, at("conflicts"), at("refusals")),
      h("div", { class: "pair" }, at("sizes"), at("settings")),
      at("columns"),
    );
  }
  update(report, live) {
    this.report = report;
    this.live = live;
    this.parts.hidden = this.charts.root.hidden = this.throughput.root.hidden = !report;
    renew(this.head, ...this.header());
    if (!report) return;
    this.problems.replaceChildren(...this.faults());
    this.fill("work", live && [live.totals, live.last_compaction, live.next_look], () => workPart(live));
    this.fill("versions", [report.versions, report.losses], () => this.charts.update(report));
    this.fill("throughput", [report.versions, report.streams], () => this.throughput.update(report));
    this.fill("consumers", report.consumers, () => consumersPart(report));
    this.fill("plan", report.plans, () => planPart(report));
    this.fill("conflicts", report.losses, () => conflictsPart(report));
    this.fill("refusals", report.refusals, () => refusalsPart(report));
    this.fill("sizes", report.file_sizes, () => this.sizesPart(report));
    this.fill("settings", [report.properties, report.retentions, report.clean_ups], () => settingsPart(report));
    this.fill("columns", [report.columns, report.protocol], () => columnsPart(report));
  }
  // Make a part again only if its data changed.
  fill(name, data, make) {
    const text = JSON.stringify(data === undefined ? null : data);
    if (this.slices.get(name) === text) return;
    this.slices.set(name, text);
    const part = make();
    if (this.places.has(name)) renew(this.places.get(name), part);
  }
  faults() {
    const lost = this.problem
      ? [h("p", { class: "problem" }, own(this.problem), " The page shows what it read before.")]
      : [];
    const unread = this.report.problems.map((problem) =>
      h("p", { class: "problem" }, `This part could not be read: ${problem.part}. `, own(problem.error)),
    );
    return [...lost, ...unread];
  }
  header() {
    const report = this.report,
      live = this.live;
    const back = embedded
      ? null
      : h("a", { class: "back", href: "#/", id: "back", "data-key": "back" }, "← All tables");
    const title = h("div", { class: "path" }, back, h("h1", {}, own(this.path)), live ? stateMark(live.state) : null);
    const fault =
      live && live.error
        ? h(
            "p",
            { class: "problem" },
            own(live.error),
            live.next_look ? [" The next look is at ", moment(live.next_look), "."] : null,
          )
        : null;
    const upkeep = (live ? live.upkeep_errors : []).map((each) =>
      h(
        "p",
        { class: "problem" },
        `Upkeep fails (${each.chore}) since `,
        moment(each.since),
        ": ",
        own(each.error),
        " The next try is at ",
        moment(each.retry_at),
        ".",
      ),
    );
    if (!report) return [title, fault, ...upkeep, empty(this.problem || "Reading the log of the table…")].filter(Boolean);
    const slowest = Math.max(0, ...report.consumers.map((each) => (each.lag ? each.lag.seconds : 0)));
    const debt = report.debt,
      now = Date.parse(live ? live.at : report.made_at);
    return [
      title,
      fault,
      ...upkeep,
      tiles([
        ["Version", count(report.version), moment(report.timestamp)],
        ["Rows", count(report.size.rows), report.time_version ? ["changed ", ago(report.time_version, now)] : null],
        ["Files", count(report.size.files), size(report.size.bytes)],
        ["Small files", count(report.size.small_files), size(report.size.small_bytes)],
        [
          "Dead rows",
          count(report.size.dead_rows),
          report.size.dead_rows ? `in ${counted(report.size.dead_row_files, "file")}` : null,
        ],
        debt
          ? [
              "Log tail",
              counted(debt.log_tail, "commit"),
              debt.log_tail > report.version ? "no checkpoint yet" : "since the newest checkpoint",
            ]
          : null,
        [
          "Consumers",
          count(report.consumers.length),
          slowest ? `slowest ${duration(slowest)} behind` : report.consumers.length ? "none behind" : null,
        ],
        leaseTile(report, live),
      ]),
    ].filter(Boolean);
  }
  sizesPart(report) {
    const bars = trimmed(report.file_sizes),
      canvas = h("canvas", { "aria-hidden": "true" });
    const label = (bar, index) =>
      bar.below === null ? `${size(bars[index - 1] ? bars[index - 1].below : 0)} or more` : `below ${size(bar.below)}`;
    const rows = bars.map((bar, index) => [label(bar, index), count(bar.files), size(bar.bytes)]);
    if (this.bars) this.bars.destroy();
    this.bars = null;
    if (!report.size.files)
      return bare(
        "sizes",
        "File sizes",
        "The table has no files. They are counted here after the first commit with rows.",
      );
    queueMicrotask(() => {
      this.bars = sizesChart(canvas, bars, label);
    });
    return section(
      "sizes",
      "File sizes",
      "Number of live files by size.",
      h(
        "div",
        {
          class: "chart bars",
          role: "img",
          "aria-label": `File sizes: ${rows.map((row) => `${row[0]} ${row[1]}`).join(", ")}`,
        },
        canvas,
      ),
      later("sizes", "File sizes as a table", () =>
        grid("File sizes", [{ name: "Size" }, { name: "Files", num: true }, { name: "Bytes", num: true }], rows),
      ),
    );
  }
  redraw() {
    this.charts.draw();
    this.throughput.draw();
    if (this.bars) {
      this.slices.delete("sizes");
      this.fill("sizes", this.report.file_sizes, () => this.sizesPart(this.report));
    }
  }
  close() {
    this.charts.close();
    this.throughput.close();
    if (this.bars) this.bars.destroy();
  }
}
function leaseTile(report, live) {
  const lease = report.lease;
  if (live && live.epoch !== null) return ["Lease", `epoch ${count(live.epoch)}`, "of this daemon"];
  if (!lease) return ["Lease", "none", live ? "no work yet" : "no daemon yet"];
  return ["Lease", lease.state, [`epoch ${count(lease.epoch)} of `, owner(lease.owner)]];
}
