"""Files outside a table's folder: read by default, as Delta allows, and refused if the environment says so."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path

import msgspec
import pyarrow as pa
import pytest

from tests.log.support import add, live_files, put_foreign, put_vector, remove
from tidelog.log import Table
from tidelog.log.data.row_maps import read_row_map
from tidelog.log.errors import ConfigurationError, OutsideFileError
from tidelog.log.storage import open_store
from tidelog.log.storage.object_store import ObjectStore
from tidelog.log.storage.registry import OUTSIDE_FILES

SCHEMA = pa.schema([("n", pa.int64())])


@pytest.fixture
def table(tmp_path: Path) -> Table:
    """A table with one row of its own. Beside it is a file with two rows."""
    other = Table.create(str(tmp_path / "other"), SCHEMA)
    other.insert([{"n": 1}, {"n": 2}])
    (file,) = live_files(other)
    (tmp_path / "other" / file.path).rename(tmp_path / "outside.parquet")
    made = Table.create(str(tmp_path / "t"), SCHEMA)
    made.insert([{"n": 0}])
    return made


def link(table: Table) -> str:
    (Path(table.path) / "link.parquet").symlink_to("../outside.parquet")
    return "link.parquet"


def linked_folder(table: Table) -> str:
    (Path(table.path) / "folder").symlink_to("..")
    return "folder/outside.parquet"


WAYS: dict[str, Callable[[Table], str]] = {
    "absolute": lambda table: str(Path(table.path).parent / "outside.parquet"),
    "URI": lambda table: (Path(table.path).parent / "outside.parquet").as_uri(),
    "upwards": lambda _: "../outside.parquet",
    "escaped": lambda _: "%2E%2E/outside.parquet",
    "link": link,
    "linked folder": linked_folder,
}


def rows(table: Table) -> int:
    return sum(batch.num_rows for batch in Table.open(table.path).scan().to_batches())


@pytest.mark.parametrize("way", list(WAYS))
def test_a_data_file(table: Table, way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    path = WAYS[way](table)
    put_foreign(table, add(path))
    assert rows(table) == 3
    for value in ("allow", ""):
        monkeypatch.setenv(OUTSIDE_FILES, value)
        assert rows(table) == 3
    monkeypatch.setenv(OUTSIDE_FILES, "refuse")
    with pytest.raises(OutsideFileError, match="outside its folder") as raised:
        rows(table)
    assert raised.value.path == table.path
    assert Table.open(table.path).at(version=1).scan().to_arrow().num_rows == 1


def test_a_deletion_vector_and_a_row_map(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(OUTSIDE_FILES, "refuse")
    (file,) = live_files(table)
    outside = str(Path(table.path).parent / "v.bin")
    vector = put_vector(table.store, [0], outside)
    put_foreign(table, remove(file), msgspec.structs.replace(file, deletion_vector=vector))
    with pytest.raises(OutsideFileError):
        rows(table)
    with pytest.raises(OutsideFileError):
        read_row_map(open_store(table.path), "../map")


def test_a_table_behind_a_link_is_inside_itself(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(OUTSIDE_FILES, "refuse")
    alias = Path(table.path).parent / "alias"
    alias.symlink_to(table.path)
    again = Table.open(str(alias))
    (file,) = live_files(again)
    put_foreign(again, remove(file), msgspec.structs.replace(file, path=f"{table.path}/{file.path}"))
    assert again.refresh().scan().to_arrow().num_rows == 1
    again.insert([{"n": 5}])
    again.checkpoint()
    assert Table.open(str(alias)).scan().count() == 2


def test_an_object_store(monkeypatch: pytest.MonkeyPatch) -> None:
    paths = ["s3://other/x", "/x", "s3://bucket/table2/x", "s3://bucket/x"]
    store = open_store("s3://bucket/table")
    assert isinstance(store, ObjectStore)
    assert store._locate(paths[0]) == ("other", "x")
    monkeypatch.setenv(OUTSIDE_FILES, "refuse")
    for found in (open_store("s3://bucket/table"), pickle.loads(pickle.dumps(open_store("s3://bucket/table")))):
        assert isinstance(found, ObjectStore)
        for path in paths:
            with pytest.raises(OutsideFileError):
                found._locate(path)
        for path in ("x", "s3a://bucket/table/x", "/table/x", ""):
            assert found._locate(path)[1].startswith("table")


def test_a_store_that_is_sent_to_another_process_stays_confined(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark's executors have another environment."""
    monkeypatch.setenv(OUTSIDE_FILES, "refuse")
    content = pickle.dumps(open_store(table.path))
    monkeypatch.delenv(OUTSIDE_FILES)
    with pytest.raises(OutsideFileError):
        pickle.loads(content).read("../outside.parquet")


def test_an_unknown_value_is_an_error(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(OUTSIDE_FILES, "yes")
    with pytest.raises(ConfigurationError, match=OUTSIDE_FILES):
        Table.open(table.path)
