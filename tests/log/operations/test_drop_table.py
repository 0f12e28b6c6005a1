"""Dropping a table: at once for every reader, finished after a crash, and nothing deleted that is not the table's."""

from __future__ import annotations

from pathlib import Path

import pytest
from deltalake import DeltaTable

from tests.log.support import NUMBERS, memory_url, numbers, read_numbers
from tidelog.log import Table
from tidelog.log.errors import ProtocolChangedException, StoreUnavailableError, TableNotFoundError
from tidelog.log.storage.local import LocalStore


def filled(path: str) -> Table:
    table = Table.create(path, NUMBERS, properties={"delta.enableChangeDataFeed": True})
    table.insert(numbers(range(5)))
    table.update("n = 1", {"n": "10"})
    table.checkpoint()
    table.delete("n = 2")
    return table


@pytest.mark.parametrize("kind", ["local", "memory"])
def test_nothing_is_left(kind: str, tmp_path: Path) -> None:
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


def test_what_is_not_the_table_s_stays(tmp_path: Path) -> None:
    path = tmp_path / "t"
    filled(str(path))
    inner = filled(str(path / "inner"))
    (path / ".hidden").write_text("mine")
    Table.drop(str(path))
    assert (path / ".hidden").read_text() == "mine"
    assert read_numbers(inner.refresh()) == [0, 3, 4, 10]


def test_a_drop_ends_the_table_before_a_file_is_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Killed after each deletion in turn: the table is gone for everyone, and the next drop finishes."""
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


def test_a_path_without_a_table(tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("mine")
    with pytest.raises(TableNotFoundError):
        Table.drop(str(tmp_path))
    assert (tmp_path / "precious").read_text() == "mine"
