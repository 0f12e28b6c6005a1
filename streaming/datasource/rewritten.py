"""UPDATE, DELETE and MERGE that Spark's analyzer has rewritten: any statement that Spark can plan.

A statement that has an exact translation (`row_changes`) runs as one of `table(spark, path)`, which reads less. Of any
other, Spark computes the rows that change, and `changed_rows` stages them: a commit, or none.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import reduce
from typing import Any

import msgspec
import pyarrow.compute as pc
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from tidelog.log import Table, Transaction, predicate
from tidelog.log.conflict.staged import Reads, Staged
from tidelog.log.errors import (
    ConstraintViolationError,
    DataFileMissingError,
    DuplicateKeyError,
    NullValueError,
    PredicateError,
    SchemaMismatchError,
)
from tidelog.log.presentable import brief
from tidelog.streaming.datasource import frames, row_changes
from tidelog.streaming.datasource.pushed_filters import predicate_of
from tidelog.streaming.datasource.row_changes import Done
from tidelog.streaming.datasource.spark_expressions import each, node_kind
from tidelog.streaming.datasource.sql_catalog import changed_place, evolve
from tidelog.streaming.executors.changed_rows import (
    INSERTED,
    UPDATED,
    RowColumns,
    RowQuery,
    stage_changes,
)
from tidelog.streaming.executors.session import prepare_session
from tidelog.streaming.executors.spark_table import candidates
from tidelog.streaming.jvm_reading.addressed_rows import addressed_rows

# The state of SQL for an error that a query raises by itself, as a translated MERGE does for rows that it cannot take.
_RAISED = "P0001"
# What Spark raises for a job that fails; PySpark has no class of its own for most of it.
_FAILED = (PySparkException, Py4JJavaError)
# Of Spark's reader, of tidelog's in a task, and of tidelog when it plans a scan.
_FILE_IS_MISSING = ("FILE_NOT_EXIST", DataFileMissingError.__name__, DataFileMissingError.code)
_COUNTS = {"UPDATE": "numUpdatedRows", "DELETE": "numDeletedRows"}
_MERGED = ("Inserted", "Updated", "Deleted")


def run_change(spark: SparkSession, request: Mapping[str, Any], plan: Any) -> Any:
    """Run the statement of a plan on the table of the request's options. Returns an error of Spark's own, or None."""
    try:
        row_changes.with_outcome(spark, lambda: _changed(spark, request, plan))
    except PySparkException as error:
        origin = getattr(error, "_origin", None)
        if origin is None:
            raise
        return origin
    except NullValueError as error:
        jvm: Any = spark.sparkContext._jvm  # noqa: SLF001 - PySpark's only way to the JVM
        return jvm.tidelog.Rewritten.nullError(error.column.replace(".", "\n"), str(error))
    return None


def _changed(spark: SparkSession, request: Mapping[str, Any], plan: Any) -> Done:
    path, storage_options = changed_place(request)
    prepare_session(spark)
    table = Table.open(path, storage_options=storage_options)
    changes = request.get("evolve") or ()
    if node_kind(plan) == "DeleteFromTable":  # Spark does not rewrite it if it takes all rows
        return row_changes.translated(spark, table, plan)
    done = None if changes else _translated(spark, table, plan)
    return done or _Statement(spark, table, plan, changes).run()


def _translated(spark: SparkSession, table: Table, plan: Any) -> Done | None:
    """Run the statement by its translation; None, and nothing is changed, if it has none with the same rows."""
    jvm: Any = spark.sparkContext._jvm  # noqa: SLF001 - PySpark's only way to the JVM
    statement = jvm.tidelog.Rewritten.statement(spark._jsparkSession, plan)  # noqa: SLF001 - as above
    if statement is None:
        return None
    try:
        return row_changes.translated(spark, table, statement)
    except ConstraintViolationError:
        raise
    except (PredicateError, SchemaMismatchError, DuplicateKeyError):
        # An error of the translation's own, or one that Spark's rows have as well.
        return None
    except PySparkException as error:
        if error.getSqlState() != _RAISED:
            raise
        return None


# --- the rows that Spark computes -------------------------------------------------------------------------------------


class _Statement:
    """One statement. It can be staged several times, on a newer version each time."""

    def __init__(self, spark: SparkSession, table: Table, plan: Any, evolve: Sequence[Any]) -> None:
        self._spark = spark
        self._table = table
        self._plan = plan
        self._evolve = evolve
        jvm: Any = spark.sparkContext._jvm  # noqa: SLF001 - PySpark's only way to the JVM
        self._java: Any = jvm.tidelog.Rewritten
        self._name = str(self._java.command(plan))
        self._operations: dict[int, list[str]] = {
            int(number): [str(name) for name in names] for number, names in self._java.operations(plan).items()
        }

    def run(self) -> Done:
        done = self._table.statement(self._staged)
        counts = [_COUNTS[self._name]] if self._name in _COUNTS else [f"numTargetRows{kind}" for kind in _MERGED]
        return Done(done, sum(done.metrics.get(name, 0) for name in counts))

    def _staged(self, transaction: Transaction) -> Transaction:
        transaction.require_row_changes()
        evolve(transaction, self._evolve)
        self._require_same_columns(transaction)
        try:
            with transaction.working():
                return transaction.stage(self._stage(transaction))
        except DataFileMissingError as error:
            # No vacuum has taken it, so it may be a file of a source: Spark's error says which one.
            if isinstance(error.__cause__, _FAILED):
                raise error.__cause__ from None
            raise

    def _require_same_columns(self, transaction: Transaction) -> None:
        planned = [str(column.name()) for column in each(self._plan.table().output())]
        names = transaction.schema.names
        if planned != names:
            raise SchemaMismatchError(
                f"the columns of {self._table.path} are {', '.join(names)} now, and were {', '.join(planned)} when the "
                "statement was planned",
                advice="run it again",
                column=next((name for name in (*names, *planned) if (name in names) != (name in planned)), ""),
            )

    def _stage(self, transaction: Transaction) -> Staged:
        attempt = _Attempt(self._spark, self._table.id, transaction)
        with frames.pinned(self._spark, attempt):
            rows = DataFrame(self._java.rows(self._spark._jsparkSession, self._plan), self._spark)  # noqa: SLF001
            changes = self._changes(attempt.columns)
            with _missing_files_noticed(self._table.path):
                staged = stage_changes(rows, transaction.state, transaction.writer, changes)
        # A row that is there keeps one from being inserted, and a query within the statement can read any row.
        sees_deletes = INSERTED in changes.operations or attempt.other_scans > 0
        return replace(
            staged,
            reads=attempt.read(),
            sees_deletes=sees_deletes,
            # An upsert looks for its keys among all rows.
            sees_appends=self._name == "MERGE",
            **self._described(staged),
        )

    def _changes(self, columns: RowColumns) -> RowQuery:
        if not self._operations:
            return RowQuery(frozenset({INSERTED}), frozenset(), 0, None)
        updated = frozenset(self._operations.get(UPDATED, ()))
        return RowQuery(frozenset(self._operations), updated, 1, columns, bool(self._java.isBySource(self._plan)))

    def _described(self, staged: Staged) -> dict[str, Any]:
        """What the commit says of the statement, with the names of delta-spark."""
        condition = msgspec.json.encode([brief(self._java.condition(self._plan))]).decode()
        found: dict[str, Any] = {"operation": self._name, "parameters": {"predicate": condition}}
        if self._name in _COUNTS:
            metrics = dict(staged.metrics)
            counts = {kind: metrics.pop(f"numTargetRows{kind}") for kind in _MERGED}
            found["metrics"] = {_COUNTS[self._name]: counts["Updated"] + counts["Deleted"], **metrics}
        return found


@contextmanager
def _missing_files_noticed(path: str) -> Iterator[None]:
    """Raise DataFileMissingError where Spark fails because a file is missing, as tidelog's own reader does."""
    try:
        yield
    except _FAILED as error:
        if not any(text in str(error) for text in _FILE_IS_MISSING):
            raise
        raise DataFileMissingError(
            f"a file that a statement on {path} reads is missing: {str(error).partition(chr(10))[0]}",
            advice="run the statement again",
            path=path,
        ) from error


class _Attempt(frames.PinnedReads):
    """A statement on one version of the table. `columns` are those that its scan has beside the table's."""

    def __init__(self, spark: SparkSession, table_id: str, transaction: Transaction) -> None:
        super().__init__(table_id, transaction.base_version)
        self._spark = spark
        self._transaction = transaction
        writer = transaction.writer
        self.columns = RowColumns.of(writer.metadata, writer.store.url)

    def scan(self, names: Sequence[str], filters: Sequence[Any]) -> DataFrame:
        """The rows of the table with their addresses."""
        state, writer = self._transaction.state, self._transaction.writer
        where = frames.with_pushed(None, predicate_of(filters, writer.schema), writer.schema)
        self.wheres.append(where)
        live = state.files().adds
        files = live if where is None else candidates(state, writer, where)
        numbers = pc.index_in(files["path"], value_set=live["path"].combine_chunks()).combine_chunks()
        tree = None if where is None else predicate.parse(where, writer.schema)
        return addressed_rows(self._spark, writer, files, numbers, names, self.columns, tree)

    def read(self) -> Reads:
        """What the scans of the table may have read. A condition without a translation leaves nothing out."""
        if not self.wheres or None in self.wheres:
            return Reads(predicate.Literal(True))  # noqa: FBT003 - a value
        schema = self._transaction.schema
        trees = [predicate.parse(where, schema) for where in dict.fromkeys(self.wheres) if where is not None]
        return Reads(reduce(predicate.Or, trees))


def rows_of_statement(spark: SparkSession, names: Sequence[str], filters: Sequence[Any]) -> DataFrame | None:
    """The columns `names` of the scan of rows that a statement in this thread changes; None if it is another scan."""
    for reads in frames.pinned_reads(spark):
        if isinstance(reads, _Attempt) and reads.columns.file in names:
            return reads.scan(names, filters)
    return None
