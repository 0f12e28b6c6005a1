"""Staging DELETE and UPDATE: the rows that match a predicate die, and an update adds their new images.

Where the table has deletion vectors on, rows die by a vector; where not, each file touched is written anew without
them (copy-on-write). With the change data feed on, an update writes its change rows; a delete does where it copies,
and else is told by the difference of the vectors.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import msgspec
import numpy as np
import pyarrow as pa
from pyroaring import BitMap64

from tidelog.log import predicate
from tidelog.log.change_files import DELETE, UPDATE_POSTIMAGE, UPDATE_PREIMAGE
from tidelog.log.conflict.classes import OperationClass
from tidelog.log.conflict.staged import Reads, RowDelete, Staged
from tidelog.log.datafile import DataFile, physical_rows, read_numbered_batches
from tidelog.log.errors import AppendOnlyError, ConfigurationError, PredicateError
from tidelog.log.format import properties, statistics
from tidelog.log.format.actions import AddCDCFile, AddFile
from tidelog.log.format.protocol import has_change_data_feed, has_deletion_vectors
from tidelog.log.format.schema import columns_of
from tidelog.log.pruning import prune_values
from tidelog.log.scan import Selection
from tidelog.log.state import files
from tidelog.log.state.loader import LogState
from tidelog.log.write import DataWriter


@dataclass(frozen=True, slots=True)
class _Matched:
    """What matched in one file: the positions, and those rows (without columns where nobody needs them)."""

    add: AddFile
    positions: BitMap64
    rows: pa.Table


def stage_delete(state: LogState, writer: DataWriter, where: str) -> Staged:
    """The rows for which `where` is true die. Raises PredicateError."""
    change = _RowChange(state, writer, where, whole_rows=False)
    deletes, cdc = [], []
    for matched in change.matches():
        deletes.append(change.delete(matched))
        if change.feed and not change.vectors:
            cdc += change.cdc(matched.rows, DELETE)
    rows = sum(len(delete.positions) for delete in deletes)
    return Staged(
        operation="DELETE",
        operation_class=OperationClass.UPDATE_DELETE,
        deletes=tuple(deletes),
        cdc=tuple(cdc),
        reads=Reads(change.predicate),
        parameters={"predicate": _predicate_parameter(where)},
        metrics={"numDeletedRows": rows, **_file_metrics(deletes, ())},
    )


def stage_update(state: LogState, writer: DataWriter, where: str, assignments: Mapping[str, str]) -> Staged:
    """The rows for which `where` is true get new values: `assignments` maps columns to SQL expressions of the old row.

    Raises PredicateError, SchemaMismatchError where a new value does not fit its column.
    """
    change = _RowChange(state, writer, where, whole_rows=True)
    change.check(assignments)
    deletes, images, cdc = [], [], []
    for matched in change.matches():
        image = change.assigned(matched.rows, assignments)
        deletes.append(change.delete(matched))
        images.append(image)
        if change.feed:
            cdc += change.cdc(matched.rows, UPDATE_PREIMAGE)
            cdc += change.cdc(image, UPDATE_POSTIMAGE)
    adds = writer.write(pa.concat_tables(images)) if images else []
    rows = sum(image.num_rows for image in images)
    return Staged(
        operation="UPDATE",
        operation_class=OperationClass.UPDATE_DELETE,
        deletes=tuple(deletes),
        adds=tuple(adds),
        cdc=tuple(cdc),
        reads=Reads(change.predicate),
        parameters={"predicate": _predicate_parameter(where)},
        metrics={"numUpdatedRows": rows, **_file_metrics(deletes, adds)},
    )


class _RowChange:
    """What both operations share: finding the rows, and how they die in this table."""

    def __init__(self, state: LogState, writer: DataWriter, where: str, *, whole_rows: bool) -> None:
        head = state.head
        self.schema = columns_of(head.metadata, writer.store.url)
        self.vectors = has_deletion_vectors(head.protocol, head.metadata)
        self.feed = has_change_data_feed(head.protocol, head.metadata)
        self._state = state
        self._writer = writer
        # Against the table's own columns first, which is what an error shall speak of.
        self.predicate = predicate.parse(where, self.schema)
        self._position = _free_name(self.schema)
        numbered = pa.schema([*self.schema, pa.field(self._position, pa.int64(), nullable=False)])
        # Change rows of a delete are needed where it copies only.
        whole_rows = whole_rows or (self.feed and not self.vectors)
        self._selection = Selection(numbered, where, None if whole_rows else [self._position])

    def check(self, assignments: Mapping[str, str]) -> None:
        """Raise PredicateError or SchemaMismatchError for assignments that no row could take."""
        if not isinstance(assignments, Mapping):
            raise ConfigurationError(
                f"set is a {type(assignments).__name__}", advice="give set={'column': 'SQL expression'}"
            )
        if not assignments:
            raise ConfigurationError("an update sets no column", advice="give set={'column': 'SQL expression'}")
        self.assigned(self.schema.empty_table(), assignments)

    def matches(self) -> Iterator[_Matched]:
        """The files that hold matching rows, with these."""
        metadata = self._writer.metadata
        found = prune_values(self._state.files().values, self.predicate, self.schema, metadata)
        for add in files.to_adds(found.files):
            rows = pa.Table.from_batches(self._matching(add), schema=self._selection.schema)
            if rows.num_rows:
                yield _Matched(add, BitMap64(rows[self._position].to_pylist()), rows.drop_columns([self._position]))

    def delete(self, matched: _Matched) -> RowDelete:
        """How the matched rows of one file die."""
        count = physical_rows(self._writer.store, DataFile.of(matched.add))
        if self.vectors:
            return RowDelete(matched.add, matched.positions, count)
        return RowDelete(matched.add, matched.positions, count, tuple(self._survivors(matched)))

    def cdc(self, rows: pa.Table, change_type: str) -> list[AddCDCFile]:
        """Write change rows."""
        return self._writer.write_changes(rows, change_type)

    def assigned(self, rows: pa.Table, assignments: Mapping[str, str]) -> pa.Table:
        """The rows with their new values, each of which is computed from the old ones."""
        by_name = {self._column(name): text for name, text in assignments.items()}
        if len(by_name) < len(assignments):
            raise ConfigurationError("a column is set twice", advice="case does not matter in column names")
        for name, text in by_name.items():
            if not isinstance(text, str):
                raise PredicateError(
                    f"the new value of {name!r} is a {type(text).__name__}, not SQL text",
                    advice=f"write an expression such as {name} + 1, or a literal such as 'text' in quotes of its own",
                    token=str(text),
                )
        columns = [
            predicate.evaluate(by_name[field.name], rows, field) if field.name in by_name else rows[field.name]
            for field in self.schema
        ]
        return pa.table(columns, schema=self.schema)

    def _matching(self, add: AddFile) -> Iterator[pa.RecordBatch]:
        schema = self._selection.read_schema
        data_schema = pa.schema([field for field in schema if field.name != self._position])
        for positions, batch in read_numbered_batches(self._writer.store, DataFile.of(add), data_schema):
            # The position is the last field of the schema.
            numbered = [*batch.columns, pa.array(positions, pa.int64())]
            yield from self._selection.apply(pa.RecordBatch.from_arrays(numbered, schema=schema))

    def _survivors(self, matched: _Matched) -> Iterator[AddFile]:
        """The file's other live rows, in files of their own."""
        inside = [field for field in self.schema if field.name not in self._writer.metadata.partition_columns]
        schema = pa.schema(inside)
        dead = np.fromiter(matched.positions, dtype=np.int64, count=len(matched.positions))
        batches = []
        for positions, batch in read_numbered_batches(self._writer.store, DataFile.of(matched.add), schema):
            batches.append(batch.filter(pa.array(~np.isin(positions, dead))))
        rows = pa.Table.from_batches(batches, schema=schema)
        if rows.num_rows:
            yield from self._writer.write_partition(rows, matched.add.partition_values, data_change=True)

    def _column(self, name: str) -> str:
        """The table's spelling of a column; case does not matter, as in Spark."""
        same = [known for known in self.schema.names if known.lower() == str(name).lower()]
        if name in same or same:
            return name if name in same else str(same[0])
        raise PredicateError(
            f"there is no column {name!r} to set",
            advice=f"the columns are {', '.join(self.schema.names)}; a field of a struct cannot be set alone",
            token=name,
        )


def _free_name(schema: pa.Schema) -> str:
    """A name that no column has."""
    name = "position"
    while name in {known.lower() for known in schema.names}:
        name += "_"
    return name


def require_row_changes(configuration: Mapping[str, str], path: str) -> None:
    """Raise AppendOnlyError for a table that forbids removing and changing rows."""
    if properties.flag(configuration, properties.APPEND_ONLY):
        raise AppendOnlyError(
            f"{path} is append-only: rows cannot be removed or changed",
            advice=f"insert instead, or set {properties.APPEND_ONLY} to false first",
            path=path,
        )


def _predicate_parameter(where: str) -> str:
    """As delta-spark writes it: a JSON list of texts."""
    return msgspec.json.encode([where]).decode()


def _file_metrics(deletes: Sequence[RowDelete], adds: Sequence[AddFile]) -> dict[str, int]:
    survivors = [add for delete in deletes for add in delete.survivors or ()]
    copied = sum(statistics.num_records(add.stats) or 0 for add in survivors)
    whole = sum(1 for delete in deletes if not delete.needs_vector)
    return {
        "numRemovedFiles": whole,
        "numAddedFiles": len(adds) + len(survivors),
        "numCopiedRows": copied,
        "numDeletionVectorsAdded": sum(1 for delete in deletes if delete.needs_vector),
    }
