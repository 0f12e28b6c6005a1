"""Keys of an UPSERT in files, for a transaction with more of them than the process that commits it can hold.

The files are parquet in the folder of the tombstones, where clean-up knows files that no commit names. They are deleted
with the end of the transaction.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.parquet as pq

from tidelog.log.data.tombstones import TOMBSTONE_FOLDER
from tidelog.log.errors import DataFileMissingError
from tidelog.log.storage import Store
from tidelog.log.system import System


def write_keys(store: Store, system: System, keys: pa.Table) -> str:
    """Write keys to a new file, durable on return, and return its path below the table."""
    path = f"{TOMBSTONE_FOLDER}/{system.uuid()}.parquet"
    with store.create(path) as file:
        pq.write_table(keys, file, write_page_checksum=True, compression="zstd")
    return path


def read_keys(store: Store, path: str) -> Iterator[pa.Table]:
    """The keys in a file, in pieces.

    Raises DataFileMissingError if the file is gone, such as with a vacuum that is later than the transaction, and
    OSError if it cannot be read.
    """
    try:
        source = store.open_input(path)
    except FileNotFoundError as error:
        raise DataFileMissingError(
            f"the staged keys {path} of {store.url} are gone", advice="run the operation again", path=store.url
        ) from error
    with pq.ParquetFile(source, page_checksum_verification=True) as parquet:
        for group in range(parquet.metadata.num_row_groups):
            yield parquet.read_row_group(group)
