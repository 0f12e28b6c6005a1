"""Metrics of a daemon and its tables for Prometheus, made from its status when they are asked for.

The labels are the table's path without credentials, and closed sets such as a state, a level and operation classes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from tidelog.compaction_daemon.observing.live_status import TableFacts, shown_names
from tidelog.compaction_daemon.process.daemon_status import DaemonStatus, TableState, TableStatus

# Tables beyond these have no series of their own: Prometheus keeps every series in memory.
MAX_LABELLED_TABLES = 5_000

# The metrics of a daemon. A name that ends with `_total` is a counter, any other a gauge.
_DAEMON: Mapping[str, tuple[str, Callable[[DaemonStatus], float | None]]] = {
    "tidelog_daemon_start_time_seconds": ("When it started, since the epoch", lambda s: s.started.timestamp()),
    "tidelog_daemon_steps_total": ("Steps that it has made", lambda s: s.steps),
    "tidelog_daemon_last_step_timestamp_seconds": (
        "When its last step ended, since the epoch",
        lambda s: None if s.last_step is None else s.last_step.timestamp(),
    ),
    "tidelog_daemon_last_step_seconds": ("How long its last step took", lambda s: s.last_step_seconds),
    "tidelog_daemon_stalled": ("1 while its loop hangs", lambda s: s.stalled),
    "tidelog_daemon_search_errors": ("Errors of the newest search for tables", lambda s: len(s.search_errors)),
    "tidelog_daemon_read_bytes_last_hour": ("Bytes that it read in the last hour", lambda s: s.bytes_last_hour),
    "tidelog_daemon_read_bytes_limit": ("The most that it reads in an hour", lambda s: s.bytes_per_hour),
}
# The metrics of a table, from its status.
_TABLE: Mapping[str, tuple[str, Callable[[TableStatus], float | None]]] = {
    "tidelog_table_version": ("The newest version", lambda t: t.version),
    "tidelog_table_lease_epoch": ("The epoch of this daemon's lease", lambda t: t.epoch),
    "tidelog_table_debt_sampled_timestamp_seconds": (
        "When the debt was measured, since the epoch",
        lambda t: t.debt[-1].at.timestamp() if t.debt else None,
    ),
    "tidelog_table_files": ("Live files", lambda t: t.debt[-1].debt.files if t.debt else None),
    "tidelog_table_small_files": ("Small files", lambda t: t.debt[-1].debt.small_files if t.debt else None),
    "tidelog_table_small_bytes": ("Size of the small files", lambda t: t.debt[-1].debt.small_bytes if t.debt else None),
    "tidelog_table_dead_rows": (
        "Rows that are deleted but still stored",
        lambda t: t.debt[-1].debt.dead_rows if t.debt else None,
    ),
    "tidelog_table_dead_row_files": (
        "Files with dead rows",
        lambda t: t.debt[-1].debt.dead_row_files if t.debt else None,
    ),
    "tidelog_table_log_tail": (
        "Commits since the newest checkpoint",
        lambda t: t.debt[-1].debt.log_tail if t.debt else None,
    ),
    "tidelog_table_removed_files_total": ("Files removed by compactions", lambda t: t.totals.files_removed),
    "tidelog_table_added_files_total": ("Files added by compactions", lambda t: t.totals.files_added),
    "tidelog_table_read_bytes_total": ("Bytes rewritten by compactions", lambda t: t.totals.bytes_read),
    "tidelog_table_written_bytes_total": ("Bytes written by compactions", lambda t: t.totals.bytes_written),
    "tidelog_table_wasted_bytes_total": (
        "Bytes of wasted writes, because of other commits or an error",
        lambda t: t.totals.wasted_bytes,
    ),
    "tidelog_table_rebased_commits_total": (
        "Commits that compactions were rebased over",
        lambda t: t.totals.rebased_over,
    ),
    "tidelog_table_superseded_total": ("Compactions with nothing left to do", lambda t: t.totals.superseded),
    "tidelog_table_refused_total": ("Rewrites that the verification refused", lambda t: t.totals.refused),
    "tidelog_table_left_alone_groups": (
        "Groups of files that are left alone for now, because their rewrite failed",
        lambda t: t.left_alone.groups if t.left_alone else 0,
    ),
    "tidelog_table_checkpoints_total": ("Checkpoints written", lambda t: t.totals.checkpoints),
    "tidelog_table_deleted_files_total": ("Files deleted by clean-up", lambda t: t.totals.files_deleted),
    "tidelog_table_failures_total": ("Looks that ended with an error", lambda t: t.totals.failures),
    "tidelog_table_work_seconds_total": ("Seconds of work", lambda t: t.totals.step_seconds),
}
# The metrics of a table that cost a look at its log.
_FACTS: Mapping[str, tuple[str, Callable[[TableFacts], float]]] = {
    "tidelog_table_consumers": ("Registered consumers", lambda f: len(f.consumers)),
    "tidelog_table_consumer_lag_versions": (
        "Versions that the slowest consumer has not processed",
        lambda f: f.lag_versions,
    ),
    "tidelog_table_consumer_lag_seconds": (
        "Age of the oldest commit that a consumer has not processed",
        lambda f: f.lag_seconds,
    ),
}


class DaemonCollector(Collector):
    """Makes the metrics of a daemon whenever a registry collects them.

    Args:
        status: Returns the daemon's status.
        facts: Returns what else is known of its tables, by path.
    """

    def __init__(
        self, status: Callable[[], DaemonStatus], facts: Callable[[DaemonStatus], Mapping[str, TableFacts]]
    ) -> None:
        self._status = status
        self._facts = facts

    def collect(self) -> Iterable[Metric]:
        """See prometheus_client."""
        status = self._status()
        yield from _of_daemon(status)
        tables = status.tables[:MAX_LABELLED_TABLES]
        names = shown_names(table.path for table in tables)
        yield from _of_tables(tables, names)
        yield from _of_facts(names, self._facts(status))

    def describe(self) -> Iterable[Metric]:
        """Nothing, so that registering it asks for no status."""
        return ()


def exposition(collector: DaemonCollector) -> bytes:
    """The metrics in Prometheus' text format."""
    registry = CollectorRegistry()
    registry.register(collector)
    return generate_latest(registry)


def _family(name: str, about: str, labels: tuple[str, ...] = ()) -> CounterMetricFamily | GaugeMetricFamily:
    if name.endswith("_total"):
        return CounterMetricFamily(name.removesuffix("_total"), about, labels=labels)
    return GaugeMetricFamily(name, about, labels=labels)


def _of_daemon(status: DaemonStatus) -> Iterator[Metric]:
    for name, (about, read) in _DAEMON.items():
        found = _family(name, about)
        value = read(status)
        if value is not None:
            found.add_metric([], float(value))
        yield found
    states = _family("tidelog_daemon_tables", "Tables in each state", ("state",))
    counts = Counter(table.state for table in status.tables)
    for state in TableState:
        states.add_metric([state], counts[state])
    yield states


def _of_tables(tables: Iterable[TableStatus], names: Mapping[str, str]) -> Iterator[Metric]:
    for name, (about, read) in _TABLE.items():
        found = _family(name, about, ("table",))
        for table in tables:
            value = read(table)
            if value is not None:
                found.add_metric([names[table.path]], float(value))
        yield found
    states = _family("tidelog_table_state", "1 for the table's state", ("table", "state"))
    compactions = _family("tidelog_table_compactions_total", "Compactions that it committed", ("table", "level"))
    upkeep = _family("tidelog_table_upkeep_failing", "1 for each chore of upkeep that fails", ("table", "chore"))
    for table in tables:
        states.add_metric([names[table.path], table.state], 1)
        for error in table.upkeep_errors:
            upkeep.add_metric([names[table.path], error.chore], 1)
        for level, number in table.totals.compactions.items():
            compactions.add_metric([names[table.path], level], number)
    yield states
    yield compactions
    yield upkeep


def _of_facts(names: Mapping[str, str], facts: Mapping[str, TableFacts]) -> Iterator[Metric]:
    known = [(names[path], found) for path, found in facts.items() if path in names]
    for name, (about, read) in _FACTS.items():
        family = _family(name, about, ("table",))
        for table, found in known:
            family.add_metric([table], float(read(found)))
        yield family
    losses = _family(
        "tidelog_table_conflicts_total", "Operations that lost to another commit", ("table", "earlier", "later")
    )
    for table, found in known:
        for (earlier, later), number in sorted(found.losses.items()):
            losses.add_metric([table, earlier, later], number)
    yield losses
