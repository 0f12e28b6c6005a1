"""Rows of a data file at some positions: only what holds them is read."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from pyroaring import BitMap64

from tidelog.log.data import reader
from tidelog.log.data.reader import DataFile, read_numbered_batches
from tidelog.log.errors import DataFileDamagedError
from tidelog.log.storage import Store
from tidelog.log.storage.local import LocalStore

SCHEMA = pa.schema([("k", pa.int64()), ("t", pa.string())])
ROWS = pa.table({"k": range(1_000), "t": [f"text {number}" for number in range(1_000)]}, schema=SCHEMA)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """A file with four row groups. A byte of the third is wrong, which shows if it is read."""
    pq.write_table(ROWS, tmp_path / "f.parquet", row_group_size=250, write_page_checksum=True, use_dictionary=False)
    group = pq.ParquetFile(tmp_path / "f.parquet").metadata.row_group(2)
    content = bytearray((tmp_path / "f.parquet").read_bytes())
    content[group.column(0).data_page_offset + group.column(0).total_compressed_size - 1] ^= 0xFF
    (tmp_path / "f.parquet").write_bytes(content)
    return LocalStore(str(tmp_path))


def at(store: Store, positions: list[int], batch_rows: int = 2**16) -> list[tuple[int, int]]:
    """The positions and keys of what was read."""
    file = DataFile("f.parquet", {}, None)
    read = read_numbered_batches(store, file, SCHEMA, only=BitMap64(positions), batch_rows=batch_rows)
    return [pair for found, batch in read for pair in zip(found.tolist(), batch["k"].to_pylist(), strict=True)]


@pytest.mark.parametrize("batch_rows", [7, 100, 2**16])
@pytest.mark.parametrize("positions", [[0], [249, 250], [999], [3, 499, 750, 998], [*range(500)], []])
def test_other_row_groups_are_not_read(store: Store, positions: list[int], batch_rows: int) -> None:
    assert at(store, positions, batch_rows) == [(position, position) for position in positions]


def test_a_damaged_row_group_is_seen_where_it_is_needed(store: Store) -> None:
    for position in (500, 749):
        with pytest.raises(DataFileDamagedError):
            at(store, [0, position, 999])


def test_a_position_beyond_the_last_row(store: Store) -> None:
    with pytest.raises(DataFileDamagedError):
        at(store, [1_000])


def test_many_positions(store: Store) -> None:
    random = np.random.default_rng(7)
    for _ in range(20):
        chosen = sorted({*random.integers(0, 500, 40).tolist(), *random.integers(750, 1_000, 40).tolist()})
        assert at(store, chosen, int(random.integers(1, 300))) == [(position, position) for position in chosen]


def test_batches_of_nested_text_have_fewer_rows(tmp_path: Path) -> None:
    """Arrow refuses one with 2 GB of text: 131,072 rows of 16 KB, which were read before batches had so many."""
    rows = pa.table({"k": pa.array(range(reader.BATCH_ROWS), pa.int64())})
    rows = rows.append_column("s", pc.make_struct(rows["k"], field_names=["k"]))
    pq.write_table(rows, tmp_path / "nested.parquet")
    store, file = LocalStore(str(tmp_path)), DataFile("nested.parquet", {}, None)
    for names, sizes in ((["k"], [2**17]), (["k", "s"], [2**16, 2**16]), (["s"], [2**16, 2**16])):
        schema = rows.select(names).schema
        assert [batch.num_rows for batch in reader.read_batches(store, file, schema)] == sizes


def test_batches_of_long_rows_have_fewer_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = pa.table({"k": range(1000), "s.t": [{"a.b": f"{number:0100}"} for number in range(1000)]})
    pq.write_table(rows, tmp_path / "long.parquet", row_group_size=250, use_dictionary=False)
    store, file = LocalStore(str(tmp_path)), DataFile("long.parquet", {}, None)

    def sizes(*names: str) -> list[int]:
        batches = [*reader.read_batches(store, file, rows.select(names).schema)]
        assert pa.Table.from_batches(batches) == rows.select(names)
        return [batch.num_rows for batch in batches]

    assert sizes("k", "s.t") == [1000]
    monkeypatch.setattr(reader, "_BATCH_BYTES", 20_000)  # a text takes 104 bytes and a number 8
    assert sizes("k") == [1000]
    assert max(sizes("s.t")) in range(180, 200)
    assert max(sizes("k", "s.t")) in range(160, 180)


def test_nested_text_that_is_too_long_for_a_batch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Arrow raises for a batch with 2 GB of it, after it has returned the batches before."""
    rows = pa.table({"t": [[str(number)] for number in range(100_000)]})
    pq.write_table(rows, tmp_path / "nested.parquet", row_group_size=30_000)
    store, file = LocalStore(str(tmp_path)), DataFile("nested.parquet", {}, None)
    read = pq.ParquetFile.iter_batches
    asked = []

    def iter_batches(parquet: pq.ParquetFile, batch_size: int, **options: Any) -> Iterator[pa.RecordBatch]:
        asked.append(batch_size)
        for number, batch in enumerate(read(parquet, batch_size, **options)):
            if number and batch_size > most:
                raise pa.ArrowNotImplementedError("Nested data conversions not implemented for chunked array outputs")
            yield batch

    monkeypatch.setattr(pq.ParquetFile, "iter_batches", iter_batches)
    most = 3_000
    assert pa.Table.from_batches(reader.read_batches(store, file, rows.schema)) == rows
    assert asked == [2**16, 2**12, 2**8]
    most = 0
    with pytest.raises(DataFileDamagedError, match="Nested data conversions"):
        [*reader.read_batches(store, file, rows.schema)]


# --- long values that many rows share --------------------------------------------------------------------------------

LONG = 20_000
SHARING = 5_000


@pytest.fixture
def counted() -> Iterator[pa.MemoryPool]:
    """Counts what Arrow holds, once the test sets it to be the default."""
    before = pa.default_memory_pool()
    yield pa.proxy_memory_pool(before)
    pa.set_memory_pool(before)


def _long_file(folder: Path, name: str, kind: pa.DataType, **options: Any) -> pa.Table:
    """A file with a few long values, each in a thousand rows: 100 MB decoded, and 100 kB on disk."""
    values = [f"{number:0{LONG}}" for number in range(SHARING // 1_000)]
    chosen = pa.array([values[row % len(values)] for row in range(SHARING)], pa.string())
    rows = pa.table({"k": pa.array(range(SHARING), pa.int64()), name: chosen.cast(kind)})
    pq.write_table(rows, folder / "long.parquet", **options)
    return rows


@pytest.mark.parametrize("coded", [False, True])
@pytest.mark.parametrize(
    "options",
    [
        {"store_schema": False},
        {"store_schema": True},
        {"store_schema": False, "dictionary_pagesize_limit": 50_000},
        {"store_schema": False, "write_statistics": False, "row_group_size": 2_000},
    ],
    ids=["texts", "views", "given up", "row groups"],
)
def test_long_values_that_many_rows_share_are_decoded_in_parts(
    options: dict[str, Any], coded: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, counted: pa.MemoryPool
) -> None:
    monkeypatch.setattr(reader, "_DECODED_BYTES", 2**21)
    position = 0
    rows = _long_file(tmp_path, "t", pa.string_view() if options["store_schema"] else pa.string(), **options)
    schema = pa.schema([("k", pa.int64()), ("t", pa.string())])
    pa.set_memory_pool(counted)
    read = reader.read_coded_batches if coded else reader.read_batches
    for batch in read(LocalStore(str(tmp_path)), DataFile("long.parquet", {}, None), schema):
        expected = rows.slice(position, batch.num_rows).cast(schema)
        assert pa.table([batch["k"], batch["t"].cast(pa.string())], schema=schema) == expected
        position += batch.num_rows
        del batch, expected
    assert position == SHARING
    # A whole batch of these rows has 100 MB.
    assert counted.max_memory() < 20 * 2**20


@pytest.mark.parametrize("kind", [pa.binary(), pa.large_string(), pa.large_binary(), pa.binary_view()], ids=str)
def test_long_values_of_all_types_are_decoded_in_parts(
    kind: pa.DataType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader, "_DECODED_BYTES", 2**21)
    rows = _long_file(tmp_path, "s.t", kind, store_schema=True)
    own = pa.string() if kind == pa.large_string() else pa.binary()
    schema = pa.schema([("k", pa.int64()), ("s.t", own)])
    batches = [*reader.read_batches(LocalStore(str(tmp_path)), DataFile("long.parquet", {}, None), schema)]
    assert max(batch.nbytes for batch in batches) < 2**22
    assert pa.Table.from_batches(batches) == rows.cast(schema)


def test_no_dictionary_is_looked_at_in_vain(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The bounds of many short texts say that they are short, and what is not read can be of any length."""
    monkeypatch.setattr(reader, "_DECODED_BYTES", 2**12)
    opened: list[Any] = []
    real = pq.ParquetFile

    def parquet_file(*arguments: Any, **options: Any) -> pq.ParquetFile:
        opened.append(options)
        return real(*arguments, **options)

    monkeypatch.setattr(pq, "ParquetFile", parquet_file)
    rows = pa.table({"t": [f"text {number % 4_000}" for number in range(5_000)]})
    pq.write_table(rows, tmp_path / "short.parquet", store_schema=False)
    batches = [*reader.read_batches(LocalStore(str(tmp_path)), DataFile("short.parquet", {}, None), rows.schema)]
    assert [batch.num_rows for batch in batches] == [5_000]
    assert len(opened) == 1
    _long_file(tmp_path, "t", pa.string(), store_schema=False)
    opened.clear()
    only_k = pa.schema([("k", pa.int64())])
    batches = [*reader.read_batches(LocalStore(str(tmp_path)), DataFile("long.parquet", {}, None), only_k)]
    assert [batch.num_rows for batch in batches] == [SHARING]
    assert len(opened) == 1
