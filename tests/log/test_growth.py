"""What grows with a table grows in proportion: ten times the size costs ten times the work, not a hundred times."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from tests.growth import lines_run
from tests.log.support import memory_store, new_table
from tidelog.compaction_daemon import compact
from tidelog.log import Table

_FEW, _MANY = 30, 300
# In proportion it would be 10; quadratic work is 100 times as much, less what does not grow at all.
_MOST = 20

_READS: dict[str, Callable[[Table], object]] = {
    "scan": lambda table: table.scan().to_arrow(),
    "filter": lambda table: table.scan("c0 = 0").to_arrow(),
    "project": lambda table: table.scan(columns=table.schema.names[::-1]).to_arrow(),
    "count": lambda table: table.scan("c0 * 2 = 0").count(),
    "changes": lambda table: table.changes(mode="cdc").to_arrow(),
    "insert": lambda table: table.insert(table.scan().to_arrow()),
    "compact": compact,
}


def _wide(columns: int) -> Table:
    schema = pa.schema([(f"c{number}", pa.int64()) for number in range(columns)])
    return _filled(schema, dict.fromkeys(schema.names, 0))


def _deep(columns: int) -> Table:
    kind = pa.struct([(f"f{number}", pa.int64()) for number in range(columns)])
    return _filled(pa.schema([("c0", pa.int64()), ("s", kind)]), {"c0": 0, "s": {"f0": 1}})


def _filled(schema: pa.Schema, row: dict[str, object]) -> Table:
    table = new_table(memory_store(), schema)
    rows = pa.Table.from_pylist([row, row], schema)
    table.insert(rows)
    table.insert(rows)
    return table


@pytest.mark.parametrize("read", _READS)
@pytest.mark.parametrize("table", [_wide, _deep])
def test_work_is_linear_in_the_number_of_columns(table: Callable[[int], Table], read: str) -> None:
    assert _lines_of(read, table(_MANY)) < _MOST * _lines_of(read, table(_FEW))


def _lines_of(read: str, table: Table) -> int:
    return lines_run(lambda: _READS[read](table))


def _partitioned(root: Path, partitions: int) -> tuple[Table, pa.Table]:
    rows = pa.table({"p": range(partitions), "n": range(partitions)})
    return Table.create(str(root / str(partitions)), rows.schema, partition_by=["p"]), rows


def test_work_is_linear_in_the_number_of_partitions_of_an_insert(tmp_path: Path) -> None:
    counts = []
    for size in (_FEW, _MANY):
        table, rows = _partitioned(tmp_path, size)
        counts.append(lines_run(lambda into=table, data=rows: into.insert(data)))  # type: ignore[misc]
    assert counts[1] < _MOST * counts[0]


def test_files_of_many_partitions_are_durable_before_the_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, rows = _partitioned(tmp_path, 600)
    synced: list[int] = []
    link = os.link

    def spied_sync(descriptor: int) -> None:
        synced.append(os.fstat(descriptor).st_ino)

    def spied_link(source: Path, target: Path) -> None:
        files = list((tmp_path / "600").rglob("part-*.parquet"))
        assert len(files) == 600
        assert {path.stat().st_ino for file in files for path in (file, file.parent)} <= set(synced)
        link(source, target)

    monkeypatch.setattr(os, "fsync", spied_sync)
    monkeypatch.setattr(os, "link", spied_link)
    table.insert(rows)
    # Each file once, and each of the 256 folders when it is made and when it is complete, not once for each file.
    assert len(synced) < 600 + 3 * 256
    assert table.scan().count() == 600
