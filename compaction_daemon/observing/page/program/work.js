// What this daemon has done for a table since it started. What it never did is left out.

function workPart(live) {
  if (!live) return "";
  const done = live.totals,
    left = live.left_alone,
    levels = Object.entries(done.compactions).filter(([, number]) => number);
  const bad = (number, text) => (number ? h("span", { class: "bad" }, text) : null);
  const work = [
    ["Compactions", levels.map(([level, number]) => `${count(number)} ${level}`).join(", ")],
    ["Files", done.files_removed && `${count(done.files_removed)} became ${count(done.files_added)}`],
    [
      "Read and written",
      (done.bytes_read || done.bytes_written) && `${size(done.bytes_read)} and ${size(done.bytes_written)}`,
    ],
    ["Wasted writes", done.wasted_bytes && size(done.wasted_bytes)],
    ["Rebased over", done.rebased_over && counted(done.rebased_over, "commit")],
    ["Nothing left to commit", done.superseded && counted(done.superseded, "time")],
    ["Refused", bad(done.refused, counted(done.refused, "rewrite"))],
    ["Left alone for now", left && [bad(left.groups, counted(left.groups, "group")), ": ", own(left.error)]],
    ["Failed looks", bad(done.failures, count(done.failures))],
    ["Checkpoints", done.checkpoints && count(done.checkpoints)],
    ["Deleted by clean-up", done.files_deleted && counted(done.files_deleted, "file")],
    ["Time spent", done.step_seconds && duration(done.step_seconds)],
    ["Last compaction", live.last_compaction && moment(live.last_compaction)],
  ].filter(([, value]) => value);
  const next = live.next_look ? ["The next look is at ", moment(live.next_look), "."] : "The next look is at once.";
  if (!work.length) return bare("work", "Work of this daemon", ["None since ", moment(live.started), ". ", next]);
  return section("work", "Work of this daemon", ["Since ", moment(live.started), ". ", next], facts(work));
}
