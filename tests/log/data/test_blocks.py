"""Rows are taken out of bounded blocks, whatever their sizes are, and a partition keeps the order of its rows."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest

from tests.log.support import live_files, memory_store, new_table
from tests.randomness import seed
from tidelog.log.data import blocks

SMALL_BYTES = 2_000


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks, "BLOCK_BYTES", SMALL_BYTES)


def texts(randomness: random.Random, count: int) -> pa.Table:
    """Rows of very different sizes, in several chunks."""
    values = [
        {"n": number, "text": "x" * randomness.choice([0, 1, 10, 100, 3 * SMALL_BYTES]), "p": randomness.choice("abc")}
        for number in range(count)
    ]
    schema = pa.schema([("n", pa.int64()), ("text", pa.string()), ("p", pa.string())])
    cut = randomness.randrange(count)
    parts = [pa.Table.from_pylist(part, schema) for part in (values[:cut], values[cut:])]
    return pa.concat_tables(parts)


@pytest.mark.usefixtures("small_blocks")
def test_blocks_are_slices_within_the_bound_or_single_rows() -> None:
    randomness = random.Random(seed())
    for count in (1, 2, 3, 50, 333):
        table = texts(randomness, count)
        found = list(blocks.blocks(table))
        assert pa.concat_tables(found).equals(table)
        assert all(block.nbytes <= SMALL_BYTES or block.num_rows == 1 for block in found)
    assert list(blocks.blocks(table.slice(0, 0))) == [table.slice(0, 0)]


def test_a_table_within_the_bound_is_one_block() -> None:
    table = texts(random.Random(seed()), 20)
    assert [block.num_rows for block in blocks.blocks(table)] == [20]


@pytest.mark.parametrize("count", [0, 1, 2, 2**16 - 1, 2**16, 2**16 + 1, 2**18])
@pytest.mark.parametrize("value", [pa.scalar("x"), pa.scalar(None, pa.date32())], ids=str)
def test_a_repeated_value_is_in_memory_once(count: int, value: pa.Scalar) -> None:
    column = blocks.repeated(value, count)
    assert (len(column), column.type) == (count, value.type)
    assert set(column.to_pylist()) <= {value.as_py()}
    assert column.get_total_buffer_size() <= 2**20


@pytest.mark.usefixtures("small_blocks")
def test_a_partitioned_insert_of_many_blocks_keeps_the_rows_and_their_order() -> None:
    data = texts(random.Random(seed()), 300)
    table = new_table(memory_store(), data.schema, partition_by=["p"])
    table.insert(data)
    assert len(live_files(table)) == 3
    assert [add.partition_values["p"] for add in live_files(table)] == list(dict.fromkeys(data["p"].to_pylist()))
    for value in "abc":
        wanted = data.filter(pa.compute.equal(data["p"], value))
        assert table.scan(where=f"p = '{value}'").to_arrow().equals(wanted)


@pytest.mark.parametrize("value", [pa.scalar("text"), pa.scalar(None, pa.string()), pa.scalar(5, pa.int64())], ids=str)
def test_arrays_of_a_constant_share_their_memory(value: pa.Scalar) -> None:
    constant = blocks.Constant(value)
    found = [constant.rows(count) for count in (0, 3, 2, 10_000, 9_999)]
    assert [array.to_pylist() for array in found] == [[value.as_py()] * count for count in (0, 3, 2, 10_000, 9_999)]
    assert {array.type for array in found} == {value.type}
    longest, shorter = ([buffer.address for buffer in array.buffers() if buffer] for array in found[-2:])
    assert longest == shorter
