"""Dropping a table: one commit that ends it for everyone. It deletes only files of the table, and survives a crash."""

from __future__ import annotations

import re
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from tests.log.faults import Around
from tests.log.support import NUMBERS, memory_url, numbers, read_numbers
from tidelog.log import Table
from tidelog.log.errors import StoreUnavailableError, TableNotFoundError
from tidelog.log.operations import drop_table
from tidelog.log.state.loader import load
from tidelog.log.storage import Store
from tidelog.log.storage.local import LocalStore
from tidelog.log.system import REAL_SYSTEM


def filled(path: str) -> Table:
    table = Table.create(path, NUMBERS, properties={"delta.enableChangeDataFeed": True})
    table.insert(numbers(range(5)))
    table.update("n = 1", {"n": "10"})
    table.checkpoint()
    table.delete("n = 2")
    return table


def files_beside_the_log(store: Store) -> list[str]:
    return [path for path, _ in store.walk() if not path.startswith("_delta_log/")]


@pytest.mark.parametrize("kind", ["local", "memory"])
def test_drop_deletes_all_files_but_the_log_and_the_path_can_be_reused(kind: str, tmp_path: Path) -> None:
    path = str(tmp_path / "t") if kind == "local" else memory_url()
    table = filled(path)
    Table.drop(path)
    assert files_beside_the_log(table.store) == []
    if kind == "local":
        assert [entry.name for entry in (tmp_path / "t").iterdir()] == ["_delta_log"]
    for call in (table.refresh, lambda: Table.open(path), lambda: Table.drop(path)):
        with pytest.raises(TableNotFoundError, match="was dropped at version 4"):
            call()
    again = Table.create(path, NUMBERS)
    again.insert(numbers([7]))
    assert read_numbers(Table.open(path)) == [7]


def test_hidden_files_and_nested_tables_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "t"
    filled(str(path))
    inner = filled(str(path / "inner"))
    (path / ".hidden").write_text("mine")
    Table.drop(str(path))
    assert (path / ".hidden").read_text() == "mine"
    assert read_numbers(inner.refresh()) == [0, 3, 4, 10]


def test_other_engines_find_an_empty_table_that_they_cannot_write(tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    Table.create(path, NUMBERS, properties={"delta.enableDeletionVectors": False}).insert(numbers(range(5)))
    Table.drop(path)
    dropped = DeltaTable(path)
    assert (dropped.version(), dropped.to_pyarrow_table().num_rows) == (2, 0)
    with pytest.raises(Exception, match=r"tidelog.dropped"):
        write_deltalake(path, numbers([1]), mode="append")
    Table.create(path, NUMBERS, properties={"delta.enableInCommitTimestamps": False}).insert(numbers([7]))
    assert DeltaTable(path).version() == 4
    Table.drop(path)
    lowest = {"delta.enableInCommitTimestamps": False, "delta.enableDeletionVectors": False}
    Table.create(path, NUMBERS, properties=lowest).insert(numbers([7]))
    write_deltalake(path, numbers([8]), mode="append")
    assert sorted(DeltaTable(path).to_pyarrow_table()["n"].to_pylist()) == [7, 8]
    assert read_numbers(Table.open(path)) == [7, 8]


def test_an_interrupted_drop_hides_the_table_and_can_be_finished(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kill the drop after each number of deletions: the table is gone for everyone, and the next drop finishes."""
    path = str(tmp_path / "t")
    older = filled(path)
    writing = older.begin().insert(numbers([100]))
    delete, left = LocalStore.delete, 0

    def failing(self: LocalStore, name: str) -> None:
        nonlocal left
        if left == 0:
            raise StoreUnavailableError("killed here", path=name)
        left -= 1
        delete(self, name)

    monkeypatch.setattr(LocalStore, "delete", failing)
    told: list[str] = []
    for survived in range(100):
        left = survived
        try:
            Table.drop(path)
        except StoreUnavailableError as error:
            told.append(str(error))
            with pytest.raises(TableNotFoundError, match="was dropped"):
                Table.open(path)
            if survived == 0:
                assert len(files_beside_the_log(older.store)) > 3
                with pytest.raises(TableNotFoundError, match="was dropped at version 4"):
                    older.refresh()
                with pytest.raises(TableNotFoundError, match="was dropped at version 4"):
                    writing.commit()
            continue
        break
    assert survived > 1
    assert all(
        re.search("was dropped at version 4, but not all of its files .* call drop again", text) for text in told
    )
    assert not [text for text in told if "nothing was committed" in text]
    assert files_beside_the_log(older.store) == []


def test_dropping_a_path_without_a_table_deletes_nothing(tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("mine")
    with pytest.raises(TableNotFoundError):
        Table.drop(str(tmp_path))
    assert (tmp_path / "precious").read_text() == "mine"


def test_drop_deletes_orphaned_data_files_and_keeps_foreign_files(tmp_path: Path) -> None:
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
    left = [file for file in path.rglob("*") if file.is_file() and file.parent.name != "_delta_log"]
    assert sorted(file.name for file in left) == ["in.csv", "notes.txt"]


def test_a_drop_removes_what_others_committed_before_it(tmp_path: Path) -> None:
    """And it goes ahead if they changed the schema."""
    path = str(tmp_path / "t")
    table = Table.create(path, NUMBERS)

    class Late(Around):
        races = 3

        def put_if_absent(self, name: str, content: bytes, *, durable: bool = True) -> None:
            if name.endswith(".json") and self.races:
                self.races -= 1
                other = Table.open(path)
                other.insert([{"n": self.races}])
                other.add_columns(pa.schema([(f"c{self.races}", pa.string())]))
            super().put_if_absent(name, content, durable=durable)

    drop_table.drop(Late(table.store), REAL_SYSTEM)
    assert files_beside_the_log(table.store) == []
    assert load(table.store).files().adds.num_rows == 0
    with pytest.raises(TableNotFoundError, match="was dropped at version 7"):
        Table.open(path)


def test_an_append_only_table_can_be_dropped(tmp_path: Path) -> None:
    table = Table.create(str(tmp_path / "t"), NUMBERS, properties={"delta.appendOnly": True})
    table.insert(numbers([1]))
    Table.drop(table.path)
    assert files_beside_the_log(table.store) == []
