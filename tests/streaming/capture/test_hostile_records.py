"""A record that somebody made up stops nothing: it is a row or a dead letter, soon, and its neighbours are applied."""

from __future__ import annotations

import base64
import json
import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from decimal import Decimal
from functools import partial
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from tests.capture.record import recorded
from tests.randomness import seed
from tests.streaming.capture.envelopes import PLACEHOLDER, envelope, field, wrapped
from tidelog.streaming.capture.canal import Canal
from tidelog.streaming.capture.changes import ChangeRows, RecordFormat, RowChange
from tidelog.streaming.capture.debezium import Debezium
from tidelog.streaming.capture.maxwell import Maxwell
from tidelog.streaming.capture.values import AS_TEXT, HEX, LATIN1, Encoding

TYPES: Mapping[str, DataType] = {
    "id": LongType(),
    "n": LongType(),
    "price": DecimalType(20, 4),
    "ratio": DoubleType(),
    "single": FloatType(),
    "yes": BooleanType(),
    "name": StringType(),
    "raw": BinaryType(),
    "day": DateType(),
    "at": TimestampNTZType(),
    "seen": TimestampType(),
    "list": ArrayType(DecimalType(9, 2)),
    "map": MapType(StringType(), StringType()),
    "pairs": MapType(LongType(), DoubleType()),
    "point": StructType([StructField("x", DoubleType()), StructField("wkb", BinaryType())]),
}
SCHEMA = StructType([StructField(name, kind) for name, kind in TYPES.items()])
FORMATS: Mapping[str, tuple[RecordFormat, Encoding]] = {
    "debezium": (Debezium(("id",)), Encoding()),
    "debezium by time": (Debezium(("id",), "time"), Encoding(decimals=AS_TEXT, binaries=HEX, zone="Europe/Berlin")),
    "maxwell": (Maxwell(("id",)), Encoding(AS_TEXT)),
    "canal": (Canal(("id",)), Encoding(AS_TEXT, LATIN1)),
}


def read(
    *values: Any, form: str | tuple[RecordFormat, Encoding] = "debezium", schema: StructType = SCHEMA
) -> list[dict[str, Any]]:
    """What a task makes of records, without Spark."""
    content = [value if isinstance(value, bytes) else json.dumps(value).encode() for value in values]
    nothing = pa.nulls(len(content), pa.binary())
    batch = pa.record_batch([pa.array(content, pa.binary()), pa.array(range(len(content))), nothing], ["v", "o", "k"])
    known, encoding = FORMATS[form] if isinstance(form, str) else form
    task = ChangeRows(schema, ("id",), encoding, known, PLACEHOLDER).batches()
    return [line for found in task(iter([batch])) for line in found.to_pylist(maps_as_pydicts=None)]


def good(form: str, number: int) -> dict[str, Any]:
    """A record of a format that is applied."""
    row = {"id": number, "name": f"good {number}"}
    if form.startswith("debezium"):
        return envelope("c", row)
    if form == "maxwell":
        return {"type": "insert", "xid": 1, "position": "m.000001:5", "data": row}
    return {"type": "INSERT", "id": 3, "es": 5, "isDdl": False, "data": [row, row]}


def require_bounded(form: str, record: bytes, schema: StructType = SCHEMA) -> list[dict[str, Any]]:
    """Check that a record between two others is all of its own, and what it may cost."""
    around = [json.dumps(good(form, number)).encode() for number in (101, 102)]
    begin = time.process_time()
    found = read(around[0], record, around[1], form=form, schema=schema)
    assert time.process_time() - begin < 2 + len(record) / 200_000, record[:500]
    first, last = read(around[0], form=form, schema=schema), read(around[1], form=form, schema=schema)
    ends = len(last)
    without = [{**line, "_order": None} for line in (*found[: len(first)], *found[len(found) - ends :])]
    assert without == [{**line, "_order": None} for line in (*first, *last)], record[:500]
    own = found[len(first) : len(found) - ends]
    for line in own:
        assert line["_reason"] is not None or line["_op"] in ("u", "d", "t"), record[:500]
        assert line["_order"] is not None or line["_reason"] is not None
        assert line["_raw"] == record or (form == "canal" and json.loads(line["_raw"])["data"])
        assert len(line["_reason"] or "") < 2_000
    size = sum(len(str(value)) for line in own for name, value in line.items() if name != "_raw")
    assert size < 40 * len(record) + 20_000, record[:500]
    return own


# --- records that once stopped a stream, or took minutes

_SOURCE = '"source":{"connector":"postgresql","lsn":1}'


def _row(**columns: str) -> bytes:
    """A record whose columns have these texts of JSON."""
    texts = "".join(f',"{name}":{text}' for name, text in columns.items())
    return f'{{"op":"c","after":{{"id":1{texts}}},{_SOURCE}}}'.encode()


def _with_schema(schema: Any, **columns: Any) -> bytes:
    record = {"op": "c", "after": {"id": 1, **columns}, "source": {"connector": "postgresql", "lsn": 1}}
    return json.dumps({"schema": schema, "payload": record}).encode()


def _of_fields(*fields: Any, **columns: Any) -> bytes:
    return _with_schema({"fields": [{"field": "after", "fields": list(fields)}]}, **columns)


_LONG, _DEEP = "7" * 1_000_000, "[" * 1_000 + "]" * 1_000
_BASE64 = base64.b64encode(b"\x7f" * 750_000).decode()
VARIABLE = field("name", "struct", "io.debezium.data.VariableScaleDecimal")
POISON: Mapping[str, bytes] = {
    "a schema that is a number": _with_schema(5),
    "a schema that is a text": _with_schema("record"),
    "fields that are a number": _with_schema({"fields": 5}),
    "fields that are true": _with_schema({"fields": True}),
    "columns that are a number": _with_schema({"fields": [{"field": "after", "fields": 5}]}),
    "columns that are texts": _of_fields("id"),
    "a column that is null": _of_fields(None),
    "a column twice": _of_fields(field("id", "int64"), field("id", "string")),
    "a column without a name": _of_fields({"type": "int64"}),
    "a type that is a list": _of_fields({"field": "id", "type": ["int64"]}),
    "parameters that are a number": _of_fields({"field": "price", "type": "bytes", "parameters": 5}, price="AQ=="),
    "a scale that is no number": _of_fields(
        field("price", "bytes", "org.apache.kafka.connect.data.Decimal", parameters={"scale": "x"}), price="AQ=="
    ),
    "items that are a number": _of_fields({"field": "list", "type": "array", "items": 5}, list=["AQ=="]),
    "fields of fields that are a number": _of_fields({"field": "point", "type": "struct", "fields": 5}, point={"x": 1}),
    "100,000 columns": _of_fields(*({"field": str(number), "type": "int64"} for number in range(100_000))),
    "a deep type": json.dumps(
        {"schema": {"fields": [{"field": "after", "fields": [{"field": "list", "items": "HERE"}]}]}, "payload": 1}
    )
    .replace('"HERE"', '{"items":' * 800 + "{}" + "}" * 800)
    .encode(),
    "a sequence of brackets": json.dumps(envelope("c", {"id": 1})).replace('[null, \\"1\\"]', _DEEP).encode(),
    "a deep JSON in a STRING": _row(name="[" * 500 + "]" * 500),
    "a deep text of JSON in a MAP": _row(map=f'"{_DEEP}"'),
    "a deep list in a BIGINT": _row(n="[" * 500 + "]" * 500),
    "a deep key": f'{{"op":"c","after":{{"id":{_DEEP}}},{_SOURCE}}}'.encode(),
    "a deep old row": f'{{"op":"u","before":{{"id":{_DEEP}}},"after":{{"id":{_DEEP}}},{_SOURCE}}}'.encode(),
    "brackets alone": b"[" * 1_000_000,
    "a large exponent in a BIGINT": _row(n="1e999999"),
    "a small exponent in a BIGINT": _row(n="1e-999999"),
    "a large exponent in a DECIMAL": _row(price="1e999999"),
    "a large exponent in a DOUBLE": _row(ratio="1e-999999"),
    "a large exponent of a text in a DOUBLE": _row(ratio='"1e999999999"'),
    "a long number": _row(n=_LONG, price=_LONG, ratio=_LONG, name=_LONG),
    "a long fraction": _row(n=f"1.{_LONG}", price=f"1.{_LONG}", ratio=f"1.{_LONG}", single=f"0.{_LONG}"),
    "a long text in a DECIMAL": _row(price=f'"{"x" * 1_000_000}"'),
    "a long base64 in a DECIMAL": _row(price=f'"{_BASE64}"'),
    "a long text in a DATE": _row(day=f'"{_LONG}"', at=f'"{_LONG}"', seen=f'"{_LONG}"'),
    "a year of many digits": _row(day=_LONG[:4_000], at=_LONG[:4_000], seen=f'"{_LONG[:4_000]}-01-01T00:00:00Z"'),
    "a long VariableScaleDecimal": _of_fields(VARIABLE, name={"scale": 1, "value": _BASE64}),
    "a small scale": _of_fields(VARIABLE, name={"scale": -999_999, "value": "fw=="}),
    "a large scale": _of_fields(VARIABLE, name={"scale": 999_999, "value": "fw=="}),
    "a huge scale": _of_fields(VARIABLE, name={"scale": 10**30, "value": "fw=="}),
    "a scale of thousands of digits": _of_fields(
        field("price", "bytes", "org.apache.kafka.connect.data.Decimal", parameters={"scale": "9" * 5_000}),
        price="AQ==",
    ),
    "a large exponent in a STRING": _of_fields(
        field("name", "bytes", "org.apache.kafka.connect.data.Decimal", parameters={"scale": "0"}), name="1e9999"
    ),
    "a pair of three": _row(pairs="[[1,2,3]]"),
    "a null key": _row(pairs="[[null,2]]"),
    "a key twice": _row(pairs="[[1,2],[1,3]]"),
    "an lsn of many digits": json.dumps(envelope("c", {"id": 1}, lsn=0))
    .replace('"lsn": 0', f'"lsn": {_LONG[:4_000]}')
    .encode(),
    "a transaction of many letters": json.dumps(
        {**envelope("c", {"id": 1}), "source": {"lsn": 1, "connector": "postgresql", "txId": "x" * 1_000_000}}
    ).encode(),
}


@pytest.mark.parametrize("name", POISON)
def test_a_poison_record_stops_nothing(name: str) -> None:
    require_bounded("debezium", POISON[name])


def test_a_message_of_many_rows_is_not_as_large_as_all_of_them() -> None:
    rows = "{}," * 20_000 + '{"id":"1"}'
    message = f'{{"type":"INSERT","isDdl":false,"sql":"{"x" * 100_000}","data":[{rows}]}}'.encode()
    found = read(message, form="canal")
    assert len(found) == 20_001
    assert sum(len(line["_raw"]) for line in found) < 10 * len(message)
    assert json.loads(found[-1]["_raw"]) == {"type": "INSERT", "isDdl": False, "data": [{"id": "1"}]}


class _Raising(Debezium):
    """Gives a row of a record, and raises before the next one."""

    def __init__(self, error: Exception) -> None:
        super().__init__(("id",))
        object.__setattr__(self, "error", error)

    def changes(self, body: Any, declared: Any, offset: int | None) -> Iterator[RowChange]:
        yield from super().changes(body, declared, offset)
        if body["op"] == "u":
            raise self.error  # type: ignore[attr-defined]


@pytest.mark.parametrize("error", [RecursionError("deep"), MemoryError(), KeyError("x"), AssertionError()])
def test_whatever_a_record_raises_it_alone_is_a_dead_letter(error: Exception) -> None:
    bad = json.dumps(envelope("u", {"id": 2})).encode()
    found = read(envelope("c", {"id": 1}), bad, envelope("c", {"id": 3}), form=(_Raising(error), Encoding()))
    assert [(line["id"], line["_op"]) for line in found] == [(1, "u"), (None, None), (3, "u")]
    assert found[1]["_reason"].startswith(f"the record cannot be read: {type(error).__name__}")
    assert found[1]["_raw"] == bad


# --- random records

_NUMBERS = (
    "0",
    "-0",
    "1",
    "-1",
    "1.5",
    "1e5",
    "1E-5",
    "9223372036854775807",
    "9223372036854775808",
    "1e400",
    "-1e-400",
)
_TEXTS = (
    "",
    "x",
    "NaN",
    "Infinity",
    "2024-02-30",
    "2024-02-29",
    "AQ==",
    "{}",
    "[]",
    "\\u0000",
    "\\ud83c\\udf0a",
    "u",
    "d",
)


def hostile(chance: random.Random, depth: int = 0) -> str:
    """JSON of any kind, some of it deep, long, or with huge numbers."""
    kind = chance.randrange(12)
    if kind < 3 or depth > 3:
        digits = chance.choice((1, 3, 20, 400, 4_000))
        return chance.choice(
            (
                *_NUMBERS,
                "".join(chance.choice("0123456789") for _ in range(digits)).lstrip("0") or "0",
                f"{chance.randrange(1, 10)}.{chance.randrange(10**digits)}",
                f"{chance.randrange(10)}e{chance.choice('+-')}{chance.randrange(10 ** chance.randrange(1, 10))}",
            )
        )
    if kind < 6:
        text = chance.choice(
            (*_TEXTS, PLACEHOLDER, "7" * chance.randrange(5_000), base64.b64encode(chance.randbytes(9)).decode())
        )
        return f'"{text}"'
    if kind == 6:
        return chance.choice(("null", "true", "false"))
    if kind == 7:
        many = chance.choice((10, 300, 3_000))
        return chance.choice(("[" * many + "]" * many, '{"a":' * many + "1" + "}" * many, f'"{"[" * many}"'))
    if kind < 10:
        return "[" + ",".join(hostile(chance, depth + 1) for _ in range(chance.randrange(4))) + "]"
    names = ("x", "wkb", "scale", "value", "id", "op", "a")
    entries = (f'"{chance.choice(names)}":{hostile(chance, depth + 1)}' for _ in range(chance.randrange(4)))
    return "{" + ",".join(entries) + "}"


def places(value: Any) -> Iterator[Callable[[Any], None]]:
    """For each part of a value what puts another in its place."""
    entries = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, part in list(entries):
        yield partial(value.__setitem__, name)
        yield from places(part)


def mutated(chance: random.Random, record: Any) -> bytes:
    """A record with hostile JSON somewhere, or with other bytes."""
    whole = json.loads(json.dumps(record))
    for _ in range(chance.choice((1, 1, 2, 5))):
        found = list(places(whole))
        if found:
            chance.choice(found)("@HERE@")
    text = json.dumps(whole)
    while '"@HERE@"' in text:
        text = text.replace('"@HERE@"', hostile(chance), 1)
    content = bytearray(text.encode())
    if chance.random() < 0.1:
        for _ in range(chance.randrange(1, 4)):
            content[chance.randrange(len(content))] = chance.randrange(256)
    return bytes(content)


_MEANINGS = (
    field("id", "int64"),
    field("price", "bytes", "org.apache.kafka.connect.data.Decimal", parameters={"scale": "4"}),
    VARIABLE,
    field("day", "int32", "io.debezium.time.Date"),
    field("at", "int64", "io.debezium.time.NanoTimestamp"),
    field("list", "array", items=field("", "struct", "io.debezium.data.VariableScaleDecimal")),
    field("pairs", "map", keys={"type": "int16"}, values={"type": "double"}),
    field("point", "struct", fields=[field("x", "double"), field("wkb", "bytes")]),
)
_ROW = {
    "id": 1, "n": 2, "price": "AQ==", "ratio": 1.5, "single": 0.5, "yes": True, "name": "x", "raw": "AQ==", "day": 5,
    "at": 1_000, "seen": "2024-01-01T00:00:00Z", "list": ["AQ=="], "map": {"a": "b"}, "pairs": [[1, 2.5]],
    "point": {"x": 1.0, "wkb": "AQ=="},
}  # fmt: skip


def templates(form: str) -> Sequence[Any]:
    """Records to change."""
    if form.startswith("debezium"):
        plain = [envelope("c", dict(_ROW)), envelope("u", dict(_ROW), dict(_ROW)), envelope("d", before=dict(_ROW))]
        flink = {**envelope("r", dict(_ROW)), "source": {"connector": "mysql", "file": "", "pos": 0}}
        return [*plain, flink, envelope("t"), *(wrapped(record, *_MEANINGS) for record in (*plain, flink))]
    if form == "maxwell":
        common = {"xid": 1, "position": "m.000001:5", "data": dict(_ROW)}
        return [{"type": "insert", **common}, {"type": "update", "old": {"id": 7, "n": 1}, **common}]
    common = {"id": 3, "es": 5, "isDdl": False, "data": [dict(_ROW), {"id": "2"}]}
    return [{"type": "INSERT", **common}, {"type": "UPDATE", "old": [{"n": 1}, {"id": "5"}], **common}]


def _fuzz(form: str, chance: random.Random, records: int) -> None:
    known = templates(form)
    read_rows = 0
    for _ in range(records):
        own = require_bounded(form, mutated(chance, chance.choice(known)))
        read_rows += sum(line["_reason"] is None for line in own)
    assert read_rows  # else it shows nothing


@pytest.mark.parametrize("form", FORMATS)
def test_random_records_are_rows_or_dead_letters(form: str) -> None:
    _fuzz(form, random.Random(seed()), 100)


@pytest.mark.nightly
@pytest.mark.parametrize("form", FORMATS)
def test_many_random_records_are_rows_or_dead_letters(form: str) -> None:
    _fuzz(form, random.Random(seed()), 5_000)


def _changed_recordings(chance: random.Random, count: int) -> None:
    kinds = StructType([StructField("id", StringType()), *(part for part in SCHEMA if part.name != "id")])
    known = [json.loads(each["value"]) for each in recorded("precise") if each["value"]]
    for _ in range(count):
        require_bounded("debezium", mutated(chance, chance.choice(known)), kinds)


def test_changed_recordings_are_rows_or_dead_letters() -> None:
    _changed_recordings(random.Random(seed()), 60)


@pytest.mark.nightly
def test_many_changed_recordings_are_rows_or_dead_letters() -> None:
    _changed_recordings(random.Random(seed()), 3_000)


# --- numbers, by Python's json and decimal


def _number(chance: random.Random) -> str:
    digits = "".join(chance.choice("0123456789") for _ in range(chance.choice((1, 2, 5, 18, 19, 20, 40)))).lstrip("0")
    text = ("-" if chance.random() < 0.3 else "") + (digits or "0")
    if chance.random() < 0.5:
        text += "." + "".join(chance.choice("0001234567890") for _ in range(chance.choice((1, 2, 4, 5, 20))))
    if chance.random() < 0.5:
        text += f"{chance.choice('eE')}{chance.choice(('', '+', '-'))}{chance.choice((0, 1, 2, 4, 10, 30, 400, 9_999))}"
    return text


def _read_numbers(column: str, texts: Sequence[str]) -> dict[int, dict[str, Any]]:
    rows = (f'{{"id":{place},"{column}":{text}}}' for place, text in enumerate(texts))
    return {line["id"]: line for line in read(*(f'{{"op":"c","after":{row},{_SOURCE}}}'.encode() for row in rows))}


def _numbers_are_exact(chance: random.Random, count: int) -> None:
    texts = [_number(chance) for _ in range(count)]
    found = {name: _read_numbers(name, texts) for name in ("n", "price", "ratio")}
    for place, text in enumerate(texts):
        number = json.loads(text, parse_float=Decimal, parse_int=Decimal)
        is_small = number.adjusted() < 50 if number else True
        fits = is_small and number == number.to_integral_value() and -(2**63) <= number < 2**63
        assert found["n"][place]["n"] == (int(number) if fits else None), text
        fits = is_small and abs(number) < 10**16 and number * 10_000 == (number * 10_000).to_integral_value()
        assert found["price"][place]["price"] == (number if fits else None), text
        double = found["ratio"][place]["ratio"]
        assert double is None or double == json.loads(text), text
        for name in ("n", "price", "ratio"):
            line = found[name][place]
            assert (line[name] is None) == (line["_reason"] is not None), text


def test_numbers_are_exact() -> None:
    _numbers_are_exact(random.Random(seed()), 300)


@pytest.mark.nightly
def test_many_numbers_are_exact() -> None:
    _numbers_are_exact(random.Random(seed()), 100_000)


# --- clocks, numbers and texts at their bounds, in each format

BAD = "a dead letter"
EDGES: Sequence[tuple[str, str | bytes, str]] = (
    ("at", '"300000-01-01T00:00:00"', BAD),
    ("at", '"0000-01-01T00:00:00"', BAD),
    ("at", '"0001-01-01T00:00:00"', "0001-01-01 00:00:00"),
    ("at", '"9999-12-31T23:59:59.999999"', "9999-12-31 23:59:59.999999"),
    ("at", '"2016-12-31T23:59:60"', BAD),
    ("at", "-1", "1969-12-31 23:59:59.999999"),
    ("at", "-62135596800000000", "0001-01-01 00:00:00"),
    ("at", "-62135596800000001", BAD),
    ("at", "9400000000000000000", BAD),
    ("at", "1e400", BAD),
    ("seen", '"0001-01-01T00:00:00+01:00"', BAD),
    ("seen", '"9999-12-31T23:59:59-01:00"', BAD),
    ("seen", '"1969-12-31T23:00:00-01:00"', "1970-01-01 00:00:00+00:00"),
    ("day", "-719162", "0001-01-01"),
    ("day", "-719163", BAD),
    ("day", "2932896", "9999-12-31"),
    ("day", "2932897", BAD),
    ("ratio", "NaN", BAD),
    ("ratio", "-Infinity", BAD),
    ("ratio", '"-Infinity"', "-inf"),
    ("ratio", "1e400", BAD),
    ("ratio", "-0.0", "-0.0"),
    ("price", "1e400", BAD),
    ("price", '"NaN"', BAD),
    ("n", "1e400", BAD),
    ("n", "1e3", "1000"),
    ("n", '1,"n":2', "2"),
    ("name", "1e400", "1e400"),
    ("name", b'"\xff"', BAD),
    ("name", b'"\xc0\x80"', BAD),
    ("name", b'"\xed\xa0\x80"', BAD),
    ("name", '"\\ud800"', BAD),
    ("name", '"\\udf0a\\ud83c"', BAD),
    ("name", '"\\ud83c\\udf0a"', "🌊"),
    ("map", '{"\\ud800":"x"}', BAD),
    ("name", "[" * 100 + "]" * 100, "[" * 100 + "]" * 100),
    ("name", "[" * 1_100 + "]" * 1_100, BAD),
    ("other", '{"a":' * 1_100 + "1" + "}" * 1_100, BAD),
)


@pytest.mark.parametrize("form", ["debezium", "maxwell", "canal"])
def test_edges_are_the_right_value_or_dead_letters(form: str) -> None:
    for column, text, expected in EDGES:
        record = json.dumps(good(form, 7)).replace('"name": "good 7"', f'"{column}": @')
        own = require_bounded(form, record.encode().replace(b"@", text.encode() if isinstance(text, str) else text))
        for line in own:
            if expected == BAD:
                assert (line["_reason"] is None, line.get(column)) == (False, None), (column, text[:50])
            else:
                assert line["_reason"] is None, (column, text[:50], line["_reason"])
                assert str(line[column]) == expected, (column, text[:50])
