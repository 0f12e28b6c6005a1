"""Scans: columns, predicates, other libraries, files of other writers, column mapping and damaged files."""

from __future__ import annotations

import datetime as dt
import io
import json
import struct
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import msgspec
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from tests.log.support import (
    NUMBERS,
    add,
    live_files,
    memory_store,
    new_table,
    numbers,
    put_foreign,
    read_numbers,
    reopen,
)
from tests.peak_memory import in_a_process, needs_proc
from tidelog.compaction_daemon import compact
from tidelog.log import Table
from tidelog.log.data.reader import DataFile, physical_rows
from tidelog.log.errors import (
    ConfigurationError,
    CorruptLogError,
    DataError,
    DataFileDamagedError,
    DataFileMissingError,
    PredicateError,
    PrerequisiteError,
)
from tidelog.log.format.actions import Protocol
from tidelog.log.read import scan as scan_module
from tidelog.log.read.scan import ArrowReader
from tidelog.log.state.loader import load

SCHEMA = pa.schema([("n", pa.int64()), ("s", pa.string()), ("p", pa.string())])
ROWS = [{"n": number, "s": f"s{number}", "p": "ab"[number % 2]} for number in range(6)]


@pytest.fixture
def table() -> Table:
    table = new_table(memory_store(), SCHEMA, partition_by=["p"])
    table.insert(ROWS[:3])
    table.insert(ROWS[3:])
    return table


def by_n(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(rows, key=lambda row: row["n"])


# --- columns ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("columns", [None, ["n"], ["p", "n"], ["s", "p"], ["p"], []])
@pytest.mark.parametrize("where", [None, "n >= 2", "p = 'a' AND s != 's0'", "false"])
def test_columns_and_predicate_are_independent(table: Table, columns: list[str] | None, where: str | None) -> None:
    keep = {None: ROWS, "n >= 2": ROWS[2:], "p = 'a' AND s != 's0'": ROWS[2::2], "false": []}[where]
    scan = table.scan(where, columns)
    expected = [{name: row[name] for name in (SCHEMA.names if columns is None else columns)} for row in keep]
    found = scan.to_arrow()
    assert found.schema.names == scan.schema.names == (SCHEMA.names if columns is None else columns)
    assert found.num_rows == scan.count() == len(expected)
    assert sorted(map(repr, found.to_pylist())) == sorted(map(repr, expected))


def test_an_unknown_column_is_named(table: Table) -> None:
    with pytest.raises(ConfigurationError, match=r"there is no column 'nope'; the columns are .*") as raised:
        table.scan(columns=["n", "nope"])
    assert "[" not in str(raised.value), "nothing but a predicate has a token"


def test_a_scan_can_be_read_twice(table: Table) -> None:
    scan = table.scan("n > 1")
    assert scan.to_arrow().equals(scan.to_arrow())
    assert scan.count() == 4


def test_explain_describes_the_read(table: Table) -> None:
    text = table.scan("p = 'a'", ["n"]).explain()
    assert "files: 2 of 4" in text
    assert "dropped by partition values: 2" in text
    assert "n, p" in text
    assert "p = 'a'" in text


def test_rows_come_in_several_batches() -> None:
    table = new_table(memory_store())
    table.insert(numbers(range(200_000)))
    batches = list(table.scan().to_batches())
    assert len(batches) > 1
    assert all(batch.schema.equals(NUMBERS) for batch in batches)
    assert [value for batch in batches for value in batch["n"].to_pylist()] == list(range(200_000))


# --- other libraries -------------------------------------------------------------------------------------------------


@pytest.mark.interop
def test_other_libraries_read_a_scan_as_an_arrow_stream(table: Table) -> None:
    scan = table.scan("n > 0", ["n", "p"])
    expected = [{"n": row["n"], "p": row["p"]} for row in ROWS[1:]]
    assert by_n(pl.DataFrame(scan).to_dicts()) == expected
    assert by_n(pa.table(scan).to_pylist()) == expected
    assert by_n(scan.to_pandas().to_dict("records")) == expected
    with duckdb.connect() as connection:
        found = connection.execute("SELECT p, sum(n) FROM scan GROUP BY p ORDER BY p").fetchall()
    assert found == [("a", 6), ("b", 9)]


@pytest.mark.interop
def test_other_libraries_read_changes_and_empty_tables(table: Table) -> None:
    assert sorted(pl.DataFrame(table.changes(mode="append", after=1))["_commit_version"].to_list()) == [2, 2, 2]
    empty = new_table(memory_store(), SCHEMA).scan()
    assert pl.DataFrame(empty).schema.names() == SCHEMA.names
    with duckdb.connect() as connection:
        assert connection.execute("SELECT count(*) FROM empty").fetchall() == [(0,)]


@pytest.mark.interop
@pytest.mark.parametrize("kind", ["table", "snapshot", "scan", "changes"])
def test_tables_and_what_they_give_are_read_in_the_same_ways(table: Table, kind: str) -> None:
    source = {"table": table, "snapshot": table.at(), "scan": table.scan(), "changes": table.changes(mode="append")}
    rows: ArrowReader = source[kind]
    read: list[list[dict[str, Any]]] = [
        pa.table(rows).select(["n", "p"]).to_pylist(),
        rows.to_arrow().select(["n", "p"]).to_pylist(),
        rows.to_pandas()[["n", "p"]].to_dict("records"),
        rows.to_polars()["n", "p"].to_dicts(),
        pl.DataFrame(rows)["n", "p"].to_dicts(),
    ]
    for found in read:
        assert by_n(found) == [{"n": row["n"], "p": row["p"]} for row in ROWS]
    with duckdb.connect() as connection:
        relation = rows.to_duckdb(connection).aggregate("sum(n)")
        assert relation.fetchall() == [(15,)]


@pytest.mark.interop
def test_a_relation_of_duckdb_belongs_to_the_default_connection_and_reads_again(table: Table) -> None:
    relation = table.to_duckdb().filter("n = 1").project("p")
    assert relation.fetchall() == relation.fetchall() == [(ROWS[1]["p"],)]


def test_the_stream_of_a_table_reads_files_as_they_are_consumed(tmp_path: Path) -> None:
    table = Table.create(str(tmp_path), NUMBERS)
    for n in range(3):
        table.insert(numbers([n]))
    for file in live_files(table)[1:]:
        Path(tmp_path, file.path).unlink()
    reader = pa.RecordBatchReader.from_stream(table)
    assert reader.read_next_batch().num_rows == 1
    with pytest.raises(Exception, match="TIDELOG_DATA_FILE_MISSING"):
        reader.read_all()
    with pytest.raises(DataFileMissingError):
        table.to_arrow()


@pytest.mark.parametrize("package", ["pandas", "polars", "duckdb"])
def test_a_missing_library_is_named(table: Table, package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scan_module, "find_spec", lambda _: None)
    with pytest.raises(PrerequisiteError, match=f"{package} is not installed|needs {package}") as error:
        getattr(table, f"to_{package}")()
    assert error.value.advice == f"pip install {package}"


def test_a_notebook_shows_what_it_is_and_its_columns_as_escaped_text(path: str) -> None:
    schema = pa.schema([("n", pa.int64()), ("<b>\x1b[2J", pa.string())])
    table = Table.create(path, schema, partition_by=["n"])
    for shown, name in ((table, "Table"), (table.at(), "Snapshot"), (table.scan("n > 1"), "Scan")):
        page = shown._repr_html_()
        assert f"<caption>{name}</caption>" in page
        assert "<td>n</td><td>int64</td>" in page
        assert "<td>&lt;b&gt;\\x1b[2J</td><td>string</td>" in page
        assert path in page
    assert "n &gt; 1" in table.scan("n > 1")._repr_html_()
    assert "<th>mode</th><td>cdc</td>" in table.changes()._repr_html_()
    wide = Table.create(f"{path}-wide", pa.schema([(f"c{n}", pa.int64()) for n in range(120)]))
    assert "<td>c99</td>" in wide._repr_html_()
    assert wide._repr_html_().endswith("<p>and 20 more</p>")


@pytest.mark.interop
@pytest.mark.parametrize("kind", ["arrow", "batch", "reader", "polars", "lazy", "pandas", "duckdb", "dicts", "scan"])
def test_an_insert_takes_rows_from_other_libraries(kind: str) -> None:
    rows = pa.Table.from_pylist(ROWS, SCHEMA)
    source = new_table(memory_store(), SCHEMA)
    source.insert(rows)
    with duckdb.connect() as connection:
        data: Any = {
            "arrow": lambda: rows,
            "batch": lambda: rows.to_batches()[0],
            "reader": rows.to_reader,
            "polars": lambda: pl.from_arrow(rows),
            "lazy": lambda: pl.from_arrow(rows).lazy(),  # type: ignore[union-attr]
            "pandas": rows.to_pandas,
            "duckdb": lambda: connection.from_arrow(rows),
            "dicts": lambda: ROWS,
            "scan": source.scan,
        }[kind]()
        table = new_table(memory_store(), SCHEMA, partition_by=["p"])
        table.insert(data)
    assert by_n(table.scan().to_arrow().to_pylist()) == ROWS


# --- files of other writers ------------------------------------------------------------------------------------------


def put_parquet(table: Table, path: str, rows: pa.Table, *, uri: str | None = None, **more: Any) -> None:
    buffer = io.BytesIO()
    pq.write_table(rows, buffer, **more.pop("parquet", {}))
    table.store.put_if_absent(path, buffer.getvalue())
    put_foreign(table, add(uri or path, size=len(buffer.getvalue()), **more))
    table.refresh()


@pytest.mark.parametrize(
    ("path", "uri"),
    [
        ("p=US%2FEast/f.parquet", "p=US%252FEast/f.parquet"),
        ("p=a b/f.parquet", "p=a%20b/f.parquet"),
        ("ü/f.parquet", "%C3%BC/f.parquet"),
        ("ü/f.parquet", "ü/f.parquet"),
    ],
)
def test_paths_are_decoded_once(path: str, uri: str) -> None:
    table = new_table(memory_store())
    put_parquet(table, path, numbers([1]), uri=uri)
    assert read_numbers(table) == [1]


def test_files_with_other_columns_and_orders() -> None:
    table = new_table(memory_store(), SCHEMA)
    put_parquet(table, "a", pa.table({"s": ["x"], "extra": [9], "n": pa.array([1], pa.int64())}))
    put_parquet(table, "b", pa.table({"p": ["y"]}))
    assert table.scan().to_arrow().to_pylist() == [{"n": 1, "s": "x", "p": None}, {"n": None, "s": None, "p": "y"}]
    assert table.scan(columns=["n"]).to_arrow()["n"].to_pylist() == [1, None]
    assert table.scan(columns=["s"], where="n IS NULL").to_arrow()["s"].to_pylist() == [None]


def test_partition_values_come_from_the_log_not_the_file() -> None:
    table = new_table(memory_store(), SCHEMA, partition_by=["p"])
    put_parquet(table, "a", pa.table({"n": [1], "s": ["x"], "p": ["wrong"]}), partition_values={"p": "right"})
    put_parquet(table, "b", pa.table({"n": [2], "s": ["x"]}), partition_values={"p": ""})
    assert table.scan(columns=["p"]).to_arrow()["p"].to_pylist() == ["right", None]


def test_int96_and_nanoseconds_are_read_as_microseconds() -> None:
    schema = pa.schema([("t", pa.timestamp("us", tz="UTC"))])
    table = new_table(memory_store(), schema)
    moments = pa.array([0, 1_577_836_800_123_456], pa.timestamp("us", tz="UTC"))
    put_parquet(table, "a", pa.table({"t": moments}), parquet={"use_deprecated_int96_timestamps": True})
    nanoseconds = pa.array([1_577_836_800_123_456_789], pa.timestamp("ns", tz="UTC"))
    put_parquet(table, "b", pa.table({"t": nanoseconds}))
    found = table.scan().to_arrow()["t"]
    assert found.cast(pa.int64()).to_pylist() == [0, 1_577_836_800_123_456, 1_577_836_800_123_456]


def test_an_int96_outside_of_the_years_that_nanoseconds_have_is_read() -> None:
    moments = [dt.datetime(1, 1, 1, tzinfo=dt.UTC), dt.datetime(9999, 12, 31, 23, 59, 59, 999_999, dt.UTC)]
    table = new_table(memory_store(), pa.schema([("t", pa.timestamp("us", tz="UTC"))]))
    rows = pa.table({"t": pa.array(moments, pa.timestamp("us", tz="UTC"))})
    put_parquet(table, "a", rows, parquet={"use_deprecated_int96_timestamps": True})
    assert table.scan().to_arrow()["t"].to_pylist() == moments


def test_narrower_types_and_dictionaries_are_cast_to_the_table_types() -> None:
    table = new_table(memory_store(), pa.schema([("n", pa.int64()), ("s", pa.string())]))
    data = pa.table({"n": pa.array([1], pa.int32()), "s": pa.array(["x"]).dictionary_encode()})
    put_parquet(table, "a", data)
    assert table.scan().to_arrow().to_pylist() == [{"n": 1, "s": "x"}]


# --- column mapping --------------------------------------------------------------------------------------------------

MAPPED = pa.schema([("n", pa.int64()), ("st", pa.struct([("x", pa.string())])), ("p", pa.string())])


def mapped_table(mode: str) -> Table:
    """A table with column mapping by another engine: files name the columns col-1 and so on, or have their ids."""
    table = new_table(memory_store(), MAPPED, partition_by=["p"])
    old = load(table.store).head.metadata
    fields = json.loads(old.schema_string)["fields"]
    numbered = [*fields, *fields[1]["type"]["fields"]]
    for number, field in enumerate(numbered, start=1):
        field["metadata"] = {"delta.columnMapping.id": number, "delta.columnMapping.physicalName": f"col-{number}"}
    schema_string = json.dumps({"type": "struct", "fields": fields})
    configuration = {**old.configuration, "delta.columnMapping.mode": mode, "delta.columnMapping.maxColumnId": "4"}
    protocol = Protocol(
        min_reader_version=3,
        min_writer_version=7,
        reader_features=("columnMapping", "deletionVectors"),
        writer_features=("columnMapping", "deletionVectors", "inCommitTimestamp"),
    )
    changed = msgspec.structs.replace(old, schema_string=schema_string, configuration=configuration)
    put_foreign(table, changed, protocol)
    return table.refresh()


def with_id(name: str, kind: pa.DataType, number: int) -> pa.Field:
    return pa.field(name, kind, metadata={"PARQUET:field_id": str(number)})


@pytest.mark.parametrize("mode", ["name", "id"])
def test_mapped_columns_are_read(mode: str) -> None:
    table = mapped_table(mode)
    # With the mode id, names in the file mean nothing, and can even be names of other columns.
    names = {1: "col-1", 2: "col-2", 4: "col-4"} if mode == "name" else {1: "col-2", 2: "n", 4: "any"}
    inner = pa.struct([with_id(names[4], pa.string(), 4)])
    schema = pa.schema([with_id(names[2], inner, 2), with_id(names[1], pa.int64(), 1)])
    rows = pa.table([pa.array([{names[4]: "a"}, None], inner), pa.array([1, 2])], schema=schema)
    put_parquet(table, "f", rows, partition_values={"col-3": "part"})
    expected = [{"n": 1, "st": {"x": "a"}, "p": "part"}, {"n": 2, "st": None, "p": "part"}]
    assert table.scan().to_arrow().to_pylist() == expected
    assert table.schema.names == MAPPED.names
    assert table.scan(where="st.x = 'a' AND p = 'part'", columns=["n"]).to_arrow().to_pylist() == [{"n": 1}]
    assert table.changes(mode="append").to_arrow()["n"].to_pylist() == [1, 2]


@pytest.mark.parametrize("mode", ["name", "id"])
def test_mapped_columns_are_written(mode: str) -> None:
    table = mapped_table(mode)
    table.insert([{"n": number, "st": {"x": str(number)}, "p": "part"} for number in range(5)])
    (add,) = live_files(table)
    assert add.partition_values == {"col-3": "part"}
    stats = json.loads(str(add.stats))
    assert stats["maxValues"] == {"col-1": 4, "col-2": {"col-4": "4"}}
    with pq.ParquetFile(table.store.open_input(add.path)) as parquet:
        found = parquet.schema_arrow
    assert found.names == ["col-1", "col-2", "col-3"]
    inner = found.field("col-2").type.field(0)
    assert inner.name == "col-4"
    assert [field.metadata[b"PARQUET:field_id"] for field in (*found, inner)] == [b"1", b"2", b"3", b"4"]
    table.update("n = 1", {"p": "'other'"})
    table.delete("st.x = '2'")
    table.overwrite([{"n": 9, "st": None, "p": "other"}], dynamic=True)
    expected = [{"n": n, "st": {"x": str(n)}, "p": "part"} for n in (0, 3, 4)] + [{"n": 9, "st": None, "p": "other"}]
    assert table.scan().to_arrow().sort_by("n").to_pylist() == expected
    assert reopen(table).scan("p = 'part' AND st.x > '0'", ["n"]).to_arrow().sort_by("n")["n"].to_pylist() == [3, 4]


# --- damage ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("damage", ["missing", "empty", "cut", "garbage"])
def test_a_damaged_data_file_is_an_error_with_its_path(damage: str) -> None:
    table = new_table(memory_store())
    table.insert(numbers(range(10)))
    (file,) = live_files(table)
    content = table.store.read(file.path)
    table.store.delete(file.path)
    if damage != "missing":
        broken = {"empty": b"", "cut": content[:-10], "garbage": b"PAR1" + struct.pack("<I", 7) * 20}[damage]
        table.store.put_if_absent(file.path, broken)
    kind: type[DataError] = DataFileMissingError if damage == "missing" else DataFileDamagedError
    for read in (lambda: table.scan().to_arrow(), lambda: physical_rows(table.store, DataFile.of(file))):
        with pytest.raises(kind, match=file.path) as raised:
            read()
        assert isinstance(raised.value, CorruptLogError) == (damage == "missing"), "the log is not corrupt"


def test_without_statistics_num_rows_fails_but_count_works() -> None:
    table = new_table(memory_store())
    put_parquet(table, "a", numbers([1, 2]))
    assert table.at().num_files == 1
    with pytest.raises(CorruptLogError, match="scan"):
        _ = table.at().num_rows
    assert reopen(table).scan().count() == 2


def test_files_with_string_views(tmp_path: Path) -> None:
    """Deltalake writes such files when it rewrites, and Arrow cannot take rows of string views by position."""
    path = str(tmp_path / "t")
    schema = pa.schema([("n", pa.int64()), ("s", pa.string())])
    table = Table.create(path, schema, properties={"delta.enableInCommitTimestamps": "false"})
    for n in range(4):
        table.insert([{"n": n, "s": "x"}])
    DeltaTable(path).optimize.compact()
    DeltaTable(path).delete("n = 3")
    table.delete("n = 1")
    assert read_numbers(table) == [0, 2]
    assert table.changes(after=table.version - 1).to_arrow()["n"].to_pylist() == [1]
    table.insert([{"n": 7, "s": "y"}])
    assert compact(table).did_anything
    assert read_numbers(table.refresh()) == [0, 2, 7]


@pytest.mark.parametrize("kind", [pa.large_list(pa.int64()), pa.list_(pa.int64(), 2)])
def test_files_with_large_and_fixed_size_lists(kind: pa.DataType) -> None:
    table = new_table(memory_store(), pa.schema([("v", pa.list_(pa.int64()))]))
    table.insert([{"v": [1, 2]}])
    (file,) = live_files(table)
    table.store.delete(file.path)
    with table.store.create(file.path) as stream:
        pq.write_table(pa.table({"v": pa.array([[1, 2], [3, 4]], kind)}), stream)
    assert table.scan().to_arrow()["v"].to_pylist() == [[1, 2], [3, 4]]


@pytest.mark.parametrize("null", [False, True])
def test_in_with_a_long_list_gives_the_same_result_as_a_short_one(null: bool) -> None:
    kinds: dict[str, tuple[pa.DataType, list[str], list[Any]]] = {
        "i": (pa.int32(), ["1", "2.0", "2.5", "99999999999", "-3"], [1, 2, -3, 5, None]),
        "x": (pa.float64(), ["1", "2.5", "-3e0", "7"], [1.0, 2.5, -3.0, 5.0, None]),
        "f": (pa.float32(), ["1", "2.5", "0.1"], [1.0, 2.5, 0.1, 5.0, None]),
        "d": (pa.decimal128(8, 2), ["1", "2.50", "2.505", "123456789"], [Decimal(1), Decimal("2.5"), Decimal(7), None]),
        "s": (pa.string(), ["'a'", "''"], ["a", "", "b", None]),
        "t": (pa.date32(), ["'2026-01-31'"], [dt.date(2026, 1, 31), dt.date(2026, 2, 1), None]),
        "b": (pa.bool_(), ["true"], [True, False, None]),
    }
    for name, (kind, texts, values) in kinds.items():
        table = new_table(memory_store(), pa.schema([(name, kind)]))
        table.insert([{name: value} for value in values])
        few = [*texts, "NULL"] if null else texts
        many = ", ".join(few * 60)
        for negation in ("", "NOT "):
            short = table.scan(f"{name} {negation}IN ({', '.join(few)})").to_arrow()
            assert table.scan(f"{name} {negation}IN ({many})").to_arrow().equals(short), (name, negation)
    with pytest.raises(PredicateError, match="do not match: b is bool"):
        table.scan(f"b IN ({', '.join(['7'] * 60)})").to_arrow()


# --- text with few distinct values -----------------------------------------------------------------------------------


@pytest.mark.parametrize("distinct", [1, 300, 60_000], ids=["one", "few", "many"])
def test_text_is_the_same_however_a_file_encodes_it(distinct: int) -> None:
    texts = [None if n % 11 == 0 else f"text-{n % distinct}-ü" for n in range(150_000)]
    table = new_table(memory_store(), pa.schema([("s", pa.string()), ("n", pa.int64())]))
    rows = pa.table({"s": pa.array(texts), "n": range(len(texts))})
    put_parquet(table, "a", rows, parquet={"row_group_size": 70_000})
    assert table.scan().to_arrow().equals(rows)
    table.delete("n < 70000 AND n > 3")
    assert table.scan(columns=["s"]).to_arrow()["s"].to_pylist() == texts[:4] + texts[70_000:]


def test_a_long_text_that_is_repeated_is_decoded_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidelog.log.data.reader._DECODED_BYTES", 1_000_000)
    table = new_table(memory_store(), pa.schema([("s", pa.string())]))
    rows = pa.table({"s": pa.array(["x" * 1000, "y"] * 40_000)})
    put_parquet(table, "a", rows)
    batches = list(table.scan().to_batches())
    assert max(batch.num_rows for batch in batches) == 1000
    assert pa.Table.from_batches(batches).equals(rows)


@pytest.mark.parametrize(("length", "count"), [(1000, 40_000), (20_000, 1500)], ids=["codes", "repeated"])
@pytest.mark.parametrize("kind", [pa.string(), pa.binary()])
def test_short_bounds_say_nothing_of_the_texts_between_them(
    monkeypatch: pytest.MonkeyPatch, kind: pa.DataType, length: int, count: int
) -> None:
    monkeypatch.setattr("tidelog.log.data.reader._DECODED_BYTES", 1_000_000)
    table = new_table(memory_store(), pa.schema([("s", kind)]))
    rows = pa.table({"s": pa.array(["a", "z", *["m" * length] * count], pa.string()).cast(kind)})
    put_parquet(table, "a", rows)
    batches = list(table.scan().to_batches())
    assert max(batch.nbytes for batch in batches) <= 1_100_000
    assert pa.Table.from_batches(batches).equals(rows)


_LONG_BETWEEN_SHORT = """
import json, sys
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from tests.log.read.test_scan import put_parquet
from tests.log.support import memory_store, new_table
from tests.peak_memory import grown_mb

kind, length, count, does = getattr(pa, sys.argv[1])(), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
codes = np.ones(count, dtype=np.int32)
codes[0], codes[1] = 0, 2
texts = pa.array(["a", "m" * length, "z"], pa.string()).cast(kind)
table = new_table(memory_store(), pa.schema([("s", kind)]))
table.insert(pa.table({"s": pa.array(["short"], kind)}))
put_parquet(table, "a", pa.table({"s": pa.DictionaryArray.from_arrays(codes, texts)}))

def scan():
    assert sum(batch.num_rows for batch in table.refresh().scan().to_batches()) == count + 1

print(json.dumps(grown_mb(scan if does == "scan" else lambda: table.refresh().compact("major"))))
"""


@needs_proc
@pytest.mark.parametrize(
    ("kind", "length", "count", "does"),
    [
        pytest.param("string", 100_000, 20_000, "compact", marks=pytest.mark.full),
        pytest.param("string", 900_000, 2000, "scan", marks=pytest.mark.full),
    ],
)
def test_a_long_text_between_short_bounds_takes_little_memory(kind: str, length: int, count: int, does: str) -> None:
    """About 2 GB, of a file of some kB."""
    assert in_a_process(_LONG_BETWEEN_SHORT, kind, length, count, does) < length * count / 2 / 2**20
