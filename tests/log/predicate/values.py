"""Rows with values on which engines differ."""

from __future__ import annotations

import datetime as dt
import random
from decimal import Decimal
from typing import Any

import pyarrow as pa

UTC = dt.UTC
SCHEMA = pa.schema(
    [
        ("y", pa.int8()),
        ("i", pa.int32()),
        ("n", pa.int64()),
        ("g", pa.float32()),
        ("f", pa.float64()),
        ("m", pa.decimal128(9, 2)),
        ("w", pa.decimal128(30, 10)),
        ("s", pa.string()),
        ("u", pa.string()),
        ("b", pa.bool_()),
        ("c", pa.bool_()),
        ("d", pa.date32()),
        ("e", pa.date32()),
        ("t", pa.timestamp("us", tz="UTC")),
        ("z", pa.timestamp("us")),
        ("st", pa.struct([("x", pa.int64()), ("In", pa.struct([("y", pa.string())]))])),
    ]
)
# Values where engines differ: the ends of types, halves to round, text whose upper case is longer, leap days.
_INTS = [0, 1, -1, 2, 5, 7, -8, 100, 127, -128]
_LONGS = [*_INTS, 2**31 - 1, -(2**31), 2**31, 2**53 + 1, 2**40]
_DOUBLES = [0.0, -0.0, 1.0, -1.5, 0.1, 2.5, 3.5, -2.5, 1e10, 123.456, -7.0, 0.05]
_FLOATS = [0.0, 1.5, -2.5, 100.25, 0.1]
_DECIMALS = ["0.00", "1.50", "-1.50", "2.25", "0.05", "9999999.99", "-0.10", "12.34", "7.00"]
_WIDE = ["0", "1.5", "-2.25", "12345678901234567890.0123456789", "0.0000000001", "7"]
TEXTS = [
    "", " ", "a", "A",
    "abc", "aBc", "  ab ", "b%", "a_c", "a\\c", "it's", "ß", "İ", "ΑΣ", "é", "e\u0301", "\U0001f600x",
    "\u00a0a\u00a0", "12", " 7 ", "a\nb", "\tx", "ÀÉ", "ǆ", "%", "_",
    "ab" * 4,
]  # fmt: skip
_DATES = [
    "1969-12-31",
    "1970-01-01",
    "2020-02-29",
    "2020-12-31",
    "2021-01-01",
    "2024-03-31",
    "1900-03-01",
    "2000-01-31",
]
_TIMES = [
    "1969-12-31 23:59:59.999999", "1970-01-01 00:00:00", "2020-02-29 12:34:56.789", "2021-01-31 23:59:59",
    "2024-12-30 00:00:00.000001", "1900-01-01 00:00:00.5", "2020-03-01 06:00:00",
]  # fmt: skip

_VALUES: dict[str, list[Any]] = {
    "y": _INTS,
    "i": [*_INTS, 2**31 - 1, -(2**31)],
    "n": _LONGS,
    "g": _FLOATS,
    "f": _DOUBLES,
    "m": [Decimal(text) for text in _DECIMALS],
    "w": [Decimal(text) for text in _WIDE],
    "s": TEXTS,
    "u": TEXTS,
    "b": [True, False],
    "c": [True, False],
    "d": [dt.date.fromisoformat(text) for text in _DATES],
    "e": [dt.date.fromisoformat(text) for text in _DATES],
    "t": [dt.datetime.fromisoformat(text).replace(tzinfo=UTC) for text in _TIMES],
    "z": [dt.datetime.fromisoformat(text) for text in _TIMES],
}


def rows(count: int, seed: int, *, tame: bool = True) -> pa.Table:
    """Rows with few values of each column, a sixth of them null. `tame` leaves out numbers that overflow at once."""
    chosen = random.Random(seed)

    def value(name: str) -> Any:
        values = [each for each in _VALUES[name] if not tame or not isinstance(each, int) or abs(each) <= 2**20]
        return None if not chosen.randrange(6) else chosen.choice(values)

    def struct() -> Any:
        inner = chosen.choice([None, {"y": value("s")}])
        return chosen.choice([None, {"x": value("n"), "In": inner}, {"x": value("n"), "In": {"y": value("u")}}])

    data = [{**{name: value(name) for name in _VALUES}, "st": struct()} for _ in range(count)]
    return pa.Table.from_pylist(data, SCHEMA)


def quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("'", "\\'").replace("\n", "\\n").replace("\t", "\\t")
    return f"'{escaped}'"
