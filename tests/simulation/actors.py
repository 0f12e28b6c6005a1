"""The actors: each does its jobs one after the other, on the public table, and notes what it was told."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TypeAlias

import pyarrow as pa

from tests.log.oracle.checks import TAKES
from tests.log.oracle.model import Effect, Moment, Row
from tests.log.oracle.operations import Insert, Kind, Operation, Restore
from tests.log.oracle.settings import SCHEMA, WIDE
from tests.simulation.process import Process
from tests.simulation.record import Record, Seen, Told
from tests.simulation.scheduler import Killed
from tests.simulation.world import World
from tidelog.compaction_daemon import CompactionReport, compact
from tidelog.compaction_daemon.compaction.compaction_report import NOTHING
from tidelog.log import Committed, Superseded, Table, Transaction
from tidelog.log.cleanup.pieces import finished
from tidelog.log.commit.result import committed
from tidelog.log.data.key_runs import run_paths
from tidelog.log.errors import (
    CommitStateUnknownError,
    CorruptLogError,
    DataFileMissingError,
    HistoryExpiredError,
    RetryableError,
    TableExistsError,
    TableNotFoundError,
    TableReplacedError,
    TidelogError,
)
from tidelog.log.operations.tend_index import tend_index
from tidelog.log.statements import run_statement

Outcome: TypeAlias = tuple[Told, int | None]
_NEW_HANDLE = (TableReplacedError, TableNotFoundError, HistoryExpiredError, CorruptLogError)
_TRIES = 4
# Clean-ups keep what is younger.
CLEAN_UP_AGE = timedelta(days=1)


@dataclass(frozen=True)
class RestoreTo(Restore):
    """Restores a version."""

    version: int = 0

    def stage(self, table: Table) -> Transaction:
        return table.begin().restore(version=self.version)


@dataclass(frozen=True)
class Compacted(Operation):
    """What a compaction does to the rows: nothing."""

    level: str

    kind = Kind.COMPACTION

    @property
    def operation_class(self) -> str:  # type: ignore[override]
        return self.level.upper()

    def effect(self, moment: Moment) -> Effect:
        del moment
        return Effect()


@dataclass(frozen=True)
class Widened(Operation):
    """Rows whose keys need a wider type, which the key gets with the same commit."""

    rows: tuple[Row, ...]

    def stage(self, table: Table) -> Transaction:
        transaction = table.begin()
        transaction.evolve(SCHEMA.set(0, pa.field("k", WIDE)))
        return transaction.insert([row._asdict() for row in self.rows])

    def effect(self, moment: Moment) -> Effect:
        del moment
        return Effect(born=self.rows)


@dataclass(frozen=True)
class Created(Operation):
    """The first commit of a table, or its last."""

    kind = Kind.METADATA


@dataclass(frozen=True)
class Job:
    """Something that an actor does. `after_ms` is how long it waits before."""

    after_ms: int = field(default=0, kw_only=True)

    @property
    def name(self) -> str:
        return type(self).__name__

    def run(self, actor: Actor, record: Record) -> Outcome:
        raise NotImplementedError


@dataclass(frozen=True)
class Statement(Job):
    """A change of rows. With `runs_again` it is run again after a conflict, as the table's own methods do."""

    operation: Operation
    runs_again: bool = True

    @property
    def name(self) -> str:
        return self.operation.name

    def run(self, actor: Actor, record: Record) -> Outcome:
        table = actor.table()
        record.operation, record.table_id = self.operation, table.id
        if self.runs_again and isinstance(self.operation, Insert):
            return told(self.operation.run(table))  # without a refresh first
        if self.runs_again:
            return told(run_statement(lambda: committed(self.operation.stage(table).commit()), table.path))
        return told(self.operation.stage(table).commit())


@dataclass(frozen=True)
class GoBack(Job):
    """Restores an older version, `back` versions before the newest."""

    back: int

    def run(self, actor: Actor, record: Record) -> Outcome:
        table = actor.table().refresh()
        operation = RestoreTo("RESTORE", version=max(0, table.version - self.back))
        record.operation, record.table_id = operation, table.id
        record.what += f" {operation.version}"
        return told(operation.stage(table).commit())


@dataclass(frozen=True)
class Compaction(Job):
    level: str
    clustered: bool = False

    def run(self, actor: Actor, record: Record) -> Outcome:
        table = actor.table()
        record.operation, record.table_id = Compacted("COMPACT", self.level), table.id
        columns = ["v"] if self.clustered else ()
        try:
            report = compact(table, self.level, cluster_by=columns, purge=self.level == "major")
        except TidelogError as error:
            return actor.compacted(record, getattr(error, "report", NOTHING), error)
        return actor.compacted(record, report, None)


@dataclass(frozen=True)
class Checkpoint(Job):
    def run(self, actor: Actor, record: Record) -> Outcome:
        table = actor.table().refresh()
        record.table_id = table.id
        table.checkpoint()
        return Told.IDLE, None


@dataclass(frozen=True)
class Expire(Job):
    def run(self, actor: Actor, record: Record) -> Outcome:
        table = actor.table().refresh()
        record.table_id = table.id
        table.expire(older_than=CLEAN_UP_AGE)
        return Told.IDLE, None


@dataclass(frozen=True)
class Vacuum(Job):
    def run(self, actor: Actor, record: Record) -> Outcome:
        table = actor.table().refresh()
        record.table_id = table.id
        table.vacuum(older_than=CLEAN_UP_AGE)
        return Told.IDLE, None


@dataclass(frozen=True)
class Index(Job):
    """Deletes some runs of the key index, as anybody may at any time, and tends the index."""

    keeps: int = 1

    def run(self, actor: Actor, record: Record) -> Outcome:
        table = actor.table().refresh()
        record.table_id = table.id
        for path in sorted(run_paths(table.store))[self.keeps :: 2]:
            table.store.delete(path)
        if self.keeps:
            finished(tend_index(table.store, table.at().state, actor.process.system))
        return Told.IDLE, None


@dataclass(frozen=True)
class Read(Job):
    """Reads the newest version, or one before it, file by file."""

    back: int = 0

    def run(self, actor: Actor, record: Record) -> Outcome:
        table = actor.table().refresh()
        record.table_id = table.id
        snapshot = table.at(version=max(0, table.version - self.back))
        rows: Counter[Row] = Counter()
        for batch in snapshot.scan().to_batches():
            rows.update(rows_of(batch))
        actor.seen.append(Seen(record, table.id, snapshot.version, rows))
        return Told.IDLE, None


@dataclass(frozen=True)
class Lookup(Job):
    """Looks keys up several times in one version, which gets old meanwhile: with `get`, or if it `scans` by IN."""

    asked: tuple[tuple[int, ...], ...]
    scans: bool = False
    back: int = 0
    pause_ms: int = 0

    def run(self, actor: Actor, record: Record) -> Outcome:
        table = actor.table().refresh()
        record.table_id = table.id
        snapshot = table.at(version=max(0, table.version - self.back))
        for keys in self.asked:
            actor.process.system.sleep_s(self.pause_ms / 1000)
            if self.scans:
                found = snapshot.scan(f"k IN ({', '.join(map(str, keys))})").to_arrow()
            else:
                found = snapshot.get([{"k": key} for key in keys])
                places = [keys.index(key) for key in found["k"].to_pylist() if key in keys]
                if places != sorted(places):
                    actor.world.object("reader", f"{record} got the rows of {keys} in another order")
            rows = Counter(rows_of(found))
            actor.seen.append(Seen(record, table.id, snapshot.version, rows, keys=keys))
        return Told.IDLE, None


@dataclass(frozen=True)
class Follow(Job):
    """Reads the changes of the last versions."""

    back: int = 2

    def run(self, actor: Actor, record: Record) -> Outcome:
        table = actor.table().refresh()
        record.table_id = table.id
        after = max(0, table.version - self.back)
        until = table.version
        changes = table.changes(after=after, until=until).to_arrow()
        kinds = changes["_change_type"].to_pylist()
        taken: Counter[Row] = Counter()
        given: Counter[Row] = Counter()
        for kind, row in zip(kinds, rows_of(changes), strict=True):
            (taken if kind in TAKES else given)[row] += 1
        actor.seen.append(Seen(record, table.id, until, given, after, taken))
        return Told.IDLE, None


@dataclass(frozen=True)
class Drop(Job):
    def run(self, actor: Actor, record: Record) -> Outcome:
        record.operation = Created("DROP")
        Table.drop(actor.world.url)
        return Told.COMMITTED, None


@dataclass(frozen=True)
class Create(Job):
    def run(self, actor: Actor, record: Record) -> Outcome:
        record.operation = Created("CREATE")
        setting = actor.world.scenario.setting
        actor.handle = None
        try:
            # The table that it returns has the real clock.
            Table.create(
                actor.world.url,
                setting.schema,
                partition_by=["p"] if setting.partitioned else [],
                properties=setting.properties,
            )
        except TableExistsError:
            return Told.IDLE, None
        return Told.COMMITTED, None


@dataclass(frozen=True)
class Plan:
    """An actor: its name, and what it does."""

    name: str
    jobs: tuple[Job, ...]


class Actor:
    """Carries out a plan. Each of its lives is a process of its own."""

    def __init__(self, world: World, number: int, plan: Plan) -> None:
        self.world = world
        self.number = number
        self.plan = plan
        self.handle: Table | None = None
        self.seen: list[Seen] = []
        self.process = self._born(0, 0)

    def live(self) -> None:
        """Do all jobs. The body of the actor's greenlet."""
        try:
            for job in self.plan.jobs:
                self._wait(job.after_ms)
                for _ in range(_TRIES):
                    if not self._do(job):
                        break
        except Killed:
            pass
        finally:
            self.process.end_threads()
            if not self.world.scheduler.stopped:
                self.world.ended(self.plan.name)

    def table(self) -> Table:
        """The actor's table, opened if it has none."""
        if self.handle is None:
            self.handle = Table.open(self.world.url, system=self.process.system)
        return self.handle

    def _do(self, job: Job) -> bool:
        """Do a job once. Returns whether it should be tried again."""
        scheduler = self.world.scheduler
        self.process.operation += 1
        self.process.began_ms = scheduler.now_ms
        scheduler.restart_count()
        record = Record(self.plan.name, job.name, None, scheduler.now_ms)
        self.world.records[self.number, self.process.operation] = record
        scheduler.note(f"begins {job.name}")
        self.world.active = self.process
        again = False
        try:
            record.told, record.version = job.run(self, record)
        except Killed:
            if scheduler.stopped:
                raise
            self._reborn()
            again = _is_once(job)
        except CommitStateUnknownError as error:
            record.error, again = _text(error), _is_once(job)
        except (TidelogError, OSError) as error:
            record.told, record.error = Told.REFUSED, _text(error)
            again = _is_once(job) and isinstance(error, RetryableError | OSError)
            self.judge(error, record)
            if isinstance(error, _NEW_HANDLE):
                self.handle = None
        except Exception as error:  # noqa: BLE001 - the simulation looks for unexpected errors
            record.told, record.error = Told.REFUSED, _text(error)
            self.world.object("untyped", f"{self.plan.name} got {_text(error)} from {job.name}")
        record.ended_ms = scheduler.now_ms
        scheduler.note(f"ends {record.what}: {record.told.name} {record.version} {record.error}")
        if record.told is Told.COMMITTED and self.world.scenario.checks_durability:
            self._require_durable(record)
        return again

    def compacted(self, record: Record, report: CompactionReport, error: TidelogError | None) -> Outcome:
        """What a compaction was told. What it committed before an error stays."""
        record.versions = report.versions
        if error is not None:
            if report.version is None or isinstance(error, CommitStateUnknownError):
                raise error
            self.judge(error, record)
        return (Told.IDLE, None) if report.version is None else (Told.COMMITTED, report.version)

    def judge(self, error: Exception, record: Record) -> None:
        """A table that is not damaged must not be called damaged."""
        world = self.world
        if isinstance(error, HistoryExpiredError | TableNotFoundError | TableReplacedError) and not world.is_disturbed:
            world.object("readable", f"{self.plan.name} was told {_text(error)}")
        if not isinstance(error, CorruptLogError):
            return
        seen_ms = record.began_ms - world.scenario.stale_ms
        if any(seen_ms <= when for when in world.cleaned_ms):
            return  # a clean-up or a drop ran meanwhile, or since an old listing, and the error says to refresh
        if isinstance(error, DataFileMissingError) and world.cleaned_ms:
            return  # an older version, whose files were vacuumed
        world.object("readable", f"{self.plan.name} was told {_text(error)}")

    def _require_durable(self, record: Record) -> None:
        """A power failure must leave a commit that the actor was told of, and the files that it names."""
        files, who = self.world.files, (self.number, self.process.operation)
        commits = [each for table in self.world.history.incarnations for each in table.commits.values()]
        mine = [each for each in commits if each.owner == who and not each.is_empty]
        if not mine and _has_key(record.operation):
            mine = [each for each in commits if each.version == record.version]
        for written in mine:  # none if there was nothing to do: then the version is one that the actor saw
            lost = [path for path in written.files if path in files.names and not files.survives(path)]
            if lost:
                self.world.object("durable", f"{record} is told as committed, and a power failure loses {lost}")

    def _wait(self, ms: int) -> None:
        if ms:
            self.process.pause_threads(ms)
            self.world.scheduler.step("waits", ms)
            if self.world.scheduler.stopped:
                raise Killed
            if self.process.dead:  # another thread of it died
                self._reborn()

    def _reborn(self) -> None:
        """The next life begins."""
        self.process = self._born(self.process.operation, self.process.ids)
        self.handle = None

    def _born(self, operation: int, ids: int) -> Process:
        process = Process(self.world, self.number, self.plan.name, operation, ids=ids)
        process.store, process.system = self.world.connect(process)
        return process


def told(outcome: Committed | Superseded) -> Outcome:
    """What an outcome means. A commit that changed nothing names the version that it saw."""
    if isinstance(outcome, Superseded):
        return Told.IDLE, None
    return Told.COMMITTED, outcome.version


def rows_of(table: pa.Table | pa.RecordBatch) -> list[Row]:
    """The rows of a table or a batch."""
    columns: list[list[int]] = [table.column(name).to_pylist() for name in Row._fields]
    return [Row(*values) for values in zip(*columns, strict=True)]


def _is_once(job: Job) -> bool:
    return isinstance(job, Statement) and _has_key(job.operation)


def _has_key(operation: Operation | None) -> bool:
    return isinstance(operation, Insert) and operation.key is not None


def _text(error: BaseException) -> str:
    return f"{type(error).__name__}: {str(error)[:160]}"
