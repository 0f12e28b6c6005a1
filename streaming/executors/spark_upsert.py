"""UPSERT on Spark's executors, in four steps.

1. The data's tasks write the rows to add, and return their keys. The next steps use these files, not the data.
2. The driver checks that each key occurs once, and sends the keys to all tasks.
3. Tasks search the table's files for rows with these keys. They return the row positions, and the key of each.
4. With the change data feed on, tasks read the old rows at these positions and the new files, and write change files.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

import numpy as np
import pyarrow as pa
from pyroaring import BitMap64
from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's convention

from tidelog.log import OperationClass
from tidelog.log.arrays import BoolArray, Int64Array
from tidelog.log.conflict.staged import RowDelete, Staged
from tidelog.log.data.reader import DataFile, read_batches
from tidelog.log.data.writer import DataWriter
from tidelog.log.errors import ConfigurationError
from tidelog.log.format.actions import AddCDCFile, AddFile
from tidelog.log.format.statistics import num_records
from tidelog.log.operations.delete_update import Matched
from tidelog.log.operations.staged_parts import state_of, without_progress
from tidelog.log.operations.upsert import (
    NEW_ROW,
    UPSERT_METRICS,
    KeyMatcher,
    Pairs,
    new_changes,
    old_changes,
    split_upsert,
    staged_upsert,
    with_kept_ids,
)
from tidelog.log.read.keys import Keys, keys_of_upsert
from tidelog.log.rules import RowRules
from tidelog.log.state.head import Head
from tidelog.log.state.loader import LogState
from tidelog.streaming.executors.frame_files import require_counted
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

# The driver and each task hold all keys in memory, at some tens of bytes each.
MAX_KEYS = 10_000_000

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class UpsertPart:
    """What a task wrote: files, the keys of their rows, and the keys of rows that only delete."""

    adds: tuple[AddFile, ...]
    keys: pa.Table
    gone: pa.Table


@dataclass(frozen=True, slots=True)
class Found:
    """The rows of one file that have one of the keys: their deletion, the index of each row's key, and its row id."""

    delete: RowDelete
    places: Int64Array
    row_ids: Int64Array


class SparkUpsert:
    """One statement. It can be staged several times.

    Each staging computes the data once: the rows written and the keys to look for come from the same tasks.
    """

    def __init__(
        self,
        spark: SparkSession,
        data: DataFrame,
        keys: Sequence[str],
        delete_where: str | None,
        *,
        other_keys: bool,
    ) -> None:
        self._spark = spark
        self._data = data
        self._given = keys
        self._delete_where = delete_where
        self._other_keys = other_keys

    def stage(self, state: LogState, writer: DataWriter) -> Staged:
        """Stage the statement on `state`; see Table.upsert.

        Raises WriteVerificationError if the numbers of rows in the tasks' files and keys are not those that Spark
        counted. After any error the files are deleted.
        """
        configuration = writer.metadata.configuration
        names = keys_of_upsert(self._given, writer.schema, configuration, other_keys=self._other_keys)
        data, rules = ruled(self._data, writer)
        observation = Observation()
        counted = data.observe(observation, F.count(F.lit(1)).alias("rows"))
        work = partial(_write, rules, names, self._delete_where)
        parts = run_on_rows(counted, work, lambda part: delete_written(writer, part.adds))
        adds = [add for part in parts for add in part.adds]
        try:
            return self._staged(state, writer, names, parts, int(observation.get["rows"]))
        except BaseException:
            delete_written(writer, adds)
            raise

    def _staged(
        self, state: LogState, writer: DataWriter, names: Sequence[str], parts: Sequence[UpsertPart], count: int
    ) -> Staged:
        adds = [add for part in parts for add in part.adds]
        none = writer.schema.empty_table().select(names)
        new = pa.concat_tables([none, *(part.keys for part in parts)])
        gone = pa.concat_tables([none, *(part.gone for part in parts)])
        require_counted(writer, adds, new.num_rows, count - gone.num_rows)
        self._require_few(count)
        keys = Keys(pa.concat_tables([new, gone]), names, writer.store.url)
        if not count:
            return _nothing(0)
        pairs = Pairs(count, new.num_rows)
        matcher, head = KeyMatcher(state, writer, keys), without_progress(state.head)
        files = matcher.candidates(keys.predicate())
        located, is_left = matcher.located(files)
        found: list[Found] = []
        if matcher.vectors and not writer.tracked:
            # Neither the rows nor their ids have to be read.
            found = [
                Found(_deletion(matcher, entry.add, entry.positions), entry.places, np.full(len(entry.places), NEW_ROW))
                for entry in located
            ]
        else:
            is_left[[entry.place for entry in located]] = True
        rest = file_parts(files.filter(pa.array(is_left)))
        found += _flat(run(self._spark, partial(_find, head, writer, keys), rest))
        follows = [pairs.followed(entry.places, entry.row_ids) for entry in found]
        if not adds and not found:
            return _nothing(count)
        cdc: list[AddCDCFile] = []
        if matcher.feed:
            old = [
                (entry.delete.file, entry.delete.positions, after) for entry, after in zip(found, follows, strict=True)
            ]
            parts_of_old = task_parts_by(old, lambda match: match[0])
            cdc += _flat(run(self._spark, partial(_old_changes, head, writer, keys), parts_of_old))
            cdc += _flat(run(self._spark, partial(_new_changes, head, writer, keys, pairs.matched), task_parts(adds)))
        if writer.tracked and (pairs.row_ids != NEW_ROW).any():
            adds = self._with_row_ids(writer, keys, pairs.row_ids, adds)
        return staged_upsert(pairs, keys, self._delete_where, [entry.delete for entry in found], adds, cdc)

    def _with_row_ids(
        self, writer: DataWriter, keys: Keys, row_ids: Int64Array, adds: Sequence[AddFile]
    ) -> list[AddFile]:
        """Write the new rows again, now that the ids of the rows that they replace are known; the old files go."""
        again = _flat(run(self._spark, partial(_rewritten, writer, keys, row_ids), task_parts(adds)))
        rows = sum(num_records(add.stats) or 0 for add in adds)
        try:
            require_counted(writer, again, rows, rows)
        except BaseException:
            delete_written(writer, again)
            raise
        delete_written(writer, adds)
        return again

    def _require_few(self, count: int) -> None:
        if count > MAX_KEYS:
            raise ConfigurationError(
                f"the data of the upsert has {count} keys, more than the {MAX_KEYS} that the driver can hold",
                advice="upsert the data in several parts",
            )


def _write(
    rules: RowRules, names: Sequence[str], delete_where: str | None, batches: Iterator[pa.RecordBatch]
) -> Iterator[UpsertPart]:
    writer = rules.writer
    for rows in pieces(batches, file_size(writer)):
        if rows.num_rows:
            written, gone = (writer.prepared(part) for part in split_upsert(rows, rules, names, delete_where))
            plain = pa.schema([writer.schema.field(name) for name in names])
            with cleared(writer):
                adds = writer.write(written)
            yield UpsertPart(tuple(adds), _typed(written, plain), _typed(gone, plain))


def _rewritten(writer: DataWriter, keys: Keys, row_ids: Int64Array, adds: Sequence[AddFile]) -> list[AddFile]:
    """Files with the rows of some files, which are deleted later, and the ids of the rows that they replace."""
    again: list[AddFile] = []
    with cleared(writer):
        for add in adds:
            batches = read_batches(writer.store, DataFile.of(add), writer.schema)
            rows = pa.Table.from_batches(batches, schema=writer.schema)
            again += writer.write(with_kept_ids(rows, writer.tracked, row_ids[keys.places(rows)]))
    return again


def _typed(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    return pa.table(rows.select(schema.names).columns, schema=schema)


def _find(head: Head, writer: DataWriter, keys: Keys, part: FilePart) -> list[Found]:
    matcher = KeyMatcher(state_of(head, writer, part.rows), writer, keys)
    return [
        Found(_deletion(matcher, add, positions), places, row_ids)
        for add, positions, places, row_ids in matcher.scanned(part.rows)
    ]


def _deletion(matcher: KeyMatcher, add: AddFile, positions: Int64Array) -> RowDelete:
    return matcher.delete(Matched(add, BitMap64(positions), pa.table({})))


def _old_changes(
    head: Head, writer: DataWriter, keys: Keys, part: Sequence[tuple[AddFile, BitMap64, BoolArray]]
) -> list[AddCDCFile]:
    matcher = KeyMatcher(state_of(head, writer), writer, keys)
    rows = [matcher.whole_rows(add, positions) for add, positions, _ in part]
    follows = np.concatenate([follows for _, _, follows in part])
    return matcher.cdc(*old_changes(pa.concat_tables(rows), follows))


def _new_changes(
    head: Head, writer: DataWriter, keys: Keys, matched: BoolArray, adds: Sequence[AddFile]
) -> list[AddCDCFile]:
    matcher = KeyMatcher(state_of(head, writer), writer, keys)
    batches = [batch for add in adds for batch in read_batches(writer.store, DataFile.of(add), writer.schema)]
    rows = pa.Table.from_batches(batches, schema=writer.schema)
    return matcher.cdc(*new_changes(rows, matched[keys.places(rows)]))


def _flat(parts: Sequence[list[_T]]) -> list[_T]:
    return [entry for part in parts for entry in part]


def _nothing(source_rows: int) -> Staged:
    metrics = {**dict.fromkeys(UPSERT_METRICS, 0), "numSourceRows": source_rows}
    return Staged(operation="MERGE", operation_class=OperationClass.UPDATE_DELETE, metrics=metrics)
