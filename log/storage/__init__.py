"""Where a table's files are stored: one small interface with one durable write, put-if-absent, and its stores.

- `store`: `Store`, the interface
- `registry`: `open_store`, from a path or URL to its store
- `local`: files on a local disk or a mounted file system
- `local_errors`: why a local file cannot be read
- `local_paths`: local paths, `file:` URLs, and what is in a folder
- `regular_file`: open files of a table that may be anything, such as a FIFO
- `disk`: `Disk`, the calls to the operating system that `local` makes
- `memory`: files in this process's memory
- `object_store`: objects in S3, Google Cloud Storage or Azure Blob Storage
- `object_errors`: what the failure of a request means to its caller
- `cloud`: `Cloud`, the requests that an object store sends; `s3`, `gcs` and `azure` implement it
- `many_deletes`: delete many objects with few requests
- `location`: parse object store URLs
- `options`: parse storage options and redact their secrets
- `side_by_side`: two pieces of work at the same time
- `retries`: bounded retries of one request
- `arrow_input`: give Arrow what Python has read
- `seekable`: the position in a file that is read in parts
- `sent_once`: keep aiohttp, below all three, from repeating a request by itself
- `ranged`: read a large object in parts
- `probe`: prove that a server honours conditional puts
- `doctor`: test whether a store keeps the promises that a table needs
"""

from tidelog.log.storage.arrow_input import arrow_input, read_whole
from tidelog.log.storage.registry import open_store
from tidelog.log.storage.regular_file import MAX_WHOLE_BYTES
from tidelog.log.storage.store import FileStatus, NotDurableError, NotStoredError, Store, UnreadableFileError

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
]
