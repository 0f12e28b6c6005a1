"""Shredded variants as whole ones: the encoded value that the typed columns of a file stand for.

A file may keep parts of a variant in columns of their own (Parquet's "Variant Shredding"). Its group then has a
`typed_value` beside `value`: a plain type, a list of groups, or a struct of groups, one for each field of an object.
What does not fit the types is in `value`, and an object can be in both. The dictionary in `metadata` has all names.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from functools import lru_cache
from itertools import chain, repeat
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from tidelog.log.data import nested

TYPED_VALUE = "typed_value"
_NULL, _NO_NAMES = b"\x00", b"\x01\x00\x00"
_SHORT_TEXT = 64
_SMALL = 256
# The bytes after the header of a value of a plain type, by the type's number; None for a length that comes first.
_SIZES: Mapping[int, int | None] = {
    0: 0, 1: 0, 2: 0, 3: 1, 4: 2, 5: 4, 6: 8, 7: 8, 8: 5, 9: 9, 10: 17, 11: 4, 12: 8, 13: 8, 14: 4, 15: None, 16: None,
    17: 8, 18: 8, 19: 8, 20: 16,
}  # fmt: skip
_BINARY, _TEXT, _UUID = 15, 16, 20

# A part of a variant, or the fields of an object; None where there is none.
Part: TypeAlias = bytes | dict[str, bytes] | None


def is_shredded(kind: pa.DataType) -> bool:
    """Whether a variant of this type in a file is shredded."""
    return bool(pt.is_struct(kind) and kind.get_field_index(TYPED_VALUE) >= 0)


def whole(values: pa.StructArray, kind: pa.StructType) -> pa.StructArray:
    """The variants with their values encoded, as the struct `kind` of `value` and `metadata`.

    Raises ValueError for what is no variant.
    """
    metadata = values.field("metadata").cast(pa.binary())
    texts = [text or _NO_NAMES for text in metadata.to_pylist()]
    try:
        found = _groups(values, [_names(text) for text in texts])
    except (IndexError, KeyError, struct.error) as error:
        raise ValueError(f"a shredded variant cannot be put together: {error!r}") from error
    encoded = pa.array([_NULL if part is None else part for part in found], pa.binary())
    children = {"value": encoded, "metadata": pa.array(texts, pa.binary())}
    return nested.build_struct([children[field.name] for field in kind], kind, np.asarray(values.is_null()))


# --- the columns of a file --------------------------------------------------------------------------------------------


def _groups(group: pa.StructArray, names: Sequence[tuple[str, ...]]) -> list[bytes | None]:
    """The encoded parts that a group of `value` and `typed_value` stands for; `names` has the dictionary of each."""
    places = [group.type.get_field_index(name) for name in ("value", TYPED_VALUE)]
    columns = group.flatten()  # with nulls where a group is null
    rest, typed = (None if place < 0 else columns[place] for place in places)
    rests = [None] * len(group) if rest is None else rest.to_pylist()
    parts: list[Part] = [None] * len(group) if typed is None else _typed(typed, names)
    there = group.is_valid().to_pylist()
    return [
        _together(own, part, words) if is_there else None
        for own, part, words, is_there in zip(rests, parts, names, there, strict=True)
    ]


def _together(rest: bytes | None, part: Part, names: Sequence[str]) -> bytes | None:
    if isinstance(part, dict):
        return _object((_fields(rest, names) if rest is not None else {}) | part, names)
    return rest if part is None else part


def _typed(values: pa.Array, names: Sequence[tuple[str, ...]]) -> list[Part]:
    kind = values.type
    there = values.is_valid().to_pylist()
    if pt.is_struct(kind):
        columns = {kind.field(place).name: _groups(column, names) for place, column in enumerate(values.flatten())}
        return [
            {name: part for name, parts in columns.items() if (part := parts[row]) is not None} if is_there else None
            for row, is_there in enumerate(there)
        ]
    if nested.is_any_list(kind):
        lengths = pc.fill_null(pc.list_value_length(values), 0).to_pylist()
        owners = list(chain.from_iterable(map(repeat, names, lengths)))
        elements = iter(_groups(values.flatten(), owners))
        lists = [[next(elements) or _NULL for _ in range(length)] for length in lengths]
        return [_array(parts) if is_there else None for parts, is_there in zip(lists, there, strict=True)]
    encode, plain = _encoder(values)
    return [None if value is None else encode(value) for value in plain.to_pylist()]


def _encoder(values: pa.Array) -> tuple[Callable[[Any], bytes], pa.Array]:
    """What encodes the values of a plain type, and the values as it takes them."""
    kind = values.type
    if pt.is_boolean(kind):
        return lambda value: b"\x04" if value else b"\x08", values
    if pt.is_integer(kind):
        return _integer, values
    if pt.is_float32(kind) or pt.is_float64(kind):
        layout, header = ("<Bf", 14 << 2) if pt.is_float32(kind) else ("<Bd", 7 << 2)
        return lambda value: struct.pack(layout, header, value), values
    if pt.is_decimal(kind):
        return _decimal, values
    if pt.is_date32(kind):
        return lambda value: struct.pack("<Bi", 11 << 2, value), values.cast(pa.int32())
    if pt.is_timestamp(kind):
        number = (12 if kind.unit == "us" else 18) + (not kind.tz)
        return lambda value: struct.pack("<Bq", number << 2, value), values.cast(pa.int64())
    if pt.is_time64(kind):
        return lambda value: struct.pack("<Bq", 17 << 2, value), values.cast(pa.int64())
    if pt.is_fixed_size_binary(kind):
        return lambda value: bytes([_UUID << 2]) + value, values
    if pt.is_binary(kind) or pt.is_large_binary(kind):
        return lambda value: struct.pack("<BI", _BINARY << 2, len(value)) + value, values
    if pt.is_string(kind) or pt.is_large_string(kind):
        return _text, values
    raise ValueError(f"a shredded variant has values of the type {kind}")


# --- encoded values ---------------------------------------------------------------------------------------------------


def _integer(value: int) -> bytes:
    for number, layout, bits in ((3, "<Bb", 8), (4, "<Bh", 16), (5, "<Bi", 32)):
        if -(1 << bits - 1) <= value < 1 << bits - 1:
            return struct.pack(layout, number << 2, value)
    return struct.pack("<Bq", 6 << 2, value)


def _decimal(value: Decimal) -> bytes:
    sign, digits, exponent = value.as_tuple()
    scale = -int(exponent)
    unscaled = int("".join(map(str, digits))) * (-1 if sign else 1)
    precision = max(len(digits), scale)
    number, size = (8, 4) if precision <= 9 else (9, 8) if precision <= 18 else (10, 16)  # noqa: PLR2004 - the format's
    return bytes([number << 2, scale]) + unscaled.to_bytes(size, "little", signed=True)


def _text(value: str) -> bytes:
    content = value.encode()
    if len(content) < _SHORT_TEXT:
        return bytes([len(content) << 2 | 1]) + content
    return struct.pack("<BI", _TEXT << 2, len(content)) + content


def _array(parts: Sequence[bytes]) -> bytes:
    offsets, size = _offsets(parts)
    is_large = len(parts) >= _SMALL
    header = (is_large << 2 | size - 1) << 2 | 3
    return b"".join([bytes([header]), _number(len(parts), 4 if is_large else 1), offsets, *parts])


def _object(fields: Mapping[str, bytes], names: Sequence[str]) -> bytes:
    ids = {name: number for number, name in enumerate(names)}
    ordered = sorted(fields)
    parts = [fields[name] for name in ordered]
    offsets, size = _offsets(parts)
    is_large = len(parts) >= _SMALL
    numbers = [ids[name] for name in ordered]
    id_size = _bytes_for(max(numbers, default=0))
    header = (is_large << 4 | id_size - 1 << 2 | size - 1) << 2 | 2
    packed = b"".join(_number(number, id_size) for number in numbers)
    return b"".join([bytes([header]), _number(len(parts), 4 if is_large else 1), packed, offsets, *parts])


def _offsets(parts: Sequence[bytes]) -> tuple[bytes, int]:
    """Where the parts begin, and the last one ends; and how many bytes each number has."""
    ends = [0]
    for part in parts:
        ends.append(ends[-1] + len(part))
    size = _bytes_for(ends[-1])
    return b"".join(_number(end, size) for end in ends), size


def _bytes_for(number: int) -> int:
    return max(1, (number.bit_length() + 7) // 8)


def _number(number: int, size: int) -> bytes:
    return number.to_bytes(size, "little")


@lru_cache(maxsize=1024)
def _names(metadata: bytes) -> tuple[str, ...]:
    """The dictionary of a variant."""
    size = (metadata[0] >> 6) + 1
    count = _read(metadata, 1, size)
    start = 1 + size * (count + 2)
    ends = [start + _read(metadata, 1 + size * (number + 1), size) for number in range(count + 1)]
    return tuple(_slice(metadata, ends[number], ends[number + 1]).decode() for number in range(count))


def _fields(value: bytes, names: Sequence[str]) -> dict[str, bytes]:
    """The fields of an encoded object."""
    if value[0] & 3 != 2:  # noqa: PLR2004 - the format's
        raise ValueError("a shredded variant has the fields of an object, and a value that is none")
    header = value[0] >> 2
    size, id_size, is_large = (header & 3) + 1, (header >> 2 & 3) + 1, header >> 4 & 1
    count_size = 4 if is_large else 1
    count = _read(value, 1, count_size)
    first = 1 + count_size
    offsets = first + count * id_size
    data = offsets + (count + 1) * size
    found = {}
    for number in range(count):
        at = data + _read(value, offsets + number * size, size)
        found[names[_read(value, first + number * id_size, id_size)]] = _slice(value, at, at + _length(value, at))
    return found


def _length(value: bytes, at: int) -> int:
    """How many bytes the value has that begins there."""
    basic, header = value[at] & 3, value[at] >> 2
    if basic == 1:
        return 1 + header
    if basic == 0:
        size = _SIZES[header]
        return 5 + _read(value, at + 1, 4) if size is None else 1 + size
    size, is_object = (header & 3) + 1, basic == 2  # noqa: PLR2004 - the format's
    id_size = (header >> 2 & 3) + 1 if is_object else 0
    count_size = 4 if header >> (4 if is_object else 2) & 1 else 1
    count = _read(value, at + 1, count_size)
    last = 1 + count_size + count * (id_size + size)
    return last + size + _read(value, at + last, size)


def _read(content: bytes, at: int, size: int) -> int:
    return int.from_bytes(_slice(content, at, at + size), "little")


def _slice(content: bytes, start: int, end: int) -> bytes:
    if not 0 <= start <= end <= len(content):
        raise IndexError(end)
    return content[start:end]
