"""Find the files that can have matching rows, and delete rows from a file.

With deletion vectors on, rows are deleted by a vector; otherwise the file is rewritten without them (copy-on-write).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyroaring import BitMap64

from tidelog.log.arrays import Int64Array
from tidelog.log.conflict.staged import RowDelete
from tidelog.log.data.reader import DataFile, physical_rows, read_numbered_batches
from tidelog.log.data.writer import DataWriter
from tidelog.log.format import statistics
from tidelog.log.format.actions import AddCDCFile, AddFile
from tidelog.log.format.protocol import has_change_data_feed, has_deletion_vectors
from tidelog.log.format.schema import columns_of
from tidelog.log.predicate import Expression
from tidelog.log.pruning.file_pruning import prune_values
from tidelog.log.state import files
from tidelog.log.state.loader import LogState


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

    def candidates(self, expression: Expression) -> list[AddFile]:
        """The live files that can have a row for which `expression` is true."""
        found = prune_values(self._state.files().values, expression, self.schema, self._writer.metadata)
        return files.to_adds(found.files)

    def delete(self, matched: Matched) -> RowDelete:
        """Stage deleting the matched rows of one file."""
        count = self._physical_rows.pop(matched.add.path, None)
        if count is None:
            count = physical_rows(self._writer.store, DataFile.of(matched.add))
        if self.vectors:
            return RowDelete(matched.add, matched.positions, count)
        return RowDelete(matched.add, matched.positions, count, tuple(self._survivors(matched)))

    def read(
        self, add: AddFile, schema: pa.Schema, only: BitMap64 | None = None
    ) -> Iterator[tuple[Int64Array, pa.RecordBatch]]:
        """The file's live rows as `read_numbered_batches` gives them. Keeps its row count for `delete`."""

        def keep(footer: pq.FileMetaData) -> None:
            self._physical_rows[add.path] = footer.num_rows

        return read_numbered_batches(self._writer.store, DataFile.of(add), schema, only=only, on_footer=keep)

    def cdc(self, rows: pa.Table, change_type: str) -> list[AddCDCFile]:
        """Write change rows."""
        return self._writer.write_changes(rows, change_type)

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
            yield from self._writer.write_partition(rows, matched.add.partition_values, data_change=True)


def free_name(schema: pa.Schema) -> str:
    """A name that no column has."""
    name = "position"
    while name in {known.lower() for known in schema.names}:
        name += "_"
    return name


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
