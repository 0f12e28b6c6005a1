"""The columns of a table's order as bytes, of one width for all rows: what runs of the key index have of them.

A number, date or time is as it is in memory, little-endian. A text has its length in its first byte, and zeros behind
it up to the longest one. A text of more than LONGEST bytes is left out, and so is a row with a null in one of the
columns: it is *unknown*, and whoever needs it reads it from the data file.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from tidelog.log.arrays import BoolArray, Int64Array
from tidelog.log.format import properties
from tidelog.log.format.schema import physical_name

# The order of captured changes has 51 bytes.
LONGEST = 63
_FIXED = (pt.is_signed_integer, pt.is_date32, pt.is_timestamp, pt.is_floating, pt.is_decimal)
_TEXT = (pt.is_string, pt.is_binary)
# How many texts are packed at a time.
_AT_ONCE = 2**16


@dataclass(frozen=True, slots=True)
class PackedOrder:
    """The columns of an order of some rows: a line of bytes for each, `widths` for the columns; and which are known.

    Without `widths` no row is known.
    """

    widths: tuple[int, ...]
    content: np.ndarray
    is_known: BoolArray

    @staticmethod
    def unknown(count: int) -> PackedOrder:
        """That of rows of which nothing is known."""
        return PackedOrder((), np.zeros((count, 0), dtype=np.uint8), np.zeros(count, dtype=bool))

    @staticmethod
    def joined(parts: Sequence[PackedOrder]) -> PackedOrder:
        """That of all rows of the parts, which have the same columns."""
        widths = widest([part.widths for part in parts])
        if len(parts) == 1 or not parts:
            return parts[0] if parts else PackedOrder.unknown(0)
        content = np.concatenate([part.widened(widths).content for part in parts])
        return PackedOrder(widths, content, np.concatenate([part.is_known for part in parts]))

    def take(self, chosen: Any) -> PackedOrder:
        """That of some rows: a slice, numbers or marks of them."""
        return PackedOrder(self.widths, self.content[chosen], self.is_known[chosen])

    def select(self, places: Sequence[int]) -> PackedOrder:
        """Some of the columns, in their order."""
        columns = self._columns()
        if list(places) == list(range(len(columns))):
            return self
        content = np.concatenate([columns[place] for place in places], axis=1)
        return PackedOrder(tuple(self.widths[place] for place in places), content, self.is_known)

    def widened(self, widths: tuple[int, ...]) -> PackedOrder:
        """The same in columns that are as wide or wider."""
        if self.widths == widths:
            return self
        content = np.zeros((len(self.is_known), sum(widths)), dtype=np.uint8)
        start = 0
        for column, width in zip(self._columns(), widths, strict=False):
            content[:, start : start + column.shape[1]] = column
            start += width
        return PackedOrder(widths, content, self.is_known)

    def _columns(self) -> list[np.ndarray]:
        return np.split(self.content, np.cumsum(self.widths)[:-1], axis=1) if self.widths else []


def widest(layouts: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
    """The widths that all of the layouts fit into. One without columns fits into each."""
    own = [widths for widths in layouts if widths]
    return tuple(max(widths) for widths in zip(*own, strict=True))


@dataclass(frozen=True, slots=True)
class PackedColumns:
    """The columns of a table's order, if they can be packed: names, types, and what a run says of each."""

    names: tuple[str, ...] = ()
    types: tuple[pa.DataType, ...] = field(default=(), compare=False)  # `described` says it as well
    described: tuple[str, ...] = ()

    @staticmethod
    def of(configuration: Mapping[str, str], schema: pa.Schema) -> PackedColumns:
        """Those of a table with these columns; none if one of them is missing, boolean or nested."""
        spelled = {name.lower(): name for name in schema.names}
        names = tuple(dict.fromkeys(spelled.get(name.lower(), "") for name in properties.order_by(configuration)))
        if not names or "" in names:
            return NO_COLUMNS
        fields = [schema.field(name) for name in names]
        if not all(any(is_kind(field.type) for is_kind in (*_FIXED, *_TEXT)) for field in fields):
            return NO_COLUMNS
        described = tuple(f"{physical_name(field)} {field.type}" for field in fields)
        return PackedColumns(names, tuple(field.type for field in fields), described)

    def fit(self, widths: Sequence[int]) -> bool:
        """Whether values of these columns can have these widths."""
        return len(widths) == len(self.types) and all(
            1 <= width <= LONGEST + 1 if _is_text(kind) else width == kind.bit_width // 8
            for kind, width in zip(self.types, widths, strict=True)
        )

    def packed(self, rows: pa.Table) -> PackedOrder:
        """The values of rows. Of rows that lack one of the columns nothing is known."""
        if not self.names or not set(self.names) <= set(rows.column_names):
            return PackedOrder.unknown(rows.num_rows)
        columns = []
        is_known = np.ones(rows.num_rows, dtype=bool)
        for name, kind in zip(self.names, self.types, strict=True):
            column = rows[name] if rows[name].type == kind else rows[name].cast(kind)
            if column.null_count:
                is_known &= np.asarray(column.is_valid())
            if _is_text(kind):
                lengths = np.asarray(pc.fill_null(pc.binary_length(column), 0), dtype=np.int64)
                is_known &= lengths <= LONGEST
                columns.append(_packed_texts(column, lengths))
            else:
                columns.append(_packed_numbers(column, kind.bit_width // 8))
        if not is_known.any():
            return PackedOrder.unknown(rows.num_rows)
        content = columns[0] if len(columns) == 1 else np.concatenate(columns, axis=1)
        if not is_known.all():
            content[~is_known] = 0
        return PackedOrder(tuple(column.shape[1] for column in columns), content, is_known)

    def unpacked(self, order: PackedOrder) -> pa.Table:
        """The columns of rows, all of which are known."""
        columns = []
        start = 0
        for kind, width in zip(self.types, order.widths or (0,) * len(self.types), strict=True):
            content = np.ascontiguousarray(order.content[:, start : start + width])
            start += width
            columns.append(_texts(content, kind) if _is_text(kind) else _array(kind, len(content), content))
        return pa.table(columns, names=list(self.names))


NO_COLUMNS = PackedColumns()


def _is_text(kind: pa.DataType) -> bool:
    return any(is_kind(kind) for is_kind in _TEXT)


def _array(kind: pa.DataType, count: int, *buffers: np.ndarray) -> pa.Array:
    return pa.Array.from_buffers(kind, count, [None, *(pa.py_buffer(buffer.reshape(-1)) for buffer in buffers)])


def _packed_numbers(column: pa.ChunkedArray, width: int) -> np.ndarray:
    content = np.zeros((len(column), width), dtype=np.uint8)
    start = 0
    for chunk in column.chunks:
        buffer = chunk.buffers()[1]
        if buffer is not None and len(chunk):
            values = np.frombuffer(buffer, dtype=np.uint8, count=len(chunk) * width, offset=chunk.offset * width)
            content[start : start + len(chunk)] = values.reshape(-1, width)
        start += len(chunk)
    return content


def _packed_texts(column: pa.ChunkedArray, lengths: Int64Array) -> np.ndarray:
    """The texts, of which longer ones than LONGEST are empty, and nulls as well."""
    lengths = np.where(lengths <= LONGEST, lengths, 0)
    content = np.zeros((len(column), 1 + int(lengths.max(initial=0))), dtype=np.uint8)
    content[:, 0] = lengths
    start = 0
    for chunk in column.chunks:
        for begin in range(0, len(chunk), _AT_ONCE):
            part = chunk.slice(begin, _AT_ONCE)
            own = lengths[start : start + len(part)]
            offsets = np.frombuffer(part.buffers()[1], dtype=np.int32)[part.offset : part.offset + len(part) + 1]
            stored = np.frombuffer(part.buffers()[2] or b"", dtype=np.uint8)
            place = content[start : start + len(part), 1:]
            # The bytes of texts that are left out, between those of others.
            has_gaps = (np.diff(offsets) != own).any()
            if has_gaps:
                starts = np.repeat(offsets[:-1] - np.cumsum(own) + own, own)
                stored = stored[starts + np.arange(len(starts))]
            else:
                stored = stored[offsets[0] : offsets[-1]]
            if len(stored) == place.size:
                place[:] = stored.reshape(place.shape)
            else:
                place[np.arange(place.shape[1]) < own.reshape(-1, 1)] = stored
            start += len(part)
    return content


def _texts(content: np.ndarray, kind: pa.DataType) -> pa.Array:
    lengths = content[:, 0].astype(np.int64) if content.shape[1] else np.zeros(len(content), dtype=np.int64)
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    stored = content[:, 1:][np.arange(content.shape[1] - 1) < lengths.reshape(-1, 1)] if len(content) else content
    return _array(kind, len(content), offsets, stored)
