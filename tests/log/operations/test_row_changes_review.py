"""What a review of row changes, change feeds, restores and drops found: each held by a test."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from tests.log.support import live_files, memory_store, new_table, put_foreign, put_vector, remove, reopen
from tidelog.compaction_daemon import compact
from tidelog.log import Table
from tidelog.log.errors import (
    ConfigurationError,
    CorruptLogError,
    MetadataChangedException,
    PredicateError,
    SchemaMismatchError,
    TableNotFoundError,
    TableReplacedError,
)
from tidelog.log.state.loader import load

NUMBERS = pa.schema([("n", pa.int64())])


def numbers(table: Any) -> list[int]:
    return sorted(table.scan().to_arrow()["n"].to_pylist())


# --- nothing that cannot be read becomes a version -------------------------------------------------------------------


@pytest.mark.parametrize(
    "key",
    [("a", "x"), (None, 1), (5, 1), ("a", None), ("a", 1.5), ("a", True), ("a", 2**70), "ab", ("a",), 5, (b"a", 1)],
)
def test_a_wrong_idempotency_key(key: Any) -> None:
    table = new_table(memory_store())
    with pytest.raises(ConfigurationError, match="is not an idempotency key"):
        table.insert([{"n": 1}], idempotency_key=key)
    assert reopen(table).version == 0


# --- another table at the place --------------------------------------------------------------------------------------


@pytest.mark.parametrize("commits", [0, 1, 5])
def test_a_transaction_outlives_its_table(commits: int, tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    table = Table.create(path, NUMBERS)
    table.insert([{"n": 1}])
    staged = [table.begin().insert([{"n": 5}]), table.begin().delete("n = 1"), table.begin().overwrite([{"n": 9}])]
    Table.drop(path)
    other = Table.create(path, pa.schema([("other", pa.string())]))
    for _ in range(commits):
        other.insert([{"other": "x"}])
    for transaction in staged:
        with pytest.raises(TableReplacedError, match="nothing was committed"):
            transaction.commit()
    assert Table.open(path).version == commits
    assert Table.open(path).schema.names == ["other"]


def test_create_where_a_drop_was_interrupted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = str(tmp_path / "t")
    table = Table.create(path, NUMBERS)
    table.insert([{"n": 1}])
    with monkeypatch.context() as patched:
        patched.setattr("tidelog.log.operations.drop_table._delete_files", lambda *_: None)
        Table.drop(path)
    for exist_ok in (True, False):
        with pytest.raises(TableNotFoundError, match=r"call Table.drop\(path\) to finish it"):
            Table.create(path, NUMBERS, exist_ok=exist_ok)
    Table.drop(path)
    assert Table.create(path, NUMBERS).version == 0


def test_a_drop_leaves_what_no_log_names(tmp_path: Path) -> None:
    path = tmp_path / "t"
    table = Table.create(str(path), NUMBERS)
    table.insert([{"n": 1}])
    (path / "notes.txt").write_text("mine")
    (path / "raw").mkdir()
    (path / "raw" / "in.csv").write_text("1")
    orphan = path / "ab" / "part-00000-abcdef01-2345-6789-abcd-ef0123456789-c000.snappy.parquet"
    orphan.parent.mkdir(exist_ok=True)
    orphan.write_text("a writer died")
    Table.drop(str(path))
    assert sorted(file.name for file in path.rglob("*") if file.is_file()) == ["in.csv", "notes.txt"]


# --- other writers' files --------------------------------------------------------------------------------------------


def test_files_that_spell_texts_as_views(tmp_path: Path) -> None:
    """Deltalake's rewrites leave such files, and Arrow has no kernel to take rows of them by position."""
    path = str(tmp_path / "t")
    schema = pa.schema([("n", pa.int64()), ("s", pa.string())])
    table = Table.create(path, schema, properties={"delta.enableInCommitTimestamps": "false"})
    for n in range(4):
        table.insert([{"n": n, "s": "x"}])
    DeltaTable(path).optimize.compact()
    DeltaTable(path).delete("n = 3")
    table.delete("n = 1")
    assert numbers(table) == [0, 2]
    assert table.changes(after=table.version - 1).to_arrow()["n"].to_pylist() == [1]
    table.insert([{"n": 7, "s": "y"}])
    assert compact(table).did_anything
    assert numbers(table.refresh()) == [0, 2, 7]


@pytest.mark.parametrize("kind", [pa.large_list(pa.int64()), pa.list_(pa.int64(), 2)])
def test_files_that_spell_lists_otherwise(kind: pa.DataType) -> None:
    table = new_table(memory_store(), pa.schema([("v", pa.list_(pa.int64()))]))
    table.insert([{"v": [1, 2]}])
    (file,) = live_files(table)
    table.store.delete(file.path)
    with table.store.create(file.path) as stream:
        pq.write_table(pa.table({"v": pa.array([[1, 2], [3, 4]], kind)}), stream)
    assert table.scan().to_arrow()["v"].to_pylist() == [[1, 2], [3, 4]]


def test_deletes_are_not_judged_by_the_statistics_of_what_is_left() -> None:
    table = new_table(memory_store())
    table.insert([{"n": n} for n in range(10)])
    (file,) = live_files(table)
    tight = '{"numRecords":10,"minValues":{"n":0},"maxValues":{"n":6},"nullCount":{"n":0},"tightBounds":true}'
    vector = put_vector(table.store, [7, 8, 9], "dv.bin")
    put_foreign(table, remove(file), msgspec.structs.replace(file, deletion_vector=vector, stats=tight))
    assert table.changes(after=1, where="n >= 8").to_arrow()["n"].to_pylist() == [8, 9]


def test_a_restore_that_was_overtaken_by_a_new_schema() -> None:
    table = new_table(memory_store())
    table.insert([{"n": 1}])
    restoring = table.begin().restore(version=0)
    old = load(table.store).head.metadata
    wider = '{"type":"struct","fields":[{"name":"n","type":"long","nullable":true,"metadata":{}},'
    wider += '{"name":"c","type":"long","nullable":true,"metadata":{}}]}'
    put_foreign(table, msgspec.structs.replace(old, schema_string=wider))
    with pytest.raises(MetadataChangedException):
        restoring.commit()


# --- values ----------------------------------------------------------------------------------------------------------


def test_an_empty_text_partitions_as_null() -> None:
    table = new_table(memory_store(), pa.schema([("p", pa.string()), ("n", pa.int64())]), partition_by=["p"])
    for n in range(3):
        table.overwrite([{"p": "", "n": n}], dynamic=True)
    assert table.scan().to_arrow().to_pylist() == [{"p": None, "n": 2}]
    with pytest.raises(ConfigurationError, match="1 of 1 rows lie outside"):
        table.overwrite([{"p": "", "n": 9}], where="p = ''")
    strict = new_table(
        memory_store(), pa.schema([pa.field("p", pa.string(), nullable=False), ("n", pa.int64())]), partition_by=["p"]
    )
    for write in (strict.insert, strict.overwrite):
        with pytest.raises(SchemaMismatchError, match="an empty text partitions as null"):
            write([{"p": "", "n": 1}])


def test_a_partition_that_cannot_be_told_is_neither_kept_nor_replaced() -> None:
    schema = pa.schema([("p", pa.int64()), ("n", pa.int64())])
    table = new_table(memory_store(), schema, partition_by=["p"])
    table.insert([{"p": 1, "n": 1}])
    (file,) = live_files(table)
    odd = [msgspec.structs.replace(file, path="a/odd", partition_values=values) for values in ({}, {"p": "x"})]
    for add in odd:
        table = reopen(table)
        put_foreign(table, add)
        for where in ("p = 1", "p IS NULL"):
            with pytest.raises(CorruptLogError, match="has no readable value"):
                table.truncate(where=where)
        with pytest.raises(CorruptLogError, match="has no readable value"):
            table.overwrite([{"p": 1, "n": 2}], dynamic=True)
        put_foreign(table, remove(add))
    assert table.refresh().truncate(where="p = 1").metrics["numRemovedFiles"] == 1


def test_minus_zero_is_zero() -> None:
    table = new_table(memory_store(), pa.schema([("p", pa.float64()), ("n", pa.int64())]), partition_by=["p"])
    table.overwrite([{"p": 0.0, "n": 1}], dynamic=True)
    table.overwrite([{"p": -0.0, "n": 2}], dynamic=True)
    assert numbers(table) == [2]


def test_new_values_in_the_column_s_own_type() -> None:
    kinds = {"x": pa.float64(), "f": pa.float32(), "d": pa.decimal128(10, 2), "i": pa.int64()}
    table = new_table(memory_store(), pa.schema(list(kinds.items())))
    table.insert([{"x": 0.0, "f": 0.0, "d": Decimal("0.10"), "i": 3}])

    def updated(**assignments: str) -> list[Any]:
        table.update("true = true", assignments)
        (row,) = table.scan().to_arrow().to_pylist()
        return [row[name] for name in assignments]

    assert updated(x="1.5", f="1.5", d="1", i="-9223372036854775808") == [1.5, 1.5, Decimal("1.00"), -(2**63)]
    assert updated(d="d + 0.10") == [Decimal("1.10")]
    assert updated(d="(d + 1) * 2 - 0.05", x="d") == [Decimal("4.15"), 1.1]
    assert updated(i="7", d="12345678.91") == [7, Decimal("12345678.91")]
    assert updated(d="i", f="0.1") == [Decimal("7.00"), pytest.approx(0.1)]
    with pytest.raises(SchemaMismatchError, match="column 'd'"):
        updated(d="d + 99999999.99")
    with pytest.raises(SchemaMismatchError, match="column 'd'"):
        updated(d="d * 0.001")


def test_long_predicates() -> None:
    table = new_table(memory_store())
    table.insert([{"n": n} for n in range(10)])
    table.delete(f"n IN ({', '.join(map(str, range(5, 50_000)))})")
    assert numbers(table) == [0, 1, 2, 3, 4]
    for text in (" OR ".join(f"n = {n}" for n in range(3000)), "(" * 500 + "n = 1" + ")" * 500, "NOT " * 600 + "n = 1"):
        with pytest.raises(PredicateError, match="nested too deeply"):
            table.delete(text)


# --- names and arguments ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["position", "__tidelog_position", "__tidelog_row", "", "Position"])
def test_no_name_clashes_with_one_of_ours(name: str) -> None:
    for partition_by in ([], [name]):
        schema = pa.schema([(name, pa.int64()), ("n", pa.int64())])
        table = new_table(memory_store(), schema, partition_by=partition_by)
        table.insert([{name: n, "n": n} for n in range(4)])
        table.delete("n = 1")
        table.update("n = 2", {"n": "20"})
        if name:
            table.truncate(where=f"`{name}` = 3") if partition_by else table.delete(f"`{name}` = 3")
            assert numbers(table) == [0, 20]


def test_an_error_speaks_of_the_table_s_columns() -> None:
    table = new_table(memory_store())
    with pytest.raises(PredicateError) as caught:
        table.delete("missing = 1")
    assert "the columns are n" in str(caught.value)
    assert "position" not in str(caught.value)


@pytest.mark.parametrize("name", ["_change_type", "_commit_version", "_commit_timestamp"])
def test_the_feed_s_own_columns(name: str) -> None:
    schema = pa.schema([(name, pa.string()), ("n", pa.int64())])
    with pytest.raises(ConfigurationError, match="which the change feed adds"):
        new_table(memory_store(), schema, properties={"delta.enableChangeDataFeed": True})
    assert new_table(memory_store(), schema).version == 0


def test_wrong_arguments() -> None:
    table = new_table(memory_store(), pa.schema([("n", pa.int64()), ("v", pa.list_(pa.int64()))]))
    table.insert([{"n": 1, "v": [1]}])
    wrong: list[Any] = [
        lambda: table.delete(None),  # type: ignore[arg-type]
        lambda: table.scan(5),  # type: ignore[arg-type]
        lambda: table.scan(columns="n"),
    ]
    for call in wrong:
        with pytest.raises(PredicateError):
            call()
    wrong = [
        lambda: table.update("n = 1", 5),  # type: ignore[arg-type]
        lambda: table.update("n = 1", {"n": "1", "N": "2"}),
        lambda: table.at(version="1"),  # type: ignore[arg-type]
        lambda: table.at(version=1.5),  # type: ignore[arg-type]
        lambda: table.at(timestamp=5),  # type: ignore[arg-type]
        lambda: table.restore(version=True),
        lambda: table.changes(after=1.0),  # type: ignore[arg-type]
        lambda: table.changes(mode="net", keys=None),  # type: ignore[arg-type]
        lambda: table.changes(mode="net", keys=["v"]),
    ]
    for call in wrong:
        with pytest.raises(ConfigurationError):
            call()
    assert table.refresh().version == 1


def test_metrics_of_a_file_that_stays_under_its_vector() -> None:
    table = new_table(memory_store())
    table.insert([{"n": n} for n in range(3)])
    table.delete("n = 0")
    metrics = table.delete("n >= 0").metrics
    assert (metrics["numRemovedFiles"], metrics["numDeletionVectorsAdded"], metrics["numDeletedRows"]) == (0, 1, 2)


@pytest.mark.parametrize("null", [False, True])
def test_a_long_list_means_what_a_short_one_does(null: bool) -> None:
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
    with pytest.raises(PredicateError, match="cannot be compared"):
        table.scan(f"b IN ({', '.join(['7'] * 60)})").to_arrow()
