"""Values that a source left out of its records: what they are, by the other records of a batch and by the table.

PostgreSQL repeats no long value that an update did not change. It is that of the row before the update: of the same
key, or of the old key if the update changed it. The older records of a batch and the rows of the table have it, and
what is newer of these counts.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's convention
from pyspark.sql.types import StringType, StructField, StructType

from tidelog.log import Snapshot, Transaction
from tidelog.log.arrays import BoolArray
from tidelog.log.data.grouping import group_numbers
from tidelog.log.operations.upsert import KeyMatcher
from tidelog.log.read.keys import Keys
from tidelog.streaming import spark_versions
from tidelog.streaming.executors.collected import collected
from tidelog.streaming.executors.plain_frame import quoted
from tidelog.streaming.sink.control import DELETES, OLD_KEY, OPERATION, ORDER, TRANSACTION, UNCHANGED
from tidelog.streaming.sink.dead_letters import REASON

_UNKNOWN = "the source left out the value of {}, and the table has no row with this key that could keep it"
# The end of an order is the record's offset. What comes before is the same for all records of one change in the source.
_OFFSET = len(".000000000000")


class _Record(NamedTuple):
    """A record of the batch; `row` is its number among those that were collected, `old` the number of its old key."""

    order: str
    is_deletion: bool
    transaction: str | None
    left_out: Collection[str]
    old: int | None
    row: int


class _Level(NamedTuple):
    """Where a value can be: in the table's row of a key, if its order is between these, or else in a record.

    The least order itself counts if the batch has no value of that order.
    """

    key: int
    least: str | None
    before: str | None = None
    given: int | None = None
    is_inclusive: bool = True

    def has(self, order: str) -> bool:
        """Whether a row of the table with this order counts."""
        if self.before is not None and order >= self.before:
            return False
        return self.least is None or order > self.least or (self.is_inclusive and order == self.least)


@dataclass(frozen=True, slots=True)
class BaseTable:
    """The table that a transaction is based on."""

    transaction: Transaction
    snapshot: Snapshot


class LeftOutValues:
    """The newest records of their keys that leave out values. They are collected once, and what the batch has for them.

    `newest` are the newest records of each key, and `records` all of the batch. Rows of the table that are older than
    `truncated` do not count.
    """

    def __init__(self, newest: DataFrame, records: DataFrame, keys: Sequence[str], truncated: str | None) -> None:
        self._spark = newest.sparkSession
        self._schema = StructType([of for of in newest.schema if of.name not in (UNCHANGED, OLD_KEY)])
        self._truncated = truncated
        self._newest = collected(newest.where(F.size(UNCHANGED) > 0))
        self.count = self._newest.num_rows
        self._given: set[tuple[int, str]] = set()
        # The version of the table that was looked at last, and the records with the values that it has.
        self._known: tuple[int | None, pa.Table] | None = None
        self._names = sorted({name for names in self._newest[UNCHANGED].to_pylist() for name in names})
        if self.count:
            self._keys, self._older = self._related(records, keys)
            self._places = self._keys.places(self._newest).tolist()

    def decided(self, state: BaseTable | None) -> tuple[pa.Table, pa.Table]:
        """The records with all their values, and with a column REASON those that leave out what nothing has.

        None for `state` is a table that is not there yet. What was once given back as unknown is so for good, and comes
        the first time only.
        """
        whole, version = self._bare(self._newest), None if state is None else state.snapshot.version
        nothing = whole.slice(0, 0).append_column(REASON, pa.array([], pa.string()))
        if not self.count:
            return whole, nothing
        if self._known is not None and self._known[0] == version:
            return self._known[1], nothing
        live = _Live(None, self._keys, ()) if state is None else _Live(state.snapshot, self._keys, self._names)
        columns = {name: self._newest[name].to_pylist() for name in self._names}
        missing: dict[int, list[str]] = defaultdict(list)
        for row, levels in enumerate(self._levels):
            for name, of_name in levels.items():
                found, value = self._found(name, of_name, live)
                columns[name][row] = value
                if not found:
                    missing[row].append(name)
        is_unknown = np.zeros(self.count, dtype=bool)
        is_unknown[list(missing)] = True
        if state is not None and is_unknown.any():
            is_unknown[is_unknown] = self._have_effect(is_unknown, state.transaction)
        orders = self._newest[ORDER].to_pylist()
        known = [row for row in range(self.count) if not is_unknown[row] and self._id(row, orders) not in self._given]
        new = [row for row in np.flatnonzero(is_unknown).tolist() if self._id(row, orders) not in self._given]
        self._given |= {self._id(row, orders) for row in new}
        for name, values in columns.items():
            whole = whole.set_column(whole.schema.get_field_index(name), name, self._array(name, values, live))
        reasons = [_UNKNOWN.format(", ".join(missing[row])) for row in new]
        self._known = version, whole.take(pa.array(known, pa.int64()))
        return self._known[1], whole.take(pa.array(new, pa.int64())).append_column(
            REASON, pa.array(reasons, pa.string())
        )

    def frame(self, rows: pa.Table) -> DataFrame:
        """Rows that `decided` returned, as a frame."""
        has_wider = any(
            self._newest.schema.field(of.name).type != rows.schema.field(of.name).type for of in self._schema
        )
        schema = spark_versions.columns_from_arrow(rows.schema) if has_wider else self._schema
        if REASON in set(rows.column_names) - set(schema.names):
            schema = StructType([*schema, StructField(REASON, StringType())])
        return frame_of(self._spark, rows, schema)

    def _array(self, name: str, values: list[Any], live: _Live) -> pa.Array:
        """The values of a column in the type that it has in the batch, or in the table, which can be a wider one."""
        try:
            return pa.array(values, self._newest.schema.field(name).type)
        except (pa.ArrowException, OverflowError):
            return pa.array(values, live.type_of(name))

    def _id(self, row: int, orders: Sequence[str]) -> tuple[int, str]:
        return self._places[row], orders[row]

    @staticmethod
    def _bare(rows: pa.Table) -> pa.Table:
        return rows.drop_columns([name for name in (UNCHANGED, OLD_KEY) if name in rows.column_names])

    def _found(self, name: str, levels: Sequence[_Level], live: _Live) -> tuple[bool, Any]:
        """Whether a value is known, and the value."""
        for level in levels:
            order = live.order(level.key)
            is_older = order is not None and self._truncated is not None and order < self._truncated
            if order is not None and not is_older and level.has(order):
                return live.value(level.key, name)
            if level.given is not None:
                return True, self._value(name, level.given)
        return False, None

    def _have_effect(self, chosen: BoolArray, transaction: Transaction) -> BoolArray:
        """Which records are not older than what the table has, or has deleted, of their keys."""
        records, writer = self._newest.filter(pa.array(chosen)), transaction.writer
        matcher = KeyMatcher(transaction.state, writer, Keys(records, self._keys.names, writer.store.url))
        wins: BoolArray = matcher.ordered(records.select([ORDER]), np.zeros(records.num_rows, dtype=bool)).decision.wins
        return wins

    # --- the records of the batch -------------------------------------------------------------------------------------

    def _related(self, records: DataFrame, names: Sequence[str]) -> tuple[Keys, pa.Table]:
        """The keys of these records and all that they had before, and the other records of the batch with these."""
        own = self._newest.select(list(names))
        keys = new = _distinct(pa.concat_tables([own, _valid(_old_keys(self._newest, names))]))
        limits = [None] * new.num_rows
        for place, order in zip(
            Keys(keys, names, "").places(own).tolist(), self._newest[ORDER].to_pylist(), strict=True
        ):
            limits[place] = order
        found = []
        while new.num_rows:
            found.append(self._of_keys(records, new, limits))
            old = _distinct(_valid(_old_keys(found[-1], names)))
            new = old.filter(pa.array(Keys(keys, names, "").places(old) < 0))
            keys, limits = pa.concat_tables([keys, new]), [None] * new.num_rows
        return Keys(keys, names, ""), pa.concat_tables(found)

    def _of_keys(self, records: DataFrame, keys: pa.Table, limits: Sequence[str | None]) -> pa.Table:
        """The columns that are asked for of the records with these keys, each up to its limit, if it has one."""
        names = keys.column_names
        wanted = keys.rename_columns([f"_k{place}" for place in range(len(names))])
        wanted = wanted.append_column("_limit", pa.array(limits, pa.string()))
        kinds = [StructField(f"_k{place}", records.schema[name].dataType) for place, name in enumerate(names)]
        frame = frame_of(self._spark, wanted, StructType([*kinds, StructField("_limit", StringType())]))
        condition = frame["_limit"].isNull() | (records[ORDER] < frame["_limit"])
        for place, name in enumerate(names):
            condition = condition & (records[quoted(name)] == frame[f"_k{place}"])
        control = [name for name in (OPERATION, ORDER, TRANSACTION, UNCHANGED, OLD_KEY) if name in records.columns]
        needed = [*names, *self._names, *control]
        return collected(records.join(F.broadcast(frame), condition, "left_semi").select(*map(quoted, needed)))

    @cached_property
    def _by_key(self) -> Mapping[int, list[_Record]]:
        """The older records of each key, in their order."""
        found: dict[int, list[_Record]] = defaultdict(list)
        places = self._keys.places(self._older).tolist()
        for key, record in zip(places, self._records_of(self._older), strict=True):
            found[key].append(record)
        for records in found.values():
            records.sort(key=lambda record: (record.order, record.old is not None))
        return found

    def _records_of(self, rows: pa.Table) -> Iterator[_Record]:
        old = _old_keys(rows, self._keys.names)
        columns = (rows[name].to_pylist() for name in (ORDER, OPERATION, TRANSACTION, UNCHANGED))
        lines = zip(*columns, self._keys.places(old).tolist(), _are_keys(old).to_pylist(), strict=True)
        for row, (order, operation, transaction, left_out, place, is_key) in enumerate(lines):
            names = frozenset(left_out or ())
            yield _Record(order, operation == DELETES, transaction, names, place if is_key else None, row)

    @cached_property
    def _levels(self) -> list[dict[str, list[_Level]]]:
        """For each record and each value that it leaves out: where that can be, the newest place first."""
        return [
            {name: self._places_of(name, key, record) for name in record.left_out}
            for key, record in zip(self._places, self._records_of(self._newest), strict=True)
        ]

    def _places_of(self, name: str, key: int, record: _Record) -> list[_Level]:
        # A row that is not older than the record: it has no effect, or was applied before.
        levels, seen = [_Level(key, self._applied_from(key, record))], {(key, record.order)}
        while True:
            before: str | None = record.order
            if record.old is not None:
                key, before = record.old, self._moved_at(record)
            if before is None:
                return levels
            older = self._newest_before(key, before)
            if older is None:
                return [*levels, _Level(key, None, before)]
            if older.is_deletion or name not in older.left_out:
                given = None if older.is_deletion else older.row
                return [*levels, _Level(key, older.order, before, given, is_inclusive=False)]
            levels.append(_Level(key, self._applied_from(key, older), before))
            if (key, older.order) in seen:  # clocks as the order of a source can go in circles
                return levels
            seen.add((key, older.order))
            record = older

    def _applied_from(self, key: int, record: _Record) -> str:
        """The least order of a row that is this record's, or newer.

        A source that sends a change again gives it a greater offset. For the row of a changed key that must not matter:
        the row of the old key is gone then. Any other change has the values of the row that it finds.
        """
        if record.old is None:
            return record.order
        change = record.order[:-_OFFSET]
        is_gone = any(other.is_deletion and other.order.startswith(change) for other in self._by_key.get(key, []))
        return record.order if is_gone else change

    def _newest_before(self, key: int, order: str) -> _Record | None:
        records = self._by_key.get(key, [])
        place = bisect_left(records, order, key=lambda record: record.order)
        return records[place - 1] if place else None

    def _moved_at(self, record: _Record) -> str | None:
        """The order of the deletion of the old key that belongs to a record; None if the batch has none, or several.

        Only with it all older records of that key have been seen: they can be in another partition of the topic.
        """
        assert record.old is not None
        records, change = self._by_key.get(record.old, []), record.order[:-_OFFSET]
        places = [
            place
            for place, other in enumerate(records)
            if other.is_deletion and other.order[:-_OFFSET] == change and other.transaction == record.transaction
        ]
        # The source may have sent a change twice, but between two deletions there must be no new row.
        if not places or not all(other.is_deletion for other in records[places[0] : places[-1]]):
            return None
        return records[places[0]].order

    @cached_property
    def _values(self) -> Mapping[str, list[Any]]:
        return {name: self._older[name].to_pylist() for name in self._names}

    def _value(self, name: str, row: int) -> Any:
        return self._values[name][row]


class _Live:
    """The newest row that the table has of each key."""

    def __init__(self, snapshot: Snapshot | None, keys: Keys, names: Sequence[str]) -> None:
        self._rows: dict[int, int] = {}
        self._columns: dict[str, list[Any]] = {}
        if snapshot is None:
            return
        known = [name for name in names if name in snapshot.schema.names]
        found = snapshot.get(keys.table, list(dict.fromkeys([*keys.names, *known, ORDER])))
        self._columns = {name: found[name].to_pylist() for name in known}
        self._types = {name: found.schema.field(name).type for name in known}
        self._orders = [order or "" for order in found[ORDER].to_pylist()]
        for row, key in enumerate(keys.places(found).tolist()):
            if key not in self._rows or self._orders[row] > self._orders[self._rows[key]]:
                self._rows[key] = row

    def type_of(self, name: str) -> pa.DataType:
        """The type of a column of the table."""
        return self._types[name]

    def order(self, key: int) -> str | None:
        """The order of a key's row; None if there is no row."""
        return self._orders[self._rows[key]] if key in self._rows else None

    def value(self, key: int, name: str) -> tuple[bool, Any]:
        """Whether the table has the column, and the value of a key's row."""
        return (True, self._columns[name][self._rows[key]]) if name in self._columns else (False, None)


def frame_of(spark: SparkSession, rows: pa.Table, schema: StructType) -> DataFrame:
    """The rows as a frame; PySpark cannot convert a column without chunks."""
    return spark.createDataFrame(rows, schema) if rows.num_rows else spark.createDataFrame([], schema)


def _old_keys(rows: pa.Table, keys: Sequence[str]) -> pa.Table:
    """The old keys of records, with nulls for a record that has none."""
    kinds = [rows.schema.field(name) for name in keys]
    if OLD_KEY not in rows.column_names:
        return pa.table([pa.nulls(rows.num_rows, of.type) for of in kinds], schema=pa.schema(kinds))
    old = rows[OLD_KEY].combine_chunks()
    fields = [part.cast(of.type) for part, of in zip(old.flatten(), kinds, strict=True)]
    return pa.table(fields, schema=pa.schema(kinds))


def _valid(rows: pa.Table) -> pa.Table:
    return rows.filter(_are_keys(rows))


def _distinct(keys: pa.Table) -> pa.Table:
    numbers = np.asarray(group_numbers(keys, keys.column_names), dtype=np.int64)
    return keys.take(pa.array(np.unique(numbers, return_index=True)[1]))


def _are_keys(rows: pa.Table) -> pa.BooleanArray:
    is_key = np.ones(rows.num_rows, dtype=bool)
    for column in rows.columns:
        is_key &= np.asarray(column.is_valid(), dtype=bool)
    return pa.array(is_key)
