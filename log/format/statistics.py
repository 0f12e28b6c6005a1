"""Write file statistics: the JSON text in `add.stats`.

Readers skip files based on it, so a wrong bound silently loses rows. The rules (Delta protocol, "Per-file
Statistics"): bounds for the first leaf columns only; strings are cut to 32 characters such that the bound still holds;
timestamps are rounded down to the millisecond (readers add one millisecond to the maximum); no bounds for a column
that has no exact ones (a NaN, an infinity, nested or binary values).
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping
from datetime import UTC, date, datetime
from decimal import Decimal
from itertools import islice
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from tidelog.log.format.actions import AddFile, RemoveFile
from tidelog.log.format.schema import leaf_columns
from tidelog.log.format.text import MALFORMED_JSON

DEFAULT_INDEXED_COLUMNS = 32
TEXT_PREFIX = 32
_MAX_CHARACTER = "\U0010ffff"


class _NumRecords(msgspec.Struct, rename="camel", gc=False):
    """The row count alone, which is found many times faster than all bounds are decoded."""

    num_records: Any = None


_NUM_RECORDS = msgspec.json.Decoder(_NumRecords)
_ENCODER = msgspec.json.Encoder(decimal_format="number")
# Decimals with many digits must not go through a float when statistics are rewritten.
_EXACT_DECODER = msgspec.json.Decoder(dict[str, Any], float_hook=Decimal)


def collect(
    table: pa.Table,
    *,
    indexed_columns: int = DEFAULT_INDEXED_COLUMNS,
    only: Collection[tuple[str, ...]] | None = None,
) -> str:
    """The statistics of a data file with exactly the rows and columns of `table`; see Collector."""
    collector = Collector(indexed_columns=indexed_columns, only=only)
    collector.add(table)
    return collector.text()


class Collector:
    """Collects the statistics of a data file whose rows come in several tables.

    They have bounds and null counts for the first `indexed_columns` leaf columns or, if `only` is given, for its
    columns and everything nested in them (case-insensitive). Text can have codes (an Arrow dictionary).
    """

    def __init__(
        self, *, indexed_columns: int = DEFAULT_INDEXED_COLUMNS, only: Collection[tuple[str, ...]] | None = None
    ) -> None:
        self._indexed_columns = indexed_columns
        self._only = only
        self._num_rows = 0
        self._leaves: dict[tuple[str, ...], _Leaf] = {}

    def add(self, table: pa.Table) -> None:
        """Take in more rows. All tables have the same columns."""
        self._num_rows += table.num_rows
        for path, values in self._chosen(table):
            if path not in self._leaves:
                self._leaves[path] = _Leaf(_plain_type(values.type))
            self._leaves[path].add(values)

    def text(self) -> str:
        """The stats text of a file with all rows so far."""
        return encode(self._num_rows, {path: leaf.values() for path, leaf in self._leaves.items()})

    def _chosen(self, table: pa.Table) -> Iterator[tuple[tuple[str, ...], pa.ChunkedArray]]:
        only, found = self._only, _leaves(table)
        if only is None:
            return islice(found, self._indexed_columns)
        return (leaf for leaf in found if is_chosen(leaf[0], only))


class _Leaf:
    """The bounds and the null count of a column of type `kind`. Once a value has no place in an order, neither has it.

    `low` and `high` are None before the first value.
    """

    def __init__(self, kind: pa.DataType) -> None:
        self._kind = kind
        self._bounded = is_ordered(kind)
        self._low: Any = None
        self._high: Any = None
        self._nulls = 0

    def add(self, values: pa.ChunkedArray) -> None:
        self._nulls += values.null_count
        if not self._bounded or values.null_count == len(values):
            return
        found = _bounds(values)
        if found is None:
            self._bounded = False
            return
        low, high = found
        self._low = low if self._low is None else min(self._low, low)
        self._high = high if self._high is None else max(self._high, high)

    def values(self) -> dict[str, Any]:
        low, high = spelled(self._kind, self._low, self._high) if self._bounded else (None, None)
        return {"minValues": low, "maxValues": high, "nullCount": self._nulls}


def encode(num_rows: int, columns: Mapping[tuple[str, ...], Mapping[str, Any]]) -> str:
    """The stats text of a file. `columns` maps each leaf column to its `minValues`, `maxValues` and `nullCount`."""
    trees: dict[str, dict[str, Any]] = {"minValues": {}, "maxValues": {}, "nullCount": {}}
    for path, known in columns.items():
        for name, value in known.items():
            if value is not None:
                _put(trees[name], path, value)
    return _ENCODER.encode({"numRecords": num_rows, **trees, "tightBounds": True}).decode()


def num_records(stats: str | None) -> int | None:
    """The physical row count in a stats text; None if it has none."""
    if stats is None:
        return None
    try:
        value = _NUM_RECORDS.decode(stats).num_records
    except MALFORMED_JSON:
        return None
    return value if isinstance(value, int) else None


def live_rows(file: AddFile | RemoveFile) -> int | None:
    """How many rows of a file its deletion vector leaves; None if its statistics have no count."""
    physical = num_records(file.stats)
    if physical is None:
        return None
    return physical - (file.deletion_vector.cardinality if file.deletion_vector else 0)


def widened(stats: str | None, physical_rows: int) -> str:
    """The stats text of a file with a deletion vector: the bounds still hold, but may no longer be tight."""
    try:
        known = {} if stats is None else _EXACT_DECODER.decode(stats)
    except MALFORMED_JSON:
        known = {}
    return _ENCODER.encode({**known, "numRecords": physical_rows, "tightBounds": False}).decode()


def from_struct(row: dict[str, Any]) -> str:
    """The stats text of a checkpoint's `stats_parsed` struct, without absent values."""
    return _ENCODER.encode(_pruned(row)).decode()


def _pruned(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _pruned(inner) for key, inner in value.items() if inner is not None}
    if isinstance(value, datetime):
        return _timestamp_text(value, zoned=value.tzinfo is not None)
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value.isoformat() if isinstance(value, date) else value


def truncate_minimum(text: str) -> str:
    """A string of at most 32 characters that is not greater than `text`."""
    return text[:TEXT_PREFIX]


def truncate_maximum(text: str) -> str | None:
    """A string of at most 33 characters that is not less than `text` (by code point); None if there is none.

    Example: 40 times `a` becomes 32 times `a` and the character U+007F.
    """
    if len(text) <= TEXT_PREFIX:
        return text
    follower = text[TEXT_PREFIX]
    if follower < "\x7f":
        return text[:TEXT_PREFIX] + "\x7f"
    if follower < _MAX_CHARACTER:
        return text[:TEXT_PREFIX] + _MAX_CHARACTER
    return None


def _leaves(table: pa.Table) -> Iterator[tuple[tuple[str, ...], pa.ChunkedArray]]:
    found = list(leaf_columns(table.schema))
    for path, (place, *inner), _ in found:  # of a variant, only the nulls are counted
        column = table.column(place)
        # Unlike flattening the storage, struct_field makes a child null where its parent is null.
        yield path, pc.struct_field(column, inner) if inner else column


def is_chosen(path: tuple[str, ...], columns: Collection[tuple[str, ...]]) -> bool:
    """Whether the leaf at `path` is one of `columns` or nested in one; case-insensitive."""
    chosen = {tuple(name.lower() for name in column) for column in columns}
    lowered = tuple(name.lower() for name in path)
    return any(lowered[:length] in chosen for length in range(1, len(path) + 1))


def _put(tree: dict[str, Any], path: tuple[str, ...], value: Any) -> None:
    for name in path[:-1]:
        tree = tree.setdefault(name, {})
    tree[path[-1]] = value


def _plain_type(kind: pa.DataType) -> pa.DataType:
    return kind.value_type if pt.is_dictionary(kind) else kind


def _bounds(values: pa.ChunkedArray) -> tuple[Any, Any] | None:
    """The bounds of a column with at least one value; None if its values have none."""
    if pt.is_dictionary(values.type):
        # A dictionary can have values that no row has.
        used = [chunk.dictionary.take(chunk.indices.unique().drop_null()) for chunk in values.chunks]
        values = pa.chunked_array(used, values.type.value_type)
    if pt.is_floating(values.type):
        return _float_bounds(values)
    both = pc.min_max(values)
    try:
        return both["min"].as_py(), both["max"].as_py()
    except (OverflowError, ValueError):  # a date outside Python's calendar
        return None


def _float_bounds(values: pa.ChunkedArray) -> tuple[float, float] | None:
    """The bounds of numbers that are all finite. NumPy is several times faster than Arrow, and NaN wins there."""
    present = [chunk.drop_null().to_numpy() for chunk in values.chunks if chunk.null_count < len(chunk)]
    if not present:
        return None
    low, high = np.min([chunk.min() for chunk in present]), np.max([chunk.max() for chunk in present])
    return (low.item(), high.item()) if np.isfinite(low) and np.isfinite(high) else None


def spelled(kind: pa.DataType, low: Any, high: Any) -> tuple[Any, Any]:
    """The two bounds of a column of type `kind` as in the stats text; an unknown bound is None."""
    if low is None or high is None:
        return None, None
    if pt.is_timestamp(kind):
        zoned = kind.tz is not None
        return _timestamp_text(low, zoned=zoned), _timestamp_text(high, zoned=zoned)
    if pt.is_string(kind):
        return truncate_minimum(low), truncate_maximum(high)
    if pt.is_date(kind):
        return low.isoformat(), high.isoformat()
    return low, high


def is_ordered(kind: pa.DataType) -> bool:
    """Whether bounds are written for columns of this type."""
    numbers = pt.is_integer(kind) or pt.is_floating(kind) or pt.is_decimal(kind)
    return bool(numbers or pt.is_string(kind) or pt.is_date(kind) or pt.is_timestamp(kind))


def _timestamp_text(value: Any, *, zoned: bool) -> str:
    if zoned:
        return str(value.astimezone(UTC).replace(tzinfo=None).isoformat(timespec="milliseconds")) + "Z"
    return str(value.isoformat(timespec="milliseconds"))
