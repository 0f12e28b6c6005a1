"""Split the data of an UPSERT into rows to write and keys to delete."""

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
from tidelog.log.rules import RowRules


def split_upsert(
    data: Any, rules: RowRules, keys: Sequence[str], delete_where: str | None
) -> tuple[pa.Table, pa.Table]:
    """Split `data` into the rows to write and, for rows where `delete_where` is true, the columns `keys`.

    `delete_where` is SQL text over the columns of the data. It can use columns that the table lacks. In a row that it
    selects, only the key has to fit the table. Raises PredicateError, and the errors of `RowRules.rows`.
    """
    held, schema = conform.hold(data), rules.schema
    if delete_where is None or not len(held):
        written = rules.rows(held)
        return written, written.select(keys).slice(0, 0)
    answers: pa.Table | None = None
    if isinstance(held, pa.Table):
        answers, held = rules.split(held)
    else:
        python_rows.require_dicts(held)
        held = rules.with_defaults(held)
    loose = pa.schema([field.with_nullable(True) for field in schema])  # noqa: FBT003 - pyarrow's signature
    known, extra = _by_ownership(held, loose)
    for name in keys:
        if name not in known.column_names:
            raise SchemaMismatchError(
                f"the data lacks the key column {name!r}", advice="add the column to the data", column=name
            )
    everything = pa.table([*known.columns, *extra.columns], schema=pa.schema([*known.schema, *extra.schema]))
    used = predicate.columns(predicate.parse(delete_where, everything.schema))
    match_names([name for name in extra.column_names if name not in used], schema.names)
    is_deleted = _matching(everything, delete_where)
    deleted = conform.conform(known.filter(is_deleted), loose).select(keys)
    is_written = pc.invert(is_deleted)
    return rules.answered(known.filter(is_written), answers and answers.filter(is_written)), deleted


def _by_ownership(held: pa.Table | Sequence[Any], schema: pa.Schema) -> tuple[pa.Table, pa.Table]:
    """Split the data's columns into the table's own, in its types, and extra ones, in types that Delta has."""
    if isinstance(held, pa.Table):
        held = conform.without_index(held, schema)
        names = held.column_names
    else:
        names = list(dict.fromkeys(str(name) for row in held for name in row))
    wanted = {name.lower(): name for name in schema.names}
    foreign = [name for name in names if name.lower() not in wanted]
    present = {wanted[name.lower()] for name in names if name not in foreign}
    own = pa.schema([field for field in schema if field.name in present])
    if isinstance(held, pa.Table):
        extra = held.select(foreign)
        known = conform.conform(held.drop_columns(foreign), own)
    else:
        extra = pa.table({name: python_rows.plain_column([row.get(name) for row in held], name) for name in foreign})
        known = python_rows.to_table([{key: row[key] for key in row if str(key) not in foreign} for row in held], own)
    return known, conform.conform(extra, table_schema(extra.schema))


def _matching(table: pa.Table, where: str) -> pa.Array:
    """Whether `where` is true, for each row."""
    number = free_name(table.schema)
    numbered = table.append_column(number, pa.array(range(table.num_rows), pa.int64()))
    selection = Selection(numbered.schema, where, [number])
    matching = np.zeros(table.num_rows, dtype=bool)
    for batch in numbered.select(selection.read_schema.names).to_batches():
        for piece in selection.apply(batch):
            matching[np.asarray(piece.column(0))] = True
    return pa.array(matching)
