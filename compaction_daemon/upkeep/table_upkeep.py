"""Do what is due at one table, a bounded piece at a time, and say what comes next.

A chore that fails is reported once, and tried again less and less often.

What was done when is in a small file of the table: `_tidelog/upkeep.json`. The log alone does not say it: a clean-up
that found nothing makes no commit. With the file a daemon that starts again, or a second one, does not repeat it. It is
only a hint: without it, things are done once more.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import msgspec
import pyarrow as pa

from tidelog.compaction_daemon.upkeep import due
from tidelog.compaction_daemon.upkeep.due import CLEAN_UPS, Chore, LastTime, TableAge
from tidelog.compaction_daemon.upkeep.retentions import retention, retentions
from tidelog.compaction_daemon.upkeep.upkeep_report import Upcoming, UpkeepError, UpkeepReport
from tidelog.log import ExpiryReport, VacuumReport
from tidelog.log.cleanup.expire import expire_log
from tidelog.log.cleanup.pieces import Pieces
from tidelog.log.cleanup.vacuum import vacuum_files
from tidelog.log.conflict.fences import FLOOR, HORIZON, horizon_of
from tidelog.log.errors import (
    RetryableError,
    StoreUnavailableError,
    TableNotFoundError,
    TableReplacedError,
    TidelogError,
)
from tidelog.log.format import properties
from tidelog.log.format.text import MALFORMED_JSON
from tidelog.log.log_records import event
from tidelog.log.operations.tend_index import IndexReport, tend_index
from tidelog.log.state.head import Head
from tidelog.log.state.loader import LogState
from tidelog.log.state.segment import pointed_version
from tidelog.log.storage import Store
from tidelog.log.system import REAL_SYSTEM, System, logger, to_datetime

if TYPE_CHECKING:
    from tidelog.log import Table

_LOGGER = logger(__name__)
# What fails is also in reports and in the status, so a program that prints these can leave this logger out.
_TROUBLES = logger(f"{__name__}.troubles")

# A call takes this long at least before it leaves the rest to the next one; one more piece can come on top of it.
BUDGET_S = 1.0
# Another daemon may have done it a moment ago, so the record is read again before anything begins if it is older.
_RECORD_IS_FRESH_S = 60.0
# The daemon closes a table that is not there any more.
_GONE = (TableReplacedError, TableNotFoundError)
_FAILURES = (TidelogError, OSError, pa.ArrowException)
_RETENTION_OF = {
    Chore.EXPIRE: properties.LOG_RETENTION,
    Chore.VACUUM: properties.DELETED_FILE_RETENTION,
    Chore.LISTING: properties.DELETED_FILE_RETENTION,
}
_WHY = {
    Chore.EXPIRE: "once a day, or twice within a shorter retention",
    Chore.VACUUM: "once a day, or twice within a shorter retention",
    Chore.LISTING: "once a week, or more often with a short retention, for files that no commit names",
}
# What failed may be a store that is away for a moment, or a table that nobody can repair today.
_FIRST_WAIT_S = 60.0
_LONGEST_WAIT_S = 6 * 3600.0
RECORD_PATH = "_tidelog/upkeep.json"


class _Time(msgspec.Struct, frozen=True, rename="camel"):
    done_ms: int
    is_complete: bool = False


class _File(msgspec.Struct, frozen=True, rename="camel"):
    """The content. `since` is the version up to which vacuum has deleted what the log names."""

    table: str
    times: dict[str, _Time] = {}
    since: int | None = None


@dataclass(frozen=True, slots=True)
class UpkeepRecord:
    """What was done at a table.

    `since` is the version up to which a vacuum has deleted all that the log names; None if that is not known.
    """

    times: Mapping[Chore, LastTime] = field(default_factory=dict)
    since: int | None = None

    def with_time(self, chore: Chore, time: LastTime) -> UpkeepRecord:
        """The record after a clean-up. A listing finds what the log names, too."""
        also = {Chore.VACUUM: time} if chore is Chore.LISTING else {}
        return UpkeepRecord({**self.times, chore: time, **also}, self.since)

    def merged(self, other: UpkeepRecord) -> UpkeepRecord:
        """The later of both at each time, and the `since` of the other one if it has one."""
        times = dict(self.times)
        for chore, time in other.times.items():
            if chore not in times or time.done_ms > times[chore].done_ms:
                times[chore] = time
        return UpkeepRecord(times, self.since if other.since is None else other.since)


@dataclass(slots=True)
class _Running:
    """A clean-up that has begun. `since` is up to where files had been deleted before, as far as is known."""

    chore: Chore
    work: Pieces[ExpiryReport] | Pieces[VacuumReport]
    since: int


@dataclass(slots=True)
class _Known:
    """What is known of one table.

    `checkpoint` is the version of its newest checkpoint; None: not looked for yet. `tended` is the version at which its
    key index was tended, None: not yet. `record_read_s` is when the record
    was read. `held_by` are the consumers that the newest expiry and the newest vacuum waited for.
    """

    table_id: str
    seen_ms: int
    troubles: Troubles
    record: UpkeepRecord = field(default_factory=UpkeepRecord)
    record_read_s: float | None = None
    checkpoint: int | None = None
    tended: int | None = None
    held_by: dict[type, tuple[str, ...]] = field(default_factory=dict)


class Upkeep:
    """Keeps one table: writes checkpoints, expires history, deletes files that no version needs, tends its key index.

    A checkpoint is written once `delta.checkpointInterval` commits have come since the last one. History is expired and
    the table is vacuumed from the log alone once a day, and vacuumed by listing once a week, with the table's own
    retentions, if the table has `tidelog.cleanUp`. The key index is tended after every eighth commit. All of it is
    safe next to writers, readers and other daemons; it waits for registered consumers. The process can be killed at any
    moment.

    Args:
        system: The clock to use; tests replace it.
        budget_s: How long a call may take, in seconds, before it leaves the rest to the next one.
        clean_up: Whether to expire and vacuum at all; without, only checkpoints are written.
    """

    def __init__(self, *, system: System = REAL_SYSTEM, budget_s: float = BUDGET_S, clean_up: bool = True) -> None:
        self._system = system
        self._budget_s = budget_s
        self._clean_up = clean_up
        self._state: _Known | None = None
        self._running: _Running | None = None
        self._tending: Pieces[IndexReport] | None = None

    @property
    def errors(self) -> tuple[UpkeepError, ...]:
        """What fails: the newest error of each chore, until it works."""
        return () if self._state is None else self._state.troubles.known()

    def due(self, table: Table) -> tuple[Chore, ...]:
        """What seems to be due at the loaded version. Sends no request; the record of another daemon may say otherwise.

        What goes on from the last call comes first.
        """
        known = self._take_up(table)
        found = [] if self._running is None else [self._running.chore]
        if self._checkpoint_seems_due(table, known):
            found.append(Chore.CHECKPOINT)
        if self._tending is not None or self._index_seems_due(table, known):
            found.append(Chore.KEY_INDEX)
        return (*found, *(chore for chore in self._clean_ups_due(table, known) if chore not in found))

    def run(self, table: Table) -> UpkeepReport:
        """Do what is due. The table must have been refreshed, and stays as it is loaded.

        Sends no request if nothing is due. What fails is in the report, and is tried again later.

        Raises:
            TableReplacedError: The path now holds another table.
            TableNotFoundError: The table was dropped.
        """
        known = self._take_up(table)
        began_s = self._system.monotonic_s()
        checkpoint = self._checkpointed(table, known)
        key_index = self._tended(table, known, began_s)
        expiry: ExpiryReport | None = None
        vacuum: VacuumReport | None = None
        while True:
            if self._running is None:
                self._running = self._begun(table, known)
            if self._running is None:
                break
            ended = self._advanced(table, known, self._running)
            if isinstance(ended, ExpiryReport):
                expiry = ended
            elif ended is not None:
                vacuum = ended
            if self._system.monotonic_s() - began_s >= self._budget_s:
                break
        return UpkeepReport(
            path=table.path,
            checkpoint=checkpoint,
            expiry=expiry,
            vacuum=vacuum,
            running=self._goes_on(),
            upcoming=self._upcoming(table, known),
            clean_up=self._cleans(table),
            retentions=retentions(table.properties),
            held_by=tuple(sorted(set().union(*known.held_by.values()))),
            errors=known.troubles.take(),
            key_index=key_index,
        )

    def stop(self) -> None:
        """Leave what is running. It is as if the process had been killed: the next clean-up does the rest."""
        self._stop_cleaning()
        if self._tending is not None:
            self._tending.close()
            self._tending = None

    def _stop_cleaning(self) -> None:
        if self._running is not None:
            self._running.work.close()
            self._running = None

    def _goes_on(self) -> Chore | None:
        if self._running is not None:
            return self._running.chore
        return None if self._tending is None else Chore.KEY_INDEX

    def _take_up(self, table: Table) -> _Known:
        """What is known of the table; nothing, if it is another one than before."""
        if self._state is None or self._state.table_id != table.id:
            self.stop()
            self._state = _Known(table.id, self._system.now_ms(), Troubles(self._system, table.path))
        elif not self._cleans(table):
            self._stop_cleaning()  # the property was set meanwhile
            self._state.troubles.forget(CLEAN_UPS)
        return self._state

    # --- checkpoints ---

    def _checkpoint_seems_due(self, table: Table, known: _Known) -> bool:
        interval = properties.count(table.properties, properties.CHECKPOINT_INTERVAL)
        is_due = due.checkpoint_is_due(table.version, known.checkpoint, interval)
        return is_due and known.troubles.may_try(Chore.CHECKPOINT)

    def _checkpointed(self, table: Table, known: _Known) -> int | None:
        """Write a checkpoint if one is due. Returns its version."""
        if not self._checkpoint_seems_due(table, known):
            return None
        try:
            # Another writer may have written one meanwhile.
            known.checkpoint = _newest_checkpoint(table)
            if not self._checkpoint_seems_due(table, known):
                known.troubles.worked(Chore.CHECKPOINT)
                return None
            table.checkpoint()
        except _GONE:
            raise
        except _FAILURES as error:
            known.troubles.failed(Chore.CHECKPOINT, error)
            return None
        known.troubles.worked(Chore.CHECKPOINT)
        known.checkpoint = table.version
        return table.version

    # --- the key index ---

    def _index_seems_due(self, table: Table, known: _Known) -> bool:
        has_index = bool(properties.indexed_key(table.properties))
        return has_index and due.index_is_due(table.version, known.tended) and known.troubles.may_try(Chore.KEY_INDEX)

    def _tended(self, table: Table, known: _Known, began_s: float) -> IndexReport | None:
        """Tend the key index if that is due, or go on with it. Returns the report if that is done."""
        if self._tending is None:
            if not self._index_seems_due(table, known):
                return None
            self._tending = tend_index(table.store, table.at().state, self._system)
            known.tended = table.version
        try:
            while True:
                next(self._tending)
                if self._system.monotonic_s() - began_s >= self._budget_s:
                    return None
        except StopIteration as end:
            known.troubles.worked(Chore.KEY_INDEX)
            report: IndexReport = end.value
            if report.did_anything:
                said = event("index_tended", table=table.path, **msgspec.to_builtins(report))
                _LOGGER.info("%s: the key index has %d runs", table.path, report.runs, extra=said)
            self._tending = None
            return report
        except _GONE:
            self._tending = None
            raise
        except _FAILURES as error:
            self._tending = None
            known.troubles.failed(Chore.KEY_INDEX, error)
            known.tended = None
            return None

    # --- clean-ups ---

    def _cleans(self, table: Table) -> bool:
        return self._clean_up and properties.clean_up(table.properties)

    def _due_ms(self, table: Table, known: _Known, chore: Chore) -> int | None:
        """When a clean-up is due, as far as is known."""
        head = table.head
        age = TableAge(table.id, head.metadata.created_time, known.seen_ms, head.timestamp_ms)
        last = record_of_log(head).merged(known.record).times.get(chore)
        retention_ms = retention(table.properties, _RETENTION_OF[chore]).duration_ms
        return due.due_ms(chore, age, last, retention_ms, self._system.now_ms())

    def _clean_ups_due(self, table: Table, known: _Known) -> list[Chore]:
        if not self._cleans(table):
            return []
        now_ms = self._system.now_ms()
        times = {chore: self._due_ms(table, known, chore) for chore in CLEAN_UPS if known.troubles.may_try(chore)}
        return [chore for chore, at_ms in times.items() if at_ms is not None and at_ms <= now_ms]

    def _begun(self, table: Table, known: _Known) -> _Running | None:
        """Begin the next clean-up that is due, unless the table's record says that another daemon did it."""
        seems_due = self._clean_ups_due(table, known)
        if not seems_due:
            return None
        now_s = self._system.monotonic_s()
        if known.record_read_s is None or now_s - known.record_read_s >= _RECORD_IS_FRESH_S:
            try:
                known.record = known.record.merged(read_record(table.store, table.id))
            except _FAILURES as error:
                known.troubles.failed(seems_due[0], error)
                return None
            known.record_read_s = now_s
        is_due = self._clean_ups_due(table, known)
        for chore in set(seems_due).difference(is_due):
            known.troubles.worked(chore)  # elsewhere
        return self._work(table, known, is_due[0]) if is_due else None

    def _work(self, table: Table, known: _Known, chore: Chore) -> _Running:
        since = known.record.since
        if since is None:
            since = horizon_of(table.head.transactions)
        what = table.store, table.id, self._system, _ignore
        if chore is Chore.EXPIRE:
            return _Running(chore, expire_log(*what), since)
        return _Running(chore, vacuum_files(*what, listing=chore is Chore.LISTING, since=since), since)

    def _advanced(self, table: Table, known: _Known, running: _Running) -> ExpiryReport | VacuumReport | None:
        """Do the next piece. Returns the report if it was the last one."""
        try:
            next(running.work)
        except StopIteration as end:
            self._running = None
            report: ExpiryReport | VacuumReport = end.value
            self._ended(table, known, running, report)
            return report
        except _GONE:
            self._running = None
            raise
        except _FAILURES as error:
            self._running = None
            known.troubles.failed(running.chore, error)
        return None

    def _ended(self, table: Table, known: _Known, running: _Running, report: ExpiryReport | VacuumReport) -> None:
        """Remember a clean-up that ended, here and in the table."""
        known.held_by[type(report)] = report.held_by
        if report.did_anything:
            said = event("cleaned_up", table=table.path, chore=running.chore.value, files_deleted=len(report.files))
            _LOGGER.info("%s: %s: deleted %d files", table.path, running.chore, len(report.files), extra=said)
        if isinstance(report, VacuumReport) and report.failed:
            known.troubles.failed(running.chore, _not_deleted(report))
            return
        known.troubles.worked(running.chore)
        if running.chore is Chore.LISTING:
            known.troubles.worked(Chore.VACUUM)
        known.record = known.record.with_time(
            running.chore, LastTime(self._system.now_ms(), is_complete=not report.held_by)
        )
        if isinstance(report, VacuumReport):
            known.record = replace(known.record, since=max(running.since, report.earliest_version))
        try:
            write_record(table.store, table.id, known.record)
        except _FAILURES as error:
            known.troubles.failed(running.chore, error)

    # --- what comes next ---

    def _upcoming(self, table: Table, known: _Known) -> tuple[Upcoming, ...]:
        interval = properties.count(table.properties, properties.CHECKPOINT_INTERVAL)
        newest = -1 if known.checkpoint is None else known.checkpoint
        checkpoint = Upcoming(Chore.CHECKPOINT, None, f"at version {max(newest + interval, table.version + 1)}")
        timed, waiting = [], [checkpoint]
        if properties.indexed_key(table.properties):
            waiting.append(Upcoming(Chore.KEY_INDEX, None, "after every eighth commit"))
        for chore in CLEAN_UPS if self._cleans(table) else ():
            at_ms = self._due_ms(table, known, chore)
            if at_ms is None:
                waiting.append(Upcoming(chore, None, "nothing can become old enough before the next commit"))
            else:
                timed.append(Upcoming(chore, to_datetime(at_ms), _WHY[chore]))
        return (*sorted(timed, key=lambda each: (each.at, each.chore)), *waiting)


def _newest_checkpoint(table: Table) -> int:
    """The version of the newest checkpoint; -1 if there is none. Reads its pointer, and lists the log only without."""
    pointed = pointed_version(table.store)
    if pointed is not None and 0 <= pointed <= table.version:
        return pointed
    return table.version - table.commits_since_checkpoint()


def _not_deleted(report: VacuumReport) -> StoreUnavailableError:
    (path, error), *more = report.failed
    others = f" and {len(more)} other files" if more else ""
    return StoreUnavailableError(
        f"{path}{others} could not be deleted: {error}", advice="check the permissions", path=report.path
    )


def _ignore(state: LogState) -> None:
    """The table is refreshed before the next call anyway."""


@dataclass(slots=True)
class _Trouble:
    error: UpkeepError
    count: int
    resume_s: float


@dataclass(slots=True)
class Troubles:
    """What fails at one table."""

    system: System
    path: str
    _found: dict[Chore, _Trouble] = field(default_factory=dict)

    def may_try(self, chore: Chore) -> bool:
        """Whether the chore works, or has waited for long enough."""
        known = self._found.get(chore)
        return known is None or self.system.monotonic_s() >= known.resume_s

    def failed(self, chore: Chore, error: Exception) -> None:
        """The chore failed. The same error again is not a new one."""
        text = error.message if isinstance(error, TidelogError) else f"{type(error).__name__}: {error}"
        code = error.code if isinstance(error, TidelogError) else RetryableError.code
        known = self._found.get(chore)
        is_new = known is None or (known.error.error, known.error.code) != (text, code)
        count = 1 if known is None else known.count + 1
        wait_s = min(_LONGEST_WAIT_S, _FIRST_WAIT_S * 2.0 ** min(count - 1, 16))
        now_ms = self.system.now_ms()
        since = to_datetime(now_ms) if known is None or is_new else known.error.since
        found = UpkeepError(chore, text, code, since, to_datetime(now_ms + round(wait_s * 1000)), is_new)
        self._found[chore] = _Trouble(found, count, self.system.monotonic_s() + wait_s)
        if is_new:
            said = event("upkeep_failed", table=self.path, chore=chore.value, code=code, error=text)
            _TROUBLES.warning("%s: %s failed and is tried again later: %s", self.path, chore, error, extra=said)

    def forget(self, chores: Iterable[Chore]) -> None:
        """The chores are not done any more."""
        for chore in chores:
            self._found.pop(chore, None)

    def worked(self, chore: Chore) -> None:
        """The chore worked."""
        if self._found.pop(chore, None) is not None:
            said = event("upkeep_recovered", table=self.path, chore=chore.value)
            _TROUBLES.info("%s: %s works again", self.path, chore, extra=said)

    def known(self) -> tuple[UpkeepError, ...]:
        """What fails now."""
        return tuple(trouble.error for trouble in self._found.values())

    def take(self) -> tuple[UpkeepError, ...]:
        """What fails now. What is new in it is not new any more in the next call."""
        errors = self.known()
        for trouble in self._found.values():
            trouble.error = replace(trouble.error, is_new=False)
        return errors


def read_record(store: Store, table_id: str) -> UpkeepRecord:
    """The record of a table; an empty one if there is none, or another table's. Raises StoreUnavailableError."""
    try:
        content = store.read(RECORD_PATH)
        found = msgspec.json.decode(content, type=_File)
    except (FileNotFoundError, *MALFORMED_JSON):
        return UpkeepRecord()
    if found.table != table_id:
        return UpkeepRecord()
    times = {
        Chore(name): LastTime(time.done_ms, time.is_complete) for name, time in found.times.items() if name in CLEAN_UPS
    }
    return UpkeepRecord(times, found.since)


def write_record(store: Store, table_id: str, record: UpkeepRecord) -> None:
    """Replace the record. Raises StoreUnavailableError, PathNotWritableError."""
    times = {str(chore): _Time(time.done_ms, time.is_complete) for chore, time in record.times.items()}
    store.replace(RECORD_PATH, msgspec.json.encode(_File(table_id, times, record.since)))


def record_of_log(head: Head) -> UpkeepRecord:
    """What the log says: when the newest clean-ups announced themselves. A clean-up by hand counts as well."""
    announced = {Chore.VACUUM: head.transactions.get(HORIZON), Chore.EXPIRE: head.transactions.get(FLOOR)}
    return UpkeepRecord(
        {
            chore: LastTime(found.last_updated)
            for chore, found in announced.items()
            if found is not None and found.last_updated is not None
        }
    )
