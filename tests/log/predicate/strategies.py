"""Hypothesis strategies for tables and for predicates over them, as SQL text."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.types as pt
from hypothesis import strategies as st

from tests.log.strategies import PRIMITIVES

# Texts with a common prefix longer than statistics keep, followed by characters that the truncation treats differently.
_LONG_TEXTS = st.tuples(
    st.sampled_from(["", "a", "a" * 30, "a" * 31 + "\U0001f600", "\U0010ffff" * 31]),
    st.text(st.sampled_from("a~\x7f\x80é\uffff\U0001f600\U0010ffff"), max_size=4),
).map("".join)
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
# Close together, so that it matters that bounds are truncated to the millisecond.
_NEAR_MOMENTS = st.integers(-3000, 3000).map(lambda us: _EPOCH + dt.timedelta(microseconds=us))

VALUES: dict[Any, st.SearchStrategy[Any]] = {
    **PRIMITIVES,
    pa.string(): _LONG_TEXTS | st.text(st.characters(exclude_categories=["Cs"]), max_size=40),
    pa.int64(): st.integers(-3, 3) | st.integers(2**53 - 2, 2**53 + 2) | PRIMITIVES[pa.int64()],
    pa.float32(): st.sampled_from([0.0, -0.0, math.nan, math.inf, -math.inf, 0.5]) | PRIMITIVES[pa.float32()],
    pa.float64(): st.sampled_from([0.0, -0.0, math.nan, math.inf, -math.inf, 0.1]) | PRIMITIVES[pa.float64()],
    pa.decimal128(38, 18): st.decimals(-(10**19), 10**19, places=18).map(lambda value: +value),
    pa.timestamp("us", tz="UTC"): _NEAR_MOMENTS | PRIMITIVES[pa.timestamp("us", tz="UTC")],
    pa.timestamp("us"): _NEAR_MOMENTS.map(lambda moment: moment.replace(tzinfo=None)) | PRIMITIVES[pa.timestamp("us")],
}
_PARTITION_VALUES = {**VALUES, pa.binary(): st.text(max_size=3).map(lambda text: text.encode("utf-8", "ignore"))}


# Types drawn together, so that each type gets enough examples and columns of one type are compared.
FAMILIES: dict[str, list[pa.DataType]] = {
    "moments": [kind for kind in VALUES if pt.is_timestamp(kind)],
    "texts": [pa.string()],
    "floats": [pa.float32(), pa.float64()],
    "decimals": [kind for kind in VALUES if pt.is_decimal(kind)],
    "integers": [pa.int8(), pa.int64()],
    "anything": list(VALUES),
}


@dataclass(frozen=True)
class Case:
    """A table's schema and partition columns, the rows of each insert, and a predicate."""

    schema: pa.Schema
    partition_by: list[str]
    inserts: list[list[dict[str, Any]]]
    where: str


@st.composite
def cases(draw: st.DrawFn, kinds: Sequence[pa.DataType], *, nested: bool = True) -> Case:
    """Tables with few distinct values, so that files have different bounds and predicates match some."""
    kind_of = st.sampled_from(list(kinds))
    columns = {f"c{index}": draw(kind_of) for index in range(draw(st.integers(1, 3)))}
    partitions = {f"p{index}": draw(kind_of) for index in range(draw(st.integers(0, 2)))}
    inner = draw(st.none() | kind_of) if nested else None
    pools = {name: draw(_pool(VALUES[kind])) for name, kind in columns.items()}
    pools |= {name: draw(_pool(_PARTITION_VALUES[kind])) for name, kind in partitions.items()}
    kinds_by_name = columns | partitions
    fields = [pa.field(name, kind) for name, kind in kinds_by_name.items()]
    row = st.fixed_dictionaries({name: st.none() | st.sampled_from(pool) for name, pool in pools.items()})
    if inner is not None:
        pool = draw(_pool(VALUES[inner]))
        fields.append(pa.field("st", pa.struct([("x", inner)])))
        structs = st.none() | st.fixed_dictionaries({"x": st.none() | st.sampled_from(pool)})
        row = st.tuples(row, structs).map(lambda pair: {**pair[0], "st": pair[1]})
        kinds_by_name, pools = {**kinds_by_name, "st.x": inner}, {**pools, "st.x": pool}
    inserts = draw(st.lists(st.lists(row, min_size=1, max_size=4), min_size=1, max_size=4))
    return Case(pa.schema(fields), list(partitions), inserts, draw(_predicates(kinds_by_name, pools)))


def _pool(values: st.SearchStrategy[Any]) -> st.SearchStrategy[list[Any]]:
    return st.lists(values, min_size=1, max_size=4)


def _predicates(kinds: Mapping[str, pa.DataType], pools: Mapping[str, Sequence[Any]]) -> st.SearchStrategy[str]:
    leaves = st.one_of(*(_leaf(name, kinds, pools) for name in kinds))
    return st.recursive(
        leaves,
        lambda inner: st.one_of(
            inner.map(lambda text: f"NOT ({text})"),
            st.tuples(inner, st.sampled_from(["AND", "OR"]), inner).map(lambda parts: "({}) {} ({})".format(*parts)),
        ),
        max_leaves=4,
    )


def _leaf(name: str, kinds: Mapping[str, pa.DataType], pools: Mapping[str, Sequence[Any]]) -> st.SearchStrategy[str]:
    kind = kinds[name]
    options = [st.sampled_from([f"{name} IS NULL", f"{name} IS NOT NULL"])]
    literals = _literals(kind, pools[name])
    if literals is not None:
        symbols = st.sampled_from(["=", "!=", "<", "<=", ">", ">="])
        several = st.lists(literals | st.just("NULL"), min_size=1, max_size=3).map(", ".join)
        likes = [other for other in kinds if kinds[other] == kind]
        options += [
            st.tuples(symbols, literals).map(lambda parts: f"{name} {parts[0]} {parts[1]}"),
            st.tuples(symbols, literals).map(lambda parts: f"{parts[1]} {parts[0]} {name}"),
            st.tuples(symbols, st.sampled_from(likes)).map(lambda parts: f"{name} {parts[0]} {parts[1]}"),
            st.tuples(literals, literals).map(lambda parts: f"{name} BETWEEN {parts[0]} AND {parts[1]}"),
            several.map(lambda values: f"{name} IN ({values})"),
            several.map(lambda values: f"{name} NOT IN ({values})"),
        ]
    if pt.is_string(kind):
        options.append(_prefixes(pools[name]).map(lambda prefix: f"{name} LIKE '{prefix}%'"))
    if pt.is_integer(kind) or pt.is_floating(kind):
        options.append(st.sampled_from([f"{name} + 1 > 0", f"{name} < 0.5", f"{name} >= 9007199254740992.0"]))
    if pt.is_boolean(kind):
        options.append(st.just(name))
    return st.one_of(options)


def _literals(kind: pa.DataType, pool: Sequence[Any]) -> st.SearchStrategy[str] | None:
    """Values of the column and random ones; None for a type without literals."""
    if pt.is_binary(kind):
        return None
    if pt.is_string(kind):
        return _prefixes(pool).map(lambda text: f"'{text}'")
    values = st.sampled_from(list(pool)) | VALUES[kind]
    return values.filter(lambda value: not isinstance(value, float) or math.isfinite(value)).map(_spelled)


def _prefixes(pool: Sequence[str]) -> st.SearchStrategy[str]:
    """Prefixes of values, sometimes with one more character, that need no escapes in SQL."""
    cut = st.tuples(st.sampled_from(list(pool)), st.sampled_from([0, 1, 31, 32, 33, 50]))
    beginnings = cut.map(lambda parts: parts[0][: parts[1]])
    longer = st.tuples(beginnings, st.sampled_from(["", "a", "~", "\U0010ffff"])).map("".join)
    return longer.filter(lambda text: not set(text) & set("'\\%_\0\r\n"))


def _spelled(value: Any) -> str:
    match value:
        case bool():
            return str(value).lower()
        case dt.datetime():
            return f"{'TIMESTAMP' if value.tzinfo else 'TIMESTAMP_NTZ'} '{value.isoformat()}'"
        case dt.date():
            return f"DATE '{value.isoformat()}'"
        case Decimal():
            return format(value, "f")
        case _:
            return repr(value)
