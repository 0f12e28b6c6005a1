"""Stage DELETE and UPDATE: delete the rows that match a predicate; an update also writes their new images.

With deletion vectors on, rows are deleted by a vector; otherwise their files are rewritten without them
(copy-on-write). With the change data feed on, an update writes change rows, and so does a delete that rewrites files.
The changes of a delete by vectors are the difference between the old and the new vectors.

In a table with a primary key and an order, the rows leave tombstones; see `tidelog.log.commit.burial`. For those, the
columns of both are read of the rows that are deleted.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyroaring import BitMap64

from tidelog.log import predicate
from tidelog.log.arrays import Int64Array
from tidelog.log.commit.burial import Burial, columns_of_rows
from tidelog.log.conflict.moves import located, starts
from tidelog.log.conflict.operation_class import OperationClass
from tidelog.log.conflict.staged import Reads, RowDelete, Staged, UpdateImages
from tidelog.log.data.grouping import group_numbers
from tidelog.log.data.reader import DataFile, physical_rows, read_numbered_batches
from tidelog.log.data.writer import DataWriter
from tidelog.log.errors import AppendOnlyError, ConfigurationError, PredicateError
from tidelog.log.format import properties, statistics
from tidelog.log.format.actions import AddCDCFile, AddFile
from tidelog.log.format.protocol import has_change_data_feed, has_deletion_vectors
from tidelog.log.format.row_tracking import ROW_ID, kind_of
from tidelog.log.format.schema import columns_of
from tidelog.log.format.tombstone_list import TombstoneChange
from tidelog.log.predicate import Expression
from tidelog.log.presentable import did_you_mean
from tidelog.log.pruning.file_pruning import prune_state
from tidelog.log.read.change_files import DELETE, UPDATE_POSTIMAGE, UPDATE_PREIMAGE
from tidelog.log.read.key_index import narrowed
from tidelog.log.read.scan import Selection
from tidelog.log.rules import RowRules
from tidelog.log.state import files
from tidelog.log.state.loader import LogState

# --- find rows, and delete them ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Matched:
    """The matching rows of one file, and their positions. The rows have no columns if they are not needed."""

    add: AddFile
    positions: BitMap64
    rows: pa.Table


class RowMatcher:
    """The base of operations that change rows: it finds the files and deletes rows in the way that the table needs."""

    def __init__(self, state: LogState, writer: DataWriter) -> None:
        head = state.head
        self.schema = columns_of(head.metadata, writer.store.url)
        self.vectors = has_deletion_vectors(head.protocol, head.metadata)
        self.feed = has_change_data_feed(head.protocol, head.metadata)
        self._state = state
        self._writer = writer
        # The row counts in the footers that were read, dead rows included, by path.
        self._physical_rows: dict[str, int] = {}

    @cached_property
    def burial(self) -> Burial | None:
        """Takes the rows that are deleted; None if they leave no tombstones."""
        writer = self._writer
        columns = columns_of_rows(writer.metadata, writer.store.url)
        return None if columns is None else Burial(writer.store, writer.system, self._state.head, columns)

    def candidates(self, expression: Expression) -> pa.Table:
        """The live files that can have a row for which `expression` is true, with the schema ADD."""
        return prune_state(self._state, expression, self.schema, self._writer.metadata).files

    def keeping(self, add: AddFile, positions: Int64Array) -> RowDelete:
        """Rows that the operation depends on, and leaves as they are; see `Staged.kept`."""
        return RowDelete(add, BitMap64(positions), self.rows_of(add))

    def delete(self, matched: Matched) -> RowDelete:
        """Stage deleting the matched rows of one file."""
        count = self.rows_of(matched.add)
        self._physical_rows.pop(matched.add.path, None)
        if self.vectors:
            return RowDelete(matched.add, matched.positions, count)
        return RowDelete(matched.add, matched.positions, count, tuple(self._survivors(matched)))

    def rows_of(self, add: AddFile) -> int:
        """The rows of a file, dead ones included."""
        if add.path not in self._physical_rows:
            self._physical_rows[add.path] = physical_rows(self._writer.store, DataFile.of(add))
        return self._physical_rows[add.path]

    def read(
        self, add: AddFile, schema: pa.Schema, only: BitMap64 | None = None
    ) -> Iterator[tuple[Int64Array, pa.RecordBatch]]:
        """The file's live rows as `read_numbered_batches` gives them. Keeps its row count for `delete`."""

        def keep(footer: pq.FileMetaData) -> None:
            self._physical_rows[add.path] = footer.num_rows

        return read_numbered_batches(self._writer.store, DataFile.of(add), schema, only=only, on_footer=keep)

    def bury(self, matched: Matched) -> None:
        """Leave tombstones of matched rows, if the table's rows leave some."""
        if self.burial is None:
            return
        if set(self.burial.names) <= set(matched.rows.column_names):
            self.burial.add(matched.rows)
        else:
            self.burial.add_deleted([RowDelete(matched.add, matched.positions, 0)])

    def bury_old_keys(self, old: pa.Table, new: pa.Table) -> None:
        """Leave tombstones of the rows that have another key in their new images, if the table's rows leave some."""
        if self.burial is None:
            return
        is_same = pa.array(np.ones(old.num_rows, dtype=bool))
        for name in self.burial.columns.keys.names:
            is_equal = pc.fill_null(pc.equal(old[name], new[name]), fill_value=False)
            is_same = pc.and_(is_same, is_equal)
        if not pc.all(is_same).as_py():
            self.burial.add(old.filter(pc.invert(is_same)))

    def tombstones(self) -> TombstoneChange | None:
        """What the rows that were buried do to the table's tombstones; None without any."""
        # Whether rows leave tombstones is looked up with the first row.
        burial: Burial | None = self.__dict__.get("burial")
        if burial is None:
            return None
        change = burial.change_of_rows()
        self._writer.written.extend(burial.written)
        return change

    def cdc(self, *changes: tuple[str, pa.Table]) -> list[AddCDCFile]:
        """Write change rows: types of changes, each with its rows."""
        return self._writer.write_changes(changes)

    def _survivors(self, matched: Matched) -> Iterator[AddFile]:
        """Write the file's remaining live rows to new files."""
        inside = [field for field in self.schema if field.name not in self._writer.metadata.partition_columns]
        schema = pa.schema([*inside, *self._writer.tracked])
        dead = np.fromiter(matched.positions, dtype=np.int64, count=len(matched.positions))
        batches = []
        for positions, batch in self.read(matched.add, schema):
            batches.append(batch.filter(pa.array(~np.isin(positions, dead))))
        rows = pa.Table.from_batches(batches, schema=schema)
        if rows.num_rows:
            with self._writer.indexing():
                yield from self._writer.write_partition(rows, matched.add.partition_values, data_change=True)


def free_name(schema: pa.Schema) -> str:
    """A name that no column has."""
    name = "position"
    while name in {known.lower() for known in schema.names}:
        name += "_"
    return name


def counts_by_clause(updated: int, deleted: int, by_source_updated: int, by_source_deleted: int) -> dict[str, int]:
    """How many rows WHEN MATCHED and WHEN NOT MATCHED BY SOURCE have changed, with the names of delta-spark."""
    return {
        "numTargetRowsMatchedUpdated": updated - by_source_updated,
        "numTargetRowsMatchedDeleted": deleted - by_source_deleted,
        "numTargetRowsNotMatchedBySourceUpdated": by_source_updated,
        "numTargetRowsNotMatchedBySourceDeleted": by_source_deleted,
    }


def file_metrics(deletes: Sequence[RowDelete], adds: Sequence[AddFile]) -> dict[str, int]:
    """The commit's metrics about files."""
    survivors = [add for delete in deletes for add in delete.survivors or ()]
    copied = sum(statistics.num_records(add.stats) or 0 for add in survivors)
    whole = sum(1 for delete in deletes if not delete.needs_vector)
    return {
        "numRemovedFiles": whole,
        "numAddedFiles": len(adds) + len(survivors),
        "numCopiedRows": copied,
        "numDeletionVectorsAdded": sum(1 for delete in deletes if delete.needs_vector),
    }


# --- DELETE and UPDATE ------------------------------------------------------------------------------------------------


def stage_delete(state: LogState, writer: DataWriter, where: str, *, buries: bool = True) -> Staged:
    """Stage deleting the rows for which `where` is true. Unless `buries` is off, they leave tombstones.

    Raises PredicateError.
    """
    where = predicate.at_time(where, writer.system.now_ms)
    change = _RowChange(state, writer, where)
    deletes, cdc = [], []
    for matched in change.matches():
        deletes.append(change.delete(matched))
        if buries:
            change.bury(matched)
        if change.feed and not change.vectors:
            cdc += change.cdc((DELETE, matched.rows))
    rows = sum(len(delete.positions) for delete in deletes)
    return Staged(
        operation="DELETE",
        operation_class=OperationClass.UPDATE_DELETE,
        deletes=tuple(deletes),
        cdc=tuple(cdc),
        reads=Reads(change.predicate),
        tombstones=change.tombstones(),
        parameters={"predicate": _predicate_parameter(where)},
        metrics={"numDeletedRows": rows, **file_metrics(deletes, ())},
    )


def stage_update(state: LogState, writer: DataWriter, where: str, assignments: Mapping[str, str | pa.Array]) -> Staged:
    """Stage new values for the rows for which `where` is true.

    `assignments` maps columns to SQL expressions over the old row, or to an array of the column's type with one value,
    which all rows get. A row that gets another key leaves a tombstone of its old one. Raises PredicateError, and
    SchemaMismatchError for a value that does not fit its column.
    """
    where, assignments = predicate.update_at_time(where, assignments, writer.system.now_ms)
    change = _RowChange(state, writer, where, updates=True)
    change.check(assignments)
    deletes, images, cdc = [], [], []
    for matched in change.matches():
        old = matched.rows.select(change.schema.names)
        image = change.assigned(old, assignments)
        deletes.append(change.delete(matched))
        images.append(change.with_ids_of(matched.rows, image))
        change.bury_old_keys(old, image)
        if change.feed:
            cdc += change.cdc((UPDATE_PREIMAGE, old), (UPDATE_POSTIMAGE, image))
    adds: list[AddFile] = []
    if images:
        new = pa.concat_tables(images)
        adds = writer.write(new)
        deletes = with_image_addresses(deletes, writer, new, adds)
    rows = sum(image.num_rows for image in images)
    tombstones = change.tombstones()
    return Staged(
        operation="UPDATE",
        operation_class=OperationClass.UPDATE_DELETE,
        deletes=tuple(deletes),
        adds=tuple(adds),
        cdc=tuple(cdc),
        reads=Reads(change.predicate),
        # Which of the rows get another key is not known to a rebase.
        is_computed=tombstones is not None,
        tombstones=tombstones,
        parameters={"predicate": _predicate_parameter(where)},
        metrics={"numUpdatedRows": rows, **file_metrics(deletes, adds)},
    )


class _RowChange(RowMatcher):
    """Matches rows by a predicate, for both operations."""

    def __init__(self, state: LogState, writer: DataWriter, where: str, *, updates: bool = False) -> None:
        super().__init__(state, writer)
        self._rules = RowRules.of(writer) if updates else None
        # Parsed without the position column, so that errors list the table's columns only.
        self.predicate = predicate.parse(where, self.schema)
        self._position = free_name(self.schema)
        # The rows of an update come with their ids, which the new rows keep.
        tracked = writer.tracked if updates else ()
        numbered = pa.schema([*self.schema, *tracked, pa.field(self._position, pa.int64(), nullable=False)])
        # A delete by vectors writes no change rows, so it needs no columns but the position.
        whole_rows = updates or (self.feed and not self.vectors)
        self._selection = Selection(numbered, where, None if whole_rows else [self._position])

    def check(self, assignments: Mapping[str, str | pa.Array]) -> None:
        """Raise the errors of assignments that are invalid for any row."""
        if not isinstance(assignments, Mapping):
            raise ConfigurationError(
                f"set must be a dict (got {type(assignments).__name__})",
                advice="pass set={'column': 'SQL expression'}",
            )
        if not assignments:
            raise ConfigurationError(
                "set is empty, so the update would change nothing", advice="pass set={'column': 'SQL expression'}"
            )
        self.assigned(self.schema.empty_table(), assignments)

    def matches(self) -> Iterator[Matched]:
        """The files with matching rows, and those rows."""
        writer, candidates = self._writer, self.candidates(self.predicate)
        candidates = narrowed(writer.store, writer.indexed_key, candidates, self.predicate, self.schema).files
        for add in files.to_adds(candidates):
            rows = pa.Table.from_batches(self._matching(add), schema=self._selection.schema)
            if rows.num_rows:
                yield Matched(add, BitMap64(rows[self._position].to_pylist()), rows.drop_columns([self._position]))

    def assigned(self, rows: pa.Table, assignments: Mapping[str, str | pa.Array]) -> pa.Table:
        """The rows with their new values, all computed from the old values. They fulfil the table's rules."""
        by_name = {self._column(name): text for name, text in assignments.items()}
        if len(by_name) < len(assignments):
            raise ConfigurationError(
                "set has the same column twice", advice="column names that differ in case only are the same column"
            )
        for name, text in by_name.items():
            if not isinstance(text, str) and not self._is_constant(name, text):
                raise PredicateError(
                    f"the new value of {name!r} must be SQL text (got {type(text).__name__})",
                    advice=f'pass an expression such as "{name} + 1"; SQL quotes strings, as in "\'text\'"',
                    token=str(text),
                )
        columns = [
            _new_value(by_name[field.name], rows, field) if field.name in by_name else rows[field.name]
            for field in self.schema
        ]
        images = pa.table(columns, schema=self.schema)
        return images if self._rules is None else self._rules.images(images, by_name)

    def _is_constant(self, name: str, given: object) -> bool:
        return isinstance(given, pa.Array) and len(given) == 1 and given.type == self.schema.field(name).type

    def with_ids_of(self, old: pa.Table, new: pa.Table) -> pa.Table:
        """New rows with the ids of the old ones if the table keeps them; their commit version is that of the commit."""
        for field in self._writer.tracked:
            kept = kind_of(field) == ROW_ID
            new = new.append_column(field, old[field.name] if kept else pa.nulls(new.num_rows, field.type))
        return new

    def _matching(self, add: AddFile) -> Iterator[pa.RecordBatch]:
        schema = self._selection.read_schema
        data_schema = pa.schema([field for field in schema if field.name != self._position])
        for positions, batch in self.read(add, data_schema):
            # The position is the last field of the schema.
            numbered = [*batch.columns, pa.array(positions, pa.int64())]
            yield from self._selection.apply(pa.RecordBatch.from_arrays(numbered, schema=schema))

    def _column(self, name: str) -> str:
        """A column's name as the table has it; case does not matter, as in Spark."""
        same = [known for known in self.schema.names if known.lower() == str(name).lower()]
        if name in same or same:
            return name if name in same else str(same[0])
        raise ConfigurationError(
            f"there is no column {name!r} to set",
            advice=f"{did_you_mean(name, self.schema.names)}the columns are {', '.join(self.schema.names)}; a single "
            "field of a struct cannot be set",
        )


def _new_value(given: str | pa.Array, rows: pa.Table, field: pa.Field) -> pa.Array:
    if isinstance(given, str):
        return predicate.evaluate(given, rows, field)
    return given.take(pa.array(np.zeros(rows.num_rows, np.int64)))


def require_row_changes(configuration: Mapping[str, str], path: str) -> None:
    """Raise AppendOnlyError if the table forbids deleting and changing rows."""
    if properties.flag(configuration, properties.APPEND_ONLY):
        raise AppendOnlyError(
            f"the table {path} is append-only: its rows cannot be deleted or changed",
            advice=f"insert rows instead, or set {properties.APPEND_ONLY} to false first",
            path=path,
        )


def _predicate_parameter(where: str) -> str:
    """A JSON list with the predicate, as delta-spark records it."""
    return msgspec.json.encode([where]).decode()


def with_image_addresses(
    deletes: Sequence[RowDelete], writer: DataWriter, rows: pa.Table, adds: Sequence[AddFile]
) -> list[RowDelete]:
    """The deletes, with the addresses of their images.

    `rows` are the images in the order of the deletes and their positions. `adds` are the files in which
    `DataWriter.write` stored them: partition by partition, each in the order of the rows.
    """
    partition_columns = writer.metadata.partition_columns
    order = np.argsort(group_numbers(writer.prepared(rows), partition_columns).to_numpy(), kind="stable")
    written = located(np.arange(rows.num_rows), starts([statistics.num_records(add.stats) or 0 for add in adds]))
    files, positions = np.empty_like(written.files), np.empty_like(written.positions)
    files[order], positions[order] = written.files, written.positions
    begins = starts([len(delete.positions) for delete in deletes]).tolist()
    return [
        replace(delete, images=UpdateImages(files[begin:end], positions[begin:end]))
        for delete, begin, end in zip(deletes, begins, [*begins[1:], rows.num_rows], strict=True)
    ]
