"""Row maps: where each row of a compaction went, where its order alone does not tell.

A table with the columns `input`, `position`, `output`, `output_position`, one row for each row that moved, sorted by
the first two. `input` and `output` number the files of the compaction's lineage; positions count dead rows, too. What
is not in it did not move. It lies as an Arrow file below `_tidelog/rowmaps/`, for as long as a transaction may be in
flight that was made before the compaction.
"""

from __future__ import annotations

import pyarrow as pa

from tidelog.log.errors import CorruptLogError, DataFileMissingError
from tidelog.log.storage import Store
from tidelog.log.system import System

ROW_MAP_FOLDER = "_tidelog/rowmaps"
ROW_MAP_COLUMNS = ("input", "position", "output", "output_position")


def row_map_schema() -> pa.Schema:
    """The columns of a row map."""
    return pa.schema([pa.field(name, pa.int64(), nullable=False) for name in ROW_MAP_COLUMNS])


def write_row_map(store: Store, system: System, row_map: pa.Table) -> str:
    """Write a row map, durable on return; its path below the table."""
    path = f"{ROW_MAP_FOLDER}/{system.uuid()}.arrow"
    options = pa.ipc.IpcWriteOptions(compression="lz4")
    with store.create(path) as file, pa.ipc.new_file(file, row_map_schema(), options=options) as writer:
        writer.write_table(row_map)
    return path


def read_row_map(store: Store, path: str) -> pa.Table:
    """The row map at `path`. Raises DataFileMissingError, CorruptLogError."""
    try:
        with pa.ipc.open_file(pa.BufferReader(store.read(path))) as reader:
            found = reader.read_all()
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
            f"the row map {path} of {store.url} has other columns", advice="run the operation again", path=store.url
        )
    return found
