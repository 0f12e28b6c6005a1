"""What a daemon's status says, as JSON for the page, and what it lacks: lags and conflicts of each table.

These facts cost requests to the store, so they are looked up rarely: soon after a table has a new version or while a
consumer is behind, else every quarter of an hour, and for a bounded number of tables at a time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from threading import Lock
from typing import Any

from tidelog import __version__
from tidelog.compaction_daemon.observing.safe_json import safe_builtins, safe_text, values_of
from tidelog.compaction_daemon.process.daemon_status import DaemonStatus, TableState, TableStatus
from tidelog.log import OperationClass, Table
from tidelog.log.commit.conflict_ledger import entry_names, read_entries
from tidelog.log.consumers.consumer_status import ConsumerStatus, consumers
from tidelog.log.errors import StoreUnavailableError, TidelogError
from tidelog.log.system import REAL_SYSTEM, System, logger

_LOGGER = logger(__name__)

# The points of a line as small as a word.
_TREND_POINTS = 40
# A look at a table with a new version, at one with a consumer that is behind, and at one where nothing happens.
_CHANGED_S, _BEHIND_S, _QUIET_S = 15.0, 30.0, 900.0
# One request for metrics must not wait for a thousand tables; the others are looked at with the next ones.
_TABLES_AT_A_TIME = 25
_SECONDS_AT_A_TIME = 2.0
# Of the commits that a consumer has yet to read: the first one that changed rows says how old its lag is.
_LAG_COMMITS = 20
# The losses that are counted in one look, newest first. The first look leaves the older ones out, later ones do not.
_LOSSES_AT_A_TIME = 200
# The ledger can have any number of entries; older ones than these are not compared.
_MAX_NAMES = 2_000


def shown_names(locations: Iterable[str]) -> dict[str, str]:
    """The name under which each path is shown, by path: without credentials, and unique.

    Two paths that differ only in what is not shown are numbered.
    """
    names: dict[str, str] = {}
    taken: set[str] = set()
    for path in locations:
        name = safe_text(path)
        number = 2
        while name in taken:
            name, number = f"{safe_text(path)} #{number}", number + 1
        names[path] = name
        taken.add(name)
    return names


def live_builtins(status: DaemonStatus, facts: Mapping[str, TableFacts]) -> Any:
    """The status with what is known of each table, as safe JSON values."""
    names = shown_names(table.path for table in status.tables)
    # What it compacts is in the plan of each table.
    own = {name: value for name, value in values_of(status).items() if name not in ("tables", "request")}
    return {
        **safe_builtins({"tidelog_version": __version__, **own}),
        "health": health_builtins(status),
        "tables": [_table(table, names[table.path], facts.get(table.path)) for table in status.tables],
    }


def health_builtins(status: DaemonStatus) -> dict[str, Any]:
    """Whether the daemon's loop gets on, as safe JSON values. A table that fails does not make it unhealthy."""
    reason = "a step takes longer than it should ever take" if status.stalled else None
    found: dict[str, Any] = safe_builtins(
        {
            "healthy": reason is None,
            "reason": reason,
            "started": status.started,
            "steps": status.steps,
            "last_step": status.last_step,
            "tables": dict(sorted(Counter(table.state for table in status.tables).items())),
        }
    )
    return found


def _table(table: TableStatus, name: str, facts: TableFacts | None) -> Any:
    samples = table.debt
    # Every so many samples, and always the newest one.
    step = max(1, -(-len(samples) // _TREND_POINTS))
    trend = [*reversed(samples[::-1][::step])]
    shown = {
        **{key: value for key, value in values_of(table).items() if key != "apart"},
        "debt": samples[-1].debt if samples else None,
        "trend": [(sample.at, sample.debt.small_files, sample.debt.dead_rows) for sample in trend],
        "lag": facts
        and {
            "consumers": len(facts.consumers),
            "versions": facts.lag_versions,
            "seconds": facts.lag_seconds,
        },
        "losses": facts and sum(facts.losses.values()),
    }
    return {**safe_builtins(shown), "path": name}


@dataclass(frozen=True, slots=True)
class TableFacts:
    """What is known of one table beyond the daemon's own status.

    Attributes:
        version: The version of the table that it is about.
        consumers: The registered consumers with their lags.
        losses: How many operations lost to others, by the classes of the winner and the loser. Grows only.
        looked_s: When it was looked up, on the monotonic clock.
        ledger: The newest entries of the conflict ledger that need not be counted any more, by name. Their times would
            not do: each loser uses its own clock.
    """

    version: int
    consumers: tuple[ConsumerStatus, ...] = ()
    losses: Mapping[tuple[str, str], int] = field(default_factory=dict)
    looked_s: float = 0.0
    ledger: frozenset[str] = frozenset()

    @property
    def lag_versions(self) -> int:
        """How many versions the slowest consumer is behind: those that changed rows, or all if nobody counted these."""
        return max((_behind(each, self.version) for each in self.consumers), default=0)

    @property
    def lag_seconds(self) -> float:
        """How old the oldest commit is that a consumer has not processed."""
        return max((each.lag.seconds for each in self.consumers if each.lag), default=0.0)


_NOTHING = TableFacts(-1)


class FactsCache:
    """The facts of the tables of a daemon. Can be used by several threads.

    Args:
        open_table: Opens a table at its newest version; called in the threads that call `of`.
        system: The clock.
    """

    def __init__(self, open_table: Callable[[str], Table], system: System = REAL_SYSTEM) -> None:
        self._open_table = open_table
        self._system = system
        self._known: dict[str, TableFacts] = {}
        self._updating = Lock()

    def of(self, status: DaemonStatus) -> Mapping[str, TableFacts]:
        """The facts by path, after those of some tables were looked up again. A table without facts is left out.

        Takes at most about two seconds, and no time if another thread is looking facts up.
        """
        if self._updating.acquire(blocking=False):
            try:
                self._update(status)
            finally:
                self._updating.release()
        known = self._known
        found = {table.path: known[table.path] for table in status.tables if table.path in known}
        return {path: facts for path, facts in found.items() if facts.version >= 0}

    def _update(self, status: DaemonStatus) -> None:
        now_s = self._system.monotonic_s()
        tables = {table.path: table for table in status.tables if table.state is not TableState.MISSING}
        known = {path: facts for path, facts in self._known.items() if path in tables}
        due = sorted((table for table in tables.values() if self._is_due(table, now_s)), key=self._looked_s)
        for table in due[:_TABLES_AT_A_TIME]:
            if self._system.monotonic_s() - now_s > _SECONDS_AT_A_TIME:
                break
            known[table.path] = self._looked_up(table)
        self._known = known

    def _looked_s(self, table: TableStatus) -> float:
        known = self._known.get(table.path)
        return float("-inf") if known is None else known.looked_s

    def _is_due(self, table: TableStatus, now_s: float) -> bool:
        # A table can fail although its log can be read. A store that does not answer would take all the time.
        if table.version is None or table.error_code == StoreUnavailableError.code:
            return False
        known = self._known.get(table.path)
        if known is None:
            return True
        behind = _BEHIND_S if known.lag_versions else _QUIET_S
        return now_s - known.looked_s >= (_CHANGED_S if known.version != table.version else behind)

    def _looked_up(self, table: TableStatus) -> TableFacts:
        before = self._known.get(table.path, _NOTHING)
        try:
            opened = self._open_table(table.path)
            found = consumers(opened.store, opened.head, self._system, max_commits=_LAG_COMMITS)
            losses, ledger = _losses(opened, before)
        except (TidelogError, OSError) as error:
            # The daemon itself meets the error as well and reports it.
            _LOGGER.debug("no facts of %s: %s", table.path, error)
            return replace(before, looked_s=self._system.monotonic_s())
        return TableFacts(
            version=opened.version,
            consumers=tuple(found),
            losses=losses,
            looked_s=self._system.monotonic_s(),
            ledger=ledger,
        )


def _behind(consumer: ConsumerStatus, version: int) -> int:
    if consumer.lag is not None and consumer.lag.is_complete:
        return consumer.lag.versions
    return 0 if consumer.position is None else max(0, version - consumer.position)


def _class(name: str) -> str:
    """An operation class as a label. The ledger is a folder of files, in which any writer could put any text."""
    return name if name in set(OperationClass) else "OTHER"


def _losses(table: Table, before: TableFacts) -> tuple[Mapping[tuple[str, str], int], frozenset[str]]:
    """The losses by classes with those that the last look did not see; and what the next look need not count."""
    names = entry_names(table.store)[:_MAX_NAMES]
    new = [name for name in names if name not in before.ledger]
    counts = Counter(before.losses)
    for entry in read_entries(table.store, new[:_LOSSES_AT_A_TIME]):
        counts[_class(entry.earlier), _class(entry.later)] += 1
    left = () if before.version < 0 else new[_LOSSES_AT_A_TIME:]
    return dict(counts), frozenset(names).difference(left)
