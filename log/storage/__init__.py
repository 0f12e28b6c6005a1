"""Where a table's files are stored: one small interface with one durable write, put-if-absent, and its stores.

- `store`: `Store`, the interface, and what stores share
- `registry`: `open_store`, from a path or URL to its store
- `local`: files on a local disk or a mounted file system
- `regular_file`: open files of a table that may be anything, such as a FIFO
- `memory`: files in this process's memory
- `object_store`: objects in S3, Google Cloud Storage or Azure Blob Storage
- `cloud`: `Cloud`, the requests that an object store sends; `s3`, `gcs` and `azure` implement it
- `location`: parse object store URLs, and compare the places of stores
- `options`: parse storage options and redact their secrets
- `doctor`: test whether a store keeps the promises that a table needs
"""

from tidelog.log.storage.registry import open_store
from tidelog.log.storage.regular_file import MAX_WHOLE_BYTES
from tidelog.log.storage.store import (
    FileStatus,
    NotDurableError,
    NotStoredError,
    Store,
    UnreadableFileError,
    arrow_input,
    read_whole,
    while_synced,
)

__all__ = [
    "MAX_WHOLE_BYTES",
    "FileStatus",
    "NotDurableError",
    "NotStoredError",
    "Store",
    "UnreadableFileError",
    "arrow_input",
    "open_store",
    "read_whole",
    "while_synced",
]
