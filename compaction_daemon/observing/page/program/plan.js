// What would be compacted, and why.

const DUE = { title: "Due now", note: "A daemon does the best groups first, as many as it may read in one step." };
const PLANS = {
  auto: DUE,
  minor: DUE,
  major: { title: "With a major compaction", note: "All that it could do now: tidelog compact PATH --level major" },
};
function planPart(report) {
  const idle = report.plans.every((plan) => !plan.groups && !plan.notes.length && !plan.reasons.length);
  if (report.plans.length && idle)
    return bare("plan", "Plan and why", "There is nothing to rewrite, now or with a major compaction.");
  return section(
    "plan",
    "Plan and why",
    `For version ${count(report.version)}.`,
    report.plans.length
      ? report.plans.map((plan) => onePlan(plan, report))
      : empty("There is no plan; the note above says why. See more with: tidelog plan PATH --level auto"),
  );
}
function onePlan(plan, report) {
  const { title, note } = PLANS[plan.level] || { title: plan.level, note: "" },
    left = plan.left_out;
  const reasons = plan.reasons.map((reason) =>
    h(
      "li",
      {},
      h("span", { class: "count" }, counted(reason.files, "file")),
      h("span", {}, reason.chosen ? h("strong", {}, "rewrite: ") : "leave: ", own(reason.reason)),
    ),
  );
  const doing = plan.groups
    ? `rewrite ${counted(plan.files, "file")} in ${counted(plan.groups, "group")} into about ${count(plan.outputs)}`
    : "nothing to rewrite";
  return h(
    "div",
    { class: "plan" },
    h("h3", {}, `${title}: ${doing}`),
    plan.groups ? h("p", { class: "muted" }, note) : null,
    plan.notes.map((text) => h("p", { class: "problem" }, own(text))),
    plan.groups ? facts(planFacts(plan)) : null,
    left.groups
      ? h(
          "p",
          { class: "note" },
          `Left for later: ${counted(left.groups, "group")} of ${counted(left.files, "file")} (${size(left.size_bytes)}).`,
        )
      : null,
    reasons.length ? h("ul", { class: "reasons" }, reasons) : null,
    planLists(plan, report),
  );
}
function planFacts({ predicted }) {
  return [
    ["Reads", size(predicted.bytes_to_read)],
    ["Writes about", size(predicted.bytes_to_write)],
    ["Takes about", duration(predicted.seconds)],
    ["Odds of a conflict", percent(predicted.conflict_odds)],
  ];
}
function planLists(plan, report) {
  const name = (PLANS[plan.level] || { title: plan.level }).title;
  const of = (shown, all) => (all > shown ? `the first ${count(shown)} of ${count(all)}` : count(all));
  const number = (text) => ({ name: text, num: true }),
    why = { name: "Why", long: true };
  // A list that opens. Each key is the plan's own, since there are two plans.
  const list = (key, label, shown, columns, rows) =>
    rows.length
      ? later(`${plan.level}-${key}`, `${label} (${shown})`, () =>
          grid(`${label}, ${name}`, columns, rows, { tall: true }),
        )
      : null;
  return [
    list(
      "scopes",
      "Partitions with debt, the most worth a rewrite first",
      `${count(plan.first_scopes.length)} of ${count(plan.num_scopes)}`,
      [
        ...[{ name: "Partition" }, why, number("Files"), number("Small"), number("Dead rows")],
        ...[number("Files opened, of those needed"), number("Bytes saved per byte rewritten")],
      ],
      plan.first_scopes.map((scope) => [
        partition(scope.partition_values),
        own(scope.reason),
        count(scope.files),
        count(scope.small_files),
        count(scope.dead_rows),
        `${scope.read_amplification.toFixed(1)}×`,
        scope.score.toLocaleString("en", { minimumFractionDigits: 1, maximumFractionDigits: 1 }),
      ]),
    ),
    list(
      "groups",
      "Groups",
      of(plan.first_groups.length, plan.groups),
      [
        ...[{ name: "Partition" }, why, { name: "Level" }, number("Files"), number("Become about"), number("Reads")],
        ...[number("Writes about"), number("Takes about"), number("Odds"), { name: "Clustered by" }],
      ],
      plan.first_groups.map((group) => [
        partition(group.partition_values),
        own(group.reason),
        group.level,
        count(group.files),
        count(group.outputs),
        size(group.predicted.bytes_to_read),
        size(group.predicted.bytes_to_write),
        duration(group.predicted.seconds),
        percent(group.predicted.conflict_odds),
        own(group.cluster_by.join(", ") || "–"),
      ]),
    ),
    list(
      "files",
      "Why, file by file",
      of(plan.first_files.length, report.size.files),
      [{ name: "Rewrite" }, why, { name: "File", long: true }],
      plan.first_files.map((file) => [file.chosen ? "yes" : "no", own(file.reason), code(file.path)]),
    ),
  ];
}
function partition(values) {
  const entries = Object.entries(values);
  return entries.length
    ? own(entries.map(([name, value]) => `${name}=${value === null ? "null" : value}`).join(", "))
    : "whole table";
}
