"""A rewrite holds a bounded number of rows, however large the group is. The real bounds are 32 times those of here."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from tidelog.compaction_daemon.planning.plan import PlannedGroup
from tidelog.compaction_daemon.rewriting import clustered_rows, inputs, outputs, verification
from tidelog.compaction_daemon.rewriting.rewrite import rewrite
from tidelog.log import Table
from tidelog.log.conflict.staged import MoveGroup
from tidelog.log.data import reader, spill
from tidelog.log.data.writer import DataWriter
from tidelog.log.read import read_ahead
from tidelog.log.storage.local import LocalStore

SMALLER = 32
FILE_ROWS = 8192
# Different files, of which a group has many.
KINDS = 5
# So many have 13 MB in memory, and 32 times as much is a file of 156 MiB. A batch is a small part of it.
OUTPUT_FILES = 22
CASES = ("minor", "hilbert", "sort")
READERS = 2
# Rows that share a text, which takes 100 MB if it is written out.
SHARING_ROWS, SHARED_BYTES = 10_000, 10_000


@pytest.fixture(autouse=True)
def small_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """All bounds of a rewrite, in proportion. Each thread that reads has a batch, so their number is fixed."""
    for place, name in [
        (read_ahead, "QUEUED_BYTES"),
        (inputs, "HASHED_BYTES"),
        (verification, "HASHED_BYTES"),
        (verification, "_BLOCK_ROWS"),
        (clustered_rows, "HELD_BYTES"),
        (clustered_rows, "PART_BYTES"),
        (clustered_rows, "PIECE_BYTES"),
        (clustered_rows, "WAITING_BYTES"),
        (clustered_rows, "DIVIDED_BYTES"),
        (spill, "BUFFER_BYTES"),
        (outputs, "ROW_GROUP_BYTES"),
        (outputs, "ROW_GROUP_ROWS"),
        (reader, "BATCH_ROWS"),
    ]:
        monkeypatch.setattr(place, name, getattr(place, name) // SMALLER)
    monkeypatch.setattr(LocalStore, "reads_at_once", READERS)


@pytest.fixture
def pool() -> Iterator[pa.MemoryPool]:
    """Counts what Arrow holds: `max_memory` is the most that it held at any moment of the test."""
    for number in range(KINDS):
        rows(number)
    before = pa.default_memory_pool()
    counting = pa.proxy_memory_pool(before)
    pa.set_memory_pool(counting)
    yield counting
    pa.set_memory_pool(before)


@cache
def rows(number: int) -> pa.Table:
    chance = np.random.default_rng(number)
    text = pa.array([f"{word:032x}" for word in chance.integers(0, 2**62, FILE_ROWS).tolist()])
    return pa.table(
        {
            "x": chance.integers(0, 2**62, FILE_ROWS),
            "y": chance.integers(0, 2**62, FILE_ROWS),
            "value": chance.normal(size=FILE_ROWS),
            "name": pa.array([f"device-{name}" for name in chance.integers(0, 100, FILE_ROWS).tolist()]),
            "text": text,
        }
    )


def group_of(path: Path, files: int, case: str) -> tuple[DataWriter, pa.Schema, PlannedGroup]:
    """Files without a commit, as a group that becomes one file for each `OUTPUT_FILES` of them."""
    table = Table.create(str(path), rows(0).schema)
    writer = DataWriter(table.store, table.head.metadata, table.timeline.system)
    adds = [writer.write_file(rows(number % KINDS), {}, data_change=True, durable=False) for number in range(files)]
    columns = () if case == "minor" else ("x", "y")
    return writer, table.schema, PlannedGroup({}, tuple(adds), max(1, files // OUTPUT_FILES), columns, case)


def rewritten(prepared: tuple[DataWriter, pa.Schema, PlannedGroup]) -> MoveGroup:
    return rewrite(*prepared, now_ms=0)


@pytest.mark.parametrize("size", [2, pytest.param(5, marks=pytest.mark.full)])
@pytest.mark.parametrize("case", CASES)
def test_no_more_rows_than_one_output_has_are_held(case: str, size: int, tmp_path: Path, pool: pa.MemoryPool) -> None:
    prepared = group_of(tmp_path / "table", size * OUTPUT_FILES, case)
    output_bytes = OUTPUT_FILES * rows(0).nbytes
    held = pool.max_memory()
    assert held < output_bytes / 2, "the test itself"
    moves = rewritten(prepared)
    assert len(moves.outputs) == size
    # While an output is finished, each thread that reads can have a batch of the next one in hand.
    in_hand = READERS * reader.BATCH_ROWS * rows(0).nbytes // FILE_ROWS
    assert in_hand < output_bytes / 20, "the test itself"
    assert held < pool.max_memory() < output_bytes + in_hand


def group_with_a_shared_text(path: Path, first: str) -> tuple[DataWriter, pa.Schema, PlannedGroup]:
    """A file in which all rows have the same long text, and so a code, and one with short texts that have none."""
    table = Table.create(str(path), pa.schema([("id", pa.int64()), ("text", pa.string())]))
    writer = DataWriter(table.store, table.head.metadata, table.timeline.system)
    shared = pa.table({"id": range(SHARING_ROWS), "text": ["y" * SHARED_BYTES] * SHARING_ROWS})
    short = pa.table({"id": range(40_000), "text": [f"{number:020}" for number in range(40_000)]})
    both = [shared, short] if first == "shared" else [short, shared]
    adds = [writer.write_file(rows, {}, data_change=True, durable=False) for rows in both]
    return writer, table.schema, PlannedGroup({}, tuple(adds), 1, (), "minor")


@pytest.mark.parametrize("first", ["shared", "short"])
def test_a_text_that_many_rows_share_is_not_written_out_at_once(
    first: str, tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader, "_DECODED_BYTES", outputs.ROW_GROUP_BYTES // 4)
    prepared = group_with_a_shared_text(tmp_path / "table", first)
    pool = request.getfixturevalue("pool")
    moves = rewritten(prepared)
    assert [output.rows for output in moves.lineage.outputs] == [SHARING_ROWS + 40_000]
    assert pool.max_memory() < SHARING_ROWS * SHARED_BYTES / 3


@pytest.mark.full
@pytest.mark.parametrize("case", ["hilbert", "sort"])
def test_clustering_takes_few_bytes_for_each_row(case: str, tmp_path: Path) -> None:
    """A hash, its address before and after, and its place: in NumPy's arrays, which Arrow does not count."""
    peaks = []
    for files in (16, 48):
        prepared = group_of(tmp_path / f"{files}", files, case)
        tracemalloc.start()
        rewritten(prepared)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert (peaks[1] - peaks[0]) / (32 * FILE_ROWS) < 40
