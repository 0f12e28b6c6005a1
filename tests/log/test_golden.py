"""Tables of other writers with the rows that a reader must return. Runs only if `../shared/golden` exists.

The other tests have small copies of each kind.
"""

from __future__ import annotations

import tarfile
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, QueryBuilder

from tidelog.compaction_daemon import compact
from tidelog.log import Table
from tidelog.log.errors import CorruptLogError, TableNotFoundError, TidelogError, UnsupportedFeatureError

GOLDEN = Path(__file__).parents[2].parent / "shared" / "golden"
NAMES = sorted(path.name.removesuffix(".tar.zst") for path in GOLDEN.glob("*.tar.zst"))

BROKEN: dict[str, type[TidelogError]] = {
    "deltalog-invalid-protocol-version": UnsupportedFeatureError,
    "deltalog-state-reconstruction-from-checkpoint-missing-protocol": CorruptLogError,
    "deltalog-state-reconstruction-without-protocol": CorruptLogError,
    "no-delta-log-folder": TableNotFoundError,
}
# Logs without their data files, so that only the number of files can be checked.
FILES_ONLY = {
    "300k-add-files-100-col-partitioned": 300_000,
    "canonicalized-paths-normal-b": 0,
    "canonicalized-paths-special-b": 0,
    "deltalog-commit-info": 1,
    "update-deleted-directory": 10,
}
# Tables without an `expected` folder: the number of rows, counted by hand from their commits.
COUNTS = {
    "cdf-column-mapping-name-mode-3-7": 3,
    "cdf-table-backtick-column-names": 5,
    "cdf-table-delete-conditional-all-rows": 0,
    "cdf-table-delete-unconditional": 0,
    "cdf-table-partitioned": 2,
    "cdf-table-update-ops": 10,
    "cdf-table-with-dv": 10,
    "compacted-log-files-table": 5,
    "unshredded-variant": 102,
    "v2-checkpoint-parquet": None,
    "v2-checkpoints-json-with-sidecars": 1233,
    "v2-checkpoints-parquet-with-last-checkpoint": 10,
    "v2-checkpoints-parquet-without-sidecars": 11,
    "v2-classic-checkpoint-parquet": 20,
}


def unpack(name: str, folder: Path) -> Path:
    """Unpack a golden table and return its folder."""
    with (
        pa.input_stream(str(GOLDEN / f"{name}.tar.zst"), compression="zstd") as stream,
        tarfile.open(fileobj=stream, mode="r|") as archive,
    ):
        archive.extractall(folder, filter="data")
    return folder / name


def rows(table: pa.Table) -> Counter[str]:
    return Counter(repr(sorted(row.items())) for row in table.to_pylist())


def same_rows(found: pa.Table, wanted: pa.Table) -> bool:
    if found.num_rows < 10_000:
        return rows(found) == rows(wanted)
    order = [(name, "ascending") for name in wanted.column_names]
    return bool(found.select(wanted.column_names).sort_by(order).equals(wanted.cast(found.schema).sort_by(order)))


@pytest.mark.parametrize("name", NAMES)
def test_a_table_of_another_writer_is_read(name: str, tmp_path: Path) -> None:
    folder = unpack(name, tmp_path)
    logs = [path.parent for path in folder.rglob("_delta_log") if path.is_dir()]
    path = str(logs[0] if logs else folder)
    if name in BROKEN:
        with pytest.raises(BROKEN[name]):
            Table.open(path).scan().to_arrow()
        return
    table = Table.open(path)
    if name in FILES_ONLY:
        assert table.at().num_files == table.at().files().num_rows == FILES_ONLY[name]
        return
    found: Any = table.scan().to_arrow()
    expected = sorted(folder.glob("expected/**/*.parquet"))
    if expected:
        wanted = pa.concat_tables([pq.ParquetFile(file).read() for file in expected])
        assert same_rows(found, wanted)
    else:
        assert COUNTS[name] in (None, found.num_rows)


NOT_WRITTEN = {*BROKEN, *FILES_ONLY, "parquet-decimal-dictionaries"}


@pytest.mark.parametrize("name", [name for name in NAMES if name not in NOT_WRITTEN])
def test_a_table_of_another_writer_is_written(name: str, tmp_path: Path) -> None:
    """Insert, delete, update, checkpoint, compact and restore. The protocol does not change."""
    folder = unpack(name, tmp_path)
    path = str(next(found.parent for found in folder.rglob("_delta_log") if found.is_dir()))
    table = Table.open(path)
    protocol, start, before = table.head.protocol, table.version, table.scan().to_arrow()
    table.insert(before)
    assert rows(table.scan().to_arrow()) == Counter({row: 2 * count for row, count in rows(before).items()})
    plain = [field for field in table.schema if pa.types.is_integer(field.type) or pa.types.is_string(field.type)]
    for column in plain[:1] if before.num_rows else []:
        values = sorted(value for value in before[column.name].to_pylist() if value is not None)
        value = values[len(values) // 2]
        left = [row for row in before.to_pylist() if row[column.name] != value]
        table.delete(f"`{column.name}` = {value!r}")
        assert rows(table.scan().to_arrow()) == rows(pa.Table.from_pylist(left * 2, schema=before.schema))
        table.update(f"`{column.name}` IS NOT NULL", {column.name: "NULL" if column.nullable else repr(value)})
    table.checkpoint()
    written = rows(table.scan().to_arrow())
    compact(table)
    assert rows(Table.open(path).scan().to_arrow()) == written == deltalake_rows(path, table.schema, written)
    table.restore(version=start)
    assert rows(Table.open(path).scan().to_arrow()) == rows(before)
    assert Table.open(path).head.protocol == protocol
    gained = Counter(table.changes(after=start).to_arrow()["_change_type"].to_pylist())
    assert gained["insert"] + gained["update_postimage"] == gained["delete"] + gained["update_preimage"]


def deltalake_rows(path: str, schema: pa.Schema, ours: Counter[str]) -> Counter[str]:
    """The rows as deltalake reads them, cast to `schema`; `ours` if it cannot read the table."""
    try:
        found = QueryBuilder().register("t", DeltaTable(path)).execute("select * from t").read_all()
    except Exception as error:  # deltalake raises plain Exceptions
        if "Unsupported" not in str(error):
            raise
        return ours
    return rows(pa.table(pa.RecordBatchReader.from_stream(found)).select(schema.names).cast(schema))
