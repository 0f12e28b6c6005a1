// How fast streams and other writers write: a chart of all of them, and a card for each.

const BIN_STEPS = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400];
const STREAM_COLOURS = ["insert", "change", "overwrite", "minor"];
const OTHERS = { key: "", label: "others", colour: "none" };

// The name of a stream as people know it: that of its query, or else of its sink, or of its application.
const streamName = (stream) => {
  if (stream.sink === null) return stream.application;
  if (!stream.query_name) return stream.sink;
  return stream.sink === "default" ? stream.query_name : `${stream.query_name}, ${stream.sink}`;
};

class ThroughputPart {
  constructor(view) {
    this.view = view;
    this.root = h("div", {});
    this.drawn = [];
  }
  update(report) {
    this.report = report;
    this.entries = report.versions.filter((entry) => entry.rows_written !== null).reverse();
    this.draw();
  }
  draw() {
    this.close();
    if (!this.report) return;
    if (!this.entries.length) {
      renew(this.root, bare("throughput", "Throughput", "None of the versions that can be read wrote rows."));
      return;
    }
    const series = this.series(),
      bins = (this.view.axis === "time" ? binnedByTime : binnedByVersion)(this.entries, series),
      canvas = h("canvas", { "aria-hidden": "true" });
    const words = series.map((each) => `${each.label} ${count(each.rows)}`).join(", ");
    renew(
      this.root,
      section(
        "throughput",
        "Throughput",
        `Rows that the newest ${counted(this.report.versions.length, "version")} wrote, from the log alone.`,
        h(
          "div",
          { class: "chart bars", role: "img", "aria-label": `Rows written per ${bins.unit}: ${words}` },
          canvas,
        ),
        h("div", { class: "cards" }, this.whole(), this.report.streams.map((stream) => this.card(stream, series))),
      ),
    );
    this.keep(() => rowsChart(canvas, bins, series));
  }
  // Draw when the canvas is in the document, and can say how wide it is.
  keep(make) {
    queueMicrotask(() => this.drawn.push(make()));
  }
  // Those who wrote most have colours; the others are one.
  series() {
    const found = new Map();
    for (const entry of this.entries) {
      const key = entry.batch ? entry.batch.application : "";
      found.set(key, (found.get(key) || 0) + entry.rows_written);
    }
    const named = [...found]
      .filter(([key]) => key !== "" && this.report.streams.some((stream) => stream.application === key))
      .sort((a, b) => b[1] - a[1])
      .slice(0, STREAM_COLOURS.length)
      .map(([key, rows], index) => {
        const stream = this.report.streams.find((each) => each.application === key);
        return { key, label: shortened(streamName(stream)), rows, colour: STREAM_COLOURS[index] };
      });
    const all = [...found.values()].reduce((sum, rows) => sum + rows, 0),
      rest = all - named.reduce((sum, each) => sum + each.rows, 0);
    return rest > 0 || !named.length ? [...named, { ...OTHERS, rows: rest }] : named;
  }
  whole() {
    const { throughput } = this.report;
    return h(
      "div",
      { class: "card" },
      h("h3", {}, "The table"),
      h("p", { class: "muted" }, "all who write"),
      h("p", { class: "rate" }, rate(throughput.rows_per_second)),
      facts([
        ["Rows", count(throughput.rows)],
        ["Commits", count(throughput.commits)],
        ["Written", size(throughput.bytes)],
        ["Since", h("small", {}, moment(throughput.first))],
      ]),
    );
  }
  card(stream, series) {
    const { throughput } = stream,
      { colour: name } = series.find((each) => each.key === stream.application) || OTHERS;
    const batches = this.entries.filter((entry) => entry.batch && entry.batch.application === stream.application),
      timed = batches.filter((entry) => entry.batch.seconds !== null),
      canvas = h("canvas", { class: "spark", width: 130, height: 28, "aria-hidden": "true" });
    const points = timed.length
      ? timed.map((entry) => ({ x: Date.parse(entry.timestamp), y: entry.batch.seconds }))
      : batches.map((entry) => ({ x: Date.parse(entry.timestamp), y: entry.rows_written }));
    const isLine = points.length > 1;
    if (isLine) this.keep(() => sparkline(canvas, points, { name: `--${name}`, stepped: false }));
    return h(
      "div",
      { class: "card" },
      h("h3", {}, h("i", { class: `swatch c-${name}` }), brief(streamName(stream))),
      h(
        "p",
        { class: "muted" },
        stream.query_id === null ? "an application" : ["query ", brief(stream.query_id)],
      ),
      h("p", { class: "rate" }, rate(throughput.rows_per_second)),
      facts([
        ["Rows", count(throughput.rows)],
        ["Commits", count(throughput.commits)],
        stream.seconds === null
          ? null
          : ["Batch", [duration(stream.seconds), h("small", {}, `slowest ${duration(stream.max_seconds)}`)]],
        ["Newest", [`batch ${count(stream.last_batch)}`, h("small", {}, moment(throughput.last))]],
      ]),
      isLine
        ? h("p", { class: "trend muted" }, canvas, timed.length ? "time of each batch" : "rows of each batch")
        : null,
    );
  }
  close() {
    for (const chart of this.drawn) chart.destroy();
    this.drawn = [];
  }
}
// The rows of each writer in equal spans of time that are easy to read.
function binnedByTime(entries, series) {
  const times = entries.map((entry) => Date.parse(entry.timestamp) / 1000),
    first = Math.min(...times),
    width = Math.max(...times) - first,
    most = narrow() ? 24 : 60;
  const step = BIN_STEPS.find((each) => width / each < most) || Math.ceil(width / most / 86400) * 86400;
  // Spans begin at full hours and days of the reader's clock.
  const offset = new Date(first * 1000).getTimezoneOffset() * 60,
    start = Math.floor((first - offset) / step) * step + offset;
  const label = (bin) => {
    const date = new Date((start + bin * step) * 1000);
    return step >= 86400 ? day(date) : clock(date, step < 60);
  };
  const places = times.map((time) => Math.floor((time - start) / step));
  return binned(entries, series, places, label, duration(step).replace(".0", ""));
}
function binnedByVersion(entries, series) {
  const first = entries[0].version,
    width = entries[entries.length - 1].version - first,
    most = narrow() ? 30 : 100;
  const step = [1, 2, 5, 10, 20].find((each) => width / each < most) || Math.ceil(width / most);
  const label = (bin) => count(first + bin * step);
  const places = entries.map((entry) => Math.floor((entry.version - first) / step));
  return binned(entries, series, places, label, step === 1 ? "version" : `${step} versions`);
}
// `places` has the bin of each entry.
function binned(entries, series, places, label, unit) {
  const number = Math.max(...places) + 1,
    rows = new Map(series.map((each) => [each.key, new Array(number).fill(0)]));
  entries.forEach((entry, index) => {
    const known = rows.get(entry.batch ? entry.batch.application : "") || rows.get("");
    known[places[index]] += entry.rows_written;
  });
  return { labels: Array.from({ length: number }, (_, bin) => label(bin)), rows, unit };
}
function rowsChart(canvas, bins, series) {
  return new Chart(canvas, {
    type: "bar",
    data: {
      labels: bins.labels,
      datasets: series.map((each) => ({
        label: each.label,
        data: bins.rows.get(each.key),
        backgroundColor: colour(`--${each.colour}`),
        maxBarThickness: 40,
        categoryPercentage: 0.95,
        barPercentage: 0.95,
      })),
    },
    options: {
      scales: {
        x: { stacked: true, grid: { display: false }, ticks: { maxRotation: 0, autoSkipPadding: 16 } },
        y: axisY({
          stacked: true,
          beginAtZero: true,
          title: { display: !narrow(), text: `Rows per ${bins.unit}` },
          ticks: { precision: 0, maxTicksLimit: 5, callback: (value) => count(value) },
        }),
      },
      interaction: { mode: "index", intersect: false },
      plugins: {
        legend: {
          display: series.length > 1,
          position: "bottom",
          labels: { usePointStyle: true, pointStyle: "rectRounded", boxHeight: 8, padding: 12 },
          onClick: () => {},
        },
        tooltip: {
          filter: (item) => item.raw > 0,
          callbacks: {
            title: (items) => (items.length ? `${items[0].label}, ${bins.unit}` : ""),
            label: (item) => `${item.dataset.label}: ${counted(item.raw, "row")}`,
          },
        },
      },
    },
  });
}
