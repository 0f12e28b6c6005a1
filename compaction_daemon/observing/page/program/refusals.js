// Rewrites that the verification did not let pass.

function fileSummary(refusal) {
  const shown = refusal.inputs.length + refusal.outputs.length,
    all = refusal.num_inputs + refusal.num_outputs;
  const files = `${counted(refusal.num_inputs, "file")} read, ${count(refusal.num_outputs)} written`;
  return shown < all ? `${files} (the first ${count(shown)})` : files;
}
function refusalsPart(report) {
  if (!report.refusals.length)
    return bare("refusals", "Refused rewrites", "No rewrite was refused. One would be listed here with its evidence.");
  const found = report.refusals.map((refusal, index) =>
    h(
      "div",
      { class: "refusal" },
      h("p", { class: "problem alarm" }, own(refusal.differences.join("; "))),
      facts([
        ["When", moment(refusal.at)],
        ["Planned for version", refusal.version === null ? "unknown" : count(refusal.version)],
        ["Partition", partition(refusal.partition_values)],
        [
          "Clustered by",
          refusal.cluster_by.length
            ? own(`${refusal.cluster_by.join(", ")} (${refusal.cluster_order})`)
            : "rows keep their order",
        ],
        ["Rows read, written", `${count(refusal.read.rows)}, ${count(refusal.written.rows)}`],
        ["Hash of the rows read", code(refusal.read.content)],
        ["Hash of the rows written", code(refusal.written.content)],
      ]),
      later(`refusal-${index}`, fileSummary(refusal), () =>
        grid(
          `Files of the refused rewrite ${index + 1}`,
          [{ name: "What" }, { name: "Size", num: true }, { name: "File", long: true }],
          [
            ...refusal.inputs.map((file) => ["read", size(file.size_bytes), code(file.path)]),
            ...refusal.outputs.map((file) => ["written", size(file.size_bytes), code(file.path)]),
          ],
          { tall: true },
        ),
      ),
    ),
  );
  return section(
    "refusals",
    "Refused rewrites",
    "Nothing of these was committed. The written files and the records in _tidelog/refused/ are kept as evidence: report them as a bug.",
    found,
  );
}
