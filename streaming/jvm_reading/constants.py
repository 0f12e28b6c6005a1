"""The values that all rows of a file share: its partition values, and of a change file the change columns."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from tidelog.log.data.writer import CHANGE_TYPE
from tidelog.log.errors import CorruptLogError
from tidelog.log.format import partition_values
from tidelog.log.format.schema import physical_name
from tidelog.log.read.change_files import COMMIT_TIMESTAMP, COMMIT_VERSION, ChangeFile


def constant_names(change: ChangeFile, schema: pa.Schema, *, of_snapshot: bool) -> tuple[str, ...]:
    """The columns of `schema` whose values the log has, in its order. All other columns are in the file."""
    own = set() if of_snapshot else {COMMIT_VERSION, COMMIT_TIMESTAMP}
    if not of_snapshot and change.change_type is not None:
        own.add(CHANGE_TYPE)
    return tuple(field.name for field in schema if field.name in own or physical_name(field) in change.partition_values)


def constant_columns(
    changes: Sequence[ChangeFile], names: Sequence[str], schema: pa.Schema, *, of_snapshot: bool
) -> list[pa.Array] | None:
    """The columns `names`, with a value for each file; None if the log has a text that is not a value of its column."""
    found = []
    for name in names:
        field = schema.field(name)
        if not of_snapshot and name in (COMMIT_VERSION, COMMIT_TIMESTAMP, CHANGE_TYPE):
            found.append(_change_column(changes, field))
            continue
        values = _partition_column([change.partition_values[physical_name(field)] for change in changes], field.type)
        if values is None:
            return None
        found.append(values)
    return found


def _change_column(changes: Sequence[ChangeFile], field: pa.Field) -> pa.Array:
    if field.name == COMMIT_VERSION:
        return pa.array([change.version for change in changes], field.type)
    if field.name == COMMIT_TIMESTAMP:
        return pa.array([change.timestamp_ms * 1000 for change in changes], field.type)
    return pa.array([change.change_type for change in changes], field.type)


def _partition_column(texts: Sequence[str | None], kind: pa.DataType) -> pa.Array | None:
    encoded = pa.array(texts, pa.string()).dictionary_encode()
    try:
        values = [partition_values.from_text(text, kind) for text in encoded.dictionary.to_pylist()]
        return pa.array(values, kind).take(encoded.indices)
    except (CorruptLogError, pa.ArrowException, OverflowError):
        return None
