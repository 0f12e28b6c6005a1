"""Compare a tidelog table with the table of the database that it follows: types, then each row, column for column."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import pyarrow as pa

from examples.cdc.shop import Connection, columns
from tidelog.log import Table

_MOST_SHOWN = 8
_LONGEST_SHOWN = 60
_TYPES: Mapping[str, pa.DataType] = MappingProxyType(
    {
        "boolean": pa.bool_(),
        "smallint": pa.int16(),
        "integer": pa.int32(),
        "bigint": pa.int64(),
        "real": pa.float32(),
        "double precision": pa.float64(),
        "date": pa.date32(),
        "bytea": pa.binary(),
        "timestamp with time zone": pa.timestamp("us", tz="UTC"),
        "timestamp without time zone": pa.timestamp("us"),
    }
)


@dataclass(frozen=True, slots=True)
class Comparison:
    """What was compared, and the differences: none if the tables are equal."""

    table: str
    rows: int
    differences: Sequence[str]


def compare(connection: Connection, name: str, keys: Sequence[str], copy: Table) -> Comparison:
    """Compare all rows of the database's table with those of its copy."""
    wanted = from_database(connection, name)
    held = copy.refresh().scan().to_arrow()
    differences = [*_types(wanted.schema, held.schema)]
    if not differences:
        differences = [*differing_rows(wanted, held.select(wanted.column_names), keys)]
    more = len(differences) - _MOST_SHOWN
    shown = differences[:_MOST_SHOWN] + ([f"and {more:,} more"] if more > 0 else [])
    return Comparison(name, len(wanted), [f"{name}: {each}" for each in shown])


def from_database(connection: Connection, name: str) -> pa.Table:
    """The rows of a table of the database, with the types that their copies must have."""
    fields, values = [], []
    for column, kind in columns(connection, name):
        held = arrow_type(kind)
        fields.append(pa.field(column, held))
        values.append(f'"{column}"::text' if held == pa.string() else f'"{column}"')
    rows = connection.execute(f'SELECT {", ".join(values)} FROM "{name}"'.encode()).fetchall()
    by_column = zip(*rows, strict=True) if rows else [()] * len(fields)
    arrays = [pa.array(each, field.type) for each, field in zip(by_column, fields, strict=True)]
    return pa.Table.from_arrays(arrays, schema=pa.schema(fields))


def arrow_type(kind: str) -> pa.DataType:
    """The type of a copy, for PostgreSQL's name of a type; text for what has no type of its own."""
    if kind.endswith("[]"):
        return pa.list_(arrow_type(kind.removesuffix("[]")))
    number = re.fullmatch(r"numeric\((\d+),(\d+)\)", kind)
    if number:
        return pa.decimal128(int(number[1]), int(number[2]))
    return _TYPES.get(re.sub(r"\(\d+\)", "", kind), pa.string())


def _types(wanted: pa.Schema, held: pa.Schema) -> Iterator[str]:
    for field in wanted:
        if field.name not in held.names:
            yield f"the column {field.name} is missing"
        elif not _same_type(held.field(field.name).type, field.type):
            yield f"the column {field.name} is {held.field(field.name).type}, not {field.type}"
    for name in held.names:
        if name not in wanted.names and not name.startswith("_"):
            yield f"there is a column {name} that the database does not have"


def _same_type(held: pa.DataType, wanted: pa.DataType) -> bool:
    """Whether the types are equal, but for the names of a list's elements."""
    if pa.types.is_list(held) and pa.types.is_list(wanted):
        return bool(held.value_type == wanted.value_type)
    return bool(held == wanted)


def differing_rows(wanted: pa.Table, held: pa.Table, keys: Sequence[str]) -> Iterator[str]:
    copies: dict[Any, list[dict[str, Any]]] = {}
    for row in held.to_pylist():
        copies.setdefault(tuple(row[key] for key in keys), []).append(row)
    for row in wanted.to_pylist():
        key = tuple(row[name] for name in keys)
        found = copies.pop(key, [])
        if len(found) != 1:
            yield f"the row {_shown(key)} is there {len(found)} times, not once"
            continue
        for name, value in row.items():
            if repr(found[0][name]) != repr(value):  # -0.0 and 0.0 differ, and NaN equals NaN
                yield f"the row {_shown(key)} has {name} = {_shown(found[0][name])}, the database {_shown(value)}"
    for key in copies:
        yield f"the row {_shown(key)} is not in the database"


def _shown(value: object) -> str:
    text = repr(value[0] if isinstance(value, tuple) and len(value) == 1 else value)
    return text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}... ({len(text)} characters)"
