"""The part of `internals` that a reader in Spark needs, so that Spark's Python processes import no more.

Such a process starts for each query and for many tasks, and its imports are a part of their latency. The rules of
`internals` hold here, too.
"""

from __future__ import annotations

from tidelog.log import predicate
from tidelog.log.arrays import Int64Array
from tidelog.log.consumers.claims import claim
from tidelog.log.consumers.consumer import Consumer
from tidelog.log.data.reader import DataFile, physical_rows
from tidelog.log.format import properties
from tidelog.log.format.actions import Commit, Metadata
from tidelog.log.format.schema import columns_of
from tidelog.log.format.statistics import num_records
from tidelog.log.pruning.file_pruning import may_match, prune_values
from tidelog.log.read.change_files import ChangeFile
from tidelog.log.read.changes import change_schema, require_mode
from tidelog.log.read.commit_changes import Mode, changed_rows, commit_changes, read_change_batches
from tidelog.log.read.rewrites import Change
from tidelog.log.read.scan import RowReader, Selection
from tidelog.log.read.snapshot import Snapshot
from tidelog.log.read.table_reader import TableReader
from tidelog.log.read.timeline import BEFORE_FIRST, Point
from tidelog.log.state.file_values import FileValues
from tidelog.log.state.files import to_adds
from tidelog.log.state.segment import range_error
from tidelog.log.storage import Store
from tidelog.log.system import REAL_SYSTEM, System, logger, to_datetime, utc_text

__all__ = [
    "BEFORE_FIRST",
    "REAL_SYSTEM",
    "Change",
    "ChangeFile",
    "Commit",
    "Consumer",
    "DataFile",
    "FileValues",
    "Int64Array",
    "Metadata",
    "Mode",
    "Point",
    "RowReader",
    "Selection",
    "Snapshot",
    "Store",
    "System",
    "TableReader",
    "change_schema",
    "changed_rows",
    "claim",
    "columns_of",
    "commit_changes",
    "logger",
    "may_match",
    "num_records",
    "physical_rows",
    "predicate",
    "properties",
    "prune_values",
    "range_error",
    "read_change_batches",
    "require_mode",
    "to_adds",
    "to_datetime",
    "utc_text",
]
