"""Batches of change records, as `tidelog.streaming.capture` makes them: what an upsert does not know is done here.

A row has the table's columns and those of `control`. Rows that could not be read become dead letters. A truncate
deletes what is older. `left_out` finds the values that the source left out of a row.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - Spark's convention

from tidelog.log import Snapshot
from tidelog.log.errors import ConfigurationError, DataError, SchemaMismatchError
from tidelog.log.predicate import Literal, to_sql
from tidelog.streaming import spark_versions
from tidelog.streaming.executors.computed_once import computed_once
from tidelog.streaming.executors.plain_frame import arrow_schema, quoted, widens
from tidelog.streaming.executors.spark_upsert import newest_rows_of_frame
from tidelog.streaming.sink.control import (
    CONTROL,
    DELETES,
    NUMBER,
    OLD_KEY,
    OPERATION,
    ORDER,
    RAW,
    REQUIRED,
    TRANSACTION,
    TRUNCATES,
    UNCHANGED,
)
from tidelog.streaming.sink.dead_letters import REASON
from tidelog.streaming.sink.left_out import BaseTable, LeftOutValues, frame_of

_BESIDE_VARIANT = "the source left out the value of {}, which cannot be kept in a row with a VARIANT, the column "
_DEAD_LETTERS = "pass dead_letters=, a sink or a path that takes such records, or correct the schema"

# The number of a record in the batch. Its bytes are found by it: they would make each sort of the rows slower.
_NUMBER = NUMBER
OF_RECORD = (TRANSACTION, OLD_KEY, _NUMBER)
"""The columns that can differ in two records of one row."""


@dataclass(slots=True)
class Captured:
    """A batch: the rows to apply, and those that could not be read.

    Without columns beside those of CONTROL there is nothing to apply: no record said what the columns are.
    `truncated` is the order of the newest truncate, None if there is none. `kept` are the columns of CONTROL that the
    table has. `raw` has the bytes of the records, if there is a place for dead letters.
    """

    rows: DataFrame
    unread: DataFrame
    count: int
    reason: str | None
    truncated: str | None
    has_left_out: bool
    kept: Collection[str]
    raw: DataFrame | None
    unknown: DataFrame | None = field(default=None, init=False)
    """The records whose left-out values are nowhere, or None. Set by `told_apart`."""
    _left_out: LeftOutValues | None = field(default=None, init=False)

    @property
    def has_columns(self) -> bool:
        """Whether the rows have columns for a table."""
        return has_columns(self.rows)

    @property
    def needs_table(self) -> bool:
        """Whether the rows are not complete without those of the table; known once they were told apart."""
        return self.truncated is not None or self._left_out is not None

    def require_read(self) -> None:
        """Raise DataError if a row could not be read."""
        if self.count:
            raise DataError(
                f"{self.count} change records of the batch cannot be applied; of one of them {self.reason}",
                advice=_DEAD_LETTERS,
            )

    def told_apart(
        self, rows: DataFrame, others: DataFrame, keys: Sequence[str], state: BaseTable | None
    ) -> tuple[DataFrame, DataFrame]:
        """The newest rows of keys that can be applied, and all other rows of the batch, with a column REASON.

        Of the former those that leave out values are missing: `completed` adds them.
        """
        # Most batches have none. Their sink has no job to do then, and this is the only one.
        others = self._with_bytes(others) if others.count() else _none_of(others.drop(UNCHANGED, OLD_KEY, _NUMBER))
        if self.has_left_out:
            self.unknown = self._unknown(rows, keys, state)
            if self.unknown is not None:
                others = others.unionByName(self.unknown, allowMissingColumns=True)
            rows = rows.where(F.size(UNCHANGED) == 0)
        return self._bare(rows), others.unionByName(self.unread, allowMissingColumns=True)

    def known(self, keys: Sequence[str], state: BaseTable | None) -> DataFrame:
        """The same, if there is no place for others. Raises DataError if a row leaves out a value that nothing has."""
        if not self.has_left_out:
            return self._bare(self.rows)
        rows = newest_rows_of_frame(self.rows, keys, [ORDER], OF_RECORD)
        unknown = self._unknown(rows, keys, state)
        if unknown is not None:
            self.raise_unknown(unknown)
        return self._bare(rows.where(F.size(UNCHANGED) == 0))

    def completed(self, rows: DataFrame, keys: Sequence[str], state: BaseTable) -> tuple[DataFrame, DataFrame | None]:
        """All rows to apply: also those that leave out values, and deletions of what a truncate deletes of the table.

        And those that leave out what the table had, but has no more: a writer has deleted the row meanwhile.
        """
        unknown = None
        if self._left_out is not None:
            whole, missing = self._left_out.decided(state)
            rows = rows.unionByName(self._bare(self._left_out.frame(whole)))
            unknown = self._with_bytes(self._left_out.frame(missing)) if missing.num_rows else None
        if self.truncated is not None:
            rows = _with_deletions(rows, self.truncated, keys, state.snapshot)
        return rows, unknown

    @staticmethod
    def raise_unknown(unknown: DataFrame) -> None:
        """Raise DataError, unless there are none of these records that leave out values."""
        first = unknown.select(REASON).first()
        if first is not None:
            raise DataError(first[0], advice=_DEAD_LETTERS)

    def _bare(self, rows: DataFrame) -> DataFrame:
        """The rows without the columns that tell of the record alone, except those that the table has."""
        return rows.drop(RAW, UNCHANGED, OLD_KEY, _NUMBER, *(() if TRANSACTION in self.kept else (TRANSACTION,)))

    def _with_bytes(self, letters: DataFrame) -> DataFrame:
        """Dead letters with the bytes of their records."""
        letters = letters.drop(UNCHANGED, OLD_KEY)
        return letters if self.raw is None else self.raw.join(letters, _NUMBER, "right").drop(_NUMBER)

    def _unknown(self, rows: DataFrame, keys: Sequence[str], state: BaseTable | None) -> DataFrame | None:
        """Those of the newest rows that leave out a value which nothing has; None if there are none."""
        variant = next((of.name for of in rows.schema if '"variant"' in of.json()), None)
        if variant is not None:  # Spark does not take one from the driver, where the values are found
            before, after = _BESIDE_VARIANT.split("{}")
            reason = F.concat(F.lit(before), F.array_join(UNCHANGED, ", "), F.lit(after + variant))
            return self._with_bytes(rows.where(F.size(UNCHANGED) > 0).withColumn(REASON, reason))
        left_out = LeftOutValues(rows, self.rows, keys, self.truncated)
        self._left_out = left_out if left_out.count else None
        _, unknown = left_out.decided(state)
        return self._with_bytes(left_out.frame(unknown)) if unknown.num_rows else None


def has_columns(frame: DataFrame) -> bool:
    """Whether change records have columns beside those of CONTROL."""
    return not set(frame.columns) <= {*CONTROL, _NUMBER}


def reason_in(frame: DataFrame) -> str | None:
    """Why a record of the batch cannot be read; None if all can."""
    row = frame.agg(F.min(REASON)).first()
    return None if row is None else row[0]


def _none_of(frame: DataFrame) -> DataFrame:
    return frame.where(F.lit(False))  # noqa: FBT003 - a value


@contextmanager
def captured(frame: DataFrame, keys: Sequence[str], kept: Collection[str], *, keep_raw: bool) -> Iterator[Captured]:
    """The batch, computed once within the block; `keep_raw` for dead letters.

    Raises SchemaMismatchError if it has not the columns of CONTROL.
    """
    for name in REQUIRED:
        if name not in frame.columns:
            raise SchemaMismatchError(
                f"the batch lacks the column {name!r}, which change records have",
                advice="pass what capture.debezium or another function of tidelog.streaming.capture returns",
                column=name,
            )
    read = frame.withColumn(_NUMBER, F.monotonically_increasing_id()) if keep_raw else frame.drop(RAW)
    with computed_once(read) as held:
        is_bad = F.col(REASON).isNotNull()
        row = held.agg(
            F.count_if(is_bad).alias("bad"),
            F.min(REASON).alias("reason"),
            F.max(F.when(~is_bad & (F.col(OPERATION) == TRUNCATES), F.col(ORDER))).alias("truncated"),
            F.count_if(~is_bad & (F.size(UNCHANGED) > 0)).alias("left_out"),
        ).first()
        if row is None:
            raise AssertionError(frame)  # an aggregate has a row
        rows = held.where(~is_bad & (F.col(OPERATION) != TRUNCATES)).drop(REASON, RAW)
        has_left_out = row["left_out"] > 0
        if not has_left_out:
            rows = rows.drop(UNCHANGED, OLD_KEY)
        if row["truncated"] is not None:
            rows = _deleted_before(rows, row["truncated"], keys)
        # Without any, Spark needs no job to find that out again.
        letters = (held.where(is_bad) if row["bad"] else _none_of(held)).drop(UNCHANGED, OLD_KEY, _NUMBER)
        raw = held.select(_NUMBER, RAW) if keep_raw else None
        yield Captured(rows, letters, row["bad"], row["reason"], row["truncated"], has_left_out, kept, raw)


def _deleted_before(rows: DataFrame, truncated: str, keys: Sequence[str]) -> DataFrame:
    """The rows, of which those that are older than a truncate are deletions at its time."""
    is_older, columns = F.col(ORDER) < truncated, []
    changed = {OPERATION: F.lit(DELETES), ORDER: F.lit(truncated), UNCHANGED: F.array().cast("array<string>")}
    for of in rows.schema:
        name = of.name
        if name in (*keys, _NUMBER):
            columns.append(F.col(quoted(name)))
            continue
        value = changed.get(name, F.lit(None).cast(of.dataType))
        columns.append(F.when(is_older, value).otherwise(F.col(quoted(name))).alias(name))
    return rows.select(*columns)


def require_order(schema: pa.Schema, path: str) -> None:
    """Raise ConfigurationError if a table cannot tell which records are newer than its rows."""
    if ORDER not in schema.names:
        raise ConfigurationError(
            f"{path} has no column {ORDER!r}, by which change records are compared with its rows",
            advice=f"add it: table.add_columns([pyarrow.field('{ORDER}', pyarrow.string())]); rows without "
            "it are older than all",
        )


def without_control(frame: DataFrame, kept: Collection[str]) -> DataFrame:
    """The frame with the columns that a table of its rows has."""
    return frame.drop(*(name for name in CONTROL if name not in (ORDER, *kept)))


def _with_deletions(rows: DataFrame, truncated: str, keys: Sequence[str], snapshot: Snapshot) -> DataFrame:
    older = snapshot.scan(f"{ORDER} < {to_sql(Literal(truncated))} OR {ORDER} IS NULL", columns=list(keys)).to_arrow()
    if not older.num_rows:
        return rows
    gone = frame_of(rows.sparkSession, older, spark_versions.columns_from_arrow(older.schema))
    kinds, columns = arrow_schema(rows), []
    for name in keys:
        # A key of the table can have a wider type than an older record.
        is_wider = widens(kinds.field(name).type, older.schema.field(name).type)
        column = F.col(quoted(name))
        columns.append(column if is_wider else column.cast(rows.schema[name].dataType).alias(name))
    gone = gone.select(*columns).withColumns({OPERATION: F.lit(DELETES), ORDER: F.lit(truncated)})
    return rows.unionByName(gone, allowMissingColumns=True)
