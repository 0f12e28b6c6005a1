"""The parts of the log that the sink, the feed, the daemon and the command line use besides its public names.

They import from `tidelog.log`, `tidelog.log.errors` and this module only, which a test checks. So a change inside the
log cannot break them as long as it keeps these names. Programs outside this repository should not use this module: its
names can change at any time.
"""

from __future__ import annotations

# --- names and values on disk
from tidelog.log.format import partition_values, paths, properties
from tidelog.log.format.actions import AddCDCFile, AddFile, SetTransaction
from tidelog.log.format.commit_info import operation_name
from tidelog.log.format.lineage import LineageGroup, LineageInput, LineageOutput
from tidelog.log.format.schema import field_id, is_variant, physical_name
from tidelog.log.format.statistics import num_records

# isort: split
# --- text for people
from tidelog.log.presentable import presentable, presentable_lines, printable, without_credentials

# isort: split
# --- stores, and the clock and the environment
from tidelog.log.storage import FileStatus, Store, open_store
from tidelog.log.storage.doctor import examine
from tidelog.log.storage.local import LocalStore
from tidelog.log.storage.location import parse_location
from tidelog.log.storage.memory import MemoryStore
from tidelog.log.storage.options import Redactor, parse_option_texts
from tidelog.log.system import (
    REAL_SYSTEM,
    System,
    environment,
    logger,
    process_name,
    to_datetime,
)

# isort: split
# --- the state of a version
from tidelog.log.history import commit_records
from tidelog.log.read.timeline import BEFORE_FIRST, Point, to_timestamp_ms
from tidelog.log.state.commits import read_info
from tidelog.log.state.file_values import FileValues
from tidelog.log.state.files import to_adds
from tidelog.log.state.head import Head
from tidelog.log.state.loader import LogState, load
from tidelog.log.state.segment import list_segment, pointed_version

# isort: split
# --- reading rows and changes
from tidelog.log import predicate
from tidelog.log.arrays import BoolArray, Int64Array
from tidelog.log.data.blocks import BLOCK_BYTES, blocks
from tidelog.log.data.deletion_vectors import read_dead_rows
from tidelog.log.data.reader import (
    BATCH_ROWS,
    DataFile,
    physical_rows,
    read_batches,
    read_footer,
    read_numbered_batches,
)
from tidelog.log.pruning.file_pruning import prune_values
from tidelog.log.read.change_files import COMMIT_TIMESTAMP, COMMIT_VERSION, ChangeFile
from tidelog.log.read.changes import change_schema, expired_changes
from tidelog.log.read.commit_changes import read_change_batches
from tidelog.log.read.debt import SMALL_SHARE
from tidelog.log.read.net_changes import net_changes
from tidelog.log.read.scan import RowReader, Selection

# isort: split
# --- registered consumers
from tidelog.log.consumers.administration import remove_consumer, reset_consumer
from tidelog.log.consumers.claims import claim
from tidelog.log.consumers.consumer import Consumer
from tidelog.log.consumers.status import ConsumerStatus, consumers

# isort: split
# --- writing files
from tidelog.log.data.cast import match_names
from tidelog.log.data.conform import conform
from tidelog.log.data.external_files import take_up
from tidelog.log.data.grouping import group_numbers
from tidelog.log.data.row_maps import ROW_MAP_COLUMNS, row_map_schema
from tidelog.log.data.type_names import sql_type
from tidelog.log.data.writer import CHANGE_TYPE, DataWriter, Layout

# isort: split
# --- staging operations and committing them
from tidelog.log.commit.conflict_ledger import LostRace, read_ledger
from tidelog.log.commit.discard import delete_unnamed
from tidelog.log.commit.result import committed
from tidelog.log.conflict.policies import POLICIES, Policy
from tidelog.log.conflict.staged import MoveGroup, RowDelete, Staged
from tidelog.log.operations.delete_update import require_row_changes, stage_delete, stage_update
from tidelog.log.operations.keys import Keys, key_columns
from tidelog.log.operations.overwrite import Overwrite, WrittenFiles
from tidelog.log.operations.row_matcher import Matched, free_name
from tidelog.log.operations.staged_parts import Stage, join_parts, stage_part, state_of, without_progress
from tidelog.log.operations.upsert import UPSERT_METRICS, KeyMatcher, Pairs, staged_upsert
from tidelog.log.operations.upsert_data import split_upsert
from tidelog.log.state.table_identity import require_same_table
from tidelog.log.statements import run_statement

__all__ = [
    "BATCH_ROWS",
    "BEFORE_FIRST",
    "BLOCK_BYTES",
    "CHANGE_TYPE",
    "COMMIT_TIMESTAMP",
    "COMMIT_VERSION",
    "POLICIES",
    "REAL_SYSTEM",
    "ROW_MAP_COLUMNS",
    "SMALL_SHARE",
    "UPSERT_METRICS",
    "AddCDCFile",
    "AddFile",
    "BoolArray",
    "ChangeFile",
    "Consumer",
    "ConsumerStatus",
    "DataFile",
    "DataWriter",
    "FileStatus",
    "FileValues",
    "Head",
    "Int64Array",
    "KeyMatcher",
    "Keys",
    "Layout",
    "LineageGroup",
    "LineageInput",
    "LineageOutput",
    "LocalStore",
    "LogState",
    "LostRace",
    "Matched",
    "MemoryStore",
    "MoveGroup",
    "Overwrite",
    "Pairs",
    "Point",
    "Policy",
    "Redactor",
    "RowDelete",
    "RowReader",
    "Selection",
    "SetTransaction",
    "Stage",
    "Staged",
    "Store",
    "System",
    "WrittenFiles",
    "blocks",
    "change_schema",
    "claim",
    "commit_records",
    "committed",
    "conform",
    "consumers",
    "delete_unnamed",
    "environment",
    "examine",
    "expired_changes",
    "field_id",
    "free_name",
    "group_numbers",
    "is_variant",
    "join_parts",
    "key_columns",
    "list_segment",
    "load",
    "logger",
    "match_names",
    "net_changes",
    "num_records",
    "open_store",
    "operation_name",
    "parse_location",
    "parse_option_texts",
    "partition_values",
    "paths",
    "physical_name",
    "physical_rows",
    "pointed_version",
    "predicate",
    "presentable",
    "presentable_lines",
    "printable",
    "process_name",
    "properties",
    "prune_values",
    "read_batches",
    "read_change_batches",
    "read_dead_rows",
    "read_footer",
    "read_info",
    "read_ledger",
    "read_numbered_batches",
    "remove_consumer",
    "require_row_changes",
    "require_same_table",
    "reset_consumer",
    "row_map_schema",
    "run_statement",
    "split_upsert",
    "sql_type",
    "stage_delete",
    "stage_part",
    "stage_update",
    "staged_upsert",
    "state_of",
    "take_up",
    "to_adds",
    "to_datetime",
    "to_timestamp_ms",
    "without_credentials",
    "without_progress",
]
