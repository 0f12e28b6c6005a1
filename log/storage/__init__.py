"""Where a table's files lie: one small interface, one durable write primitive (put if absent), and its stores."""

from tidelog.log.storage.registry import open_store
from tidelog.log.storage.store import FileStatus, Store

__all__ = ["FileStatus", "Store", "open_store"]
