"""UPSERT on Spark's executors, for data with more keys than the driver can hold.

Spark sorts the data by its keys and gives each task a range of them. A task stages the upsert of its range, a file's
worth of rows at a time, as `Table.upsert` does: it looks the keys up in the table, and writes files. Back to the driver
go the names and statistics of new files, and which rows of the table's files are deleted. The keys go to files, which a
rebase reads if another commit wins a race.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap64
from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as F  # noqa: N812 - Spark's convention

from tidelog.log.commit.burial import joined_changes
from tidelog.log.commit.discard import discard
from tidelog.log.conflict.staged import Reads, RowDelete, Staged
from tidelog.log.data.grouping import group_numbers
from tidelog.log.data.ordering import present
from tidelog.log.data.staged_keys import write_keys
from tidelog.log.data.writer import DataWriter
from tidelog.log.format.tombstone_list import TOMBSTONES
from tidelog.log.operations.delete_update import Matched, RowMatcher, file_metrics
from tidelog.log.operations.staged_parts import state_of, without_progress
from tidelog.log.operations.upsert import stage_records
from tidelog.log.predicate import Expression, Or
from tidelog.log.rules import RowRules
from tidelog.log.state.files import to_adds
from tidelog.log.state.head import Head
from tidelog.log.state.loader import LogState
from tidelog.streaming.executors.frame_files import require_counted
from tidelog.streaming.executors.plain_frame import quoted
from tidelog.streaming.executors.ruled_frame import with_keys
from tidelog.streaming.executors.session import FITTED_SHUFFLES, session_settings
from tidelog.streaming.executors.tasks import (
    FilePart,
    cleared,
    file_size,
    pieces,
    run,
    run_on_rows,
    task_parts_by,
)


@dataclass(frozen=True, slots=True)
class RangePart:
    """What a task staged for some keys. `deletes` and `kept` are the rows of the table's files, by their paths."""

    staged: Staged
    records: int
    deletes: dict[str, tuple[bytes, int]]
    kept: dict[str, tuple[bytes, int]]


def stage_by_ranges(
    data: DataFrame,
    state: LogState,
    rules: RowRules,
    names: Sequence[str],
    order: Sequence[str],
    delete_where: str | None,
) -> Staged | None:
    """Stage an upsert of the newest records of each key; None without records.

    Spark reads the data twice: for the bounds of the ranges, and for the rows. Raises SchemaMismatchError if the
    data lacks a column of the key, and the errors of `stage_upsert` and `require_counted`; then the files are deleted.
    """
    writer, head = rules.writer, without_progress(state.head)
    if order and (buried := state.head.transactions.get(TOMBSTONES)) is not None:
        head = replace(head, transactions={TOMBSTONES: buried})
    data = with_keys(data, rules, names)
    by_key = [quoted(name) for name in present(data.columns, names)]
    observation = Observation()
    ranges = data.repartitionByRange(*by_key).sortWithinPartitions(*by_key)
    counted = ranges.observe(observation, F.count(F.lit(1)).alias("rows"))
    live = state.files().adds
    files = FilePart(live, slice(0, live.num_rows))
    work = partial(_stage_range, head, files, rules, names, order, delete_where, file_size(writer))
    with session_settings(data.sparkSession, FITTED_SHUFFLES):
        parts = run_on_rows(counted, work, lambda part: discard(writer.store, part.staged))
    if not parts:
        return None
    try:
        every = [part.staged for part in parts]
        staged = _joined(every)
        written = staged.metrics["numTargetRowsInserted"] + staged.metrics["numTargetRowsUpdated"]
        missing = int(observation.get["rows"]) - sum(part.records for part in parts)
        require_counted(writer, staged.adds, written, written + missing)
        kept = _in_files(live, [part.kept for part in parts])
        deletes = _in_files(live, [part.deletes for part in parts])
        if not RowMatcher(state_of(head, writer), writer).vectors:
            rewrite = partial(rewritten, head, writer)
            deletes = [
                delete
                for part in run(data.sparkSession, rewrite, task_parts_by(deletes, lambda delete: delete.file))
                for delete in part
            ]
        metrics = {**staged.metrics, **file_metrics(deletes, staged.adds)}
        # At last, because the file with all of them belongs to no part, whose files are deleted after an error.
        changes = [staged.tombstones for staged in every]
        return replace(
            staged,
            deletes=tuple(deletes),
            kept=tuple(kept),
            metrics=metrics,
            is_computed=any(staged.is_computed for staged in every),
            tombstones=joined_changes(writer.store, writer.system, writer.metadata, changes, names),
        )
    except BaseException:
        for part in parts:
            discard(writer.store, part.staged)
        raise


def _stage_range(
    head: Head,
    files: FilePart,
    rules: RowRules,
    names: Sequence[str],
    order: Sequence[str],
    delete_where: str | None,
    piece_bytes: int,
    batches: Iterator[pa.RecordBatch],
) -> Iterator[RangePart]:
    writer = rules.writer
    state = state_of(head, writer, files.rows)
    for rows in _pieces_by_key(batches, names, piece_bytes):
        with cleared(writer):
            staged = stage_records(state, writer, rules, rows, names, delete_where, order, is_part=True)
            if staged is None or staged.reads is None or staged.reads.keys is None:
                continue
            keys = staged.reads.keys
            path = write_keys(writer.store, writer.system, keys)
        reads = Reads(staged.reads.predicate, keys.schema.empty_table(), (path,))
        plain = replace(staged, deletes=(), kept=(), reads=reads)
        yield RangePart(plain, rows.num_rows, _by_path(staged.deletes), _by_path(staged.kept))


def _pieces_by_key(batches: Iterator[pa.RecordBatch], names: Sequence[str], size_bytes: int) -> Iterator[pa.Table]:
    """`pieces`, of which each has all rows of its keys. The rows come in the order of the keys."""
    held: pa.Table | None = None
    for piece in pieces(batches, size_bytes):
        rows = piece if held is None else pa.concat_tables([held, piece])
        if not rows.num_rows:
            continue
        numbers = np.asarray(group_numbers(rows, present(rows.column_names, names)))
        start = int(np.flatnonzero(numbers == numbers[-1])[0])
        if start:
            yield rows.slice(0, start)
        held = rows.slice(start)
    if held is not None:
        yield held


def _by_path(deletes: Sequence[RowDelete]) -> dict[str, tuple[bytes, int]]:
    return {delete.file.path: (delete.positions.serialize(), delete.physical_rows) for delete in deletes}


def _in_files(live: pa.Table, parts: Sequence[dict[str, tuple[bytes, int]]]) -> list[RowDelete]:
    """The rows that all parts name, file by file."""
    positions: dict[str, BitMap64] = {}
    rows: dict[str, int] = {}
    for part in parts:
        for path, (found, count) in part.items():
            positions[path] = positions.get(path, BitMap64()) | BitMap64.deserialize(found)
            rows[path] = count
    touched = live.filter(pc.is_in(live["path"], pa.array(list(rows), pa.string())))
    return [RowDelete(add, positions[add.path], rows[add.path]) for add in to_adds(touched)]


def rewritten(head: Head, writer: DataWriter, deletes: Sequence[RowDelete]) -> list[RowDelete]:
    """The deletes, of a table without deletion vectors, with files that hold the rows that are left."""
    matcher = RowMatcher(state_of(head, writer), writer)
    return [matcher.delete(Matched(delete.file, delete.positions, pa.table({}))) for delete in deletes]


# --- one statement of all parts ---------------------------------------------------------------------------------------


def _joined(every: Sequence[Staged]) -> Staged:
    """The parts as one statement, without rows of the table's files and tombstones."""
    metrics: dict[str, int] = {}
    for staged in every:
        for name, count in staged.metrics.items():
            metrics[name] = metrics.get(name, 0) + count
    reads = [staged.reads for staged in every if staged.reads is not None]
    predicates: list[Expression] = [own.predicate for own in reads]
    while len(predicates) > 1:
        # In pairs, so that the tree is not deep.
        pairs = [predicates[at : at + 2] for at in range(0, len(predicates), 2)]
        predicates = [Or(*pair) if len(pair) > 1 else pair[0] for pair in pairs]
    return replace(
        every[0],
        adds=tuple(add for staged in every for add in staged.adds),
        cdc=tuple(cdc for staged in every for cdc in staged.cdc),
        reads=replace(
            reads[0], predicate=predicates[0], key_files=tuple(path for own in reads for path in own.key_files)
        ),
        metrics=metrics,
    )
