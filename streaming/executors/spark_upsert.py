"""UPSERT on Spark's executors, in four steps.

1. The data's tasks write the rows to add, and return their keys. The next steps use these files, not the data.
2. The driver checks that each key occurs once, and sends the keys to all tasks.
3. Tasks search the table's files for rows with these keys. They return the row positions, and the key of each. With an
   order, the driver leaves out the records that are older than these rows, and tasks write files with such again.
4. With the change data feed on, tasks read the old rows at these positions and the new files, and write change files.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

import numpy as np
import pyarrow as pa
from pyroaring import BitMap64
from pyspark.sql import DataFrame, Observation, SparkSession, Window
from pyspark.sql import functions as F  # noqa: N812 - Spark's convention

from tidelog.log import OperationClass
from tidelog.log.arrays import BoolArray, Int64Array
from tidelog.log.commit.burial import joined_changes
from tidelog.log.conflict.staged import RowDelete, Staged
from tidelog.log.data.ordering import present, require_ordered
from tidelog.log.data.reader import DataFile, read_batches
from tidelog.log.data.writer import DataWriter
from tidelog.log.errors import DuplicateKeyError
from tidelog.log.format.actions import AddCDCFile, AddFile
from tidelog.log.format.statistics import num_records
from tidelog.log.format.tombstone_list import TombstoneChange
from tidelog.log.operations.delete_update import Matched, RowMatcher, free_name
from tidelog.log.operations.staged_parts import state_of, without_progress
from tidelog.log.operations.upsert import (
    NEW_ROW,
    UPSERT_METRICS,
    KeyMatcher,
    Matches,
    Pairs,
    distinct,
    new_changes,
    numbered,
    old_changes,
    split_upsert,
    staged_upsert,
    with_kept_ids,
    with_tombstones,
)
from tidelog.log.operations.upsert_order import FoundRows
from tidelog.log.read.keys import Keys, keys_of_upsert, order_columns
from tidelog.log.rules import RowRules
from tidelog.log.state.head import Head
from tidelog.log.state.loader import LogState
from tidelog.streaming.executors.computed_once import computed_once
from tidelog.streaming.executors.frame_files import require_counted
from tidelog.streaming.executors.plain_frame import EXACT_TEXT, arrow_schema, plain_texts, quoted
from tidelog.streaming.executors.ruled_frame import ruled
from tidelog.streaming.executors.tasks import (
    FilePart,
    cleared,
    delete_written,
    file_parts,
    file_size,
    pieces,
    run,
    run_on_rows,
    task_parts,
    task_parts_by,
)
from tidelog.streaming.executors.upsert_by_range import rewritten, stage_by_ranges

# Up to so many keys the driver and each task hold all of them in memory, at some tens of bytes each.
MAX_KEYS = 2_000_000

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class UpsertPart:
    """What a task wrote: files, the keys and the order of their rows, and those of rows that only delete.

    Of more than MAX_KEYS rows it wrote the first only.
    """

    adds: tuple[AddFile, ...]
    keys: pa.Table
    gone: pa.Table
    rows: int


@dataclass(frozen=True, slots=True)
class Found:
    """The rows of a file that have one of the keys, how many rows it has, and the columns of the order, if any."""

    matches: Matches
    physical_rows: int
    order: pa.Table = field(default_factory=lambda: pa.table({}))

    def only(self, numbers: Int64Array) -> Found:
        """The rows of the keys that have a number; see `Matches.only`. The order is left out."""
        return Found(self.matches.only(numbers), self.physical_rows)


class SparkUpsert:
    """One statement. It can be staged several times.

    Each staging computes the data once: the rows written and the keys to look for come from the same tasks. With more
    than MAX_KEYS rows see `upsert_by_range`, which reads the data twice. `rows` is how many there probably are, if that
    is known. Of more than MAX_KEYS the data has to be kept; if there are more than it says, they are kept here. With
    `one_row_each`, several rows of the table with one key are an error, and so are more than MAX_KEYS rows.
    """

    def __init__(
        self,
        spark: SparkSession,
        data: DataFrame,
        keys: Sequence[str],
        delete_where: str | None,
        *,
        other_keys: bool,
        order_by: str | Sequence[str] | None,
        rows: int | None = None,
        one_row_each: bool = False,
    ) -> None:
        self._is_large = (rows or 0) > MAX_KEYS
        self._is_underrated = False
        self._spark = spark
        self._data = data
        self._given = keys
        self._delete_where = delete_where
        self._other_keys = other_keys
        self._order_by = order_by
        self._one_row_each = one_row_each

    def stage(self, state: LogState, writer: DataWriter) -> Staged:
        """Stage the statement on `state`; see Table.upsert.

        Raises WriteVerificationError if the numbers of rows in the tasks' files and keys are not those that Spark
        counted. After any error the files are deleted.
        """
        configuration = writer.metadata.configuration
        names = keys_of_upsert(self._given, writer.schema, configuration, other_keys=self._other_keys)
        order = order_columns(self._order_by, writer.schema, configuration)
        data, rules = ruled(self._data, writer)
        if not self._is_large:
            staged = self._by_keys(state, rules, data, names, order)
            if staged is not None:
                return staged
            self._is_large = self._is_underrated = True
        if self._one_row_each:
            raise DuplicateKeyError(
                f"the data has more than {MAX_KEYS:,} keys, which are not compared with those of the table",
                advice="let Spark join the two",
                path=writer.store.url,
                key="",
            )
        with computed_once(data) if self._is_underrated else nullcontext(data) as rows:
            return stage_by_ranges(rows, state, rules, names, order, self._delete_where) or _nothing(0)

    def _by_keys(
        self, state: LogState, rules: RowRules, data: DataFrame, names: list[str], order: list[str]
    ) -> Staged | None:
        """The statement, with all keys in this process; None if there are too many."""
        writer = rules.writer
        observation = Observation()
        counted = data.observe(observation, F.count(F.lit(1)).alias("rows"))
        work = partial(_write, rules, list(dict.fromkeys((*names, *order))), self._delete_where)
        parts = run_on_rows(counted, work, lambda part: delete_written(writer, part.adds))
        written = [add for part in parts for add in part.adds]
        if sum(part.rows for part in parts) > MAX_KEYS:
            delete_written(writer, written)
            return None
        try:
            require_counted(
                writer,
                written,
                sum(part.keys.num_rows for part in parts),
                int(observation.get["rows"]) - sum(part.gone.num_rows for part in parts),
            )
            return self._staged(state, writer, names, order, parts, written)
        except BaseException:
            delete_written(writer, written)
            raise

    def _staged(
        self,
        state: LogState,
        writer: DataWriter,
        names: list[str],
        order: list[str],
        parts: Sequence[UpsertPart],
        written: list[AddFile],
    ) -> Staged:
        """Stage what tasks wrote. Files that are written later are added to `written`."""
        none = writer.schema.empty_table().select(dict.fromkeys((*names, *order)))
        new = pa.concat_tables([none, *(part.keys for part in parts)])
        gone = pa.concat_tables([none, *(part.gone for part in parts)])
        records = pa.concat_tables([new, distinct(gone) if order else gone])
        keys = Keys(records, names, writer.store.url)
        if not records.num_rows:
            return _nothing(0)
        matcher, head = KeyMatcher(state, writer, keys), without_progress(state.head)
        found = self._found(matcher, head, writer, keys, order)
        if self._one_row_each:
            _require_one_row_each(found, writer)
        wins = np.ones(records.num_rows, dtype=bool)
        ordered = None
        if order:
            is_delete = np.arange(records.num_rows) >= new.num_rows
            ordered = matcher.decided(
                records.select(order),
                is_delete,
                [entry.matches for entry in found],
                [FoundRows(entry.matches.places, entry.order) for entry in found],
            )
            wins = ordered.decision.wins
        numbers = numbered(wins)
        found = [entry for match in found if len((entry := match.only(numbers)).matches.places)]
        pairs = Pairs(int(wins.sum()), int(wins[: new.num_rows].sum()))
        follows = [pairs.followed(entry.matches.places, entry.matches.row_ids) for entry in found]
        adds = self._adds(writer, keys, numbers, pairs, parts)
        written += adds
        if ordered is None and not adds and not found:
            return _nothing(records.num_rows)
        cdc: list[AddCDCFile] = []
        if matcher.feed:
            old = [(entry.matches, after) for entry, after in zip(found, follows, strict=True)]
            parts_of_old = task_parts_by(old, lambda match: match[0].add)
            cdc += _flat(run(self._spark, partial(_old_changes, head, writer, keys), parts_of_old))
            known = partial(_new_changes, head, writer, keys, numbers, pairs.matched)
            cdc += _flat(run(self._spark, known, task_parts(adds)))
        deletes = self._deletes(matcher, head, writer, found)
        staged = staged_upsert(pairs, keys, self._delete_where, deletes, adds, cdc)
        if ordered is not None:
            return ordered.staged(staged)
        return with_tombstones(staged, self._tombstones(matcher, head, writer, found, new.num_rows))

    def _found(
        self, matcher: KeyMatcher, head: Head, writer: DataWriter, keys: Keys, order: Sequence[str]
    ) -> list[Found]:
        """The rows of the table that have one of the keys."""
        files = matcher.candidates(keys.predicate())
        located, is_left = matcher.located(files)
        found: list[Found] = []
        for entry in located:
            columns = matcher.order_of(entry, order) if order else pa.table({})
            if writer.tracked or columns is None:
                # Their ids, or the columns of the order, have to be read.
                is_left[entry.place] = True
                continue
            matches = Matches(entry.add, entry.positions, entry.places, np.full(len(entry.places), NEW_ROW))
            found.append(Found(matches, entry.rows, columns))
        rest = file_parts(files.filter(pa.array(is_left)))
        return found + _flat(run(self._spark, partial(_find, head, writer, keys, order), rest))

    def _adds(
        self, writer: DataWriter, keys: Keys, numbers: Int64Array, pairs: Pairs, parts: Sequence[UpsertPart]
    ) -> list[AddFile]:
        """The files with the rows that are added.

        Tasks wrote them before it was known which rows are too old, and which ids of the table's rows they get. Then
        they are written again, and the old files go.
        """
        kept: list[AddFile] = []
        again: list[AddFile] = []
        start = 0
        for part in parts:
            own = numbers[start : start + part.keys.num_rows]
            start += part.keys.num_rows
            is_same = (own >= 0).all() and not (writer.tracked and (pairs.row_ids[own] != NEW_ROW).any())
            (kept if is_same else again).extend(part.adds)
        if not again:
            return kept
        work = partial(_rewritten, writer, keys, numbers, pairs.row_ids)
        written = _flat(run(self._spark, work, task_parts(again)))
        rows = pairs.written - sum(num_records(add.stats) or 0 for add in kept)
        try:
            require_counted(writer, written, rows, rows)
        except BaseException:
            delete_written(writer, written)
            raise
        delete_written(writer, again)
        return kept + written

    def _tombstones(
        self, matcher: KeyMatcher, head: Head, writer: DataWriter, found: Sequence[Found], written: int
    ) -> TombstoneChange | None:
        """The tombstones of the rows whose keys are deleted, which have no order; None if they leave none."""
        gone = [entry.matches for entry in found if (entry.matches.places >= written).any()]
        if matcher.burial is None or not gone:
            return None
        work = partial(_buried, head, writer, written)
        changes = run(self._spark, work, task_parts_by(gone, lambda matches: matches.add))
        return joined_changes(writer.store, writer.system, writer.metadata, changes)

    def _deletes(self, matcher: KeyMatcher, head: Head, writer: DataWriter, found: Sequence[Found]) -> list[RowDelete]:
        """The deletion of rows that were found. Without deletion vectors, tasks write the other rows of their files."""
        deletes = [
            RowDelete(entry.matches.add, BitMap64(entry.matches.positions), entry.physical_rows) for entry in found
        ]
        if matcher.vectors:
            return deletes
        parts = task_parts_by(deletes, lambda delete: delete.file)
        return _flat(run(self._spark, partial(rewritten, head, writer), parts))


def _require_one_row_each(found: Sequence[Found], writer: DataWriter) -> None:
    places = np.concatenate([np.empty(0, dtype=np.int64), *(entry.matches.places for entry in found)])
    if len(np.unique(places)) < len(places):
        raise DuplicateKeyError(
            f"{writer.store.url} has several rows of one key",
            advice="let Spark join the two",
            path=writer.store.url,
            key="",
        )


def newest_rows_of_frame(
    frame: DataFrame, keys: Sequence[str], order_by: Sequence[str], beside: Collection[str] = ()
) -> DataFrame:
    """The rows that `are_newest` chooses, computed by Spark. Those that differ only in columns `beside` are equal."""
    rank = free_name(arrow_schema(frame))
    return ranked(frame, keys, order_by, rank, beside).where(F.col(rank) == 1).drop(rank)


def ranked(
    frame: DataFrame, keys: Sequence[str], order_by: Sequence[str], rank: str, beside: Collection[str] = ()
) -> DataFrame:
    """The rows with their rank among those of their key, from 1 for the newest, in the column `rank`.

    Of rows that are equal in all columns, except `beside`, the first only. Without an order all rows of a key are
    equally new.
    """
    frame = plain_texts(frame)
    names, order = present(frame.columns, keys), present(frame.columns, order_by)
    schema = arrow_schema(frame)
    for name in order:
        require_ordered(name, schema.field(name).type)
    by_key = [quoted(name) for name in names]
    equally_new = [*by_key, *(quoted(name) for name in order if name not in names)]
    columns = [F.col(quoted(name)).desc_nulls_last() for name in order] or [F.lit(1)]
    of_key = frame.withColumn(rank, F.rank().over(Window.partitionBy(*by_key).orderBy(*columns)))
    # Spark cannot compare maps and variants, but their texts.
    is_tied = F.count(F.lit(1)).over(Window.partitionBy(*equally_new)) > 1
    whole = F.to_json(F.struct(*(F.col(quoted(name)) for name in schema.names if name not in beside)), EXACT_TEXT)
    same, number = f"{rank}_same", f"{rank}_number"
    of_key = of_key.withColumn(same, F.when(is_tied, whole))
    count = F.row_number().over(Window.partitionBy(*equally_new, same).orderBy(F.lit(1)))
    return of_key.withColumn(number, count).where(F.col(number) == 1).drop(same, number)


def _write(
    rules: RowRules, names: Sequence[str], delete_where: str | None, batches: Iterator[pa.RecordBatch]
) -> Iterator[UpsertPart]:
    writer, count = rules.writer, 0
    plain = pa.schema([writer.schema.field(name) for name in names])
    for rows in pieces(batches, file_size(writer)):
        count += rows.num_rows
        if count > MAX_KEYS:
            yield UpsertPart((), plain.empty_table(), plain.empty_table(), rows.num_rows)
        elif rows.num_rows:
            written, gone = (writer.prepared(part) for part in split_upsert(rows, rules, names, delete_where))
            with cleared(writer):
                adds = writer.write(written)
            yield UpsertPart(tuple(adds), _typed(written, plain), _typed(gone, plain), rows.num_rows)


def _rewritten(
    writer: DataWriter, keys: Keys, numbers: Int64Array, row_ids: Int64Array, adds: Sequence[AddFile]
) -> list[AddFile]:
    """Files with the rows of some files that have a number, and the ids of the rows that they replace."""
    again: list[AddFile] = []
    with cleared(writer):
        for add in adds:
            batches = read_batches(writer.store, DataFile.of(add), writer.schema)
            rows = pa.Table.from_batches(batches, schema=writer.schema)
            own = numbers[keys.places(rows)]
            rows = rows.filter(pa.array(own >= 0))
            again += writer.write(with_kept_ids(rows, writer.tracked, row_ids[own[own >= 0]]))
    return again


def _typed(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    return pa.table(rows.select(schema.names).columns, schema=schema)


def _find(head: Head, writer: DataWriter, keys: Keys, order: Sequence[str], part: FilePart) -> list[Found]:
    matcher = KeyMatcher(state_of(head, writer, part.rows), writer, keys)
    return [
        Found(matches, matcher.rows_of(matches.add), matcher.columns_of(matches, order))
        for matches in matcher.scanned(part.rows)
    ]


def _buried(head: Head, writer: DataWriter, written: int, part: Sequence[Matches]) -> TombstoneChange | None:
    matcher = RowMatcher(state_of(head, writer), writer)
    with cleared(writer):
        for matches in part:
            gone = BitMap64(matches.positions[matches.places >= written])
            matcher.bury(Matched(matches.add, gone, pa.table({})))
        return matcher.tombstones()


def _old_changes(
    head: Head, writer: DataWriter, keys: Keys, part: Sequence[tuple[Matches, BoolArray]]
) -> list[AddCDCFile]:
    matcher = KeyMatcher(state_of(head, writer), writer, keys)
    rows = [matcher.whole_rows(match.add, BitMap64(match.positions)) for match, _ in part]
    follows = np.concatenate([follows for _, follows in part])
    return matcher.cdc(*old_changes(pa.concat_tables(rows), follows))


def _new_changes(
    head: Head, writer: DataWriter, keys: Keys, numbers: Int64Array, matched: BoolArray, adds: Sequence[AddFile]
) -> list[AddCDCFile]:
    matcher = KeyMatcher(state_of(head, writer), writer, keys)
    batches = [batch for add in adds for batch in read_batches(writer.store, DataFile.of(add), writer.schema)]
    rows = pa.Table.from_batches(batches, schema=writer.schema)
    return matcher.cdc(*new_changes(rows, matched[numbers[keys.places(rows)]]))


def _flat(parts: Sequence[list[_T]]) -> list[_T]:
    return [entry for part in parts for entry in part]


def _nothing(source_rows: int) -> Staged:
    metrics = {**dict.fromkeys(UPSERT_METRICS, 0), "numSourceRows": source_rows}
    return Staged(operation="MERGE", operation_class=OperationClass.UPDATE_DELETE, metrics=metrics)
