// What this daemon has done for a table since it started.

function workPart(live) {
  if (!live) return "";
  const done = live.totals,
    levels = Object.entries(done.compactions).filter(([, number]) => number);
  const bad = (number, text) => (number ? h("span", { class: "bad" }, text) : "none");
  return section(
    "work",
    "Work of this daemon",
    ["Since ", moment(live.started), "."],
    facts([
      ["Compactions", levels.length ? levels.map(([level, number]) => `${count(number)} ${level}`).join(", ") : "none"],
      [
        "Files",
        done.files_removed ? `${count(done.files_removed)} became ${count(done.files_added)}` : "none rewritten",
      ],
      ["Read and written", `${size(done.bytes_read)} and ${size(done.bytes_written)}`],
      ["Wasted writes", done.wasted_bytes ? size(done.wasted_bytes) : "nothing"],
      ["Rebased over", done.rebased_over ? counted(done.rebased_over, "commit") : "none"],
      ["Nothing left to commit", done.superseded ? counted(done.superseded, "time") : "never"],
      ["Refused", bad(done.refused, counted(done.refused, "rewrite"))],
      [
        "Left alone for now",
        live.left_alone
          ? [bad(live.left_alone.groups, counted(live.left_alone.groups, "group")), ": ", own(live.left_alone.error)]
          : "none",
      ],
      ["Failed looks", bad(done.failures, count(done.failures))],
      ["Checkpoints", done.checkpoints ? count(done.checkpoints) : "none"],
      ["Deleted by clean-up", done.files_deleted ? counted(done.files_deleted, "file") : "none"],
      ["Time spent", duration(done.step_seconds)],
      ["Last compaction", live.last_compaction ? moment(live.last_compaction) : "none"],
      ["Next look", live.next_look ? moment(live.next_look) : "at once"],
    ]),
  );
}
