"""Scans of files with deletion vectors: dead rows are not read, and damaged vectors are errors."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.log.support import (
    NUMBERS,
    live_files,
    memory_store,
    new_table,
    numbers,
    put_foreign,
    put_vector,
    read_numbers,
    remove,
)
from tidelog.log import Table
from tidelog.log.data.reader import DataFile, physical_rows, read_batches
from tidelog.log.errors import CorruptLogError
from tidelog.log.format.actions import AddFile, DeletionVectorDescriptor

PARTITIONED = pa.schema([("n", pa.int64()), ("p", pa.string())])


def replaced(file: AddFile, **changes: Any) -> AddFile:
    return AddFile(**{**{name: getattr(file, name) for name in file.__struct_fields__}, **changes})


@settings(max_examples=40, deadline=None)
@given(rows=st.integers(1, 40), dead=st.sets(st.integers(0, 39), min_size=1), batch=st.integers(1, 50))
def test_dead_rows_are_not_read(rows: int, dead: set[int], batch: int) -> None:
    dead = {position for position in dead if position < rows}
    assume(dead)
    table = new_table(memory_store())
    table.insert(numbers(range(rows)))
    (file,) = live_files(table)
    vector = put_vector(table.store, sorted(dead), "dv.bin")
    changed = replaced(file, deletion_vector=vector)
    put_foreign(table, remove(file), changed)
    alive = [number for number in range(rows) if number not in dead]
    assert read_numbers(table.refresh()) == alive
    assert table.scan(where="n >= 3").to_arrow()["n"].to_pylist() == [number for number in alive if number >= 3]
    assert table.scan(columns=[]).count() == table.at().num_rows == len(alive)
    read = read_batches(table.store, DataFile.of(changed), NUMBERS, batch_rows=batch)
    assert [value for piece in read for value in piece["n"].to_pylist()] == alive
    assert physical_rows(table.store, DataFile.of(changed)) == rows
    assert read_numbers(table.at(version=1)) == list(range(rows))


def test_partition_columns_have_live_rows_only() -> None:
    table = new_table(memory_store(), PARTITIONED, partition_by=["p"])
    table.insert([{"n": 1, "p": "a"}, {"n": 2, "p": "a"}])
    (file,) = live_files(table)
    changed = replaced(file, deletion_vector=put_vector(table.store, [0], "dv.bin"))
    put_foreign(table, remove(file), changed)
    assert table.refresh().scan(columns=["p"]).to_arrow().to_pylist() == [{"p": "a"}]


def with_vector(vector: DeletionVectorDescriptor) -> Table:
    table = new_table(memory_store())
    table.insert(numbers(range(10)))
    (file,) = live_files(table)
    put_foreign(table, remove(file), replaced(file, deletion_vector=vector))
    return table.refresh()


def descriptor(**changes: Any) -> DeletionVectorDescriptor:
    values = {
        "storage_type": "p",
        "path_or_inline_dv": "dv.bin",
        "offset": 1,
        "size_in_bytes": 36,
        "cardinality": 2,
    }
    return DeletionVectorDescriptor(**{**values, **changes})


def test_a_missing_deletion_vector_is_an_error() -> None:
    with pytest.raises(CorruptLogError, match=r"dv\.bin"):
        with_vector(descriptor()).scan().to_arrow()


@pytest.mark.parametrize("cardinality", [1, 3])
def test_a_deletion_vector_of_the_wrong_cardinality_is_an_error(cardinality: int) -> None:
    table = with_vector(descriptor(cardinality=cardinality))
    made = put_vector(table.store, [0, 9], "dv.bin")
    assert made.size_in_bytes == 36
    with pytest.raises(CorruptLogError, match=str(cardinality)):
        table.scan().to_arrow()


def test_a_damaged_deletion_vector_is_an_error() -> None:
    table = with_vector(descriptor())
    put_vector(table.store, [0, 9], "dv.bin")
    content = bytearray(table.store.read("dv.bin"))
    content[20] ^= 1
    table.store.replace("dv.bin", bytes(content))
    with pytest.raises(CorruptLogError):
        table.scan().to_arrow()


def test_an_inline_deletion_vector_is_applied() -> None:
    table = new_table(memory_store())
    table.insert(numbers(range(30)))
    (file,) = live_files(table)
    inline = descriptor(
        storage_type="i",
        path_or_inline_dv="^Bg9^0rr910000000000iXQKl0rr91000f55c8Xg0@@D72lkbi5=-{L",
        offset=None,
        size_in_bytes=44,
        cardinality=6,
    )
    put_foreign(table, remove(file), replaced(file, deletion_vector=inline))
    assert read_numbers(table.refresh()) == sorted(set(range(30)) - {3, 4, 7, 11, 18, 29})
