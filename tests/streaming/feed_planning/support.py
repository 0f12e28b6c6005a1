"""Tables in memory, and planners over them."""

from __future__ import annotations

import uuid
from typing import Any

import pyarrow as pa

from tidelog.log import Table
from tidelog.log.read.mixed_commits import Change
from tidelog.log.read.table_reader import TableReader
from tidelog.log.read.timeline import BEFORE_FIRST
from tidelog.log.state.commits import read_commits
from tidelog.log.system import REAL_SYSTEM, System
from tidelog.streaming.feed_planning.feed_planner import FeedPlanner
from tidelog.streaming.feed_planning.limits import ReadLimits
from tidelog.streaming.feed_planning.offsets import Offset
from tidelog.streaming.feed_planning.query_columns import LoadedColumns, QueryColumns

PLAIN = QueryColumns(None, None, None)
CDC = QueryColumns("cdc", None, None)
SCHEMA = pa.schema([("part", pa.int64()), ("n", pa.int64())])


def new_table() -> Table:
    return Table.create(f"memory://{uuid.uuid4()}", SCHEMA, partition_by=["part"])


def planner_of(
    table: Table, system: System = REAL_SYSTEM, *, columns: QueryColumns = PLAIN, **more: Any
) -> FeedPlanner:
    return FeedPlanner(table, system, columns, **more)


def loaded(table: TableReader) -> LoadedColumns:
    """The columns of a query that is loaded now."""
    return LoadedColumns(table.version, table.schema)


def append(table: Table, num_files: int) -> None:
    """One commit with `num_files` files, one in each partition."""
    table.insert([{"part": part, "n": part} for part in range(num_files)])


def appended_paths(table: Table) -> list[str]:
    """The expected result: the paths of all data-changing adds, read from the log itself."""
    commits = read_commits(table.store, range(table.refresh().version + 1))
    return [add.path for commit in commits for add in commit.adds if add.data_change]


def path_of(change: Change) -> str:
    (file,) = change.files
    return file.file.path


def part_of(change: Change) -> str | None:
    (file,) = change.files
    return file.partition_values["part"]


def at(offset: Offset) -> tuple[int, int]:
    return offset.version, offset.files


def start_of(table: TableReader, version: int = BEFORE_FIRST) -> Offset:
    return Offset(table.id, version)


def ends(planner: FeedPlanner, limits: ReadLimits) -> list[tuple[int, int]]:
    """Where each micro-batch ends."""
    offset, found = start_of(planner.table), []
    while (end := planner.advance(offset, planner.table.version, limits)) != offset:
        found.append(at(end))
        offset = end
    return found
