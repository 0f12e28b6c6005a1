"""Malicious logs: names, numbers and lengths that make a careless reader loop forever or run out of memory.

Each is refused at once with a typed error.
"""

from __future__ import annotations

import io
import json
import resource
import struct
from collections.abc import Callable
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.log.support import PROTOCOL, add, live_files, memory_store, metadata, new_table, numbers, put_commit, remove
from tests.log.support import put_foreign as put
from tidelog.log import Table
from tidelog.log.errors import CorruptLogError, DataFileDamagedError, TidelogError
from tidelog.log.format import filenames, schema
from tidelog.log.format.actions import DeletionVectorDescriptor
from tidelog.log.format.deletion_vector import decode_bitmap
from tidelog.log.state.loader import load
from tidelog.log.storage import Store

MAX_MIB = 200


@pytest.fixture
def table() -> Table:
    made = new_table(memory_store())
    made.insert(numbers(range(5)))
    return made


def reads_five_rows(store: Store) -> bool:
    return Table(store, load(store)).scan().count() == 5


@pytest.mark.parametrize(
    "name",
    [
        f"{1:020d}.checkpoint.{1:010d}.{9_999_999_999:010d}.parquet",
        f"{1:020d}.checkpoint.{0:010d}.{0:010d}.parquet",
        f"{10**19:020d}.json",
        f"{10**19:020d}.checkpoint.parquet",
    ],
)
def test_invalid_file_names_are_ignored(table: Table, name: str) -> None:
    table.store.put_if_absent(f"_delta_log/{name}", b"")
    assert reads_five_rows(table.store)


def test_a_commit_far_ahead_is_reported_as_a_gap_at_once(table: Table) -> None:
    table.store.put_if_absent(filenames.commit_path(10**18), b"{}")
    with pytest.raises(CorruptLogError, match="commit 2,"):
        load(table.store)


def test_a_checksum_without_its_commit_means_that_the_commit_is_lost(table: Table) -> None:
    table.store.delete(filenames.commit_path(1))
    with pytest.raises(CorruptLogError, match="commit 1,"):
        load(table.store)


BAD_COMMITS: dict[str, bytes] = {
    "empty": b"",
    "only blank lines": b"\n \n",
    "deep, in an unknown key": b'{"x":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    "deep, in commitInfo": b'{"commitInfo":{"x":' + b'{"x":' * 100_000,
    "a number of 100,000 digits": b'{"txn":{"appId":"a","version":' + b"9" * 100_000 + b"}}",
    "more than 64 bits": b'{"txn":{"appId":"a","version":9223372036854775808}}',
    "an unknown key that is not UTF-8": b'{"add\xff":{}}',
    "a lone surrogate": b'{"txn":{"appId":"\\ud800","version":1}}',
    "an offset of more than 32 bits": (
        b'{"add":{"path":"f","partitionValues":{},"size":1,"modificationTime":1,"dataChange":true,"deletionVector":'
        b'{"storageType":"p","pathOrInlineDv":"d","offset":2147483648,"sizeInBytes":1,"cardinality":1}}}'
    ),
}


@pytest.mark.parametrize("name", list(BAD_COMMITS))
def test_invalid_commits_are_a_corrupt_log(table: Table, name: str) -> None:
    table.store.put_if_absent(filenames.commit_path(2), BAD_COMMITS[name])
    with pytest.raises(CorruptLogError, match="commit 2"):
        load(table.store)
    with pytest.raises(CorruptLogError, match="commit 2"):
        table.refresh()


@pytest.mark.parametrize("stamp", [-1, 10**18, 2**63, 10**30])
def test_invalid_commit_times_count_as_absent(table: Table, stamp: int) -> None:
    content = json.dumps({"commitInfo": {"inCommitTimestamp": stamp}}).encode()
    table.store.put_if_absent(filenames.commit_path(2), content)
    table.refresh()
    assert table.history()[0].timestamp.year == table.history()[1].timestamp.year


@pytest.mark.parametrize(
    "text",
    [
        '{"fields":' + "[" * 100_000,
        '{"fields":' + '[{"name":"a","type":{"type":"struct","fields":' * 2_000 + "[]" + "}}]" * 2_000 + "}",
        '{"fields":[{"name":"a","type":"decimal(99999999999999999999,1)"}]}',
        '{"fields":[{"name":"a","type":"long"},{"name":"a","type":"string"}]}',
        '{"fields":[{"name":"a","type":{"type":"struct","fields":[{"name":"b","type":"long"},{"name":"b","type":"long"}]}}]}',
    ],
)
def test_invalid_schemas_are_a_corrupt_log(text: str) -> None:
    with pytest.raises(CorruptLogError):
        schema.from_schema_string(text)


def test_file_columns_of_another_type_are_refused() -> None:
    nested = pa.schema([("a", pa.list_(pa.int64())), ("b", pa.struct([("x", pa.int64())]))])
    table = new_table(memory_store(), nested)
    for name, values in {"a": ["text"], "b": [[1]]}.items():
        buffer = io.BytesIO()
        pq.write_table(pa.table({name: values}), buffer)
        table.store.replace("f", buffer.getvalue())
        version = put(table, add("f"))
        with pytest.raises(DataFileDamagedError, match=f"column '{name}'"):
            table.refresh().scan().to_arrow()
        table.store.delete(filenames.commit_path(version))


@pytest.mark.parametrize("path", ["", "..", "\0", "x" * 5000, "file:///"])
def test_invalid_paths_are_a_corrupt_log(path: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    table = Table.create(str(tmp_path_factory.mktemp("table")), pa.schema([("n", pa.int64())]))
    put(table, add(path))
    with pytest.raises(CorruptLogError):
        table.refresh().scan().to_arrow()
    vector = DeletionVectorDescriptor(
        storage_type="p", path_or_inline_dv=path, offset=1, size_in_bytes=1, cardinality=1
    )
    put(table, remove(add(path)), add("f", deletion_vector=vector))
    with pytest.raises(CorruptLogError, match="deletion vector"):
        table.refresh().scan().to_arrow()


@pytest.mark.parametrize("text", ["1" * 5000, "300", "1e999999999", "x", "NaN", "0001-01-01"])
@pytest.mark.parametrize("kind", [pa.int8(), pa.decimal128(3, 1), pa.date32(), pa.timestamp("us", "UTC")], ids=str)
def test_odd_partition_values_are_read_or_are_a_corrupt_log(text: str, kind: pa.DataType) -> None:
    table = new_table(memory_store(), pa.schema([("n", pa.int64()), ("p", kind)]), partition_by=["p"])
    table.insert([{"n": 1, "p": None}])
    (file,) = live_files(table)
    put(table, remove(file), msgspec.structs.replace(file, path=file.path, partition_values={"p": text}))
    try:
        found = table.refresh().scan().to_arrow()
    except CorruptLogError:
        return
    assert found.num_rows == 1


# --- lengths ---------------------------------------------------------------------------------------------------------


def memory_mib() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


def bitmap(buckets: int, first: bytes) -> bytes:
    return struct.pack("<IQ", 1681511377, buckets) + first


BOMBS: dict[str, bytes] = {
    "2**63 buckets": bitmap(2**63, b""),
    "2**32 buckets": bitmap(2**32, b"\0" * 100),
    "65536 containers": bitmap(1, struct.pack("<III", 0, 12346, 65536)),
    "more containers than bytes": bitmap(1, struct.pack("<III", 0, 12346, 2**31)),
    "runs beyond the end": bitmap(1, struct.pack("<IHHBHHH", 0, 12347, 0, 1, 0, 65535, 65535)),
}


@pytest.mark.parametrize("name", list(BOMBS))
def test_a_bitmap_that_claims_more_than_it_holds(name: str) -> None:
    before = memory_mib()
    with pytest.raises(CorruptLogError):
        decode_bitmap(BOMBS[name])
    assert memory_mib() - before < MAX_MIB


def checkpointed() -> tuple[Store, bytes]:
    """A table whose first commit is gone, and its checkpoint without the seal."""
    store = memory_store()
    put_commit(store, 0, metadata(), PROTOCOL)
    put_commit(store, 1, *(add(f"f{number}") for number in range(100)))
    Table(store, load(store)).checkpoint()
    rows = pq.read_table(io.BytesIO(store.read(filenames.checkpoint_path(1))))
    buffer = io.BytesIO()
    pq.write_table(rows, buffer, store_schema=False)
    store.delete(filenames.commit_path(0))
    return store, buffer.getvalue()


def varint(value: int) -> bytes:
    """A number as a parquet footer encodes it (zigzag, seven bits per byte)."""
    value <<= 1
    parts = []
    while value >= 128:
        parts.append(value & 127 | 128)
        value >>= 7
    return bytes([*parts, value])


def lying_footer(content: bytes) -> bytes:
    """Replace each row count in the footer with 2**40."""
    length = int.from_bytes(content[-8:-4], "little")
    footer = content[-8 - length : -8].replace(b"\x16" + varint(102), b"\x16" + varint(2**40))
    assert footer != content[-8 - length : -8]
    return content[: -8 - length] + footer + struct.pack("<I", len(footer)) + b"PAR1"


def highly_compressed(content: bytes) -> bytes:
    """3,000,000 equal rows in a few kilobytes: more rows than a real checkpoint of this size can have."""
    del content
    rows = pa.table({"add": pa.array([None], pa.struct([("path", pa.string())])).take(pa.array([0] * 3_000_000))})
    buffer = io.BytesIO()
    pq.write_table(rows, buffer, compression="zstd")
    return buffer.getvalue()


@pytest.mark.parametrize("damage", [lying_footer, highly_compressed])
def test_a_checkpoint_that_claims_more_than_it_holds(damage: Callable[[bytes], bytes]) -> None:
    store, content = checkpointed()
    store.replace(filenames.checkpoint_path(1), content)
    assert load(store).files().adds.num_rows == 100
    store.replace(filenames.checkpoint_path(1), damage(content))
    before = memory_mib()
    with pytest.raises(TidelogError):
        load(store).files()
    assert memory_mib() - before < MAX_MIB


def test_a_checkpoint_with_an_add_that_has_no_path_is_not_used(table: Table) -> None:
    """The commits are read instead."""
    table.checkpoint()
    rows: list[dict[str, Any]] = pq.read_table(io.BytesIO(table.store.read(filenames.checkpoint_path(1)))).to_pylist()
    for row in rows:
        if row["add"]:
            row["add"] = {**row["add"], "path": None}
    buffer = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(rows), buffer)
    table.store.replace(filenames.checkpoint_path(1), buffer.getvalue())
    assert reads_five_rows(table.store)
