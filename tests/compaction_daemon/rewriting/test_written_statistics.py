"""Statistics that do not hold for a written file are refused before the commit; right ones never are."""

from __future__ import annotations

import datetime as dt
import uuid
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.compaction_daemon.rewriting.test_verification import ORDERS, filled, refused
from tests.compaction_daemon.support import live_files
from tests.log.strategies import PRIMITIVES
from tidelog.compaction_daemon import compact
from tidelog.log import Table
from tidelog.log.errors import CompactionVerificationError
from tidelog.log.format import statistics
from tidelog.log.format.schema import TIMESTAMP, TIMESTAMP_NTZ

DECODER = msgspec.json.Decoder(dict[str, Any], float_hook=Decimal)


def table_of(*pieces: pa.Table) -> Table:
    table = Table.create(f"memory://{uuid.uuid4()}", pieces[0].schema)
    for piece in pieces:
        table.insert(piece)
    return table.refresh()


# --- wrong statistics -------------------------------------------------------------------------------------------------

Wrong = Callable[[dict[str, Any]], None]


def changed(monkeypatch: pytest.MonkeyPatch, change: Wrong) -> None:
    """Change the statistics of each file that is written from now on."""
    honest = statistics.Collector.text

    def text(self: statistics.Collector) -> str:
        found = DECODER.decode(honest(self))
        change(found)
        return msgspec.json.Encoder(decimal_format="number").encode(found).decode()

    monkeypatch.setattr(statistics.Collector, "text", text)


def moved(bound: str, name: str, value: Any) -> Wrong:
    return lambda found: found[bound].update({name: value})


def counted(number: int) -> Wrong:
    return lambda found: found.update(numRecords=found["numRecords"] + number)


def nulls(name: str, number: int) -> Wrong:
    return lambda found: found["nullCount"].update({name: number})


WRONG: dict[str, tuple[Wrong, str]] = {
    "a lower bound of integers": (moved("minValues", "a", 1), "wrong bounds for the columns 'a'"),
    "an upper bound of integers": (moved("maxValues", "a", 4 * 40 - 2), "wrong bounds for the columns 'a'"),
    "a lower bound of text": (moved("minValues", "text", "text 00"), "wrong bounds for the columns 'text'"),
    "an upper bound of text": (moved("maxValues", "text", "text 3~"), "wrong bounds for the columns 'text'"),
    "a lower bound of reals": (moved("minValues", "real", -0.999), "wrong bounds for the columns 'real'"),
    "an upper bound of reals": (moved("maxValues", "real", 0.999), "wrong bounds for the columns 'real'"),
    "a null count": (nulls("text", 1), "other nulls than it has in the columns 'text'"),
    "a row too many": (counted(1), "count 145 rows, but it has 144"),
    "a row too few": (counted(-1), "count 143 rows, but it has 144"),
    "no row count": (lambda found: found.pop("numRecords"), "count None rows, but it has 144"),
}


@pytest.mark.parametrize("order", ["minor", "hilbert"])
@pytest.mark.parametrize("wrong", WRONG)
def test_wrong_statistics_are_refused(wrong: str, order: str, monkeypatch: pytest.MonkeyPatch) -> None:
    table = filled()
    change, message = WRONG[wrong]
    with monkeypatch.context() as patched:
        changed(patched, change)
        record = refused(table, ORDERS[order], message)
    assert record.written == record.read, "the rows are right"
    assert compact(table, **ORDERS[order]).did_anything, "without the corruption"


@pytest.mark.parametrize("order", ORDERS)
def test_bounds_that_are_wider_or_absent_are_not_refused(order: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def wider(found: dict[str, Any]) -> None:
        found["minValues"] |= {"a": -5, "text": "tex"}
        found["maxValues"].pop("a")
        found["nullCount"].pop("b")

    table = filled()
    changed(monkeypatch, wider)
    assert compact(table, **ORDERS[order]).did_anything


# Two values of each type with bounds, the lesser one first.
LONG = 5_000  # Parquet has no bounds for texts of this length.
ORDERED: dict[str, tuple[pa.DataType, Any, Any]] = {
    "int8": (pa.int8(), -(2**7), 2**7 - 1),
    "int16": (pa.int16(), -1, 1),
    "int32": (pa.int32(), -1, 1),
    "int64": (pa.int64(), 2**63 - 2, 2**63 - 1),
    "float32": (pa.float32(), 0.1, 0.2),
    "float64": (pa.float64(), 0.1, 0.1 + 2**-50),
    "decimal": (pa.decimal128(9, 2), Decimal("-0.01"), Decimal("0.00")),
    "wide": (pa.decimal128(38, 10), Decimal("-1e20"), Decimal("1e20")),
    "date": (pa.date32(), dt.date(1, 1, 1), dt.date(9999, 12, 31)),
    "time": (TIMESTAMP, dt.datetime(1969, 1, 1, tzinfo=dt.UTC), dt.datetime(9999, 12, 31, 23, 59, 59, tzinfo=dt.UTC)),
    "local": (TIMESTAMP_NTZ, dt.datetime(1, 1, 1), dt.datetime(1, 1, 1, 0, 0, 0, 2000)),  # noqa: DTZ001 - has none
    "text": (pa.string(), "", "é"),
    "long": (pa.string(), "a" * LONG, "b" * LONG),
}


def of_all_types(*numbers: int | None) -> pa.Table:
    """Rows of the lesser values (0), the greater ones (1) and nulls, each in a column and in a struct."""
    kinds = {name: kind for name, (kind, *_) in ORDERED.items()}
    schema = pa.schema([*kinds.items(), ("in", pa.struct(list(kinds.items()))), ("list", pa.list_(pa.int64()))])
    rows: list[dict[str, Any]] = []
    for number in numbers:
        values = {} if number is None else {name: both[1 + number] for name, both in ORDERED.items()}
        rows.append({**values, "in": values or None, "list": [None] if values else None})
    return pa.Table.from_pylist(rows, schema)


ALL_ORDERED = [*ORDERED, *(f"in.{name}" for name in ORDERED)]


@pytest.mark.parametrize("lost", [slice(1, None), slice(0, 3)], ids=["first", "last"])
def test_a_value_that_the_statistics_miss_shows_in_every_type(lost: slice, monkeypatch: pytest.MonkeyPatch) -> None:
    """As if the collector had lost a batch."""
    table = table_of(of_all_types(0, None), of_all_types(None, 1))
    honest = statistics._Leaf.add
    with monkeypatch.context() as patched:
        patched.setattr(statistics._Leaf, "add", lambda self, values: honest(self, values[lost]))
        with pytest.raises(CompactionVerificationError) as caught:
            compact(table)
    names = ", ".join(map(repr, ALL_ORDERED))
    assert f"have wrong bounds for the columns {names}" in str(caught.value)
    assert table.refresh().scan("int8 = 127").count() == 1
    assert compact(table).did_anything


def test_a_wrong_null_count_shows_in_every_type(monkeypatch: pytest.MonkeyPatch) -> None:
    table = table_of(of_all_types(0, None), of_all_types(None, 1))
    honest = statistics._Leaf.values
    with monkeypatch.context() as patched:
        patched.setattr(statistics._Leaf, "values", lambda self: {**honest(self), "nullCount": 1})
        with pytest.raises(CompactionVerificationError) as caught:
            compact(table)
    names = ", ".join(map(repr, [*ALL_ORDERED, "list"]))
    assert f"count other nulls than it has in the columns {names}" in str(caught.value)
    assert compact(table).did_anything


# --- right statistics -------------------------------------------------------------------------------------------------

# Text around the length at which statistics cut it, and longer than what parquet has bounds for.
EDGES = st.text(st.sampled_from("a~\x7f\x80é\uffff\U0010fffe\U0010ffff"), min_size=30, max_size=35)
VALUES: dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]] = {
    **{str(kind): (kind, values) for kind, values in PRIMITIVES.items()},
    "cut text": (pa.string(), EDGES | st.sampled_from(["a" * LONG, "é" * LONG])),
    "coded text": (pa.string(), st.sampled_from(["", "a", "b" * 40])),
    "odd reals": (pa.float64(), st.sampled_from([0.0, -0.0, 5e-324, float("nan"), float("inf"), 1.7e308])),
    "small reals": (pa.float32(), st.sampled_from([0.0, -0.0, 1e-45, float("nan"), 0.1])),
    "wide": (pa.decimal128(38, 10), st.decimals(-(10**27), 10**27, places=10)),
    "odd dates": (pa.date32(), st.integers(-(2**31), 2**31 - 1)),
    "odd times": (TIMESTAMP, st.integers(-(2**60), 2**60)),
}


@st.composite
def same_rows(draw: st.DrawFn) -> pa.Table:
    """Rows with a column, a struct, a list and a map of a type."""
    kind, values = VALUES[draw(st.sampled_from([*VALUES]))]
    found = pa.array(draw(st.lists(st.none() | values, min_size=2, max_size=12)), kind)
    outer = pa.StructArray.from_arrays([found], ["in"], mask=pa.array([n % 5 == 0 for n in range(len(found))]))
    lists = pa.ListArray.from_arrays(pa.array([*range(len(found) + 1)], pa.int32()), found)
    return pa.table({"n": np.arange(len(found)), "v": found, "st": outer, "li": lists})


@settings(max_examples=25, deadline=None)
@given(same_rows(), st.sampled_from(["minor", "major"]))
def test_no_statistics_of_ours_are_refused(rows: pa.Table, level: str) -> None:
    half = rows.num_rows // 2
    table = table_of(rows.slice(half), rows.slice(0, half))
    assert compact(table, level, cluster_by=["n"] if level == "major" else ()).did_anything
    found = table.refresh().scan().to_arrow().sort_by("n")
    assert found["n"].equals(rows["n"])
    assert len(live_files(table)) == 1
