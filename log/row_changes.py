"""Staging DELETE and UPDATE: the rows that match a predicate die, and an update adds their new images.

Where the table has deletion vectors on, rows die by a vector; where not, each file touched is written anew without
them (copy-on-write). With the change data feed on, an update writes its change rows; a delete does where it copies,
and else is told by the difference of the vectors.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import msgspec
import numpy as np
import pyarrow as pa
from pyroaring import BitMap64

from tidelog.log import predicate
from tidelog.log.change_files import DELETE, UPDATE_POSTIMAGE, UPDATE_PREIMAGE
from tidelog.log.conflict.classes import OperationClass
from tidelog.log.conflict.staged import Images, Reads, RowDelete, Staged
from tidelog.log.datafile import DataFile, physical_rows, read_numbered_batches
from tidelog.log.errors import AppendOnlyError, ConfigurationError, PredicateError
from tidelog.log.format import properties, statistics
from tidelog.log.format.actions import AddCDCFile, AddFile, Protocol
from tidelog.log.format.protocol import has_change_data_feed, has_deletion_vectors
from tidelog.log.format.schema import columns_of
from tidelog.log.pruning import prune_values
from tidelog.log.scan import Selection
from tidelog.log.state import files
from tidelog.log.state.loader import LogState
from tidelog.log.write import DataWriter, free_name


@dataclass(frozen=True, slots=True)
class Changed:
    """What became of the matching rows of some files, which is a part of an operation; picklable.

    The images of its `deletes` are rows of its own `adds`.
    """

    deletes: tuple[RowDelete, ...] = ()
    adds: tuple[AddFile, ...] = ()
    cdc: tuple[AddCDCFile, ...] = ()

    @property
    def rows(self) -> int:
        """How many rows matched."""
        return sum(len(delete.positions) for delete in self.deletes)


def joined(parts: Iterable[Changed]) -> Changed:
    """The parts of one operation as one."""
    deletes: list[RowDelete] = []
    adds: list[AddFile] = []
    cdc: list[AddCDCFile] = []
    for part in parts:
        for delete in part.deletes:
            images = delete.images and Images(delete.images.adds + len(adds), delete.images.positions)
            deletes.append(replace(delete, images=images))
        adds += part.adds
        cdc += part.cdc
    return Changed(tuple(deletes), tuple(adds), tuple(cdc))


@dataclass(frozen=True, slots=True)
class _Matched:
    """What matched in one file: the positions, and those rows (without columns where nobody needs them)."""

    add: AddFile
    positions: BitMap64
    rows: pa.Table


def stage_delete(state: LogState, writer: DataWriter, where: str) -> Staged:
    """The rows for which `where` is true die. Raises PredicateError."""
    change = RowChange(state.head.protocol, writer, where)
    return change.staged(change.apply(change.candidates(state)))


def stage_update(state: LogState, writer: DataWriter, where: str, assignments: Mapping[str, str]) -> Staged:
    """The rows for which `where` is true get new values: `assignments` maps columns to SQL expressions of the old row.

    Raises PredicateError, SchemaMismatchError where a new value does not fit its column.
    """
    change = RowChange(state.head.protocol, writer, where, assignments)
    return change.staged(change.apply(change.candidates(state)))


class RowChange:
    """A DELETE, or with `assignments` an UPDATE, in three steps of which the middle one can be shared out by files.

    Raises PredicateError, and ConfigurationError or SchemaMismatchError for assignments that no row could take.
    """

    def __init__(
        self, protocol: Protocol, writer: DataWriter, where: str, assignments: Mapping[str, str] | None = None
    ) -> None:
        self.schema = columns_of(writer.metadata, writer.store.url)
        self.where = where
        self.assignments = assignments
        self._vectors = has_deletion_vectors(protocol, writer.metadata)
        self._feed = has_change_data_feed(protocol, writer.metadata)
        self._writer = writer
        # Against the table's own columns first, which is what an error shall speak of.
        self.predicate = predicate.parse(where, self.schema)
        self._position = free_name(self.schema)
        numbered = pa.schema([*self.schema, pa.field(self._position, pa.int64(), nullable=False)])
        # Change rows of a delete are needed where it copies only.
        whole_rows = assignments is not None or (self._feed and not self._vectors)
        self._selection = Selection(numbered, where, None if whole_rows else [self._position])
        if assignments is not None:
            self._check(assignments)

    def candidates(self, state: LogState) -> list[AddFile]:
        """The files that may hold matching rows."""
        found = prune_values(state.files().values, self.predicate, self.schema, self._writer.metadata)
        return files.to_adds(found.files)

    def apply(self, adds: Iterable[AddFile]) -> Changed:
        """Find the matching rows of these files, and write what the operation makes of them."""
        return self._deleted(adds) if self.assignments is None else self._updated(adds, self.assignments)

    def staged(self, changed: Changed) -> Staged:
        """The operation, of which `changed` is the whole."""
        update = self.assignments is not None
        return Staged(
            operation="UPDATE" if update else "DELETE",
            operation_class=OperationClass.UPDATE_DELETE,
            deletes=changed.deletes,
            adds=changed.adds,
            cdc=changed.cdc,
            reads=Reads(self.predicate),
            parameters={"predicate": _predicate_parameter(self.where)},
            metrics={
                "numUpdatedRows" if update else "numDeletedRows": changed.rows,
                **_file_metrics(changed.deletes, changed.adds),
            },
        )

    def _deleted(self, adds: Iterable[AddFile]) -> Changed:
        deletes, cdc = [], []
        for matched in self._matches(adds):
            deletes.append(self._delete(matched))
            if self._feed and not self._vectors:
                cdc += self._writer.write_changes(matched.rows, DELETE)
        return Changed(tuple(deletes), cdc=tuple(cdc))

    def _updated(self, adds: Iterable[AddFile], assignments: Mapping[str, str]) -> Changed:
        deletes, new, cdc = [], [], []
        for matched in self._matches(adds):
            image = self._assigned(matched.rows, assignments)
            deletes.append(self._delete(matched))
            new.append(image)
            if self._feed:
                cdc += self._writer.write_changes(matched.rows, UPDATE_PREIMAGE)
                cdc += self._writer.write_changes(image, UPDATE_POSTIMAGE)
        if not new:
            return Changed()
        written, images = self._writer.write_placed(pa.concat_tables(new))
        ends = np.cumsum([image.num_rows for image in new])[:-1]
        places = zip(np.split(images.adds, ends), np.split(images.positions, ends), strict=True)
        placed = [replace(delete, images=Images(*place)) for delete, place in zip(deletes, places, strict=True)]
        return Changed(tuple(placed), tuple(written), tuple(cdc))

    def _check(self, assignments: Mapping[str, str]) -> None:
        """Raise PredicateError or SchemaMismatchError for assignments that no row could take."""
        if not isinstance(assignments, Mapping):
            raise ConfigurationError(
                f"set is a {type(assignments).__name__}", advice="give set={'column': 'SQL expression'}"
            )
        if not assignments:
            raise ConfigurationError("an update sets no column", advice="give set={'column': 'SQL expression'}")
        self._assigned(self.schema.empty_table(), assignments)

    def _matches(self, adds: Iterable[AddFile]) -> Iterator[_Matched]:
        """Of these files those that hold matching rows, with these."""
        for add in adds:
            rows = pa.Table.from_batches(self._matching(add), schema=self._selection.schema)
            if rows.num_rows:
                positions = BitMap64(rows[self._position].to_numpy())
                yield _Matched(add, positions, rows.drop_columns([self._position]))

    def _delete(self, matched: _Matched) -> RowDelete:
        """How the matched rows of one file die."""
        count = physical_rows(self._writer.store, DataFile.of(matched.add))
        if self._vectors:
            return RowDelete(matched.add, matched.positions, count)
        return RowDelete(matched.add, matched.positions, count, tuple(self._survivors(matched)))

    def _assigned(self, rows: pa.Table, assignments: Mapping[str, str]) -> pa.Table:
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
