"""Stage the rows that a query of Spark's says to delete, update or insert, as its rewrite of a statement gives them.

1. The query's tasks write the new rows, and return the addresses of the old ones as bitmaps, and no value of any row.
2. Where the table needs more than deletion vectors, other tasks read the old rows at these addresses: they write the
   other rows of a file (copy-on-write), and change files.

What is staged was computed from the rows that it changes, so a commit that changes one of these first is a conflict.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap64
from pyspark.sql import DataFrame

from tidelog.log import OperationClass
from tidelog.log.arrays import Int64Array
from tidelog.log.commit.burial import columns_of_rows, joined_changes
from tidelog.log.commit.discard import delete_unnamed
from tidelog.log.conflict.staged import RowDelete, Staged
from tidelog.log.data.conform import conform
from tidelog.log.data.reader import DataFile, read_batches
from tidelog.log.data.writer import DataWriter
from tidelog.log.errors import TidelogError, WriteVerificationError
from tidelog.log.format.actions import AddCDCFile, AddFile, Metadata
from tidelog.log.format.row_tracking import preserves_ids
from tidelog.log.format.schema import columns_of
from tidelog.log.format.statistics import num_records
from tidelog.log.format.tombstone_list import TombstoneChange
from tidelog.log.operations.delete_update import Matched, RowMatcher, counts_by_clause, file_metrics
from tidelog.log.operations.staged_parts import state_of, without_progress
from tidelog.log.operations.upsert import NEW_ROW, with_kept_ids
from tidelog.log.read.change_files import DELETE, INSERT, UPDATE_POSTIMAGE, UPDATE_PREIMAGE
from tidelog.log.rules import RowRules
from tidelog.log.state.files import to_adds
from tidelog.log.state.head import Head
from tidelog.log.state.loader import LogState
from tidelog.streaming.executors.tasks import (
    cleared,
    delete_written,
    file_size,
    pieces,
    run,
    run_on_rows,
    task_parts_by,
)

# The operations of Spark's rows.
DELETED, UPDATED, INSERTED = 1, 2, 3
# What is added to the operation of a row that WHEN NOT MATCHED BY SOURCE changes.
_BY_SOURCE = 10
_READERS = 8


# --- the columns of a row that a query has beside those of the table --------------------------------------------------


@dataclass(frozen=True, slots=True)
class RowColumns:
    """The names of columns that a query has of a row that it changes.

    `file` is the number of its file among the live ones, `row` its position there. `row_id` is its id, in a table whose
    rows keep theirs. `buried` has the columns of the tombstone that the row leaves, if rows leave some.
    """

    file: str
    row: str
    row_id: str | None
    buried: str | None
    fields: tuple[pa.Field, ...] = ()

    @classmethod
    def of(cls, metadata: Metadata, path: str) -> RowColumns:
        """Those of a table."""
        schema = columns_of(metadata, path)
        taken = {name.lower() for name in schema.names}
        end = ""
        while any(f"_tidelog_{name}{end}" in taken for name in ("file", "row", "row_id", "buried")):
            end += "_"
        buried = None
        with suppress(TidelogError):  # a write says what is wrong
            buried = columns_of_rows(metadata, path)
        names = [] if buried is None else dict.fromkeys((*buried.keys.names, *buried.order.names))
        return cls(
            f"_tidelog_file{end}",
            f"_tidelog_row{end}",
            f"_tidelog_row_id{end}" if preserves_ids(metadata) else None,
            f"_tidelog_buried{end}" if names else None,
            tuple(schema.field(name).with_nullable(True).remove_metadata() for name in names),  # noqa: FBT003
        )

    @property
    def schema(self) -> pa.Schema:
        """Their types. The address is never null; the others are null for new rows."""
        fields = [
            pa.field(self.file, pa.int32(), nullable=False),
            pa.field(self.row, pa.int64(), nullable=False),
        ]
        if self.row_id is not None:
            fields.append(pa.field(self.row_id, pa.int64()))
        if self.buried is not None:
            fields.append(pa.field(self.buried, pa.struct(self.fields)))
        return pa.schema(fields)


@dataclass(frozen=True, slots=True)
class RowQuery:
    """What a query does: its operations, the columns that its updates set, and where its columns are.

    `first` is the place of the first value of a new row; the values of the table's columns follow each other. Without
    `columns` all rows are new ones. `by_source` says that rows can have operations of WHEN NOT MATCHED BY SOURCE.
    """

    operations: frozenset[int]
    updated: frozenset[str]
    first: int
    columns: RowColumns | None
    by_source: bool = False


# --- step 1: new rows, and the addresses of old ones ------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ChangedPart:
    """What a task did. `deleted` and `updated` are bitmaps of positions, by the number of the file."""

    adds: tuple[AddFile, ...]
    cdc: tuple[AddCDCFile, ...] = ()
    deleted: Mapping[int, bytes] = field(default_factory=dict)
    updated: Mapping[int, bytes] = field(default_factory=dict)
    images: int = 0
    inserted: int = 0
    by_source_deleted: int = 0
    by_source_updated: int = 0
    tombstones: TombstoneChange | None = None
    tombstone_files: tuple[str, ...] = ()


class _Task:
    """What each task does with its rows. Picklable."""

    def __init__(self, head: Head, rules: RowRules, changes: RowQuery, *, feed: bool) -> None:
        self._head = head
        self._rules = rules
        self._changes = changes
        self._feed = feed

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[ChangedPart]:
        writer = self._rules.writer
        for rows in pieces(batches, file_size(writer)):
            if rows.num_rows:
                with cleared(writer):
                    yield self._part(rows)

    def _part(self, rows: pa.Table) -> ChangedPart:
        changes, schema = self._changes, self._rules.schema
        has_values = changes.operations & {UPDATED, INSERTED}
        last = changes.first + len(schema) if has_values else changes.first
        values = pa.table(rows.columns[changes.first : last], names=schema.names) if has_values else None
        if changes.columns is None:
            return self._written(None, values)
        given = rows.columns[0].to_numpy()
        kinds = given % _BY_SOURCE
        of_row = pa.table(rows.columns[last:], names=rows.column_names[last:])
        deleted, updated = (_where(of_row, kinds == kind) for kind in (DELETED, UPDATED))
        images = None if values is None else _where(values, kinds == UPDATED)
        inserted = None if values is None else _where(values, kinds == INSERTED)
        part = self._written(images, inserted, updated)
        matcher = RowMatcher(state_of(self._head, self._rules.writer), self._rules.writer)
        if matcher.burial is not None and changes.columns.buried is not None:
            matcher.burial.add(_flat(deleted[changes.columns.buried]))
            if images is not None and images.num_rows:
                matcher.bury_old_keys(_flat(updated[changes.columns.buried]), conform(images, schema))
        tombstones = matcher.tombstones()
        written = () if tombstones is None else tuple(matcher.burial.written if matcher.burial else ())
        return ChangedPart(
            part.adds,
            part.cdc,
            self._by_file(deleted),
            self._by_file(updated),
            part.images,
            part.inserted,
            int((given == DELETED + _BY_SOURCE).sum()),
            int((given == UPDATED + _BY_SOURCE).sum()),
            tombstones,
            written,
        )

    def _by_file(self, rows: pa.Table) -> dict[int, bytes]:
        """The positions of rows, by the numbers of their files."""
        columns = self._changes.columns
        assert columns is not None
        if not rows.num_rows:
            return {}
        numbers, positions = rows[columns.file].to_numpy(), rows[columns.row].to_numpy()
        order = np.argsort(numbers, kind="stable")
        found, starts = np.unique(numbers[order], return_index=True)
        return {
            int(number): BitMap64(own.astype(np.uint64)).serialize()
            for number, own in zip(found, np.split(positions[order], starts[1:]), strict=True)
        }

    def _written(self, images: pa.Table | None, inserted: pa.Table | None, of: pa.Table | None = None) -> ChangedPart:
        """Write new images of rows, whose columns beside the table's are `of`, and new rows."""
        rules, writer = self._rules, self._rules.writer
        old = rules.schema.empty_table() if images is None else conform(images, rules.schema)
        if old.num_rows:
            old = writer.prepared(rules.images(old, self._changes.updated))
        new = rules.schema.empty_table()
        if inserted is not None and inserted.num_rows:
            new = writer.prepared(_filled(rules, inserted))
        rows = pa.concat_tables([old, new])
        if not rows.num_rows:
            return ChangedPart(())
        adds = writer.write(with_kept_ids(rows, writer.tracked, self._row_ids(of, old.num_rows, new.num_rows)))
        cdc = writer.write_changes([(UPDATE_POSTIMAGE, old), (INSERT, new)]) if self._feed else ()
        return ChangedPart(tuple(adds), tuple(cdc), images=old.num_rows, inserted=new.num_rows)

    def _row_ids(self, of: pa.Table | None, images: int, inserted: int) -> Int64Array:
        columns = self._changes.columns
        kept = np.full(images, NEW_ROW)
        if of is not None and columns is not None and columns.row_id is not None:
            kept = pc.fill_null(of[columns.row_id], NEW_ROW).to_numpy()
        return np.concatenate([kept, np.full(inserted, NEW_ROW)])


def _where(rows: pa.Table, chosen: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> pa.Table:
    return rows.filter(pa.array(chosen))


def _flat(structs: pa.ChunkedArray) -> pa.Table:
    """The fields of structs as columns."""
    return pa.table(dict(zip([f.name for f in structs.type], structs.combine_chunks().flatten(), strict=True)))


def _filled(rules: RowRules, rows: pa.Table) -> pa.Table:
    """New rows for the table. A generated column without a value is computed: Spark has null for what is left out."""
    names = [rule.column for rule in rules.rules.generated]
    if not names:
        return rules.of_table(rows)
    given = np.stack([rows[name].is_valid().to_numpy() for name in names], axis=1)
    parts = []
    for pattern in np.unique(given, axis=0):
        own = _where(rows, (given == pattern).all(axis=1))
        lacking = [name for name, is_given in zip(names, pattern, strict=True) if not is_given]
        parts.append(rules.of_table(own.drop_columns(lacking)))
    return pa.concat_tables(parts)


# --- step 2: the files of old rows ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Touched:
    """The rows of a file that are deleted, and those that have new images."""

    add: AddFile
    deleted: BitMap64
    updated: BitMap64

    @property
    def positions(self) -> BitMap64:
        return self.deleted | self.updated


@dataclass(frozen=True, slots=True)
class _Done:
    deletes: tuple[RowDelete, ...]
    cdc: tuple[AddCDCFile, ...]


def _finished(head: Head, writer: DataWriter, feed: bool, part: Sequence[_Touched]) -> _Done:  # noqa: FBT001 - partial
    matcher = RowMatcher(state_of(head, writer), writer)
    deletes: list[RowDelete] = []
    cdc: list[AddCDCFile] = []
    with cleared(writer):
        for touched in part:
            if feed:
                kinds = (DELETE, touched.deleted), (UPDATE_PREIMAGE, touched.updated)
                cdc += matcher.cdc(*((kind, _rows_at(writer, touched.add, own)) for kind, own in kinds))
            deletes.append(matcher.delete(Matched(touched.add, touched.positions, pa.table({}))))
    return _Done(tuple(deletes), tuple(cdc))


def _rows_at(writer: DataWriter, add: AddFile, positions: BitMap64) -> pa.Table:
    if not positions:
        return writer.schema.empty_table()
    batches = read_batches(writer.store, DataFile.of(add), writer.schema, only=positions)
    return pa.Table.from_batches(batches, schema=writer.schema)


# --- the statement ----------------------------------------------------------------------------------------------------


def stage_changes(rows: DataFrame, state: LogState, writer: DataWriter, changes: RowQuery) -> Staged:
    """Stage what a query says. What it has read is for the caller to add.

    Raises the errors of rules and of rows that do not fit, and WriteVerificationError if two rows of the query change
    the same row of the table. Then the files are deleted.
    """
    head, matcher = without_progress(state.head), RowMatcher(state_of(state.head, writer), writer)
    has_rewrites = not matcher.vectors and bool(changes.operations & {DELETED, UPDATED})
    feed = matcher.feed and (UPDATED in changes.operations or has_rewrites)
    task = _Task(head, RowRules.of(writer), changes, feed=feed)
    parts = run_on_rows(rows, task, partial(_undo, writer))
    try:
        touched = _touched(state, parts)
        _require_once(writer, parts, touched)
        if feed or has_rewrites:
            work = partial(_finished, head, writer, feed)
            done = run(rows.sparkSession, work, task_parts_by(touched, lambda entry: entry.add))
        else:
            done = [_Done(tuple(_deletes(matcher, touched)), ())]
        return _staged(writer, parts, done, by_source=changes.by_source)
    except BaseException:
        for part in parts:
            _undo(writer, part)
        raise


def _undo(writer: DataWriter, part: ChangedPart) -> None:
    delete_written(writer, part.adds)
    delete_written(writer, part.cdc)
    delete_unnamed(writer.store, part.tombstone_files)


def _touched(state: LogState, parts: Sequence[ChangedPart]) -> list[_Touched]:
    deleted, updated = (_joined([getattr(part, name) for part in parts]) for name in ("deleted", "updated"))
    numbers = sorted({*deleted, *updated})
    adds = to_adds(state.files().adds.take(pa.array(numbers, pa.int64())))
    none = BitMap64()
    return [
        _Touched(add, deleted.get(number, none), updated.get(number, none))
        for number, add in zip(numbers, adds, strict=True)
    ]


def _joined(parts: Sequence[Mapping[int, bytes]]) -> dict[int, BitMap64]:
    found: dict[int, BitMap64] = {}
    for part in parts:
        for number, positions in part.items():
            found.setdefault(number, BitMap64()).update(BitMap64.deserialize(positions))
    return found


def _require_once(writer: DataWriter, parts: Sequence[ChangedPart], touched: Sequence[_Touched]) -> None:
    """Raise WriteVerificationError unless each updated row has just one new image, and all new rows are in files."""
    images, inserted = (sum(getattr(part, name) for part in parts) for name in ("images", "inserted"))
    written = sum(num_records(add.stats) or 0 for part in parts for add in part.adds)
    rows = sum(len(entry.updated) for entry in touched)
    if images != rows or written != images + inserted or any(entry.deleted & entry.updated for entry in touched):
        raise WriteVerificationError(
            f"the statement would write {images} new images of {rows} rows of {writer.store.url}, and {inserted} new "
            f"rows, and its files have {written} rows",
            advice="run it again; nothing was committed. If its source is not deterministic, save the source first",
            path=writer.store.url,
        )


def _deletes(matcher: RowMatcher, touched: Sequence[_Touched]) -> Iterator[RowDelete]:
    """The deletes of a table with vectors. A footer is read only if the whole file may go."""
    with ThreadPoolExecutor(_READERS) as pool:
        counts = pool.map(lambda entry: _rows_of(matcher, entry), touched)
        for entry, count in zip(touched, counts, strict=True):
            yield RowDelete(entry.add, entry.positions, count)


def _rows_of(matcher: RowMatcher, entry: _Touched) -> int:
    known = num_records(entry.add.stats)
    dead = entry.add.deletion_vector.cardinality if entry.add.deletion_vector else 0
    if known is not None and known > dead + len(entry.positions):
        return known
    return matcher.rows_of(entry.add)


def _staged(writer: DataWriter, parts: Sequence[ChangedPart], done: Sequence[_Done], *, by_source: bool) -> Staged:
    adds = [add for part in parts for add in part.adds]
    deletes = [delete for part in done for delete in part.deletes]
    cdc = [*(file for part in parts for file in part.cdc), *(file for part in done for file in part.cdc)]
    updated = sum(part.images for part in parts)
    deleted = sum(len(delete.positions) for delete in deletes) - updated
    clauses = {}
    if by_source:
        own = (sum(getattr(part, f"by_source_{name}") for part in parts) for name in ("updated", "deleted"))
        clauses = counts_by_clause(updated, deleted, *own)
    changes = [part.tombstones for part in parts]
    return Staged(
        operation="MERGE",
        operation_class=OperationClass.UPDATE_DELETE,
        adds=tuple(adds),
        deletes=tuple(deletes),
        cdc=tuple(cdc),
        is_computed=True,
        tombstones=joined_changes(writer.store, writer.system, writer.metadata, changes),
        metrics={
            "numTargetRowsInserted": sum(part.inserted for part in parts),
            "numTargetRowsUpdated": updated,
            "numTargetRowsDeleted": deleted,
            **clauses,
            **file_metrics(deletes, adds),
            "numAddedBytes": sum(add.size for add in adds),
        },
    )
