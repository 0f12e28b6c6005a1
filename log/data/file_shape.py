"""The rows of a data file in the table's columns: renamed, reshaped, and with what only the log knows of them."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from tidelog.log.data.blocks import Constant
from tidelog.log.data.physical_schema import find_fields, reshape
from tidelog.log.errors import CorruptLogError
from tidelog.log.format import partition_values, row_tracking
from tidelog.log.format.schema import physical_name


class Shape:
    """How the columns `found` in a file become those of the table's `schema`.

    Columns that the file has no values of are constant. `base_row_id` and `commit_version` are what the log says of the
    file's rows. With `coded`, texts that come as a dictionary stay one.
    """

    def __init__(
        self,
        found: pa.Schema,
        schema: pa.Schema,
        values: Mapping[str, str | None],
        *,
        base_row_id: int | None,
        commit_version: int | None,
        coded: bool,
    ) -> None:
        self._values = values
        self._base_row_id = base_row_id
        self._commit_version = commit_version
        self._coded = coded
        self._schema = schema
        own = [field for field in schema if physical_name(field) not in values]
        indices = zip(own, find_fields(own, list(found)), strict=True)
        self._sources = {field.name: found.names[index] for field, index in indices if index is not None}
        self._constants: dict[str, Constant] = {}
        self.present = sorted(set(self._sources.values()))

    def shaped(self, raw: pa.RecordBatch, start: int, rows: int) -> pa.RecordBatch:
        """The columns `present` of the rows from the position `start` on as the table's."""
        if not self._schema.names:
            return rows_without_columns(rows)
        columns = []
        for field in self._schema:
            source = self._sources.get(field.name)
            if row_tracking.kind_of(field) is not None:
                columns.append(self._tracked(field, None if source is None else raw.column(source), start, rows))
            elif source is None:
                columns.append(self._constant(field).rows(rows))
            elif self._coded and pt.is_string(field.type) and pt.is_dictionary((values := raw.column(source)).type):
                columns.append(values)
            else:
                columns.append(reshape(raw.column(source), field))
        if not self._coded:
            return pa.RecordBatch.from_arrays(columns, schema=self._schema)
        fields = [field.with_type(column.type) for field, column in zip(self._schema, columns, strict=True)]
        return pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields))

    def _tracked(self, field: pa.Field, stored: pa.Array | None, start: int, rows: int) -> pa.Array:
        """The ids or commit versions of rows: those that the file stores and, where it stores none, its own."""
        if stored is not None and not stored.null_count:
            return stored.cast(pa.int64())
        is_id = row_tracking.kind_of(field) == row_tracking.ROW_ID
        first = self._base_row_id if is_id else self._commit_version
        if is_id and first is not None:
            own = pa.array(np.arange(first + start, first + start + rows), pa.int64())
        else:
            own = pa.repeat(pa.scalar(first, pa.int64()), rows)
        return own if stored is None else pc.coalesce(stored.cast(pa.int64()), own)

    def _constant(self, field: pa.Field) -> Constant:
        """A partition column, or nulls for a column that the file lacks."""
        found = self._constants.get(field.name)
        if found is None:
            text = self._values.get(physical_name(field))
            found = self._constants[field.name] = Constant(_partition_value(text, field))
        return found


def _partition_value(text: str | None, field: pa.Field) -> pa.Scalar:
    value = partition_values.from_text(text, field.type)
    try:
        return pa.scalar(value, field.type)
    except (pa.ArrowException, OverflowError) as error:
        raise CorruptLogError(
            f"the partition value {text!r} does not fit {field.type}", advice="restore the log from a backup"
        ) from error


def rows_without_columns(count: int) -> pa.RecordBatch:
    """A batch without columns that still has a row count."""
    return pa.RecordBatch.from_struct_array(pa.Array.from_buffers(pa.struct([]), count, [None]))
