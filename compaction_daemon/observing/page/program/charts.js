// What all charts share: colours, axes, the line of a trend.

const AXIS_WIDTH = 92,
  AXIS_WIDTH_NARROW = 66,
  NARROW = 520;
// A colour of the style sheet in the theme in force, as a canvas understands it: rgb(1, 2, 3).
function colour(name, alpha) {
  const probe = h("i", { hidden: true });
  probe.style.color = `var(${name})`;
  document.body.append(probe);
  const found = getComputedStyle(probe).color;
  probe.remove();
  return alpha === undefined ? found : found.replace(/^rgb\((.*)\)$/, `rgba($1, ${alpha})`);
}
const narrow = () => window.innerWidth < NARROW;

// A vertical line through both charts at the chosen version.
const chosenLine = {
  id: "chosenLine",
  beforeDatasetsDraw(chart, _, options) {
    if (chart.chosenX === undefined) return;
    const x = chart.scales.x.getPixelForValue(chart.chosenX),
      area = chart.chartArea;
    chart.ctx.save();
    chart.ctx.strokeStyle = options.colour;
    chart.ctx.lineWidth = 1.5;
    chart.ctx.beginPath();
    chart.ctx.moveTo(x, area.top);
    chart.ctx.lineTo(x, area.bottom);
    chart.ctx.stroke();
    chart.ctx.restore();
  },
};
function styleCharts() {
  Chart.defaults.animation = false;
  Chart.defaults.maintainAspectRatio = false;
  Chart.defaults.color = colour("--muted");
  Chart.defaults.borderColor = colour("--line");
  Chart.defaults.font.family = getComputedStyle(document.body).fontFamily;
  Chart.defaults.font.size = 12;
  Object.assign(Chart.defaults.plugins.tooltip, {
    backgroundColor: colour("--text"),
    titleColor: colour("--panel"),
    bodyColor: colour("--panel"),
    displayColors: false,
  });
}
// Times at which people expect marks: full minutes, hours and days of their own clock.
function timeMarks(min, max, most) {
  const steps = [1, 5, 15, 30, 60, 300, 900, 1800, 3600, 10800, 21600, 43200, 86400, 172800, 604800, 1209600, 2592000];
  const wanted = (max - min) / 1000 / most;
  const step = (steps.find((each) => each >= wanted) || Math.ceil(wanted / 2592000) * 2592000) * 1000;
  const offset = new Date(min).getTimezoneOffset() * 60000,
    marks = [];
  for (let at = Math.ceil((min - offset) / step) * step + offset; at <= max; at += step) marks.push({ value: at });
  return marks.length ? marks : [{ value: min }];
}
function axisX(points, byTime) {
  const low = Math.min(...points),
    high = Math.max(...points),
    room = (high - low) * 0.02 || 1;
  return {
    type: "linear",
    title: { display: !narrow(), text: byTime ? "Time" : "Version" },
    min: low - room,
    max: high + room,
    grid: { display: false },
    afterBuildTicks: byTime
      ? (axis) => {
          axis.ticks = timeMarks(low, high, narrow() ? 3 : 7);
        }
      : undefined,
    ticks: {
      maxRotation: 0,
      autoSkipPadding: 18,
      precision: 0,
      callback: (value) => {
        if (!byTime) return Number.isInteger(value) && value >= low && value <= high ? count(value) : "";
        const date = new Date(value);
        if (high - low > 2 * 86400000) return day(date).slice(5);
        return clock(date, high - low < 10 * 60000);
      },
    },
  };
}
function axisY(extra) {
  return {
    afterFit: (axis) => {
      axis.width = narrow() ? AXIS_WIDTH_NARROW : AXIS_WIDTH;
    },
    ...extra,
  };
}
// A line as small as a word. Its newest point is marked, and so is each of a few, which would make no line.
function sparkline(canvas, points, { name = "--insert", stepped = true } = {}) {
  const few = points.length < 3;
  return new Chart(canvas, {
    type: "line",
    data: {
      datasets: [
        {
          data: points,
          borderColor: colour(name),
          backgroundColor: colour(name, 0.15),
          pointBackgroundColor: colour(name),
          fill: "origin",
          borderWidth: 1.5,
          pointRadius: (context) => (few || context.dataIndex === points.length - 1 ? 2 : 0),
          stepped: stepped && !few,
        },
      ],
    },
    options: {
      responsive: false,
      parsing: false,
      normalized: true,
      events: [],
      layout: { padding: 3 },
      scales: {
        x: { type: "linear", display: false, bounds: "data", offset: points.length === 1 },
        y: { display: false, beginAtZero: true, suggestedMax: few ? 1 : undefined },
      },
      plugins: { legend: { display: false }, tooltip: { enabled: false } },
    },
  });
}
