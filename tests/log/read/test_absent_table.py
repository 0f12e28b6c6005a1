"""A path without a table: the error says what is there and what to do, and nothing is put over the rows of others."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.log.support import NUMBERS, memory_url, numbers
from tidelog.log import Table
from tidelog.log.errors import ConfigurationError, TableNotFoundError
from tidelog.log.storage import open_store


def put(root: Path, *files: str) -> None:
    for name in files:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix == ".parquet":
            pq.write_table(pa.table({"k": [1]}), path)
        else:
            path.write_text("{}")


FOLDERS = {
    "parquet files": (["a.parquet"], "it is a folder of parquet files", "Table.convert"),
    "partitions": (["day=1/a.parquet"], "it is a folder of parquet files", "Table.convert"),
    "iceberg": (["metadata/v1.metadata.json", "data/a.parquet"], "it is an Iceberg table", "write its rows to a table"),
    "hudi": ([".hoodie/hoodie.properties", "a.parquet"], "it is a Hudi table", "write its rows to a table"),
    "checkpoint": (
        ["offsets/0", "commits/0", "metadata"],
        "it is the checkpoint of a streaming query",
        "open the table",
    ),
}


@pytest.mark.parametrize("kind", FOLDERS)
def test_something_else_is_named_and_no_table_is_created_over_it(tmp_path: Path, kind: str) -> None:
    files, what, advice = FOLDERS[kind]
    put(tmp_path, *files)
    with pytest.raises(TableNotFoundError) as missing:
        Table.open(str(tmp_path))
    assert missing.value.message == f"there is no table at {tmp_path}: {what}"
    assert advice in missing.value.advice
    for exist_ok in (False, True):
        with pytest.raises(ConfigurationError, match=f"cannot create a table at .*: {what}") as refused:
            Table.create(str(tmp_path), NUMBERS, exist_ok=exist_ok)
        assert refused.value.advice.startswith("choose another path")
    assert not (tmp_path / "_delta_log").exists()


@pytest.mark.parametrize("kind", ["iceberg", "hudi"])
def test_the_files_of_another_format_are_not_converted(tmp_path: Path, kind: str) -> None:
    """Its own metadata says which of them count."""
    put(tmp_path, *FOLDERS[kind][0])
    with pytest.raises(ConfigurationError, match="holds another table"):
        Table.convert(str(tmp_path))


@pytest.mark.parametrize("name", ["a.csv", "a.parquet"])
def test_a_file_is_no_table(tmp_path: Path, name: str) -> None:
    put(tmp_path, name)
    with pytest.raises(TableNotFoundError, match="it is a file, and a table is a folder"):
        Table.open(str(tmp_path / name))


def test_other_files_and_nothing(tmp_path: Path) -> None:
    put(tmp_path, "csv/b.csv", "csv/a.csv")
    with pytest.raises(TableNotFoundError, match=r"it is a folder of other files, such as a\.csv"):
        Table.open(str(tmp_path / "csv"))
    assert Table.create(str(tmp_path / "csv"), NUMBERS).version == 0  # they are not taken for rows
    (tmp_path / "empty").mkdir()
    with pytest.raises(TableNotFoundError, match="the folder is empty"):
        Table.open(str(tmp_path / "empty"))


@pytest.mark.parametrize("place", ["z", "deep/below"])
def test_a_table_further_below_is_named(tmp_path: Path, place: str) -> None:
    for number in range(25):
        (tmp_path / f"a{number:02}").mkdir()  # more than are looked into for a log
    Table.create(str(tmp_path / place), NUMBERS)
    with pytest.raises(TableNotFoundError, match="there is one below it") as raised:
        Table.open(str(tmp_path))
    assert raised.value.advice == f"open {tmp_path / place}"


def test_a_mistyped_path_is_guessed(tmp_path: Path) -> None:
    Table.create(str(tmp_path / "orders"), NUMBERS)
    with pytest.raises(TableNotFoundError) as raised:
        Table.open(str(tmp_path / "order"))
    assert raised.value.advice.startswith("did you mean 'orders'? ")


def test_a_partition_folder_names_its_table(tmp_path: Path) -> None:
    put(tmp_path, "m=1/n=2/a.parquet")
    Table.convert(str(tmp_path), partition_by=["m", "n"])
    for folder in ("m=1", "m=1/n=2"):
        with pytest.raises(TableNotFoundError, match=f"it is a partition folder of the table at {tmp_path}"):
            Table.open(str(tmp_path / folder))


def test_a_store_without_folders_says_the_same() -> None:
    url = memory_url()
    open_store(url).put_if_absent("a.parquet", b"")
    with pytest.raises(TableNotFoundError, match="it is a folder of parquet files"):
        Table.open(url)
    with pytest.raises(ConfigurationError, match="cannot create a table"):
        Table.create(url, NUMBERS)


def test_a_dropped_table_can_be_created_again_beside_files_of_others(tmp_path: Path) -> None:
    Table.create(str(tmp_path), NUMBERS).insert(numbers([1, 2]))
    put(tmp_path, "a.parquet")
    Table.drop(str(tmp_path))
    assert Table.create(str(tmp_path), NUMBERS).scan().count() == 0
