"""Many tables by one stream: a `foreachBatch` function that gives each table its own rows, exactly once."""

from __future__ import annotations

import math
import re
from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from threading import RLock
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's convention
from pyspark.util import inheritable_thread_target

from tidelog.log.errors import (
    CheckpointResetError,
    CommitStateUnknownError,
    ConcurrentTransactionException,
    ConfigurationError,
    ConflictError,
    FencedError,
    NotInStreamError,
    PrerequisiteError,
    RetryableError,
    TidelogError,
)
from tidelog.log.presentable import presentable
from tidelog.log.system import REAL_SYSTEM, System, logger
from tidelog.streaming.executors.computed_once import computed_once
from tidelog.streaming.executors.session import QueryStoppedError, is_connect, stopped_quietly
from tidelog.streaming.monitoring.batch_report import BatchReport
from tidelog.streaming.sink.batch import Circumstances, identifier_of, in_circumstances
from tidelog.streaming.sink.micro_batch import MicroBatch
from tidelog.streaming.sink.parking import (
    TABLE,
    Backlog,
    ParkedBatch,
    Parking,
    backlogs,
    is_pending,
    newest_batch,
    require_free,
)
from tidelog.streaming.sink.settings import ERROR
from tidelog.streaming.sink.sink import Sink

_LOGGER = logger("tidelog.streaming")

# A name becomes part of a path: letters, digits and . _ - $, without a dot in front.
_NAME = re.compile(r"(?!\.)[\w.$-]{1,249}")
# Run the batch again, and it can succeed.
_TRANSIENT = (RetryableError, ConflictError, CommitStateUnknownError, OSError)
# The stream as a whole has no right to go on, or cannot: more than one table's trouble.
_ENDS_THE_STREAM = (
    FencedError,
    ConcurrentTransactionException,
    NotInStreamError,
    PrerequisiteError,
    QueryStoppedError,
    MemoryError,
)
_FIRST_PAUSE_S = 0.5
# How long a batch of the stream waits for parked records of other tables.
_LONGEST_REPLAY_S = 10.0
_LONGEST_REASON = 2000


class Sinks:
    """A `foreachBatch` function that fans one stream out to many tables, each exactly once.

    Every row of a batch has a name, such as its Kafka topic. Rows of one name go to the Sink that `make` returns for
    it, when the name comes for the first time. Each Sink has its own ledger entries, so a batch that Spark replays is
    skipped by the tables that have it and committed by the others.

    A table that refuses a batch does not stop the others. An error that can pass by itself is tried again, `attempts`
    times. Then the table is set aside: its records, as the stream had them, go to the table `parked`, and so do those
    of all later batches, so that their order is kept. Nothing is lost. `failed` says which tables are set aside and
    why; so do the log, and the column `_reason` of the parked records. Every `retry_after_s` seconds, and at each start
    of the query, the stream tries to apply what is parked, batch by batch, in order and each once, and for 10 s at a
    time, so that the other tables do not wait long. `replay` does so at once.

    The stream stops with an error if its checkpoint was restored or another query took it over, and if the records
    cannot be parked either. Then nothing of the batch is lost: Spark runs it again after the restart.

    Args:
        make: Returns the Sink of a name. Two names need two tables, or two Sink names on one table. A table that does
            not exist is created with its first rows, in whatever batch they come. Called again after the Sink was
            closed, so it must return the same Sink each time.
        parked: The table for parked records: a local path or a URL. The query's first batch creates it. It has the
            columns of the stream, `_table`, `_query`, `_batch`, `_offsets`, `_parked_at` and `_reason`.
        by: The name of a row: a column's name, or a Column. Null is a name like any other that is refused.
        rows: Turns the records of one name into the rows of its table, given both; `capture.debezium` in a lambda, for
            example. Default: the records are the rows. It must not start Spark jobs that change anything.
        most_open: How many Sinks stay open. Beyond that the one that was idle longest is closed, which costs its next
            batch the opening of its table.
        parallel: How many tables of a batch are written at the same time. On Spark Connect it is always one.
        attempts: How often a batch is tried for a table before it is set aside, if the error can pass.
        retry_after_s: How long a table is set aside before the stream tries to apply its parked records.
        storage_options: Credentials and endpoint of the store of `parked`. They are never logged.
        on_reset: For `parked`, what it is for a Sink: `adopt` adds it to a query that has run before.
        checkpoint: The query's `checkpointLocation`, which Spark Connect needs, as for a Sink.
        system: The clock; only tests pass one.

    Attributes:
        last: The BatchReport of each table that the newest batch had rows for, by name.
        failed: The tables that are set aside, by name, and why.
        parked: How many batches of a table are parked, and since when, by name: a Backlog with `batches` and `since`.
            What another process applies meanwhile still counts, until this one looks again.

    Raises:
        ConfigurationError: An argument is invalid.

    Names that are not 1 to 249 letters, digits, dots, dashes, underscores and dollar signs, or begin with a dot, never
    come to `make`, because they could lead out of a folder: their records are parked.

    Example:
        sinks = Sinks(lambda topic: Sink(f"/data/{topic}"), parked="/data/_parked")
        query = records.writeStream.foreachBatch(sinks).option("checkpointLocation", c).start()
    """

    def __init__(  # noqa: PLR0913 - the public signature
        self,
        make: Callable[[str], Sink],
        *,
        parked: str,
        by: str | Column = "topic",
        rows: Callable[[DataFrame, str], DataFrame] | None = None,
        most_open: int = 100,
        parallel: int = 2,
        attempts: int = 3,
        retry_after_s: float = 60.0,
        storage_options: Mapping[str, str] | None = None,
        on_reset: str = ERROR,
        checkpoint: str | None = None,
        system: System = REAL_SYSTEM,
    ) -> None:
        for argument, value in (("most_open", most_open), ("parallel", parallel), ("attempts", attempts)):
            if value < 1:
                raise ConfigurationError(f"{argument}={value!r} is no positive number", advice="pass 1 or more")
        if retry_after_s < 0:
            raise ConfigurationError(f"retry_after_s={retry_after_s!r} is negative", advice="pass 0 or more")
        for argument, function in (("make", make), ("rows", rows)):
            if not callable(function) and (argument, function) != ("rows", None):
                raise ConfigurationError(f"{argument} must be a function, not {function!r}", advice="pass a function")
        self._given = {
            "make": make,
            "parked": parked,
            "by": by,
            "rows": rows,
            "most_open": most_open,
            "parallel": parallel,
            "attempts": attempts,
            "retry_after_s": retry_after_s,
            "storage_options": storage_options,
            "on_reset": on_reset,
            "checkpoint": checkpoint,
            "system": system,
        }
        self.last: dict[str, BatchReport] = {}
        self.failed: dict[str, str] = {}
        self._make, self._by, self._rows = make, by, rows
        self._most_open, self._parallel, self._attempts = most_open, parallel, attempts
        self._retry_after_s, self._system = retry_after_s, system
        self.parked: dict[str, Backlog] = {}
        options: dict[str, Any] = {"storage_options": storage_options, "on_reset": on_reset, "checkpoint": checkpoint}
        self._parking = Parking(lambda name: Sink(parked, name=name, schema_evolution=True, **options))
        self._identifier = identifier_of(self._parking.sink.settings)
        self._open: OrderedDict[str, Sink] = OrderedDict()
        # The names by path and Sink name, also of Sinks that were closed.
        self._owners: dict[tuple[str, str], str] = {}
        self._run_id: str | None = None
        self._retry_at = 0.0
        # The tables that refused their parked records when these were last tried.
        self._refused: set[str] = set()
        # `replay` can be called from another thread than the query's.
        self._lock = RLock()

    def __getstate__(self) -> dict[str, Any]:
        """The arguments alone: Spark Connect calls a copy, in a process beside the server."""
        return self._given

    def __setstate__(self, given: dict[str, Any]) -> None:
        Sinks.__init__(self, **given)

    def __call__(self, batch_df: DataFrame, batch_id: int) -> None:
        """Give each table its rows of one micro-batch. Spark calls this, in the query's own thread.

        Args:
            batch_df: The rows of the micro-batch.
            batch_id: Its number, as Spark gives it.

        Raises:
            CheckpointResetError: The checkpoint was deleted, restored or copied, or the table of parked records was
                lost.
            FencedError, ConcurrentTransactionException, NotInStreamError: As for a Sink; after the other tables have
                committed.
            TidelogError: Records had to be parked, and could not be.
        """
        require_free(batch_df)
        try:
            with self._lock, stopped_quietly(batch_df.sparkSession):
                batch = self._identifier.identify(batch_df, batch_id)
                if batch.run_id != self._run_id or not batch.run_id:
                    self._begin(batch)
                self._run(batch_df, batch)
        except TidelogError as error:
            # Spark shows the traceback, not the exception, and a traceback starts with the cause.
            raise error.with_traceback(None) from Exception(f"batch {batch_id} of many tables failed\n{error}")

    def replay(self, spark: SparkSession, names: Collection[str] | None = None) -> dict[str, str]:
        """Apply parked records to their tables, after the cause is mended: batch by batch, in order, each once.

        It can be called beside the running query, in another process, too, and after it has stopped. What is applied is
        deleted from the table of parked records.

        Args:
            spark: A Spark session.
            names: A list of tables; default: all that have parked records.

        Returns:
            The tables that still refuse their records, and why. Empty if nothing is parked any more.
        """
        with self._lock:
            failed, _ = self._replay(spark, names, math.inf)
            return failed

    def _replay(
        self, spark: SparkSession, names: Collection[str] | None, end_s: float
    ) -> tuple[dict[str, str], set[str]]:
        """Apply what is parked until a time: the tables that refuse theirs, and those that have more."""
        failed: dict[str, str] = {}
        left: set[str] = set()
        waiting = {id(parked): parked for parked in self._parking.batches(names)}
        # Tables that refused theirs come last, so that they do not take the time of the others.
        for parked in sorted(waiting.values(), key=lambda parked: parked.name in self._refused):
            if parked.name in failed or parked.name in left:
                continue
            if self._system.monotonic_s() >= end_s:
                left.add(parked.name)
                continue
            try:
                self._apply(spark, parked)
                del waiting[id(parked)]
            except QueryStoppedError:
                raise
            except Exception as error:  # noqa: BLE001 - whatever it is, the records stay parked
                failed[parked.name] = _reason(error)
        for name in [name for name in self.failed if names is None or name in names]:
            if name not in failed and name not in left:
                _LOGGER.warning("the table of %s has its parked records, and follows the stream again", name)
                del self.failed[name]
        self.failed |= failed
        others = {} if names is None else {name: known for name, known in self.parked.items() if name not in names}
        self.parked = others | backlogs(waiting.values())
        self._refused = set(failed)
        return failed, left

    def _apply(self, spark: SparkSession, parked: ParkedBatch) -> None:
        """Apply a parked batch unless its table has it, and delete it then."""
        name, sink, is_there = parked.name, self._sink(parked.name), True
        if is_pending(parked, sink):
            found = Circumstances(not self._parking.has_joined(name, parked.batch), parked.batch)
            try:
                is_there = _has_table(self._give(name, self._parking.rows(spark, parked), parked.batch, found))
            except ConcurrentTransactionException:
                if is_pending(parked, sink):  # else another process was faster
                    raise
        self._parking.join([name] if is_there else [], parked.batch)
        self._parking.forget(parked)
        self._close_idle()

    def _begin(self, batch: MicroBatch) -> None:
        """At the first batch of a run: what is parked, and which tables the query has."""
        self._parking.begin(batch)
        there = self._parking.batches()
        self.failed = {parked.name: parked.reason for parked in reversed(there)}
        self.parked = backlogs(there)
        self._retry_at = self._system.monotonic_s()
        self._run_id = batch.run_id

    def _run(self, frame: DataFrame, batch: MicroBatch) -> None:
        if self.failed and self._system.monotonic_s() >= self._retry_at:
            _, left = self._replay(frame.sparkSession, None, self._system.monotonic_s() + _LONGEST_REPLAY_S)
            self._retry_at = self._system.monotonic_s() + (0 if left else self._retry_after_s)
        with computed_once(frame.withColumn(TABLE, self._name_of_row())) as named:
            names = sorted(named.agg(F.collect_set(TABLE)).collect()[0][0])
            errors = self._write(named, [name for name in names if name not in self.failed], batch)
            self._raise_what_ends(errors, batch)
            if errors and not self.failed:
                self._retry_at = self._system.monotonic_s() + self._retry_after_s
            for name, error in errors.items():
                self.failed[name] = _reason(error)
                _LOGGER.error("the table of %s is set aside, and its records are parked: %s", name, self.failed[name])
            reasons = {name: self.failed[name] for name in names if name in self.failed}
            for name, at in self._parking.park(named, reasons, batch).items():
                known = self.parked.get(name, Backlog(0, at))
                self.parked[name] = Backlog(known.batches + 1, known.since)
            self._parking.join([name for name, report in self.last.items() if _has_table(report)], batch)
        self._close_idle()

    def _name_of_row(self) -> Column:
        column = F.col(self._by) if isinstance(self._by, str) else self._by
        return F.coalesce(column.cast("string"), F.lit(""))

    def _write(self, named: DataFrame, names: Sequence[str], batch: MicroBatch) -> dict[str, Exception]:
        """Give each table its rows; the errors of those that refuse them."""
        self.last = {}
        errors: dict[str, Exception] = {}

        def write(name: str) -> None:
            rows, joins = named.where(F.col(TABLE) == name).drop(TABLE), not self._parking.has_joined(name, batch)
            try:
                self.last[name] = self._give(name, rows, batch, Circumstances(joins))
            except Exception as error:  # noqa: BLE001 - of one table only
                errors[name] = error

        for start in range(0, len(names), self._most_open):
            opened = []
            for name in names[start : start + self._most_open]:
                try:
                    self._sink(name)
                    opened.append(name)
                except Exception as error:  # noqa: BLE001 - of one table only
                    errors[name] = error
            self._each(named.sparkSession, write, opened)
            self._close_idle()
        return errors

    def _each(self, session: SparkSession, write: Callable[[str], None], names: Sequence[str]) -> None:
        workers = min(self._parallel, len(names))
        if workers <= 1 or is_connect(session):
            for name in names:
                write(name)
            return
        with ThreadPoolExecutor(workers) as pool:
            # Spark's local properties say which batch it is, and belong to a thread: each call gets its own copy.
            calls = [pool.submit(_inheriting(session, write), name) for name in names]
        for call in calls:
            call.result()

    def _give(self, name: str, records: DataFrame, batch: MicroBatch, found: Circumstances) -> BatchReport:
        """Give one table its records, again after an error that can pass."""
        sink = self._open[name]
        # An attempt can give rows to the dead letters and then fail: the next one must not find them applicable.
        keeps = self._rows is not None and _letters_of(sink) is not None and sink.settings.captured is None
        found = replace(found, are_kept=self._rows is None or keeps, is_computed=True)
        rows: DataFrame | None = None
        with ExitStack() as once:
            for attempt in range(1, self._attempts + 1):
                try:
                    if rows is None or not keeps:
                        rows = records if self._rows is None else self._rows(records, name)
                        rows = once.enter_context(computed_once(rows)) if keeps else rows
                    with in_circumstances(found):
                        sink(rows, batch.batch_id)
                except _ENDS_THE_STREAM:
                    raise
                except _TRANSIENT:
                    if attempt == self._attempts:
                        raise
                    self._system.sleep_s(_FIRST_PAUSE_S * 2 ** (attempt - 1))
                else:
                    break
        if sink.last is None:
            raise AssertionError(name)
        return sink.last

    def _sink(self, name: str) -> Sink:
        """The Sink of a name, which it makes if that is not open."""
        if name in self._open:
            self._open.move_to_end(name)
            return self._open[name]
        if not _NAME.fullmatch(name):
            raise ConfigurationError(
                f"{presentable(name[:300])!r} is no name of a table: it must be 1 to 249 letters, digits, dots, "
                "dashes, underscores and dollar signs, without a dot in front",
                advice="write these parked records into a table yourself, and delete them",
            )
        sink = self._make(name)
        if not isinstance(sink, Sink):
            raise ConfigurationError(
                f"make returned {type(sink).__name__} for {name!r}, not a Sink", advice="return Sink(path)"
            )
        given = sink.settings
        if given.path == self._parking.path:
            raise ConfigurationError(
                f"make returned the table of parked records for {name!r}", advice="give each table a path of its own"
            )
        letters = _letters_of(sink)
        places = {"table": given, **({} if letters is None else {"table of dead letters": letters.settings})}
        for what, settings in places.items():
            other = self._owners.get((settings.path, settings.name), name)
            if other != name:
                raise ConfigurationError(
                    f"make returned the same {what} for {name!r} as for {other!r}",
                    advice="return another path, or a Sink with another name",
                )
        self._owners |= {(settings.path, settings.name): name for settings in places.values()}
        self._open[name] = sink
        return sink

    def _close_idle(self) -> None:
        while len(self._open) > self._most_open:
            self._open.popitem(last=False)

    def _raise_what_ends(self, errors: Mapping[str, Exception], batch: MicroBatch) -> None:
        """Raise an error that is not one table's trouble alone.

        A CheckpointResetError is not, if the query has never written to the table, or to that of its dead letters: that
        is another one, was lost, or is new.
        """
        for name, error in errors.items():
            if isinstance(error, _ENDS_THE_STREAM):
                raise error
            if isinstance(error, CheckpointResetError):
                sink = self._sink(name)
                letters = _letters_of(sink)
                of_letters = letters is not None and letters.settings.path == error.path
                if newest_batch(letters if letters is not None and of_letters else sink, batch) is not None:
                    raise error


def _letters_of(sink: Sink) -> Sink | None:
    letters: Any = sink.settings.dead_letters
    found: Sink | None = letters
    return found


def _has_table(report: BatchReport) -> bool:
    """Whether a batch shows that its table is there: it has none if no record said what its columns are."""
    return report.version is not None or report.skipped


def _inheriting(session: SparkSession, function: Callable[[str], None]) -> Callable[[str], None]:
    inheriting: Callable[..., Any] = inheritable_thread_target(session)(function)
    return inheriting


def _reason(error: Exception) -> str:
    text = str(error) if isinstance(error, TidelogError) else f"{type(error).__name__}: {error}"
    return presentable(text[:_LONGEST_REASON])
