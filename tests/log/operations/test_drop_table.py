"""Dropping a table: it ends for all readers at once, survives a crash, and deletes only files of the table."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from tests.log.support import NUMBERS, memory_url, numbers, read_numbers
from tidelog.log import Table
from tidelog.log.errors import ProtocolChangedException, StoreUnavailableError, TableNotFoundError, TableReplacedError
from tidelog.log.storage.local import LocalStore


def filled(path: str) -> Table:
    table = Table.create(path, NUMBERS, properties={"delta.enableChangeDataFeed": True})
    table.insert(numbers(range(5)))
    table.update("n = 1", {"n": "10"})
    table.checkpoint()
    table.delete("n = 2")
    return table


@pytest.mark.parametrize("kind", ["local", "memory"])
def test_drop_deletes_all_files_and_the_path_can_be_reused(kind: str, tmp_path: Path) -> None:
    path = str(tmp_path / "t") if kind == "local" else memory_url()
    table = filled(path)
    Table.drop(path)
    assert list(table.store.walk()) == []
    assert not (tmp_path / "t").exists()
    for call in (table.refresh, lambda: Table.open(path), lambda: Table.drop(path)):
        with pytest.raises(TableNotFoundError, match="there is no table at"):
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
    for survived in range(100):
        left = survived
        try:
            Table.drop(path)
        except StoreUnavailableError:
            with pytest.raises(TableNotFoundError, match="was dropped"):
                Table.open(path)
            if survived == 0:
                assert len(list(older.store.walk())) > 10
                with pytest.raises(TableNotFoundError, match=r"Table.drop\(path\) to finish"):
                    older.refresh()
                with pytest.raises(ProtocolChangedException):
                    writing.commit()
                with pytest.raises(Exception, match=r"tidelog.dropped"):
                    DeltaTable(path).to_pyarrow_table()
            continue
        break
    assert survived > 3
    assert not Path(path).exists()


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
    assert sorted(file.name for file in path.rglob("*") if file.is_file()) == ["in.csv", "notes.txt"]


def test_create_after_an_interrupted_drop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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


@pytest.mark.parametrize("commits", [0, 1, 5])
def test_a_transaction_of_a_dropped_table_cannot_commit_to_its_successor(commits: int, tmp_path: Path) -> None:
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
