"""Creating and opening a table."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.log.support import NUMBERS, live_files, memory_url, numbers, read_numbers
from tidelog.log import Table
from tidelog.log.errors import (
    ConfigurationError,
    HistoryExpiredError,
    SchemaMismatchError,
    TableExistsError,
    TableNotFoundError,
)
from tidelog.log.format import properties
from tidelog.log.format.actions import Protocol
from tidelog.log.state.commits import read_commit
from tidelog.log.storage import open_store
from tidelog.log.storage.location import KINDS


def test_a_new_table_is_empty_and_can_be_opened(path: str) -> None:
    schema = pa.schema([pa.field("n", pa.int64(), nullable=False), ("p", pa.string())])
    created = Table.create(path, schema, partition_by=["p"], properties={"owner": "me", "delta.checkpointInterval": 7})
    for table in (created, Table.open(path)):
        assert table.path == path
        assert table.version == 0
        assert table.time_version is None
        assert table.schema.equals(schema)
        assert table.partition_by == ("p",)
        assert table.properties["owner"] == "me"
        assert table.properties["delta.checkpointInterval"] == "7"
        assert table.scan().to_arrow().equals(schema.empty_table())
        assert table.id == created.id


def test_comments_of_columns_are_kept_and_go_to_a_copy(path: str) -> None:
    inner = pa.field("x", pa.int64(), metadata={"comment": "inside"})
    schema = pa.schema(
        [
            pa.field("n", pa.int64(), metadata={"comment": "a number", "delta.identity.start": "1"}),
            pa.field("s", pa.struct([inner]), metadata={"unit": "m"}),
        ]
    )
    created = Table.create(path, schema)
    created.insert([{"n": 1, "s": {"x": 2}}])
    copied = Table.create(memory_url(), Table.open(path).schema)
    for table in (created, copied):
        assert table.schema.field("n").metadata == {b"comment": b"a number"}
        assert table.schema.field("s").metadata == {b"unit": b"m"}
        assert table.schema.field("s").type.field("x").metadata == {b"comment": b"inside"}
    assert created.scan().to_arrow().schema.field("n").metadata == {b"comment": b"a number"}
    (add,) = live_files(created)
    stored = pq.read_schema(created.store.open_input(add.path))
    assert b"comment" not in (stored.field("n").metadata or {})


def test_deletion_vectors_and_in_commit_timestamps_are_on_unless_turned_off() -> None:
    on = Table.create(memory_url(), NUMBERS).properties
    assert on["delta.enableDeletionVectors"] == on["delta.enableInCommitTimestamps"] == "true"
    off = Table.create(
        memory_url(),
        NUMBERS,
        properties={"delta.enableDeletionVectors": False, "delta.enableInCommitTimestamps": "false"},
    )
    assert off.properties["delta.enableDeletionVectors"] == "false"
    commit = read_commit(off.store, 0)
    assert Protocol(min_reader_version=1, min_writer_version=2) in commit.actions
    assert "inCommitTimestamp" not in commit.info


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        (pa.schema([("a", pa.int64()), ("a", pa.int64())]), "the schema has 'a' more than once"),
        (pa.schema([("a", pa.int64()), ("A", pa.int64())]), "the schema has 'a' more than once"),
        (
            pa.schema([("s", pa.struct([("x", pa.int64()), ("x", pa.int64())]))]),
            "the column 's' has 'x' more than once",
        ),
        (pa.schema([]), "the schema has no columns; add at least one"),
        ("n INT", "the schema must be a pyarrow.Schema, not str"),
    ],
    ids=["equal", "equal but for case", "in a struct", "none", "no schema"],
)
def test_a_schema_that_cannot_be_a_table_is_refused(schema: Any, message: str) -> None:
    path = memory_url()
    with pytest.raises(ConfigurationError) as raised:
        Table.create(path, schema)
    assert message in str(raised.value)
    with pytest.raises(TableNotFoundError):
        Table.open(path)


def test_creating_a_table_twice_is_an_error_or_opens_it(path: str) -> None:
    first = Table.create(path, NUMBERS)
    with pytest.raises(TableExistsError) as raised:
        Table.create(path, NUMBERS)
    assert raised.value.fields == {"path": path}
    other = pa.schema([("x", pa.string())])
    opened = Table.create(path, other, exist_ok=True)
    assert opened.id == first.id
    assert opened.schema.equals(NUMBERS)


def test_opening_a_missing_table_is_an_error(path: str) -> None:
    with pytest.raises(TableNotFoundError) as raised:
        Table.open(path)
    assert raised.value.fields == {"path": path}


@pytest.mark.parametrize(
    ("arguments", "error", "names"),
    [
        ({"partition_by": ["x"]}, SchemaMismatchError, "x"),
        ({"partition_by": ["n", "n"]}, SchemaMismatchError, "n"),
        ({"partition_by": ["n", "s", "l"]}, SchemaMismatchError, "l"),
        ({"partition_by": ["l"]}, SchemaMismatchError, "l"),
        ({"partition_by": "n"}, ConfigurationError, "n"),
        ({"partition_by": None}, ConfigurationError, "not NoneType; leave it out"),
        ({"partition_by": 5}, ConfigurationError, "not int"),
        ({"properties": "x"}, ConfigurationError, "properties must be a dict"),
        ({"properties": [("a", "b")]}, ConfigurationError, "properties must be a dict"),
        ({"properties": 5}, ConfigurationError, "properties must be a dict"),
        ({"properties": {5: "x"}}, ConfigurationError, "properties must be a dict"),
        ({"properties": {"tidelog.unknown": "1"}}, ConfigurationError, "tidelog.unknown"),
        ({"properties": {"delta.checkpointInterval": "none"}}, ConfigurationError, "delta.checkpointInterval"),
    ],
)
def test_a_wrong_definition_is_refused_and_leaves_no_table(
    path: str, arguments: dict[str, Any], error: type[Exception], names: str
) -> None:
    schema = pa.schema([("n", pa.int64()), ("s", pa.string()), ("l", pa.list_(pa.int64()))])
    with pytest.raises(error, match=names):
        Table.create(path, schema, **arguments)
    with pytest.raises(TableNotFoundError):
        Table.open(path)


@pytest.mark.parametrize(
    "schema",
    [
        pa.schema([]),
        pa.schema([("a", pa.int64()), ("A", pa.string())]),
        pa.schema([("a", pa.struct([("x", pa.int64()), ("X", pa.int64())]))]),
        pa.schema([("a", pa.duration("s"))]),
    ],
)
def test_a_schema_that_delta_cannot_hold_is_refused(schema: pa.Schema) -> None:
    with pytest.raises((ConfigurationError, SchemaMismatchError)):
        Table.create(memory_url(), schema)


def test_not_all_columns_can_be_partition_columns() -> None:
    with pytest.raises(SchemaMismatchError):
        Table.create(memory_url(), pa.schema([("a", pa.int64()), ("b", pa.int64())]), partition_by=["a", "b"])


def test_a_table_in_memory_lives_as_long_as_the_process() -> None:
    url = memory_url()
    Table.create(url, NUMBERS).insert(numbers([1]))
    assert read_numbers(Table.open(url)) == [1]
    assert open_store(url).url == url


@pytest.mark.parametrize("method", [Table.create, Table.open])
def test_the_help_names_every_kind_of_path(method: Any) -> None:
    text = inspect.getdoc(method) or ""
    for scheme in ("file", "memory", *KINDS):
        assert f"{scheme}://" in text
    assert "storage_options: " in text


def test_the_help_names_the_defaults_of_properties() -> None:
    text = " ".join((inspect.getdoc(Table.create) or "").split())
    for key, value in properties.NEW_TABLE_DEFAULTS.items():
        assert f"`{key}` = {value}" in text
    shown = dict(re.findall(r"`([\w.]+)` = ([\w-]+(?: days?| MiB)?)", text))
    for key in (
        properties.LOG_RETENTION,
        properties.DELETED_FILE_RETENTION,
        properties.MINOR_SPAN,
        properties.MAX_TRANSACTION_TIME,
    ):
        assert properties.parse_duration_ms(shown[key]) == properties.duration_ms({}, key)
    assert properties.parse_size_bytes(shown[properties.TARGET_FILE_SIZE]) == properties.size_bytes(
        {}, properties.TARGET_FILE_SIZE
    )
    assert int(shown[properties.INDEXED_COLUMNS]) == properties.indexed_columns({})
    assert shown[properties.CONFLICT_POLICY] == properties.conflict_policy({})
    assert properties.parse_flag(shown[properties.METADATA_RETRY]) is properties.metadata_retry({})


# --- paths beside a table --------------------------------------------------------------------------------------------


def test_a_folder_of_tables_is_named_as_one(path: str) -> None:
    for name in ("orders", "users"):
        Table.create(f"{path}/{name}", NUMBERS)
    with pytest.raises(TableNotFoundError) as raised:
        Table.open(path)
    assert raised.value.message == f"there is no table at {path}: it is a folder of tables (orders, users)"
    assert raised.value.advice == f"open one of them, such as {path}/orders"


def test_the_folder_of_a_log_is_named_as_one(path: str) -> None:
    Table.create(path, NUMBERS)
    with pytest.raises(TableNotFoundError, match="it is a folder of a table's log") as raised:
        Table.open(f"{path}/_delta_log")
    assert raised.value.advice == f"open {path}"


def test_any_other_folder_without_a_table_says_how_to_make_one(tmp_path: Path) -> None:
    place = tmp_path / "nothing"
    with pytest.raises(TableNotFoundError) as raised:
        Table.open(str(place))
    assert raised.value.message == f"there is no table at {place}"
    assert "Table.create or a Sink, or make one of parquet files with Table.convert" in raised.value.advice


def test_a_version_that_the_log_lacks_says_which_it_has(path: str) -> None:
    table = Table.create(path, NUMBERS)
    with pytest.raises(HistoryExpiredError, match="version 99 is not in the log") as raised:
        table.at(version=99)
    assert raised.value.advice == "the available versions are 0 to 0, which history lists"
