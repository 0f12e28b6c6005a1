// What holds for the table: retentions, properties, columns.

function settingsPart(report) {
  const keeps = report.retentions.map((each) => [
    own(each.keeps[0].toUpperCase() + each.keeps.slice(1)),
    [
      own(each.duration),
      h(
        "small",
        {},
        code(each.property),
        each.from_table ? "" : ", the default",
        each.raised_by ? [", raised by ", code(each.raised_by)] : "",
      ),
    ],
  ]);
  const chores = report.clean_ups.map((each) => [
    own(each.chore),
    each.done ? moment(each.done) : "not yet",
    each.due ? moment(each.due) : each.awaits_daemon ? "when a daemon looks" : "after the next commit",
  ]);
  const settings = report.properties.map((each) => [
    code(each.name),
    own(each.value),
    each.is_default ? "the default" : "the table",
  ]);
  return section(
    "settings",
    "Retentions and clean-up",
    report.clean_up
      ? "Daemons clean this table up."
      : "Daemons delete nothing of this table. To change that: tidelog set-properties PATH tidelog.cleanUp=true",
    facts(keeps),
    chores.length
      ? grid(
          "Clean-ups",
          [
            { name: "Clean-up", keep: true },
            { name: "Done", keep: true },
            { name: "Due", keep: true },
          ],
          chores,
        )
      : null,
    later("properties", "Properties in force", () =>
      grid("Properties", [{ name: "Property", keep: true }, { name: "Value" }, { name: "Set by" }], settings, {
        tall: true,
      }),
    ),
  );
}
function columnsPart(report) {
  const rows = report.columns.map((column) => [own(column.name), code(column.type), column.nullable ? "yes" : "no"]);
  const protocol = report.protocol,
    features = [...new Set([...(protocol.reader_features || []), ...(protocol.writer_features || [])])].sort();
  return section(
    "columns",
    "Columns",
    `${counted(report.num_columns, "column")}${report.partition_by.length ? `, partitioned by ${report.partition_by.join(", ")}` : ""}.`,
    later("columns", "Columns and protocol", () =>
      h(
        "div",
        {},
        grid("Columns", [{ name: "Name" }, { name: "Type" }, { name: "Nullable" }], rows, { tall: true }),
        h(
          "p",
          { class: "note" },
          `Protocol: reader ${protocol.min_reader_version}, writer ${protocol.min_writer_version}; `,
          own(features.join(", ") || "no features"),
          ". Table id ",
          code(report.table_id),
          ". Oldest version that can be read: ",
          report.earliest_version === null ? "unknown" : count(report.earliest_version),
          ".",
        ),
      ),
    ),
  );
}
