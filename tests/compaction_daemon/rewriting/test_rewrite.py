"""Rewriting a group: the same rows in order, or an error."""

from __future__ import annotations

import errno
import uuid
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import msgspec
import pyarrow as pa
import pytest

from tests.compaction_daemon.support import (
    SCHEMA,
    delete_rows,
    live_files,
    memory_table,
    numbers_of,
    put,
    put_commit,
)
from tidelog.compaction_daemon import compact, plan
from tidelog.compaction_daemon.planning.plan import OLDEST_TAG
from tidelog.compaction_daemon.rewriting.rewrite import rewrite
from tidelog.log import Table
from tidelog.log.conflict.staged import MoveGroup
from tidelog.log.data.reader import DataFile, physical_rows
from tidelog.log.errors import CorruptLogError, StoreUnavailableError
from tidelog.log.format.actions import Metadata
from tidelog.log.format.lineage import LineageInput, LineageOutput
from tidelog.log.format.schema import to_schema_string
from tidelog.log.format.statistics import num_records
from tidelog.log.state.loader import load
from tidelog.log.storage.local import Disk, LocalStore


def rewritten(table: Table) -> MoveGroup:
    transaction = table.begin()
    (group,) = plan(table).groups
    return rewrite(transaction.writer, transaction.schema, group, now_ms=123)


def test_the_move_names_inputs_outputs_and_lineage() -> None:
    table = memory_table()
    put(table, 3, 1, 2)
    put(table, 9)
    put(table, 7, 8)
    inputs = live_files(table)
    move = rewritten(table)
    (output,) = move.outputs
    assert [remove.key for remove in move.inputs] == [add.key for add in inputs]
    for remove, add in zip(move.inputs, inputs, strict=True):
        assert not remove.data_change
        assert remove.deletion_timestamp == 123
        assert (remove.size, remove.partition_values, remove.stats) == (add.size, add.partition_values, add.stats)
    assert not output.data_change
    assert output.partition_values == {"part": "a"}
    assert num_records(output.stats) == physical_rows(table.store, DataFile.of(output)) == 6
    assert move.lineage.inputs == tuple(
        LineageInput(add.path, None, rows) for add, rows in zip(inputs, (3, 1, 2), strict=True)
    )
    assert move.lineage.outputs == (LineageOutput(output.path, 6),)
    # The output keeps its place in log order, and the time of its oldest rows.
    assert output.modification_time == max(add.modification_time for add in inputs)
    assert output.tags == {OLDEST_TAG: str(min(add.modification_time for add in inputs))}


class WatchedDisk(Disk):
    """Says what is made durable, and can be full."""

    def __init__(self, *, full: bool = False) -> None:
        self.full = full
        self.synced: list[str] = []

    def fsync(self, descriptor: int) -> None:
        """See Disk."""
        if self.full:
            raise OSError(errno.ENOSPC, "no space left on device")
        super().fsync(descriptor)
        self.synced.append(str(Path(f"/proc/self/fd/{descriptor}").readlink()))


def rewritten_on(disk: WatchedDisk, folder: Path, *, cluster_by: Sequence[str] = ()) -> MoveGroup:
    """A rewrite of two files in a table in `folder`."""
    table = Table.create(str(folder), SCHEMA, partition_by=["part"])
    put(table, 3, 1, 2)
    put(table, 9)
    transaction = table.begin()
    (group,) = plan(table, "major" if cluster_by else "minor", cluster_by=cluster_by).groups
    writer = replace(transaction.writer, store=LocalStore(str(folder), disk=disk))
    return rewrite(writer, transaction.schema, group, now_ms=123)


@pytest.mark.parametrize("cluster_by", [(), ("n",)], ids=["in order", "clustered"])
def test_outputs_are_durable_when_the_rewrite_ends(tmp_path: Path, cluster_by: Sequence[str]) -> None:
    disk = WatchedDisk()
    (output,) = rewritten_on(disk, tmp_path, cluster_by=cluster_by).outputs
    assert {str(tmp_path / output.path), str((tmp_path / output.path).parent)} <= {*disk.synced}


def test_outputs_that_cannot_be_made_durable_are_deleted(tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailableError, match="no space left"):
        rewritten_on(WatchedDisk(full=True), tmp_path)
    assert len([*tmp_path.rglob("*.parquet")]) == 2


def test_a_second_rewrite_keeps_the_time_of_the_oldest_commit() -> None:
    table = memory_table()
    put(table, 1)
    put(table, 2)
    oldest = live_files(table)[0].modification_time
    for number in range(3, 6):
        assert compact(table).did_anything
        put(table, number)
    assert rewritten(table).outputs[0].tags == {OLDEST_TAG: str(oldest)}


def test_rows_keep_their_order() -> None:
    table = memory_table()
    for numbers in ([5, 4], [9, 1, 1], [0]):
        put(table, *numbers)
    compact(table)
    assert numbers_of(table) == [5, 4, 9, 1, 1, 0]
    assert len(live_files(table)) == 1


def test_dead_rows_are_dropped_and_the_lineage_names_the_vector_that_was_read() -> None:
    table = memory_table()
    put(table, 0, 1, 2, 3, 4)
    put(table, 10, 11, 12)
    vector = delete_rows(table, [1, 4])
    move = rewritten(table)
    assert {(entry.dv_id, entry.rows) for entry in move.lineage.inputs} == {(vector.unique_id, 5), (None, 3)}
    assert [remove.deletion_vector for remove in move.inputs if remove.deletion_vector] == [vector]
    assert [output.rows for output in move.lineage.outputs] == [6]
    assert compact(table).did_anything
    assert sorted(numbers_of(table)) == [0, 2, 3, 10, 11, 12]
    assert all(add.deletion_vector is None for add in live_files(table))


def test_files_without_a_live_row_are_dropped() -> None:
    table = memory_table()
    put(table, 1)
    put(table, 2)
    delete_rows(table, [0], file=0)
    delete_rows(table, [0], file=1)
    assert numbers_of(table) == []
    report = compact(table)
    assert (report.files_removed, report.files_added) == (2, 0)
    assert live_files(table) == []
    assert numbers_of(table) == []


@pytest.mark.parametrize("part", ["x=1/ü %", None])
def test_the_partition_value_stays(part: str | None) -> None:
    table = memory_table()
    put(table, 1, part=part)
    put(table, 2, part=part)
    compact(table)
    rows = table.refresh().scan().to_arrow().to_pylist()
    assert rows == [{"part": part, "n": 1}, {"part": part, "n": 2}]


def test_files_older_than_a_column_get_nulls_in_it() -> None:
    table = memory_table()
    put(table, 1)
    old = load(table.store).head.metadata
    wider = SCHEMA.append(pa.field("later", pa.string()))
    new: Metadata = msgspec.structs.replace(old, schema_string=to_schema_string(wider))
    put_commit(table, new)
    table.refresh().insert([{"part": "a", "n": 2, "later": "x"}])
    compact(table)
    assert table.refresh().scan().to_arrow().to_pylist() == [
        {"part": "a", "n": 1, "later": None},
        {"part": "a", "n": 2, "later": "x"},
    ]


def test_every_type_survives() -> None:
    kinds = {
        "blob": (pa.binary(), [b"\x00", None]),
        "at": (pa.timestamp("us", "UTC"), [-1, 2]),
        "wall": (pa.timestamp("us"), [None, 5]),
        "price": (pa.decimal128(38, 9), ["1.000000001", None]),
        "nested": (pa.struct([("x", pa.list_(pa.int32()))]), [{"x": [1, None]}, None]),
        "map": (pa.map_(pa.string(), pa.float64()), [[("k", 1.5)], []]),
        "nothing": (pa.int8(), [None, None]),
    }
    data = pa.table(
        {
            name: pa.array(values).cast(kind) if name == "price" else pa.array(values, kind)
            for name, (kind, values) in kinds.items()
        }
    )
    table = Table.create(f"memory://{uuid.uuid4()}", data.schema)
    table.insert(data.slice(0, 1))
    table.insert(data.slice(1))
    before = table.refresh().scan().to_arrow()
    compact(table)
    assert table.refresh().at().num_files == 1
    assert table.scan().to_arrow().to_pylist() == before.to_pylist()
    assert table.scan().schema.equals(before.schema)


def test_an_input_that_is_missing_is_named() -> None:
    table = memory_table()
    put(table, 1)
    put(table, 2)
    (gone, _) = live_files(table)
    table.store.delete(gone.path)
    with pytest.raises(CorruptLogError, match=gone.path):
        compact(table)
    assert table.refresh().version == 2
