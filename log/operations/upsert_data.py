"""The data of an UPSERT: which of its rows are written, and which delete their key."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidelog.log import predicate
from tidelog.log.data import conform, python_rows
from tidelog.log.data.cast import match_names
from tidelog.log.errors import SchemaMismatchError
from tidelog.log.format.schema import table_schema
from tidelog.log.operations.row_matcher import free_name
from tidelog.log.read.scan import Selection


def split_upsert(
    data: Any, schema: pa.Schema, keys: Sequence[str], delete_where: str | None
) -> tuple[pa.Table, pa.Table]:
    """The rows of `data` to be written, and the columns `keys` of those for which `delete_where` is true.

    `delete_where` is SQL text over the columns of the data. Those that only it reads need not be the table's; of a row
    that it chooses only the key has to fit. Raises SchemaMismatchError, PredicateError.
    """
    held = conform.hold(data)
    if delete_where is None or not len(held):
        written = conform.to_arrow_table(held, schema)
        return written, written.select(keys).slice(0, 0)
    loose = pa.schema([field.with_nullable(True) for field in schema])  # noqa: FBT003 - pyarrow's signature
    known, others = _by_ownership(held, loose)
    for name in keys:
        if name not in known.column_names:
            raise SchemaMismatchError(
                f"the data lacks the key column {name!r}", advice="add the column to the data", column=name
            )
    everything = pa.table([*known.columns, *others.columns], schema=pa.schema([*known.schema, *others.schema]))
    used = predicate.columns(predicate.parse(delete_where, everything.schema))
    match_names([name for name in others.column_names if name not in used], schema.names)
    dead = _chosen(everything, delete_where)
    gone = conform.conform(known.filter(dead), loose).select(keys)
    return conform.conform(known.filter(pc.invert(dead)), schema), gone


def _by_ownership(held: pa.Table | Sequence[Any], schema: pa.Schema) -> tuple[pa.Table, pa.Table]:
    """The columns of the data that the table has, in its types, and the others, in types that a table could have."""
    if isinstance(held, pa.Table):
        held = conform.without_index(held, schema)
        names = held.column_names
    else:
        python_rows.require_dicts(held)
        names = list(dict.fromkeys(str(name) for row in held for name in row))
    wanted = {name.lower(): name for name in schema.names}
    foreign = [name for name in names if name.lower() not in wanted]
    present = {wanted[name.lower()] for name in names if name not in foreign}
    own = pa.schema([field for field in schema if field.name in present])
    if isinstance(held, pa.Table):
        others = held.select(foreign)
        known = conform.conform(held.drop_columns(foreign), own)
    else:
        others = pa.table({name: python_rows.plain_column([row.get(name) for row in held], name) for name in foreign})
        known = python_rows.to_table([{key: row[key] for key in row if str(key) not in foreign} for row in held], own)
    return known, conform.conform(others, table_schema(others.schema))


def _chosen(table: pa.Table, where: str) -> pa.Array:
    """For each row whether `where` is true for it."""
    number = free_name(table.schema)
    numbered = table.append_column(number, pa.array(range(table.num_rows), pa.int64()))
    selection = Selection(numbered.schema, where, [number])
    chosen = np.zeros(table.num_rows, dtype=bool)
    for batch in numbered.select(selection.read_schema.names).to_batches():
        for piece in selection.apply(batch):
            chosen[np.asarray(piece.column(0))] = True
    return pa.array(chosen)
