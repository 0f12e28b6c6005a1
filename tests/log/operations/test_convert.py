"""A folder of parquet files becomes a table in one commit, and no file is rewritten."""

from __future__ import annotations

import datetime as dt
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.log.operations.converting import ROWS, converted, folder, numbered, parquet, refused, stats_of
from tests.log.support import Clock, memory_store, memory_url
from tidelog.compaction_daemon import compact, vacuum
from tidelog.log import Table
from tidelog.log.errors import (
    ConfigurationError,
    DataFileDamagedError,
    DataFileMissingError,
    SchemaMismatchError,
    TableExistsError,
)
from tidelog.log.format import filenames
from tidelog.log.operations import convert
from tidelog.log.state.loader import load
from tidelog.log.storage import FileStatus
from tidelog.log.storage.memory import MemoryStore
from tidelog.log.system import System

# --- what becomes of a folder ----------------------------------------------------------------------------------------


def test_all_files_are_in_version_0_and_none_is_rewritten(path: str) -> None:
    files = {"a.parquet": ROWS, "deep.snappy.parquet": ROWS, "000000_0": ROWS}
    hidden = {"_SUCCESS": b"", "_metadata": b"x", ".a.parquet.crc": b"x", "_temporary/0/x.parquet": b"x"}
    store = folder(path, {**files, **hidden})
    before = dict(store.walk())
    table = Table.convert(path, properties={"delta.checkpointInterval": 7})
    assert table.version == 0
    assert table.schema == pa.schema([("n", pa.int64()), ("s", pa.string())])
    assert table.scan().to_arrow().num_rows == table.at().num_rows == 6
    assert sorted(table.at().files()["path"].to_pylist()) == sorted(files)
    assert {name: status for name, status in store.walk() if not name.startswith("_delta_log/")} == before
    assert table.properties["delta.checkpointInterval"] == "7"
    assert table.properties["tidelog.cleanUp"] == "false"
    assert table.properties["delta.enableInCommitTimestamps"] == "true"
    (record,) = table.history()
    assert record.operation_class == "INSERT"
    assert record.time_version is not None
    assert table.changes().to_arrow().num_rows == 6
    assert Table.open(path).scan().to_arrow().num_rows == 6


def test_the_table_is_written_and_kept_like_any_other(path: str) -> None:
    folder(path, {f"part={p}/{n}.parquet": numbered(n) for p in "ab" for n in (0, 3)})
    table = Table.convert(path, partition_by=["part"])
    table.insert([{"n": 100, "part": "c"}])
    table.delete("n = 1 AND part = 'a'")
    table.update("n = 2 AND part = 'b'", {"n": "n + 50"})
    table.upsert([{"n": 5, "part": "b"}], keys=["n", "part"])
    wanted = sorted([(n, "a") for n in (0, 2, 3, 4, 5)] + [(n, "b") for n in (0, 1, 3, 4, 5, 52)] + [(100, "c")])
    assert sorted((row["n"], row["part"]) for row in table.scan().to_arrow().to_pylist()) == wanted
    assert compact(table, "major").did_anything
    assert sorted((row["n"], row["part"]) for row in table.refresh().scan().to_arrow().to_pylist()) == wanted
    table.restore(version=0)
    assert table.scan().to_arrow().num_rows == 12


def test_partition_folders_give_typed_values() -> None:
    files = {
        "day=2026-01-31/n=7/x=a%2Fb/f.parquet": pa.table({"k": [1]}),
        "day=__HIVE_DEFAULT_PARTITION__/n=-8/x=%25/f.parquet": pa.table({"k": [2]}),
    }
    table = converted(files, partition_by=["n", "day", "x"])
    assert table.partition_by == ("n", "day", "x")
    kinds = [("k", pa.int64()), ("n", pa.int64()), ("day", pa.date32()), ("x", pa.string())]
    assert table.schema == pa.schema(kinds)
    rows = sorted(table.scan().to_arrow().to_pylist(), key=lambda row: row["k"])
    assert rows == [
        {"k": 1, "n": 7, "day": dt.date(2026, 1, 31), "x": "a/b"},
        {"k": 2, "n": -8, "day": None, "x": "%"},
    ]
    assert [row["k"] for row in table.scan("day IS NULL AND x = '%'").to_arrow().to_pylist()] == [2]


def test_a_field_sets_the_type_of_a_partition_column() -> None:
    files = {f"month={m}/ok={ok}/f.parquet": numbered(0, 1) for m, ok in (("07", "true"), ("11", "FALSE"))}
    as_text = converted(files, partition_by=["month", "ok"])
    assert as_text.schema.field("month").type == pa.string()
    fields = [pa.field("month", pa.int32()), pa.field("ok", pa.bool_())]
    table = converted(files, partition_by=fields)
    rows = sorted((row["month"], row["ok"]) for row in table.scan().to_arrow().to_pylist())
    assert rows == [(7, True), (11, False)]
    # The log has one text for a value, as if tidelog had written it.
    assert sorted(str(dict(values)) for values in table.at().files()["partitionValues"].to_pylist()) == [
        "{'month': '11', 'ok': 'false'}",
        "{'month': '7', 'ok': 'true'}",
    ]


def test_the_value_of_a_folder_counts_if_files_have_the_column_too() -> None:
    rows = pa.table({"n": [1], "Day": ["wrong"]})
    table = converted({"day=2026-01-31/f.parquet": rows}, partition_by=["day"])
    assert table.scan().to_arrow().to_pylist() == [{"n": 1, "day": dt.date(2026, 1, 31)}]
    assert "Day" not in stats_of(table)["nullCount"]


def test_files_with_other_columns_and_narrower_types_are_joined() -> None:
    files = {
        "a.parquet": pa.table({"n": pa.array([1], pa.int32()), "s": ["x"]}),
        "b.parquet": pa.table({"x": pa.array([0.5], pa.float32()), "n": pa.array([2**40], pa.int64())}),
        "c.parquet": pa.table({"x": [0.1], "n": pa.array([3], pa.int8())}),
    }
    table = converted(files)
    rows = sorted(table.scan().to_arrow().to_pylist(), key=lambda row: row["n"])
    assert rows == [
        {"n": 1, "s": "x", "x": None},
        {"n": 3, "s": None, "x": 0.1},
        {"n": 2**40, "s": None, "x": 0.5},
    ]
    assert table.scan("n > 1000").to_arrow().num_rows == 1


# --- what cannot be converted ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("files", "options", "words"),
    [
        ({}, {}, "there is neither a table nor a parquet file"),
        ({"_SUCCESS": b"", "_temporary/f.parquet": b""}, {}, "there is neither a table nor a parquet file"),
        ({"a=1/f.parquet": ROWS}, {}, "pass partition_by=['a']"),
        ({"f.parquet": ROWS}, {"partition_by": ["a"]}, "leave partition_by out"),
        ({"a=1/f.parquet": ROWS, "f.parquet": ROWS}, {"partition_by": ["a"]}, "in the path f.parquet"),
        ({"a=1/b=2/f.parquet": ROWS}, {"partition_by": ["a"]}, "['a', 'b']"),
        ({"A=1/f.parquet": ROWS}, {"partition_by": ["a"]}, "are 'A', not 'a'"),
        ({"sub/f.parquet": ROWS}, {}, "'sub' is not a partition folder"),
        ({"a=1/_delta_log/0.json": b"", "a=1/f.parquet": ROWS}, {"partition_by": ["a"]}, "holds another table"),
        ({"t/_delta_log/0.json": b"", "f.parquet": ROWS}, {}, "/t'); convert a folder of plain parquet files only"),
        ({"a=1/f.parquet": ROWS, "README.txt": b"hello"}, {"partition_by": ["a"]}, "rename it to _README.txt"),
        ({".hoodie/x": b"", "f.parquet": ROWS}, {}, "holds another table"),
        ({"f.parquet": ROWS}, {"partition_by": "a"}, "must be a list"),
        ({"a=1/f.parquet": ROWS}, {"partition_by": ["a", "a"]}, "name each partition column once"),
        ({"a=1/f.parquet": ROWS}, {"partition_by": [7]}, "partition_by cannot have 7"),
        ({"f.parquet": ROWS}, {"properties": {"delta.nonsense": 1}}, "unknown table property"),
    ],
)
def test_folders_that_are_no_table_are_refused(files: dict[str, Any], options: dict[str, Any], words: str) -> None:
    assert words in refused(ConfigurationError, files, **options)


@pytest.mark.parametrize("content", [b"", b"a,b\n1,2\n", parquet(ROWS)[:-10]])
def test_a_file_that_is_not_parquet_is_named(content: bytes) -> None:
    text = refused(DataFileDamagedError, {"a.parquet": ROWS, "notes.parquet": content})
    assert "notes.parquet" in text
    assert "move it out of the folder" in text


def test_a_file_of_another_kind_says_how_to_leave_it_out() -> None:
    text = refused(DataFileDamagedError, {"a.parquet": ROWS, "README.txt": b"hello"})
    assert "README.txt of memory://" in text
    assert "is not a parquet file, and a table takes all files of its folder" in text
    assert "rename it to _README.txt: names with _ or . in front are left out" in text
    assert "a table takes all" not in refused(DataFileDamagedError, {"data": parquet(ROWS)[:-10]})


def test_files_that_do_not_fit_are_both_named() -> None:
    files = {"a.parquet": ROWS, "b.parquet": ROWS, "c.parquet": pa.table({"n": ["x"]})}
    assert "in the files a.parquet and c.parquet" in refused(SchemaMismatchError, files)


@pytest.mark.parametrize("kind", [pa.int32(), pa.date32(), pa.struct([("x", pa.int32())]), pa.null()])
def test_a_partition_value_of_another_type_is_named(kind: pa.DataType) -> None:
    text = refused(SchemaMismatchError, {"p=x/f.parquet": ROWS}, partition_by=[pa.field("p", kind)])
    assert "'p'" in text


def test_a_table_is_not_converted_again(path: str) -> None:
    folder(path, {"f.parquet": ROWS})
    Table.convert(path)
    with pytest.raises(TableExistsError):
        Table.convert(path)
    other = memory_url()
    Table.create(other, ROWS.schema)
    folder(other, {"f.parquet": ROWS})
    with pytest.raises(TableExistsError):
        Table.convert(other)
    Table.drop(other)
    folder(other, {"g.parquet": ROWS})
    with pytest.raises(ConfigurationError, match="a table was dropped"):
        Table.convert(other)


def test_a_name_that_is_not_utf_8_is_refused(tmp_path: Path) -> None:
    (tmp_path / os.fsdecode(b"n\xe4me.parquet")).write_bytes(parquet(ROWS))
    with pytest.raises(ConfigurationError, match="not UTF-8"):
        Table.convert(str(tmp_path))


# --- beside other programs -------------------------------------------------------------------------------------------


class _Ticking(Clock):
    """A clock that moves with each look, so that a file that is written again has another time."""

    def now_ms(self) -> int:
        self.ms += 5
        return self.ms


class _Busy(MemoryStore):
    """A store with two files, in which another program does something after the first listing."""

    def __init__(self, action: Callable[[_Busy], None]) -> None:
        super().__init__(memory_url(), system=_Ticking())
        for name in ("a.parquet", "b.parquet"):
            self.put_if_absent(name, parquet(ROWS))
        self._action: Callable[[_Busy], None] | None = action

    def walk(self, folder: str = "") -> Iterator[tuple[str, FileStatus]]:
        found = list(super().walk(folder))
        action, self._action = self._action, None
        if action is not None:
            action(self)
        return iter(found)


@pytest.mark.parametrize(
    "action",
    [
        lambda store: store.delete("b.parquet"),
        lambda store: store.replace("b.parquet", parquet(pa.table({"n": [1, 2, 3], "s": ["a", None, "b"]}))),
        lambda store: store.replace("b.parquet", parquet(ROWS)),
    ],
    ids=["vanishes", "grows", "is rewritten"],
)
def test_a_file_that_changes_meanwhile_is_an_error(action: Callable[[_Busy], None]) -> None:
    store = _Busy(action)
    with pytest.raises(DataFileMissingError, match=r"b\.parquet"):
        convert.convert(store, (), {}, System())
    assert not store.names("_delta_log")


def test_a_file_that_is_added_meanwhile_is_not_in_the_table() -> None:
    store = _Busy(lambda store: store.put_if_absent("c.parquet", parquet(ROWS)))
    assert convert.convert(store, (), {}, System())
    table = Table(store, load(store))
    assert table.scan().to_arrow().num_rows == 4


def test_of_two_conversions_one_wins() -> None:
    store = memory_store()
    store.put_if_absent("a.parquet", parquet(ROWS))
    states: list[Any] = []
    barrier = threading.Barrier(4)

    def run() -> None:
        barrier.wait()
        try:
            states.append(convert.convert(store, (), {}, System()))
        except TableExistsError:
            states.append(None)

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(state is not None for state in states) == 1
    assert Table(store, load(store)).scan().to_arrow().num_rows == 2


class _Watched(MemoryStore):
    """A store with two files that notes what is made durable and what is put, in order."""

    def __init__(self, fault: OSError | None) -> None:
        super().__init__(memory_url())
        for name in ("p=a b/f.parquet", "p=c/f.parquet"):
            super().put_if_absent(name, parquet(ROWS))
        self.calls: list[object] = []
        self._fault = fault

    def sync(self, paths: Sequence[str]) -> None:
        self.calls.append(sorted(paths))
        if self._fault is not None:
            raise self._fault

    def put_if_absent(self, path: str, content: bytes, *, durable: bool = True) -> None:
        self.calls.append(path)
        super().put_if_absent(path, content, durable=durable)


def test_files_that_another_program_has_just_written_are_durable_before_the_commit() -> None:
    store = _Watched(None)
    convert.convert(store, ["p"], {}, System())
    assert store.calls[:2] == [["p=a b/f.parquet", "p=c/f.parquet"], filenames.commit_path(0)]


def test_nothing_is_committed_if_a_file_cannot_be_made_durable() -> None:
    store = _Watched(OSError("the disk is gone"))
    with pytest.raises(OSError, match="the disk is gone"):
        convert.convert(store, ["p"], {}, System())
    assert not store.names("_delta_log")


def test_a_vacuum_keeps_the_files_of_the_table_and_deletes_what_no_commit_names(tmp_path: Path) -> None:
    path = str(tmp_path)
    folder(path, {"a.parquet": ROWS, "_SUCCESS": b""})
    table = Table.convert(path, properties={"tidelog.maxTransactionTime": "0 days"})
    folder(path, {"late.parquet": ROWS})
    for name in ("a.parquet", "late.parquet", "_SUCCESS"):
        os.utime(tmp_path / name, (1_600_000_000, 1_600_000_000))
    report = vacuum(table, older_than=dt.timedelta(0))
    assert report.files == ("late.parquet",)
    assert Table.open(path).scan().to_arrow().num_rows == 2
    assert (tmp_path / "_SUCCESS").exists()


def test_a_large_folder_gets_a_checkpoint_at_once() -> None:
    content = parquet(numbered(0))
    table = converted({f"{number:04d}.parquet": content for number in range(1000)})
    assert {"_last_checkpoint", f"{0:020d}.checkpoint.parquet"} <= set(table.store.names("_delta_log"))
    assert Table.open(table.path).at().num_rows == 3000
