"""Shredded variants are read as whole ones, which mean the same to PySpark's own decoder."""

from __future__ import annotations

import datetime as dt
import io
import json
import random
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql.types import VariantVal

from tests.log.support import memory_store
from tests.log.test_variants import variant_table
from tests.randomness import seed
from tidelog.log.data import variants
from tidelog.log.format.actions import AddFile
from tidelog.log.format.schema import VARIANT
from tidelog.log.state.loader import load

# The names a to e.
METADATA = b"\x01\x05\x00\x01\x02\x03\x04\x05abcde"


def group(kind: pa.DataType) -> pa.DataType:
    return pa.struct([("value", pa.binary()), ("typed_value", kind)])


def shredded(typed: pa.DataType, *rows: dict[str, Any] | None) -> pa.StructArray:
    kind = pa.struct([("metadata", pa.binary()), ("value", pa.binary()), ("typed_value", typed)])
    return pa.array([None if row is None else {"metadata": METADATA, **row} for row in rows], kind)


def decoded(values: pa.StructArray) -> list[Any]:
    found = variants.whole(values, VARIANT)
    assert found.type == VARIANT
    return [None if row is None else VariantVal(row["value"], row["metadata"]).toPython() for row in found.to_pylist()]


PLAIN = [
    (pa.bool_(), [True, False]),
    (pa.int8(), [-128, 127]),
    (pa.int64(), [0, -1, 128, -32769, 2**31, -(2**63), 2**63 - 1]),
    (pa.float32(), [1.5]),
    (pa.float64(), [1e300, -0.5]),
    (pa.decimal128(9, 2), [Decimal("1.50"), Decimal("-0.07")]),
    (pa.decimal128(18, 0), [Decimal(10**17), Decimal(-1)]),
    (pa.decimal128(38, 10), [Decimal("-123456789012345678.0123456789")]),
    (pa.string(), ["", "x" * 63, "ü" * 40, "y" * 5000]),
    (pa.binary(), [b"", b"\xff" * 70]),
    (pa.date32(), [dt.date(1590, 1, 1)]),
    (pa.timestamp("us"), [dt.datetime(1850, 1, 1, 0, 0, 0, 1)]),  # noqa: DTZ001 - it has no zone
]


@pytest.mark.parametrize(("kind", "values"), PLAIN, ids=str)
def test_values_of_plain_types(kind: pa.DataType, values: list[Any]) -> None:
    rows = [{"typed_value": value} for value in values]
    assert decoded(shredded(kind, *rows, None, {"value": b"\x05a"}, {})) == [*values, None, "a", None]


def test_objects_and_lists() -> None:
    lists = pa.list_(pa.field("element", group(pa.int64())))
    kind = pa.struct(
        [("c", group(lists)), ("a", group(pa.int64())), ("d", group(pa.struct([("e", group(pa.string()))])))]
    )
    fields = {"a": {"typed_value": 7}, "c": None, "d": None}
    elements = [{"typed_value": 1}, {"value": b"\x05x"}, {"value": b"\x00"}]
    # The object {"b": "y"}, which is in no column.
    other = b"\x02\x01\x01\x00\x02\x05y"
    values = shredded(
        kind,
        {"typed_value": fields},
        {"typed_value": {"a": {"value": b"\x05z"}, "c": {"typed_value": elements}, "d": {"typed_value": {"e": None}}}},
        {"typed_value": {**fields, "d": {"typed_value": {"e": {"typed_value": "q"}}}}, "value": other},
        {"typed_value": None, "value": b"\x0c\x05"},
        {"typed_value": {"a": None, "c": {"typed_value": []}, "d": None}},
        None,
    )
    wanted = [
        {"a": 7},
        {"a": "z", "c": [1, "x", None], "d": {}},
        {"a": 7, "b": "y", "d": {"e": "q"}},
        5,
        {"c": []},
        None,
    ]
    assert decoded(values) == wanted
    assert decoded(values.slice(2, 3)) == wanted[2:5]


def test_many_fields_and_elements() -> None:
    names = [f"n{number:03}" for number in range(300)]
    ends = [0, *(4 * number for number in range(1, 301))]
    content = b"".join(end.to_bytes(2, "little") for end in [300, *ends]) + "".join(names).encode()
    kind = pa.struct([(name, group(pa.list_(pa.field("element", group(pa.int32()))))) for name in names])
    counts = [300, *(number % 3 for number in range(1, 300))]
    row = {name: {"typed_value": [{"typed_value": number}] * counts[number]} for number, name in enumerate(names)}
    whole = pa.struct([("metadata", pa.binary()), ("typed_value", kind)])
    values = pa.array([{"metadata": b"\x41" + content, "typed_value": row}], whole)
    assert decoded(values) == [{name: [number] * counts[number] for number, name in enumerate(names)}]


def test_a_table_with_shredded_files() -> None:
    store = memory_store()
    table = variant_table(store, "variantShredding")
    content = io.BytesIO()
    column = shredded(pa.struct([("a", group(pa.int64()))]), {"typed_value": {"a": {"typed_value": 3}}}, None)
    pq.write_table(pa.table({"n": [1, 2], "v": column}), content)
    store.put_if_absent("other.parquet", content.getvalue())
    table.begin().stage_adds([AddFile("other.parquet", {}, content.tell(), 0, data_change=True, stats=None)]).commit()
    found = table.refresh().scan(columns=["n", "v"]).to_arrow().sort_by("n").to_pylist()
    assert found == [
        {"n": 1, "v": {"value": b"\x02\x01\x00\x00\x02\x0c\x03", "metadata": METADATA}},
        {"n": 2, "v": None},
    ]
    table.update("n = 1", {"n": "5"})
    assert table.scan(where="n = 5", columns=["v"]).to_arrow()["v"].to_pylist() == [found[0]["v"]]
    assert "variantShredding" in (load(store).head.protocol.reader_features or ())


@pytest.mark.parametrize("value", [b"\x02", b"\x02\x01\x09\x00\x01\x00", b"\x0c\x05", b"\x02\x01\x00\x00\xff\x0c"])
def test_what_is_no_variant(value: bytes) -> None:
    fields = {"typed_value": {"a": {"typed_value": 3}}, "value": value}
    with pytest.raises(ValueError, match="a shredded variant"):
        decoded(shredded(pa.struct([("a", group(pa.int64()))]), fields))


def document(draw: random.Random, depth: int) -> Any:
    kind = draw.random()
    if depth and kind < 0.4:
        return {name: document(draw, depth - 1) for name in draw.sample("abcdeüz", draw.randint(0, 4))}
    if depth and kind < 0.55:
        return [document(draw, depth - 1) for _ in range(draw.randint(0, 3))]
    return draw.choice([None, True, draw.randint(-300, 2**40), 1.5, "x" * draw.choice([0, 3, 63, 64]), "ü"])


@pytest.mark.nightly
@pytest.mark.spark
def test_random_documents_that_spark_has_shredded(spark: Any, tmp_path: Any) -> None:
    draw = random.Random(seed())
    documents = [document(draw, 3) for _ in range(2000)]
    spark.conf.set("spark.sql.variant.writeShredding.enabled", "true")
    rows = spark.createDataFrame([(n, json.dumps(text)) for n, text in enumerate(documents)], "n int, t string")
    rows.selectExpr("n", "parse_json(t) v").coalesce(1).write.parquet(str(tmp_path / "files"))
    [file] = (tmp_path / "files").glob("*.parquet")
    found = pq.read_table(file).sort_by("n")
    assert variants.is_shredded(found.schema.field("v").type)
    values = [value for chunk in found["v"].chunks for value in decoded(chunk)]
    assert [json.loads(json.dumps(value, default=float)) for value in values] == documents
