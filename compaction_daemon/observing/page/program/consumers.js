// Consumers and their lag.

const CONSUMER_STATES = { live: "good", silent: "warn", withdrawn: "bad", unreadable: "bad" };

function consumersPart(report) {
  if (!report.consumers.length)
    return bare(
      "consumers",
      "Consumers and lag",
      "No consumer is registered. A stream that reads the change feed with the option “consumer” appears here.",
    );
  const columns = [
    { name: "Consumer" },
    { name: "State" },
    { name: "Lag", num: true },
    { name: "Versions behind", num: true },
    { name: "Files to read", num: true },
    { name: "Size to read", num: true },
    { name: "Position", num: true },
    { name: "Last sign of life" },
    { name: "Owner" },
  ];
  const rows = report.consumers.map((each) => {
    const behind = each.lag,
      more = behind && !behind.is_complete ? "+" : "";
    return [
      own(each.name),
      h("span", { class: CONSUMER_STATES[each.state] || "" }, each.state),
      behind ? duration(behind.seconds) : "unknown",
      behind ? `${count(behind.versions)}${more}` : "unknown",
      behind ? `${count(behind.files)}${more}` : "unknown",
      behind ? `${size(behind.bytes)}${more}` : "unknown",
      each.position === null ? "unknown" : count(each.position),
      moment(each.heartbeat),
      each.owner ? owner(each.owner) : "released",
    ];
  });
  return section(
    "consumers",
    "Consumers and lag",
    "Clean-ups wait for a consumer while it is live.",
    grid("Consumers", columns, rows),
  );
}
