"""The columns of an order as bytes: values come back as they were."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from tests.randomness import seed
from tidelog.log.data.packed_order import LONGEST, PackedColumns, PackedOrder, joined_layout, stored_bytes

VALUES: dict[pa.DataType, Sequence[Any]] = {
    pa.int8(): [-128, 0, 127],
    pa.int32(): [-(2**31), -1, 2**31 - 1],
    pa.int64(): [-(2**63), -1, 0, 2**63 - 1],
    pa.date32(): [date(1, 1, 1), date(1969, 12, 31), date(9999, 12, 31)],
    pa.timestamp("us", "UTC"): [datetime(1, 1, 1, tzinfo=UTC), datetime(2026, 11, 26, 1, 2, 3, 4, UTC)],
    pa.timestamp("us"): [datetime(1969, 12, 31, 23, 59, 59, 999_999), datetime(9999, 12, 31)],  # noqa: DTZ001
    pa.float64(): [-math.inf, -0.0, 5e-324, 1.5],
    pa.float32(): [-0.5, math.inf],
    pa.decimal128(5, 2): [Decimal("-999.99"), Decimal("0.01")],
    pa.decimal128(38, 0): [Decimal(-(10**38) + 1), Decimal(10**38 - 1)],
    pa.string(): ["", "a", "\0", "é" * (LONGEST // 2), "x" * LONGEST, "x" * (LONGEST + 1), "é" * LONGEST],
    pa.binary(): [b"", b"\0\0", b"\xff" * LONGEST],
}


def columns_of(schema: pa.Schema, order: str) -> PackedColumns:
    return PackedColumns.of({"tidelog.orderBy": order}, schema)


def packed_of(columns: PackedColumns, rows: pa.Table) -> PackedOrder:
    return columns.packed(rows) or PackedOrder.unknown(rows.num_rows)


def chunked(values: Sequence[Any], kind: pa.DataType, randomness: random.Random) -> pa.ChunkedArray:
    """The values in chunks that are parts of larger arrays."""
    chunks = []
    start = 0
    while start < len(values):
        stop = start + randomness.randint(1, 5)
        before, after = randomness.choices(values, k=randomness.randint(0, 9)), randomness.choices(values, k=2)
        own = pa.array([*before, *values[start:stop], *after], kind)
        chunks.append(own.slice(len(before), len(values[start:stop])))
        start = stop
    return pa.chunked_array(chunks, kind)


def is_short(value: Any) -> bool:
    return len(value.encode() if isinstance(value, str) else value) <= LONGEST if hasattr(value, "__len__") else True


@pytest.mark.parametrize("rest", ["", ", other"])
@pytest.mark.parametrize("kind", VALUES, ids=str)
def test_values_come_back_as_they_were(kind: pa.DataType, rest: str) -> None:
    randomness = random.Random(f"{seed()}{kind}{rest}")
    columns = columns_of(pa.schema([("other", pa.int16()), ("at", kind)]), f"at{rest}")
    for count in (0, 1, 7, 40):
        values = randomness.choices([*VALUES[kind], None], k=count)
        others = randomness.choices([-1, 0, 1, None], k=count)
        rows = pa.table({"other": pa.array(others, pa.int16()), "at": chunked(values, kind, randomness)})
        packed = packed_of(columns, rows)
        known = [value is not None and is_short(value) for value in values]
        if rest:
            known = [is_known and other is not None for is_known, other in zip(known, others, strict=True)]
        assert packed.is_known.tolist() == known
        assert not packed.layout or columns.fit(packed.layout)
        back = columns.unpacked(packed.take(packed.is_known))
        back.validate(full=True)
        assert back.schema.types == list(columns.types)
        assert back["at"].to_pylist() == [value for value, is_known in zip(values, known, strict=True) if is_known]
        if rest:
            found = [value for value, is_known in zip(others, known, strict=True) if is_known]
            assert back["other"].to_pylist() == found


def test_texts_with_codes_are_texts() -> None:
    columns = columns_of(pa.schema([("at", pa.string())]), "AT")
    rows = pa.table({"at": pa.array(["b", None, "a", "b"]).dictionary_encode()})
    packed = packed_of(columns, rows)
    assert columns.unpacked(packed.take([0, 2, 3]))["at"].to_pylist() == ["b", "a", "b"]


def test_parts_with_texts_of_several_lengths_are_joined() -> None:
    columns = columns_of(pa.schema([("at", pa.string()), ("n", pa.int16())]), "at, n")
    parts = [
        packed_of(columns, pa.table({"at": texts, "n": pa.array(range(len(texts)), pa.int16())}))
        for texts in (["a", ""], ["", "bcd"], ["efghi"])
    ]
    parts.insert(1, PackedOrder.unknown(2))
    joined = PackedOrder.joined(parts)
    assert joined.layout == joined_layout([part.layout for part in parts])
    assert [column.width for column in joined.layout] == [6, 2]
    assert columns.fit(joined.layout)
    assert joined.is_known.tolist() == [True, True, False, False, True, True, True]
    back = columns.unpacked(joined.take(joined.is_known))
    assert back["at"].to_pylist() == ["a", "", "", "bcd", "efghi"]
    assert back["n"].to_pylist() == [0, 1, 0, 1, 0]
    turned = columns_of(pa.schema([("at", pa.string()), ("n", pa.int16())]), "n, at")
    assert turned.unpacked(joined.select([1, 0]).take(joined.is_known))["at"].to_pylist() == back["at"].to_pylist()


def test_a_length_that_another_program_wrote_reads_no_other_memory() -> None:
    columns = columns_of(pa.schema([("at", pa.binary())]), "at")
    packed = packed_of(columns, pa.table({"at": [b"abc", b"d"]}))
    packed.content[:, 0] = 255
    found = columns.unpacked(packed)["at"]
    found.validate(full=True)
    assert found.to_pylist() == [b"abc", b"d\0\0"]


def test_bytes_that_all_rows_share_are_stored_once() -> None:
    columns = columns_of(pa.schema([("at", pa.string()), ("n", pa.int64())]), "at, n")
    texts = [f"00.{number:06X}.1" for number in range(256, 300)]
    first = packed_of(columns, pa.table({"at": [*texts, None], "n": [2**40] * 45}))
    assert stored_bytes(first.layout) == 2, "the last two digits"
    same = packed_of(columns, pa.table({"at": ["00.000100.1"], "n": [2**40]}))
    assert stored_bytes(same.layout) == 0
    other = packed_of(columns, pa.table({"at": ["01.000100.1", "01.000100.10"], "n": [2**40, 2**40 + 1]}))
    joined = PackedOrder.joined([same, first, other])
    # The length, the epoch, the last digits, what only one text has, and the lowest byte of a number.
    assert [column.varying for column in joined.layout] == [(0, 2, 8, 9, 12), (0,)]
    assert [column.varying for column in PackedOrder.joined([same, first]).layout] == [(8, 9), ()]
    found = columns.unpacked(joined.take(joined.is_known))
    assert found["at"].to_pylist() == ["00.000100.1", *texts, "01.000100.1", "01.000100.10"]
    assert found["n"].to_pylist() == [2**40] * 46 + [2**40 + 1]


@pytest.mark.parametrize("order", ["", "missing", "at, missing", "flag", "at, flag", "nested"])
def test_which_orders_are_not_packed(order: str) -> None:
    schema = pa.schema([("at", pa.int64()), ("flag", pa.bool_()), ("nested", pa.list_(pa.int64()))])
    columns = columns_of(schema, order) if order else PackedColumns.of({}, schema)
    assert columns == PackedColumns()


def test_rows_without_one_of_the_columns_are_unknown() -> None:
    columns = columns_of(pa.schema([("at", pa.int64()), ("n", pa.int64())]), "at, n")
    assert columns.packed(pa.table({"at": [1, 2]})) is None
