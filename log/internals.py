"""The parts of the log that the sink, the feed, the daemon and the command line use besides its public names.

They import from `tidelog.log`, `tidelog.log.errors` and this module only, which a test checks. So a change inside the
log cannot break them as long as it keeps these names. Programs outside this repository should not use this module: its
names can change at any time.
"""

from __future__ import annotations

# --- names and values on disk
from tidelog.log.format import commit_info, partition_values, paths, properties
from tidelog.log.format.actions import AddCDCFile, AddFile, Commit, CommitInfo, RemoveFile, SetTransaction
from tidelog.log.format.clustering import (
    CUBE_COLUMNS_TAG,
    CUBE_ID_TAG,
    LIQUID,
    clustering_columns,
    cube_columns,
    require_clusterable,
)
from tidelog.log.format.commit_info import operation_name
from tidelog.log.format.footer_statistics import footer_bounds
from tidelog.log.format.lineage import LineageGroup, LineageInput, LineageOutput
from tidelog.log.format.schema import field_id, has_variant, is_variant, physical_name
from tidelog.log.format.statistics import num_records
from tidelog.log.format.statistics_reader import Bounds, read_bounds
from tidelog.log.format.text import MALFORMED_JSON

# isort: split
# --- text for people
from tidelog.log.presentable import presentable, presentable_lines, printable, without_credentials

# isort: split
# --- stores, and the clock, the environment and log records
from tidelog.log.log_records import LOG_FORMATS, LOG_LEVELS, JsonLines, configure_logging, event
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
    utc_text,
)

# isort: split
# --- tables and folders that others made
from tidelog.log.adoption import Adoption, PropertyChange, adoption_of
from tidelog.log.operations.convert import convert as convert_folder
from tidelog.log.operations.convert import survey as survey_folder

# isort: split
# --- the state of a version
from tidelog.log.history import commit_records, recorded
from tidelog.log.read.timeline import BEFORE_FIRST, Point, Timeline, to_timestamp_ms
from tidelog.log.state.commits import read_each_up_to, read_info
from tidelog.log.state.file_values import FileValues
from tidelog.log.state.files import to_adds
from tidelog.log.state.head import Head
from tidelog.log.state.loader import LogState, load
from tidelog.log.state.segment import list_segment, pointed_version

# isort: split
# --- reading rows and changes
from tidelog.log import predicate
from tidelog.log.arrays import BoolArray, Int64Array, UInt64Array
from tidelog.log.data.deletion_vectors import read_dead_rows
from tidelog.log.data.reader import (
    DataFile,
    read_batches,
    read_coded_batches,
    read_footer,
)
from tidelog.log.pruning.file_pruning import prune_values
from tidelog.log.read.change_files import COMMIT_TIMESTAMP, COMMIT_VERSION, ChangeFile
from tidelog.log.read.changes import change_schema, expired_changes
from tidelog.log.read.commit_changes import read_change_batches
from tidelog.log.read.debt import SMALL_SHARE
from tidelog.log.read.net_changes import net_changes
from tidelog.log.read.read_ahead import read_ahead
from tidelog.log.read.scan import RowReader, Selection

# isort: split
# --- registered consumers
from tidelog.log.consumers.administration import remove_consumer, reset_consumer
from tidelog.log.consumers.claims import claim
from tidelog.log.consumers.consumer import Consumer
from tidelog.log.consumers.fence import expected_fence
from tidelog.log.consumers.status import ConsumerStatus, consumers

# isort: split
# --- clean-up
from tidelog.log.cleanup.expire import expire_log
from tidelog.log.cleanup.pieces import Pieces
from tidelog.log.cleanup.retention import files_expire_ms, history_expires_ms
from tidelog.log.cleanup.vacuum import vacuum_files
from tidelog.log.conflict.horizon import FLOOR, HORIZON, PURGED, horizon_of

# isort: split
# --- leases: rows of numbered files, and the fence in the log
from tidelog.log.conflict.fences import LEASE_PREFIX
from tidelog.log.numbered_files import (
    LatestRecord,
    NumberedFiles,
    UnreadableRecordError,
    record_from_json,
    record_to_json,
)

# isort: split
# --- writing files
from tidelog.log.data.cast import match_names
from tidelog.log.data.conform import conform
from tidelog.log.data.external_files import take_up
from tidelog.log.data.grouping import group_numbers
from tidelog.log.data.new_file import Layout
from tidelog.log.data.row_hashes import row_hashes
from tidelog.log.data.row_maps import ROW_MAP_COLUMNS
from tidelog.log.data.spill import Spill, divided
from tidelog.log.data.type_names import sql_type
from tidelog.log.data.writer import CHANGE_TYPE, DataWriter

# isort: split
# --- staging operations and committing them
from tidelog.log.commit.conflict_ledger import LostRace, entry_names, read_entries, read_ledger
from tidelog.log.commit.discard import delete_unnamed
from tidelog.log.commit.result import committed
from tidelog.log.conflict.policies import POLICIES, Policy
from tidelog.log.conflict.staged import MoveGroup, RowDelete, Staged
from tidelog.log.operations.delete_update import require_row_changes, stage_delete, stage_update
from tidelog.log.operations.keys import Keys, key_columns
from tidelog.log.operations.overwrite import Overwrite, WrittenFiles
from tidelog.log.operations.row_matcher import Matched, free_name
from tidelog.log.operations.staged_parts import Stage, join_parts, stage_part, state_of, without_progress
from tidelog.log.operations.upsert import NEW_ROW, UPSERT_METRICS, KeyMatcher, Pairs, staged_upsert, with_kept_ids
from tidelog.log.operations.upsert_data import split_upsert
from tidelog.log.rules import RowRules, spark_work
from tidelog.log.state.table_identity import require_same_table
from tidelog.log.statements import run_statement

__all__ = [
    "BEFORE_FIRST",
    "CHANGE_TYPE",
    "COMMIT_TIMESTAMP",
    "COMMIT_VERSION",
    "CUBE_COLUMNS_TAG",
    "CUBE_ID_TAG",
    "FLOOR",
    "HORIZON",
    "LEASE_PREFIX",
    "LIQUID",
    "LOG_FORMATS",
    "LOG_LEVELS",
    "MALFORMED_JSON",
    "NEW_ROW",
    "POLICIES",
    "PURGED",
    "REAL_SYSTEM",
    "ROW_MAP_COLUMNS",
    "SMALL_SHARE",
    "UPSERT_METRICS",
    "AddCDCFile",
    "AddFile",
    "Adoption",
    "BoolArray",
    "Bounds",
    "ChangeFile",
    "Commit",
    "CommitInfo",
    "Consumer",
    "ConsumerStatus",
    "DataFile",
    "DataWriter",
    "FileStatus",
    "FileValues",
    "Head",
    "Int64Array",
    "JsonLines",
    "KeyMatcher",
    "Keys",
    "LatestRecord",
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
    "NumberedFiles",
    "Overwrite",
    "Pairs",
    "Pieces",
    "Point",
    "Policy",
    "PropertyChange",
    "Redactor",
    "RemoveFile",
    "RowDelete",
    "RowReader",
    "RowRules",
    "Selection",
    "SetTransaction",
    "Spill",
    "Stage",
    "Staged",
    "Store",
    "System",
    "Timeline",
    "UInt64Array",
    "UnreadableRecordError",
    "WrittenFiles",
    "adoption_of",
    "change_schema",
    "claim",
    "clustering_columns",
    "commit_info",
    "commit_records",
    "committed",
    "configure_logging",
    "conform",
    "consumers",
    "convert_folder",
    "cube_columns",
    "delete_unnamed",
    "divided",
    "entry_names",
    "environment",
    "event",
    "examine",
    "expected_fence",
    "expire_log",
    "expired_changes",
    "field_id",
    "files_expire_ms",
    "footer_bounds",
    "free_name",
    "group_numbers",
    "has_variant",
    "history_expires_ms",
    "horizon_of",
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
    "pointed_version",
    "predicate",
    "presentable",
    "presentable_lines",
    "printable",
    "process_name",
    "properties",
    "prune_values",
    "read_ahead",
    "read_batches",
    "read_bounds",
    "read_change_batches",
    "read_coded_batches",
    "read_dead_rows",
    "read_each_up_to",
    "read_entries",
    "read_footer",
    "read_info",
    "read_ledger",
    "record_from_json",
    "record_to_json",
    "recorded",
    "remove_consumer",
    "require_clusterable",
    "require_row_changes",
    "require_same_table",
    "reset_consumer",
    "row_hashes",
    "run_statement",
    "spark_work",
    "split_upsert",
    "sql_type",
    "stage_delete",
    "stage_part",
    "stage_update",
    "staged_upsert",
    "state_of",
    "survey_folder",
    "take_up",
    "to_adds",
    "to_datetime",
    "to_timestamp_ms",
    "utc_text",
    "vacuum_files",
    "with_kept_ids",
    "without_credentials",
    "without_progress",
]
