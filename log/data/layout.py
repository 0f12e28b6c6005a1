"""How the columns of a data file are encoded: with dictionaries, as steps, with compression or without.

A sample of the first rows decides, for each column by itself (`Layout.of`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pyarrow.types as pt

from tidelog.log.format.schema import parquet_columns, parquet_types


@dataclass(frozen=True, slots=True)
class Layout:
    """How a data file is encoded, apart from its rows.

    `row_groups` are the lengths of the row groups, by default as long as Parquet writers usually make them.
    `dictionaries` are the leaf columns with a dictionary, by default all, and `dictionary_bytes` is how large the one
    of a column in a row group can become. `encodings` maps top-level columns without a dictionary, by their physical
    names, to an encoding other than plain. `uncompressed` are leaf columns without compression. If `sampled`, a sample
    of the first row group decides these three instead.
    """

    compression: str = "snappy"
    dictionary_bytes: int = 2**20
    row_groups: tuple[int, ...] = ()
    encodings: Mapping[str, str] = field(default_factory=dict)
    dictionaries: tuple[str, ...] | None = None
    uncompressed: tuple[str, ...] = ()
    sampled: bool = False

    def of(self, rows: pa.Table) -> Layout:
        """The layout for a file that begins with these rows."""
        if not self.sampled:
            return self
        dictionaries, encodings = sampled_encodings(rows)
        return replace(
            self,
            dictionaries=dictionaries,
            encodings=encodings,
            uncompressed=sampled_uncompressed(rows, {*dictionaries, *encodings}),
            sampled=False,
        )


USUAL_LAYOUT = Layout(sampled=True)


# Blocks of consecutive rows from all over the table: values can repeat soon, or only after many others.
_BLOCKS = 16
_BLOCK_ROWS = 1024
# Of so many values that are chosen at random among 131,072, which is how many numbers of 64 bits the usual dictionary
# holds, this share is different ones. With more, a dictionary would most likely exceed its bound.
_MOST_DISTINCT = 0.94
# What compression has to leave of a column at most, and the codec that says so; others leave more.
_MOST_COMPRESSED = 0.9
_SAMPLE_CODEC = "zstd"
# With fewer rows, a sample takes longer than dictionaries do.
_SAMPLED_ROWS = 2**16
# Integers as their steps, packed in blocks and in parts of these (Parquet, "Delta Encoding"). Spark reads it since 3.3.
STEPS = "DELTA_BINARY_PACKED"
_STEPS_BLOCK, _STEPS_PART = 128, 32
# Bits per value beside the packed ones: of each block the least step, and of each part the width.
_STEPS_OVERHEAD = 1.0


def sampled_encodings(rows: pa.Table) -> tuple[tuple[str, ...], dict[str, str]]:
    """The leaf columns with a dictionary, as parquet names them, and the encodings of others that have a better one.

    A sample of the rows decides. A dictionary makes a file smaller if values repeat. If they do not, it takes as much
    as the values themselves up to its bound, after which the rest is written plainly, and looking each value up takes
    half of the time of writing. Integers and times that grow, or differ little, are written as steps if these take at
    most half of the bits. Such files are smaller, and faster to write and to read. Nested columns have dictionaries.
    """
    sample = _sample(rows)
    dictionaries: list[str] = []
    encodings: dict[str, str] = {}
    for column in rows.schema:
        if sample is None or not _is_sampled(column.type):
            dictionaries += parquet_columns([column])
            continue
        values = sample[column.name].drop_null()
        distinct = pc.count_distinct(values).as_py()
        repeats = distinct <= _MOST_DISTINCT * len(values)
        if _are_steps_small(values, max(distinct - 1, 0).bit_length() if repeats else None):
            encodings[column.name] = STEPS
        elif repeats:
            dictionaries.append(column.name)
    # A field of a struct can have the name of a column with a dot in it. A file cannot tell them apart here.
    return tuple(dictionaries), {name: encoding for name, encoding in encodings.items() if name not in dictionaries}


def sampled_uncompressed(rows: pa.Table, encoded: Collection[str]) -> tuple[str, ...]:
    """The columns of floating numbers that compression would hardly make smaller, but for those that are `encoded`.

    These are mostly measurements, whose last bits are random. To compress them takes longer than to write them, and
    each reader would pay for it again.
    """
    floating = [column.name for column in rows.schema if pt.is_floating(column.type) and column.name not in encoded]
    sample = _sample(rows.select(floating)) if floating else None
    return () if sample is None else tuple(name for name in floating if not _is_smaller(sample[name]))


def _is_smaller(values: pa.ChunkedArray) -> bool:
    """Whether compression makes numbers smaller by a tenth at least."""
    content = values.drop_null().to_numpy().tobytes()
    return len(pa.compress(content, _SAMPLE_CODEC, asbytes=True)) <= _MOST_COMPRESSED * len(content)


def _sample(rows: pa.Table) -> pa.Table | None:
    """Some rows; None if there are so few that a dictionary costs little."""
    if rows.num_rows < _SAMPLED_ROWS:
        return None
    step = rows.num_rows // _BLOCKS
    return pa.concat_tables([rows.slice(number * step, _BLOCK_ROWS) for number in range(_BLOCKS)])


def _is_sampled(kind: pa.DataType) -> bool:
    return not (pt.is_nested(kind) or pt.is_dictionary(kind) or pt.is_boolean(kind) or pt.is_null(kind))


def has_steps(kind: pa.DataType) -> bool:
    """Whether values of a type can be written as steps."""
    return bool(pt.is_signed_integer(kind) or pt.is_date32(kind) or pt.is_timestamp(kind))


def _are_steps_small(values: pa.ChunkedArray, code_bits: int | None) -> bool:
    """Whether the steps from value to value take at most half of the bits of a code, or without codes of a value."""
    kind = values.type
    if not has_steps(kind) or len(values) <= _STEPS_BLOCK:
        return False
    stored_bits = 64 if kind.bit_width == 64 else 32  # noqa: PLR2004 - bits
    numbers = values.cast(pa.int32() if pt.is_date32(kind) else pa.int64()).to_numpy().astype(np.int64)
    steps = np.diff(numbers)
    steps = steps[: len(steps) // _STEPS_BLOCK * _STEPS_BLOCK].reshape(-1, _STEPS_BLOCK)
    above = (steps - steps.min(axis=1, keepdims=True)).view(np.uint64).reshape(-1, _STEPS_PART).max(axis=1)
    # The exponent of a number is the count of its bits.
    step_bits = float(np.frexp(above.astype(np.float64))[1].mean()) + _STEPS_OVERHEAD
    return 2 * step_bits <= (stored_bits if code_bits is None else code_bits)


def with_steps(layout: Layout, schema: pa.Schema, names: Sequence[str]) -> Layout:
    """The layout with an encoding that suits columns of consecutive or equal integers."""
    wanted = [*parquet_columns(schema)] if layout.dictionaries is None else layout.dictionaries
    encodings = {**layout.encodings, **dict.fromkeys(names, STEPS)}
    return replace(layout, dictionaries=tuple(name for name in wanted if name not in encodings), encodings=encodings)


def parquet_writer(file: BinaryIO, schema: pa.Schema, layout: Layout) -> pq.ParquetWriter:
    """A writer of parquet that engines of today read; Spark since 3.3."""
    compression = dict.fromkeys(parquet_columns(schema), layout.compression)
    options: dict[str, Any] = {
        "compression": {**compression, **dict.fromkeys(layout.uncompressed, "none")},
        "dictionary_pagesize_limit": layout.dictionary_bytes,
        "store_schema": False,
        "data_page_version": "1.0",
        "version": "2.6",
        "write_page_checksum": True,
        "write_statistics": [*_bounded_columns(schema)],
        "use_dictionary": True if layout.dictionaries is None else [*layout.dictionaries],
        "column_encoding": dict(layout.encodings) or None,
    }
    return pq.ParquetWriter(file, schema, **options)


@lru_cache
def _bounded_columns(schema: pa.Schema) -> tuple[str, ...]:
    """The columns of a file that have statistics in it: all but floating numbers.

    Arrow leaves NaN out of their bounds. Spark puts it above all numbers, and would skip row groups that have it.
    """
    return tuple(name for name, kind in parquet_types(schema) if not pt.is_floating(kind))
