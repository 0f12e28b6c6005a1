"""`tidelog create`."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.cli.support import lines, run
from tidelog.log import Table


def test_create_from_a_schema(tmp_path: Path) -> None:
    path = tmp_path / "t"
    columns = "id bigint not null, day date, tags array<string>"
    result = run("create", path, "--schema", columns, "--partition-by", "day")
    assert (result.exit_code, result.stdout) == (0, f"{path}: created with 3 columns, partitioned by day\n")
    table = Table.open(str(path))
    assert table.schema.names == ["id", "day", "tags"]
    assert (table.version, table.partition_by) == (0, ("day",))
    table.insert([{"id": 1, "day": dt.date(2026, 1, 31), "tags": ["a", None]}])
    assert table.scan().to_arrow().to_pylist() == [{"id": 1, "day": dt.date(2026, 1, 31), "tags": ["a", None]}]


def test_create_as_json_with_properties(tmp_path: Path) -> None:
    options = ["--property", "tidelog.primaryKey=a", "--property", "mine=x=y", "--partition-by", "b, c"]
    (found,) = lines(run("create", tmp_path / "t", "--schema", "a int, b int, c int", *options, "--json"))
    table = Table.open(str(tmp_path / "t"))
    assert found == {
        "path": table.path,
        "id": table.id,
        "version": 0,
        "schema": [{"name": name, "type": "int32", "nullable": True} for name in "abc"],
        "partition_by": ["b", "c"],
        "properties": dict(table.properties),
    }
    assert (found["properties"]["tidelog.primaryKey"], found["properties"]["mine"]) == ("a", "x=y")


def test_create_like_a_parquet_file(tmp_path: Path) -> None:
    rows = pa.table(
        {"id": pa.array([1, 2], pa.int32()), "at": pa.array([1000, 2000], pa.timestamp("ns")), "name": ["a", "b"]}
    )
    pq.write_table(rows, tmp_path / "f.parquet")
    result = run("create", tmp_path / "t", "--like", tmp_path / "f.parquet")
    assert (result.exit_code, result.stdout) == (0, f"{tmp_path / 't'}: created with 3 columns\n")
    table = Table.open(str(tmp_path / "t"))
    assert table.schema.types == [pa.int32(), pa.timestamp("us"), pa.string()]
    table.insert(rows)
    assert table.scan().count() == 2


@pytest.mark.parametrize(
    ("arguments", "fault"),
    [
        ([], "give either --schema or --like"),
        (["--schema", "a int", "--like", "f.parquet"], "give either --schema or --like"),
        (["--like", "nothing.parquet"], "cannot read 'nothing.parquet'"),
        (["--schema", "a number"], "column 'a' has the unknown type 'number'; use one of array<...>, bigint"),
        (["--schema", "a int", "--partition-by", "a"], "partition"),
        (["--schema", "a int", "--property", "tidelog.primaryKey"], "write KEY=VALUE"),
        (["--schema", "a int", "--property", "tidelog.nonsense=1"], "unknown table property"),
        (["--schema", "a int", "--property", "x=1", "--property", "x=2"], "given twice"),
    ],
)
def test_wrong_use_creates_nothing(tmp_path: Path, arguments: list[str], fault: str) -> None:
    result = run("create", tmp_path / "t", *arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert fault in result.stderr
    assert len(result.stderr.splitlines()) == 1
    assert not (tmp_path / "t").exists()


def test_a_file_that_is_not_parquet(tmp_path: Path) -> None:
    (tmp_path / "f.csv").write_text("id,name\n1,a\n2,b\n")
    result = run("create", tmp_path / "t", "--like", tmp_path / "f.csv")
    assert result.exit_code == 2
    assert f"'{tmp_path / 'f.csv'}' is not a parquet file" in result.stderr


def test_a_table_that_exists_stays(tmp_path: Path) -> None:
    run("create", tmp_path / "t", "--schema", "a int")
    result = run("create", tmp_path / "t", "--schema", "b int")
    assert result.exit_code == 2
    assert result.stderr.startswith("TIDELOG_TABLE_EXISTS")
    assert "; choose another path, or drop the table with tidelog drop [" in result.stderr
    assert Table.open(str(tmp_path / "t")).schema.names == ["a"]
