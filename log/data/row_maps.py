"""Row maps: where a compaction moved each row, for compactions that change the order of rows.

A row map is a table with the columns `input`, `position`, `output` and `output_position`, sorted by the first two, with
one row for each row that moved. `input` and `output` are the numbers of files in the compaction's lineage; positions
count dead rows, too. Rows that are not listed did not move.

It is an Arrow file below `_tidelog/rowmaps/`, kept for as long as a transaction can be in flight that began before the
compaction.
"""

from __future__ import annotations

import pyarrow as pa

from tidelog.log.errors import CorruptLogError, DataFileMissingError, TidelogError
from tidelog.log.storage import Store, arrow_input
from tidelog.log.system import System

ROW_MAP_FOLDER = "_tidelog/rowmaps"
# Few bytes in memory beside the map itself, and few batches for a map of many rows.
_BATCH_ROWS = 2**18
ROW_MAP_COLUMNS = ("input", "position", "output", "output_position")


def row_map_schema() -> pa.Schema:
    """The columns of a row map."""
    return pa.schema([pa.field(name, pa.int64(), nullable=False) for name in ROW_MAP_COLUMNS])


def write_row_map(store: Store, system: System, row_map: pa.Table) -> str:
    """Write a row map, durable on return. Returns its path below the table. In memory it can have narrower integers."""
    path = f"{ROW_MAP_FOLDER}/{system.uuid()}.arrow"
    options = pa.ipc.IpcWriteOptions(compression="lz4")
    with store.create(path) as file, pa.ipc.new_file(file, row_map_schema(), options=options) as writer:
        for batch in row_map.to_batches(max_chunksize=_BATCH_ROWS):
            writer.write_batch(batch.cast(row_map_schema()))
    return path


def is_stored(store: Store, path: str, row_map: pa.Table) -> bool:
    """Whether the file at `path` holds this row map. Reads it a batch at a time."""
    expected = row_map.to_batches(max_chunksize=_BATCH_ROWS)
    try:
        with store.open_input(path) as source, pa.ipc.open_file(source) as reader:
            if reader.schema != row_map_schema() or reader.num_record_batches != len(expected):
                return False
            return all(_same(reader.get_batch(number), batch) for number, batch in enumerate(expected))
    except TidelogError:
        raise  # the store did not answer, which says nothing of the file
    except (pa.ArrowException, OSError):
        return False


def _same(found: pa.RecordBatch, expected: pa.RecordBatch) -> bool:
    # Arrow takes lengths from the file, and does not compare them with the data that is there.
    found.validate(full=True)
    return bool(found.equals(expected.cast(found.schema)))


def read_row_map(store: Store, path: str) -> pa.Table:
    """The row map at `path`. Raises DataFileMissingError, CorruptLogError."""
    try:
        with pa.ipc.open_file(arrow_input(store.read(path))) as reader:
            found = reader.read_all()
        # Arrow takes lengths from the file, and does not compare them with the data that is there.
        found.validate(full=True)
    except FileNotFoundError as error:
        raise DataFileMissingError(
            f"the row map {path} of {store.url} is missing", advice="run the operation again", path=store.url
        ) from error
    except (pa.ArrowException, OSError) as error:
        raise CorruptLogError(
            f"the row map {path} of {store.url} cannot be read: {error}",
            advice="run the operation again",
            path=store.url,
        ) from error
    if found.schema != row_map_schema():
        raise CorruptLogError(
            f"the row map {path} of {store.url} has columns other than {', '.join(ROW_MAP_COLUMNS)}",
            advice="run the operation again",
            path=store.url,
        )
    return found
