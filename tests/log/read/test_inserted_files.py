"""The units of commits that only inserted rows are the same as columns and as objects."""

from __future__ import annotations

from typing import Any

import msgspec
import pyarrow as pa
import pytest

from tests.log.support import START_MS, add, memory_store, new_table, put_commit, put_vector, remove
from tidelog.log import Table
from tidelog.log.format.actions import Action, AddCDCFile, AddFile
from tidelog.log.read import inserted_files
from tidelog.log.read.change_files import ChangeFile
from tidelog.log.read.commit_changes import Mode, commit_changes
from tidelog.log.read.inserted_files import InsertedFiles, one_by_one

SCHEMA = pa.schema([("n", pa.int64()), ("p", pa.string())])
ODD_TEXTS = ("x", None, "", "ä 1/2", "50%", "x")


@pytest.fixture
def table(monkeypatch: pytest.MonkeyPatch) -> Table:
    monkeypatch.setattr(inserted_files, "_MIN_FILES", 3)
    return new_table(memory_store(), SCHEMA, partition_by=["p"])


def files(name: str, *texts: str | None, **more: Any) -> list[AddFile]:
    """A file with one row for each text of the partition column."""
    given = {"stats": '{"numRecords":1}', "tags": {"a": "b"}, **more}
    return [add(f"{name}-{number}", partition_values={"p": text}, **given) for number, text in enumerate(texts)]


def commit(table: Table, *actions: Action, operation: str = "WRITE") -> None:
    version = table.refresh().version + 1
    put_commit(
        table.store, version, *actions, info={"operation": operation, "inCommitTimestamp": START_MS * 2 + version}
    )
    table.refresh()


def together(table: Table, mode: Mode = "cdc") -> list[int]:
    """How many units each value of the table's changes is, 1 for an object; these are the units of its commits."""
    expected = []
    for each, stamp in table.timeline.between(0, table.version):
        expected += commit_changes(each, stamp, mode, table.change_source, with_statistics=False)
    found = table.changes(after=0, mode=mode).units
    assert [_uncounted(unit) for unit in one_by_one(found)] == [_uncounted(unit) for unit in expected]
    assert all(change.version == [*one_by_one([change])][-1].version for change in found)
    return [len(change.files) if isinstance(change, InsertedFiles) else 1 for change in found]


def _uncounted(change: Any) -> Any:
    return msgspec.structs.replace(change, rows=None) if isinstance(change, ChangeFile) else change


@pytest.mark.parametrize("mode", ["append", "cdc"])
def test_inserts_of_several_commits_are_one_value(table: Table, mode: Mode) -> None:
    commit(table, *files("a", *ODD_TEXTS))
    commit(table, *files("b", "x", base_row_id=7, default_row_commit_version=2))
    commit(table, remove(files("a", "x")[0], data_change=False), *files("c", "x", data_change=False))
    commit(
        table,
        *files("d", "x", stats=None),
        *files("e", None, stats="{"),
        *files("empty", "x", stats='{"numRecords":0}'),
    )
    assert together(table, mode) == [9]


def test_few_inserts_are_objects(table: Table) -> None:
    commit(table, *files("a", "x", None))
    assert together(table) == [1, 1]
    commit(table)
    commit(table, *files("b", "x"))
    assert together(table) == [3]


def test_no_more_actions_wait_than_needed(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inserted_files, "_MAX_WAITING", 5)
    for name in "abcde":
        commit(table, *files(name, "x", "y", "z"))
    assert together(table) == [6, 6, 3]


OTHERS: dict[str, list[Action]] = {
    "removes": [remove(files("a", "x")[0]), *files("b", "x", "y")],
    "only removes": [remove(file) for file in files("a", *ODD_TEXTS)],
    "the same path": [*files("b", "x", "y"), *files("b", "x")],
    "two spellings": [add("file:/t/b", partition_values={"p": "x"}), add("file:///t/b", partition_values={"p": "x"})],
    "change files": [*files("b", "x", "y"), AddCDCFile(path="_change_data/c", partition_values={"p": "x"}, size=5)],
    "UPDATE": [*files("b", "x", "y", "z")],
}


@pytest.mark.parametrize("kind", OTHERS)
def test_other_commits_come_between(table: Table, kind: str) -> None:
    commit(table, *files("a", *ODD_TEXTS))
    commit(table, *OTHERS[kind], operation="UPDATE" if kind == "UPDATE" else "WRITE")
    commit(table, *files("c", "x", "y", "z"))
    first, *between, last = together(table)
    assert (first, last, set(between)) == (6, 3, {1})
    if "remove" not in kind:
        first, *between, last = together(table, "append")
        assert (first, last, set(between)) == (6, 3, {1})


@pytest.mark.parametrize("mode", ["append", "cdc"])
def test_a_deletion_vector_makes_objects(table: Table, mode: Mode) -> None:
    commit(table, *files("a", *ODD_TEXTS))
    vector = put_vector(table.store, [0], "vector.bin")
    commit(table, *files("b", "x", "y"), *files("c", "x", stats='{"numRecords":9}', deletion_vector=vector))
    assert together(table, mode) == [6, 1, 1, 1]


def test_a_predicate_gets_statistics(table: Table) -> None:
    commit(table, *files("a", *ODD_TEXTS))
    units = table.changes(after=0, where="p = 'x' AND n > 0").units
    assert [unit.stats for unit in units if isinstance(unit, ChangeFile)] == ['{"numRecords":1}'] * 2
    assert len(units) == 2


@pytest.mark.parametrize("mode", ["append", "cdc", "net"])
def test_rows_are_the_same_either_way(table: Table, monkeypatch: pytest.MonkeyPatch, mode: Mode) -> None:
    for start in (0, 10):
        table.insert([{"n": start + n, "p": text} for n, text in enumerate((*ODD_TEXTS, "another"))])
    columns = table.changes(after=0, mode=mode, keys=["n"])
    monkeypatch.setattr(inserted_files, "_MIN_FILES", 100)
    objects = table.changes(after=0, mode=mode, keys=["n"])
    assert len(columns.units) == 1
    assert len(objects.units) == 10
    assert columns.to_arrow().equals(objects.to_arrow())
    assert columns.count() == columns.to_arrow().num_rows == 14
