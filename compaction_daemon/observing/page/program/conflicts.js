// Operations that lost to another commit.

const MOST_LOSSES = 200;
function lossText(loss) {
  const how = {
    conflict: "lost with a conflict",
    superseded: "had nothing left to do",
    dropped: "lost some of its groups",
  };
  const waste =
    loss.wasted_bytes || loss.wasted_seconds
      ? `; wasted ${size(loss.wasted_bytes)} and ${duration(loss.wasted_seconds)}`
      : "";
  return `${className(loss.later)} (${loss.operation}) ${how[loss.outcome] || loss.outcome}${loss.loser ? ` (${loss.loser})` : ""}${waste}${loss.evidence ? `: ${loss.evidence}` : ""}`;
}

function conflictsPart(report) {
  if (!report.losses.length)
    return bare(
      "conflicts",
      "Conflicts",
      "No operation lost to another commit, as far as the table’s ledger goes back.",
    );
  const pairs = new Map();
  for (const loss of report.losses) {
    const key = `${className(loss.later)} lost to ${className(loss.earlier)}`,
      known = pairs.get(key) || { losses: 0, bytes: 0, seconds: 0 };
    pairs.set(key, {
      losses: known.losses + 1,
      bytes: known.bytes + loss.wasted_bytes,
      seconds: known.seconds + loss.wasted_seconds,
    });
  }
  const rows = [...pairs]
    .sort((a, b) => b[1].losses - a[1].losses)
    .map(([name, sum]) => [own(name), count(sum.losses), size(sum.bytes), duration(sum.seconds)]);
  return section(
    "conflicts",
    "Conflicts",
    `${counted(report.losses.length, "loss", "losses")} in the table’s conflict ledger${report.losses.length >= MOST_LOSSES ? " (the newest)" : ""}.`,
    grid(
      "Conflicts by pair",
      [
        { name: "Pair" },
        { name: "Losses", num: true },
        { name: "Bytes wasted", num: true },
        { name: "Time wasted", num: true },
      ],
      rows,
    ),
    later("losses", "Each of them", () =>
      grid(
        "Conflicts",
        [{ name: "When" }, { name: "Winner", num: true }, { name: "What happened", long: true }],
        report.losses.map((loss) => [moment(loss.at), count(loss.winning_version), own(lossText(loss))]),
        { tall: true },
      ),
    ),
  );
}
