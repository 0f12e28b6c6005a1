"""Convert partition values to and from their text in the log.

Source: the Delta protocol, "Partition Value Serialization". Timestamps are written in UTC (ISO-8601 with `Z`);
the older form without a time zone is read as UTC.
"""

from __future__ import annotations

import re
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from tidelog.log.errors import CorruptLogError


def is_partitionable(kind: pa.DataType) -> bool:
    """Whether a table can be partitioned by a column of this type: any type except nested ones and null."""
    return not (pt.is_nested(kind) or pt.is_null(kind))


def to_text(value: Any, kind: pa.DataType) -> str | None:
    """The text of a Python `value` of Arrow type `kind`; null and empty values become None.

    Raises UnicodeDecodeError for a binary value that is not valid UTF-8.
    """
    if value in (None, "", b""):
        return None
    if pt.is_boolean(kind):
        return "true" if value else "false"
    if pt.is_timestamp(kind):
        return _timestamp_text(value, zoned=kind.tz is not None)
    if pt.is_date(kind):
        return str(value.isoformat())
    if pt.is_decimal(kind):
        return format(value, "f")
    if pt.is_binary(kind):
        return str(value.decode("utf-8"))
    return str(value)


def folder_text(text: str | None, kind: pa.DataType) -> str | None:
    """The text in the name of a partition folder, for a value as in the log: the same, but a time in UTC has no zone.

    So delta-spark and delta-rs write it. Polars does not read one column in both forms.
    """
    if text is None or not pt.is_timestamp(kind) or kind.tz is None:
        return text
    return _timestamp_text(from_text(text, kind).astimezone(UTC).replace(tzinfo=None), zoned=False)


def from_text(text: str | None, kind: pa.DataType) -> Any:
    """Parse `text` as a Python value of Arrow type `kind`; null and empty text become None.

    Raises CorruptLogError if the text is not such a value.
    """
    if text is None or text == "":
        return None
    try:
        return _parse(text, kind)
    except (ValueError, ArithmeticError) as error:
        message = f"the partition value {text!r} is not a valid {kind}"
        raise CorruptLogError(
            message,
            advice="copy _delta_log back from a backup; or, if the columns of the table were replaced since, read the "
            "changes after that version",
        ) from error


def _parse(text: str, kind: pa.DataType) -> Any:
    if pt.is_boolean(kind):
        if text.lower() not in {"true", "false"}:
            raise ValueError(text)
        return text.lower() == "true"
    if pt.is_integer(kind):
        return int(text)
    if pt.is_floating(kind):
        return float(text)
    if pt.is_decimal(kind):
        return Decimal(text)
    if pt.is_date(kind):
        return date.fromisoformat(text)
    if pt.is_timestamp(kind):
        return _parse_timestamp(text, zoned=kind.tz is not None)
    if pt.is_binary(kind):
        return text.encode("utf-8")
    return text


def _timestamp_text(value: datetime, *, zoned: bool) -> str:
    if zoned:
        return value.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ").rjust(27, "0")
    return value.strftime("%Y-%m-%d %H:%M:%S.%f").rjust(26, "0")


def _parse_timestamp(text: str, *, zoned: bool) -> datetime:
    # Spark trims trailing zeros of the fraction; fromisoformat accepts any number of digits since Python 3.11.
    value = datetime.fromisoformat(re.sub(r"\s+", " ", text))
    if not zoned:
        return value.replace(tzinfo=None)
    return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


def decode_column(maps: pa.ChunkedArray, name: str, kind: pa.DataType) -> tuple[pa.ChunkedArray, pa.ChunkedArray]:
    """Decode one partition column of many files from their `partitionValues`: the values, and whether each is known.

    A value is unknown if the file's map lacks the column (then the file itself holds it) or if its text is invalid.
    """
    texts, present = texts_of_column(maps, name)
    encoded = texts.combine_chunks().dictionary_encode()
    distinct = encoded.dictionary.to_pylist()
    values, readable = _decode_texts(distinct, kind)
    known = pa.array([*readable, True], pa.bool_()).take(pc.fill_null(encoded.indices, len(distinct)))
    return pa.chunked_array([values.take(encoded.indices)]), pc.and_(present, pa.chunked_array([known]))


def texts_of_column(maps: pa.ChunkedArray, name: str) -> tuple[pa.ChunkedArray, pa.ChunkedArray]:
    """One entry of many maps of texts as it is written there, and whether each map has it."""
    found = [_texts_of(chunk, name) for chunk in maps.chunks]
    return (
        pa.chunked_array([texts for texts, _ in found], pa.string()),
        pa.chunked_array([present for _, present in found], pa.bool_()),
    )


def _texts_of(maps: pa.MapArray, name: str) -> tuple[pa.Array, pa.Array]:
    """A column's text in each map, and whether the map has it. If a key repeats, the last one counts, as in JSON."""
    offsets = maps.offsets.to_numpy()
    hits = np.flatnonzero(pc.equal(maps.keys, name).to_numpy(zero_copy_only=False))
    hits = hits[(hits >= offsets[0]) & (hits < offsets[-1])] if len(maps) else hits[:0]
    place = np.full(len(maps), -1, dtype=np.int64)
    place[np.searchsorted(offsets, hits, side="right") - 1] = hits
    present = (place >= 0) & maps.is_valid().to_numpy(zero_copy_only=False)
    return maps.items.take(pa.array(place, mask=~present)), pa.array(present)


def _decode_texts(texts: list[str], kind: pa.DataType) -> tuple[pa.Array, list[bool]]:
    try:
        return pa.array([from_text(text, kind) for text in texts], kind), [True] * len(texts)
    except (CorruptLogError, pa.ArrowException, OverflowError, TypeError):
        values = [_readable_value(text, kind) for text in texts]
        return pa.array([value for value, _ in values], kind), [readable for _, readable in values]


def _readable_value(text: str, kind: pa.DataType) -> tuple[Any, bool]:
    try:
        return pa.scalar(from_text(text, kind), kind).as_py(), True
    except (CorruptLogError, pa.ArrowException, OverflowError, TypeError):
        return None, False
