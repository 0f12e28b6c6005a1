"""Errors of a batch's rows, with the advice that fits a Sink: the arguments that would have avoided them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa
import pyarrow.types as pt

from tidelog.log.errors import DuplicateKeyError, SchemaMismatchError
from tidelog.streaming.sink.settings import SinkSettings


@contextmanager
def sink_advice(settings: SinkSettings, data: pa.Schema, table: pa.Schema) -> Iterator[None]:
    """Replace the advice of errors about rows with the columns of `data`, written to a table with those of `table`."""
    try:
        yield
    except DuplicateKeyError as error:
        advice = (
            "order_by has the same value in these rows: add a column that differs"
            if settings.order_by
            else "pass order_by=, the column whose greatest value marks the newest row of a key"
        )
        raise DuplicateKeyError(error.message, advice=advice, **error.fields) from error
    except SchemaMismatchError as error:
        if settings.schema_evolution or error.column not in _new_columns(data, table):
            raise
        advice = "pass schema_evolution=True to add it to the table, or drop it from the data"
        raise SchemaMismatchError(error.message, advice=advice, **error.fields) from error


def _new_columns(data: pa.Schema, table: pa.Schema) -> set[str]:
    """The columns of the data, and nested fields as `column.field`, that the table lacks; case does not matter."""
    known = {name.lower() for field in table for name in _names(field, "")}
    return {name for field in data for name in _names(field, "") if name.lower() not in known}


def _names(field: pa.Field, where: str) -> Iterator[str]:
    """The dotted name of the field and of all fields in it, as a SchemaMismatchError names them."""
    full = f"{where}{field.name}"
    yield full
    yield from _inner_names(field.type, full)


def _inner_names(kind: pa.DataType, where: str) -> Iterator[str]:
    if pt.is_struct(kind):
        for child in kind:
            yield from _names(child, f"{where}.")
    elif pt.is_map(kind):
        yield from _inner_names(kind.key_type, f"{where}.key")
        yield from _inner_names(kind.item_type, f"{where}.value")
    elif pt.is_list(kind) or pt.is_large_list(kind):
        yield from _inner_names(kind.value_type, f"{where}.element")
