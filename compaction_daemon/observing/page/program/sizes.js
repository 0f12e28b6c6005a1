// How large the files of a table are.

function trimmed(bars) {
  const used = bars.map((bar) => bar.files > 0);
  return bars.slice(Math.max(0, used.indexOf(true) - 1), used.lastIndexOf(true) + 2);
}
function sizesChart(canvas, bars, label) {
  return new Chart(canvas, {
    type: "bar",
    data: {
      labels: bars.map((bar) => (bar.below === null ? "more" : `< ${size(bar.below)}`)),
      datasets: [
        {
          data: bars.map((bar) => bar.files),
          backgroundColor: colour("--insert"),
          maxBarThickness: 72,
          categoryPercentage: 0.9,
          barPercentage: 0.95,
        },
      ],
    },
    options: {
      scales: {
        x: { grid: { display: false }, ticks: { maxRotation: 0, autoSkipPadding: 8 } },
        y: { beginAtZero: true, ticks: { precision: 0 } },
      },
      plugins: {
        legend: { display: false },
        tooltip: {
          callbacks: {
            title: (items) => label(bars[items[0].dataIndex], items[0].dataIndex),
            label: (item) => `${counted(item.raw, "file")}, ${size(bars[item.dataIndex].bytes)}`,
          },
        },
      },
    },
  });
}
