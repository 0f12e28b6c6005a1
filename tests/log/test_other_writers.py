"""Tables as other writers leave them, besides those in the tests of single modules."""

from __future__ import annotations

import datetime as dt
import io
import json
import os
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.log.support import (
    NUMBERS,
    PROTOCOL,
    START_MS,
    add,
    live_files,
    memory_store,
    metadata,
    new_table,
    numbers,
    put_commit,
    put_foreign,
    put_vector,
    read_numbers,
    remove,
    reopen,
)
from tidelog.log import Table
from tidelog.log.errors import CorruptLogError, UnsupportedFeatureError
from tidelog.log.format import filenames
from tidelog.log.format.actions import Protocol, SetTransaction
from tidelog.log.format.schema import TIMESTAMP, TIMESTAMP_NTZ
from tidelog.log.state.loader import load
from tidelog.log.state.version_checksum import checksum_bytes, read_head
from tidelog.log.storage import Store

MOMENT = dt.datetime(2026, 3, 8, 2, 30, 0, 123_456)  # noqa: DTZ001 - a local time


def put_parquet(table: Table, rows: pa.Table, **options: Any) -> None:
    buffer = io.BytesIO()
    pq.write_table(rows, buffer, **options)
    path = f"{table.version}.parquet"
    table.store.put_if_absent(path, buffer.getvalue())
    put_foreign(table, add(path, size=len(buffer.getvalue())))
    table.refresh()


# --- types -----------------------------------------------------------------------------------------------------------

# The table's type, the values, and the type that a file can have for them.
PHYSICAL: dict[str, tuple[pa.DataType, Sequence[Any], pa.DataType]] = {
    "boolean": (pa.bool_(), [True, None], pa.bool_()),
    "byte as int32": (pa.int8(), [-128, None], pa.int32()),
    "short as int32": (pa.int16(), [32767, None], pa.int32()),
    "int": (pa.int32(), [-(2**31), None], pa.int32()),
    "long": (pa.int64(), [2**63 - 1, None], pa.int64()),
    "float": (pa.float32(), [1.5, None], pa.float32()),
    "double": (pa.float64(), [1e300, None], pa.float64()),
    "string": (pa.string(), ["ü\0", None], pa.string()),
    "binary": (pa.binary(), [b"\xff\0", None], pa.binary()),
    "date": (pa.date32(), [dt.date(1582, 10, 15), None], pa.date32()),
    "timestamp": (TIMESTAMP, [MOMENT.replace(tzinfo=dt.UTC), None], pa.timestamp("us", "UTC")),
    "timestamp of milliseconds": (
        TIMESTAMP,
        [MOMENT.replace(tzinfo=dt.UTC, microsecond=123_000), None],
        pa.timestamp("ms", "UTC"),
    ),
    "timestamp_ntz": (TIMESTAMP_NTZ, [MOMENT, None], pa.timestamp("us")),
    "decimal(9,2)": (pa.decimal128(9, 2), [Decimal("-1234567.89"), None], pa.decimal128(9, 2)),
    "decimal(18,0)": (pa.decimal128(18, 0), [Decimal(10**17), None], pa.decimal128(18, 0)),
    "decimal(38,18)": (pa.decimal128(38, 18), [Decimal("1.000000000000000001"), None], pa.decimal128(38, 18)),
    # The table's type was widened after the file was written.
    "byte to long": (pa.int64(), [-128, None], pa.int8()),
    "int to double": (pa.float64(), [2**31 - 1, None], pa.int32()),
    "int to decimal": (pa.decimal128(12, 2), [Decimal("7.00"), None], pa.int32()),
    "float to double": (pa.float64(), [1.5, None], pa.float32()),
    "decimal to more digits": (pa.decimal128(20, 5), [Decimal("1.50000"), None], pa.decimal128(9, 2)),
    "date to timestamp_ntz": (TIMESTAMP_NTZ, [dt.datetime(2026, 3, 8), None], pa.date32()),  # noqa: DTZ001
}


@pytest.mark.parametrize("as_integers", [False, True])
@pytest.mark.parametrize("name", list(PHYSICAL))
def test_every_physical_type_is_read(name: str, as_integers: bool) -> None:
    kind, values, in_file = PHYSICAL[name]
    table = new_table(memory_store(), pa.schema([("c", kind)]))
    column = pa.array(values, kind).cast(in_file)
    put_parquet(table, pa.table({"c": column}), store_decimal_as_integer=as_integers, store_schema=False)
    found = table.scan().to_arrow()
    assert found.schema.field("c").type == kind
    assert found["c"].to_pylist() == list(values)


@pytest.mark.parametrize("compliant", [True, False])
def test_fields_added_later_to_nested_types_are_null(compliant: bool) -> None:
    inner = pa.struct([("x", pa.int64()), ("later", pa.string())])
    schema = pa.schema([("s", inner), ("l", pa.list_(inner)), ("m", pa.map_(pa.string(), inner))])
    table = new_table(memory_store(), schema)
    old = pa.struct([("x", pa.int32())])
    rows = pa.table(
        {
            "s": pa.array([{"x": 1}, None], old),
            "l": pa.array([[{"x": 2}, None], None], pa.list_(old)),
            "m": pa.array([[("k", {"x": 3}), ("n", None)], []], pa.map_(pa.string(), old)),
        }
    )
    put_parquet(table, rows, use_compliant_nested_type=compliant)
    assert table.scan().to_arrow().to_pylist() == [
        {
            "s": {"x": 1, "later": None},
            "l": [{"x": 2, "later": None}, None],
            "m": [("k", {"x": 3, "later": None}), ("n", None)],
        },
        {"s": None, "l": None, "m": []},
    ]


def test_columns_added_by_another_writer_are_null_in_older_files() -> None:
    table = new_table(memory_store())
    table.insert(numbers([1]))
    wider = pa.schema([("n", pa.int64()), ("s", pa.string())])
    old = load(table.store).head.metadata
    put_foreign(table, metadata(wider, id=old.id, configuration=old.configuration))
    table.insert([{"n": 2, "s": "x"}])
    assert sorted(table.scan().to_arrow().to_pylist(), key=lambda row: row["n"]) == [
        {"n": 1, "s": None},
        {"n": 2, "s": "x"},
    ]
    assert table.at(version=1).schema.equals(NUMBERS)


def test_a_void_column_is_null_and_not_in_the_files() -> None:
    table = new_table(memory_store(), pa.schema([("n", pa.int64()), ("v", pa.int32())]))
    old = load(table.store).head.metadata
    put_foreign(table, msgspec.structs.replace(old, schema_string=old.schema_string.replace('"integer"', '"void"')))
    put_parquet(table.refresh(), numbers([1, 2]))
    found = table.scan().to_arrow()
    assert found.schema.field("v").type == pa.null()
    assert found.to_pylist() == [{"n": 1, "v": None}, {"n": 2, "v": None}]


# --- files of the log ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("content", [None, b"", b"garbage"])
@pytest.mark.parametrize("checkpointed", [False, True])
def test_compacted_log_files_do_not_matter(content: bytes | None, checkpointed: bool) -> None:
    """delta-spark can write versions 1 to 3 as one more file, whatever its content."""
    table = new_table(memory_store())
    for number in range(4):
        table.insert(numbers([number]))
    first = live_files(table)[0]
    put_foreign(table, remove(first))
    if checkpointed:
        reopen(table).checkpoint()
    lines = b"".join(table.store.read(filenames.commit_path(version)) for version in range(1, 4))
    name = f"_delta_log/{1:020d}.{3:020d}.compacted.json"
    table.store.put_if_absent(name, lines if content is None else content)
    assert read_numbers(reopen(table)) == [1, 2, 3]
    assert read_numbers(reopen(table).at(version=2)) == [0, 1]
    assert len(reopen(table).history()) == 6


def test_an_older_checkpoint_replaces_one_with_missing_parts() -> None:
    table = new_table(memory_store())
    for number in range(3):
        table.insert(numbers([number]))
        table.refresh()
        if number == 1:
            table.checkpoint()
    whole = table.store.read(filenames.checkpoint_path(2))
    table.store.put_if_absent(f"_delta_log/{3:020d}.checkpoint.{1:010d}.{2:010d}.parquet", whole)
    for version in range(3):
        table.store.delete(filenames.checksum_path(version))
        if version < 2:
            table.store.delete(filenames.commit_path(version))
    assert read_numbers(reopen(table)) == [0, 1, 2]
    table.store.delete(filenames.commit_path(3))
    with pytest.raises(CorruptLogError, match="commit 3"):
        reopen(table)


@pytest.mark.parametrize("spelling", ["{}", "file:{}", "file://{}"])
def test_files_and_vectors_outside_the_table_are_read_by_absolute_path(spelling: str, tmp_path: Path) -> None:
    """A shallow clone names files of another table like this."""
    folder = tmp_path / "else where, ü"
    folder.mkdir()
    pq.write_table(numbers(range(4)), folder / "a%b.parquet")
    table = Table.create(str(tmp_path / "table"), pa.schema([("n", pa.int64())]))
    uri = spelling.format(f"{folder.as_uri().removeprefix('file://')}/a%25b.parquet")
    vector = put_vector(table.store, [1], str(folder / "dv.bin"))
    put_foreign(table, add(uri))
    assert read_numbers(table.refresh()) == [0, 1, 2, 3]
    other_spelling = f"file://{uri.removeprefix('file:').removeprefix('//')}"
    put_foreign(table, remove(add(other_spelling)), add(uri, deletion_vector=vector))
    assert read_numbers(table.refresh()) == read_numbers(Table.open(table.path)) == [0, 2, 3]


def test_a_vector_beyond_the_rows_of_its_file_is_a_corrupt_log() -> None:
    table = new_table(memory_store())
    table.insert(numbers(range(3)))
    (file,) = live_files(table)
    put_foreign(table, remove(file), msgspec.structs.replace(file, deletion_vector=put_vector(table.store, [3], "dv")))
    with pytest.raises(CorruptLogError, match="positions beyond its last row"):
        table.refresh().scan().to_arrow()


def test_in_commit_timestamps_enabled_later(tmp_path: Path) -> None:
    """Commits before that have their files' times, later ones the times in the commits."""
    path = str(tmp_path / "table")
    table = Table.create(path, pa.schema([("n", pa.int64())]), properties={"delta.enableInCommitTimestamps": False})
    table.insert([{"n": 1}])
    for version in range(2):
        file = Path(path, filenames.commit_path(version))
        os.utime(file, ns=((START_MS + version) * 10**6,) * 2)
    old = load(table.store).head
    enabled = {
        **old.metadata.configuration,
        "delta.enableInCommitTimestamps": "true",
        "delta.inCommitTimestampEnablementVersion": "2",
        "delta.inCommitTimestampEnablementTimestamp": str(START_MS + 1000),
    }
    features = tuple(sorted({*(old.protocol.writer_features or ()), "inCommitTimestamp"}))
    put_commit(
        table.store,
        2,
        msgspec.structs.replace(old.metadata, configuration=enabled),
        msgspec.structs.replace(old.protocol, writer_features=features),
        info={"inCommitTimestamp": START_MS + 1000},
    )
    table = Table.open(path)
    table.insert([{"n": 2}])
    stamps = [round(record.timestamp.timestamp() * 1000) for record in table.history()][::-1]
    assert stamps[:3] == [START_MS, START_MS + 1, START_MS + 1000]
    assert stamps[3] > stamps[2]
    assert table.at(timestamp=dt.datetime.fromtimestamp((START_MS + 999) / 1000, dt.UTC)).version == 1
    assert table.at(timestamp=dt.datetime.fromtimestamp((START_MS + 1000) / 1000, dt.UTC)).version == 2


# --- checksums of other writers --------------------------------------------------------------------------------------


def with_foreign_checksums() -> Store:
    """Three versions, each with a checksum without tidelog's seal."""
    store = memory_store()
    put_commit(store, 0, metadata(), PROTOCOL)
    put_commit(store, 1, add("a"), SetTransaction(app_id="x", version=1))
    put_commit(store, 2, add("b"), SetTransaction(app_id="x", version=2))
    for version in range(3):
        head = load(store, version).head
        content = json.loads(checksum_bytes(head, txn_id="t", in_commit_timestamp_ms=head.timestamp_ms) or b"")
        del content["tidelog"]
        store.put_if_absent(filenames.checksum_path(version), json.dumps(content).encode())
    return store


def change(store: Store, version: int, old: str, new: str) -> None:
    path = filenames.checksum_path(version)
    content = store.read(path).decode()
    assert old in content
    store.replace(path, content.replace(old, new).encode())


def test_a_checksum_without_a_seal_is_used_if_it_follows_from_the_one_before() -> None:
    store = with_foreign_checksums()
    assert read_head(store, 2) is not None
    store.delete(filenames.checksum_path(1))
    assert read_head(store, 2) is None


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('\\"n\\"', '\\"m\\"'),
        ('"version": 2', '"version": 3'),
        ('"minReaderVersion": 3', '"minReaderVersion": 2'),
        (str(START_MS + 2), str(START_MS + 3)),
    ],
)
def test_a_checksum_without_a_seal_is_not_used_if_it_contradicts_the_log(old: str, new: str) -> None:
    store = with_foreign_checksums()
    expected = load(store).head
    change(store, 2, old, new)
    assert read_head(store, 2) is None
    found = load(store).head
    assert (found.metadata, found.protocol, found.transactions, found.timestamp_ms) == (
        expected.metadata,
        expected.protocol,
        expected.transactions,
        expected.timestamp_ms,
    )


def test_a_checksum_of_another_version_is_not_used() -> None:
    table = new_table(memory_store())
    for number in range(3):
        table.insert(numbers([number]), idempotency_key=("app", number))
    table.store.replace(filenames.checksum_path(3), table.store.read(filenames.checksum_path(1)))
    assert load(table.store).head.transactions["app"].version == 2


def test_the_error_names_a_missing_reader_feature(tmp_path: Path) -> None:
    table = Table.create(str(tmp_path / "table"), pa.schema([("n", pa.int64())]))
    put_foreign(
        table,
        Protocol(min_reader_version=3, min_writer_version=7, reader_features=("sparkles",), writer_features=()),
    )
    for attempt in (table.refresh, lambda: Table.open(table.path)):
        with pytest.raises(UnsupportedFeatureError, match="sparkles"):
            attempt()
