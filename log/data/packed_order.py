"""The columns of a table's order as bytes, of one width for all rows: what runs of the key index have of them.

A number, date or time is as it is in memory, little-endian. A text has its length in its first byte, and zeros behind
it up to the longest one. A text of more than LONGEST bytes is left out, and so is a row with a null in one of the
columns. Its order is *unknown*, and is read from the data file.

Bytes that are the same in all rows are stored once, such as the upper ones of times, and most of the order of captured
changes.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any, NamedTuple, TypeAlias

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from tidelog.log.arrays import BoolArray, Int64Array
from tidelog.log.format import properties
from tidelog.log.format.schema import physical_name

# The order of captured changes has 51 bytes, and 67 for two of the databases.
LONGEST = 79
# The most columns of an order, so that an entry of a run has a few kilobytes at most.
_MOST_COLUMNS = 64
_FIXED = (pt.is_signed_integer, pt.is_date32, pt.is_timestamp, pt.is_floating, pt.is_decimal)
_TEXT = (pt.is_string, pt.is_binary)
# How many texts are packed at a time.
_AT_ONCE = 2**16


class ByteColumn(NamedTuple):
    """The bytes that a column has in each row: how many, what they are (0 where rows differ), and which of them vary.

    As rows get more, bytes begin to vary, and a text gets wider.
    """

    width: int
    shared: bytes
    varying: tuple[int, ...]

    @staticmethod
    def of(shared: np.ndarray, varies: BoolArray) -> ByteColumn:
        """That of rows with these bytes, where they do not vary."""
        return ByteColumn(len(shared), np.where(varies, 0, shared).tobytes(), tuple(np.flatnonzero(varies).tolist()))

    def lines(self, content: np.ndarray, width: int) -> np.ndarray:
        """All bytes of rows, with zeros up to a width, from those that vary."""
        found = np.zeros((len(content), width), dtype=np.uint8)
        found[:, : self.width] = np.frombuffer(self.shared, dtype=np.uint8)
        found[:, list(self.varying)] = content
        return found

    @property
    def is_sound(self) -> bool:
        """Whether no other program made it up."""
        is_sized = len(self.shared) == self.width and 0 < self.width <= LONGEST + 1
        return is_sized and list(self.varying) == sorted({*self.varying} & {*range(self.width)})


OrderLayout: TypeAlias = tuple[ByteColumn, ...]
"""The columns of an order. Where there is none, nothing is known of any row."""


def joined_layout(layouts: Collection[OrderLayout]) -> OrderLayout:
    """A layout for the rows of all of these, which have the same columns or none."""
    own = {layout for layout in layouts if layout}
    return next(iter(own), ()) if len(own) <= 1 else tuple(map(_joined, zip(*own, strict=True)))


def _joined(columns: Sequence[ByteColumn]) -> ByteColumn:
    shared = np.zeros((len(columns), max(column.width for column in columns)), dtype=np.uint8)
    varies = np.zeros(shared.shape[1], dtype=bool)
    for line, column in zip(shared, columns, strict=True):
        line[: column.width] = np.frombuffer(column.shared, dtype=np.uint8)
        varies[list(column.varying)] = True
    return ByteColumn.of(shared[0], varies | (shared != shared[0]).any(axis=0))


def _beside(columns: Sequence[np.ndarray]) -> np.ndarray:
    return columns[0] if len(columns) == 1 else np.concatenate(columns, axis=1)


def stored_bytes(layout: OrderLayout) -> int:
    """How many bytes of each row are stored."""
    return sum(len(column.varying) for column in layout)


@dataclass(frozen=True, slots=True)
class PackedOrder:
    """The columns of an order of some rows: a line for each, with the bytes that vary; and which rows are known."""

    layout: OrderLayout
    content: np.ndarray
    is_known: BoolArray

    @staticmethod
    def unknown(count: int) -> PackedOrder:
        """That of rows of which nothing is known."""
        return PackedOrder((), np.zeros((count, 0), dtype=np.uint8), np.zeros(count, dtype=bool))

    @staticmethod
    def of(columns: Sequence[np.ndarray], is_known: BoolArray) -> PackedOrder | None:
        """That of columns with all of their bytes; None if nothing is known."""
        if not is_known.any():
            return None
        layout, content = [], []
        for column in columns:
            known = column if is_known.all() else column[is_known]
            varies = known.min(axis=0) != known.max(axis=0)
            layout.append(ByteColumn.of(known[0], varies))
            content.append(np.take(column, np.flatnonzero(varies), axis=1))
        return PackedOrder(tuple(layout), _beside(content), is_known)

    @staticmethod
    def joined(parts: Sequence[PackedOrder]) -> PackedOrder:
        """That of all rows of the parts, which have the same columns."""
        if len(parts) == 1:
            return parts[0]
        layout = joined_layout([part.layout for part in parts])
        content = np.concatenate([part.laid_out(layout).content for part in parts])
        return PackedOrder(layout, content, np.concatenate([part.is_known for part in parts]))

    def take(self, chosen: Any) -> PackedOrder:
        """That of some rows: a slice, numbers or marks of them."""
        # Of a table with two axes, `np.take` is several times as fast.
        is_plain = isinstance(chosen, slice) or np.asarray(chosen).dtype == bool
        content = self.content[chosen] if is_plain else np.take(self.content, chosen, axis=0)
        return PackedOrder(self.layout, content, self.is_known[chosen])

    def select(self, places: Sequence[int]) -> PackedOrder:
        """Some of the columns, in their order."""
        if list(places) == list(range(len(self.layout))):
            return self
        content = self._stored()
        chosen = _beside([content[place] for place in places])
        return PackedOrder(tuple(self.layout[place] for place in places), chosen, self.is_known)

    def laid_out(self, layout: OrderLayout) -> PackedOrder:
        """The same in a layout that it fits into."""
        if self.layout == layout:
            return self
        if not self.layout:
            content = [np.zeros((len(self.is_known), stored_bytes(layout)), dtype=np.uint8)]
        else:
            parts = zip(self.layout, self._stored(), layout, strict=True)
            content = [
                np.take(column.lines(stored, wanted.width), np.array(wanted.varying, dtype=np.int64), axis=1)
                for column, stored, wanted in parts
            ]
        return PackedOrder(layout, _beside(content), self.is_known)

    def columns(self) -> list[np.ndarray]:
        """For each column the lines with all of its bytes."""
        parts = zip(self.layout, self._stored(), strict=True)
        return [column.lines(stored, column.width) for column, stored in parts]

    def _stored(self) -> list[np.ndarray]:
        stops = list(accumulate(len(column.varying) for column in self.layout))
        return np.split(self.content, stops[:-1], axis=1) if self.layout else []


@dataclass(frozen=True, slots=True)
class PackedColumns:
    """The columns of a table's order, if they can be packed: names, types, and what a run says of each."""

    names: tuple[str, ...] = ()
    types: tuple[pa.DataType, ...] = field(default=(), compare=False)  # `described` says it as well
    described: tuple[str, ...] = ()

    @staticmethod
    def of(configuration: Mapping[str, str], schema: pa.Schema) -> PackedColumns:
        """Those of a table with these columns; none if one is missing, boolean or nested, or if there are too many."""
        spelled = {name.lower(): name for name in schema.names}
        names = tuple(dict.fromkeys(spelled.get(name.lower(), "") for name in properties.order_by(configuration)))
        if not names or "" in names or len(names) > _MOST_COLUMNS:
            return NO_COLUMNS
        fields = [schema.field(name) for name in names]
        if not all(any(is_kind(field.type) for is_kind in (*_FIXED, *_TEXT)) for field in fields):
            return NO_COLUMNS
        described = tuple(f"{physical_name(field)} {field.type}" for field in fields)
        return PackedColumns(names, tuple(field.type for field in fields), described)

    def written(self, layout: OrderLayout) -> str:
        """What the head of a run says of its order."""
        return msgspec.json.encode(list(zip(self.described, layout, strict=True))).decode()

    def read(self, text: str) -> tuple[OrderLayout, list[int]]:
        """The layout that `written` described, and the places of these columns in it; none if it lacks one.

        Raises ValueError for what no tidelog has written.
        """
        try:
            columns = msgspec.json.decode(text, type=list[tuple[str, ByteColumn]])
        except msgspec.MsgspecError as error:
            raise ValueError(str(error)) from error
        layout = tuple(column for _, column in columns)
        place_of = {described: place for place, (described, _) in enumerate(columns)}
        is_whole = bool(self.names) and place_of.keys() >= {*self.described}
        places = [place_of[described] for described in self.described] if is_whole else []
        is_fit = not places or self.fit([layout[place] for place in places])
        if not is_fit or len(layout) > _MOST_COLUMNS or not all(column.is_sound for column in layout):
            message = "its order is none that tidelog wrote"
            raise ValueError(message)
        return layout, places

    def fit(self, layout: Sequence[ByteColumn]) -> bool:
        """Whether values of these columns can be so."""
        return len(layout) == len(self.types) and all(
            column.width <= LONGEST + 1 if _is_text(kind) else column.width == kind.bit_width // 8
            for kind, column in zip(self.types, layout, strict=True)
        )

    def packed(self, rows: pa.Table) -> PackedOrder | None:
        """The values of rows; None if nothing is known of any, such as of rows that lack one of the columns."""
        if not set(self.names) <= set(rows.column_names):
            return None
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
        return PackedOrder.of(columns, is_known)

    def unpacked(self, order: PackedOrder) -> pa.Table:
        """The columns of rows, all of which are known."""
        columns = []
        none = [np.zeros((0, 1), dtype=np.uint8)] * len(self.types)
        for kind, content in zip(self.types, order.columns() or none, strict=True):
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
    # A damaged run can claim longer texts than it has bytes for.
    lengths = np.minimum(content[:, 0], content.shape[1] - 1).astype(np.int64)
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    stored = content[:, 1:][np.arange(content.shape[1] - 1) < lengths.reshape(-1, 1)]
    return _array(kind, len(content), offsets, stored)
