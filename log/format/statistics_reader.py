"""Read file statistics as Arrow columns: from the JSON texts of many files to bounds that hold for all their rows.

A value that is missing or cannot be read is null, and the reader must then keep the file. Bounds are widened where
writers round (protocol, "Per-file Statistics", and below), never narrowed.

Arrow parses many texts at once, one `{"s":<text>}` per line, so that a damaged text cannot shift its neighbours. If
Arrow refuses a piece, it is halved; a small piece is read text by text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from typing import Any, TypeAlias

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj
import pyarrow.types as pt

from tidelog.log.format.text import MALFORMED_JSON

Path: TypeAlias = tuple[str, ...]

# Large enough for Arrow to parse on all cores, small enough that copying a piece does not matter.
_PIECE_BYTES = 64 * 2**20
_BLOCK_BYTES = 4 * 2**20
# Below this many texts, halving a refused piece costs more than reading it one by one.
_SMALL_PIECE = 1000
# Arrow's reader takes a millisecond to start. The row counts of so few texts are read sooner one by one.
_FEW_TEXTS = 128
# Arrow's default allocator returns memory to the system and faults it in again, which made copies four times slower.
_POOL = pa.system_memory_pool()
_MILLISECOND_US = 1000
# Offsets are written in whole minutes, but those of old local times had seconds.
_OFFSET_SLACK_US = 60_000_000
# Some writers pass decimals through a 64-bit float, which holds this many digits.
_FLOAT_DIGITS = 15
_DECIMALS = Context(prec=100)
_DECODER = msgspec.json.Decoder(dict[str, Any], float_hook=Decimal)
_EMPTY: Mapping[str, Any] = {}


@dataclass(frozen=True, slots=True)
class Bounds:
    """The bounds of one leaf column, one entry per file: no value is less than `low` or greater than `high`.

    `nulls` counts the rows without a value. Null means unknown. A float's bounds do not cover NaN. `low` and `high`
    have the column's type (a wider one for decimals with many digits); they are all null for types without an order.

    A count of nulls that cannot be true is unknown: one of a list or map, for which some writers (deltalake up to
    1.6.0) count the values inside; one that leaves no row for the value that a bound is; and one beyond the row count.
    """

    low: pa.ChunkedArray
    high: pa.ChunkedArray
    nulls: pa.ChunkedArray


def read_row_counts(texts: pa.ChunkedArray) -> pa.ChunkedArray:
    """The physical row count of each file, including dead rows; null if unknown."""
    return _decode(texts, {})["rows"]


def read_bounds(
    texts: pa.ChunkedArray, leaves: Mapping[Path, pa.DataType], *, as_written: bool = False
) -> tuple[pa.ChunkedArray, dict[Path, Bounds]]:
    """The row counts as from `read_row_counts`, and the bounds of `leaves`, keyed by their physical names.

    With `as_written`, counts of nulls that cannot be true are not unknown, but what the texts say.
    """
    columns = _decode(texts, leaves, as_written=as_written)
    bounds = {}
    for number, (path, kind) in enumerate(leaves.items()):
        low, high = columns.get(f"low {number}"), columns.get(f"high {number}")
        if low is None or high is None:
            low = high = pa.chunked_array([pa.nulls(len(texts), kind)])
        else:
            low, high = _widened(low, high, kind)
        nulls = columns.get(f"nulls {number}")
        known = _unknown(len(texts)) if nulls is None else nulls
        known = known if as_written else _credible(known, columns["rows"], low, high)
        bounds[path] = Bounds(low, high, known)
    return columns["rows"], bounds


def _unknown(count: int) -> pa.ChunkedArray:
    return pa.chunked_array([pa.nulls(count, pa.int64())])


def _credible(
    nulls: pa.ChunkedArray, rows: pa.ChunkedArray, low: pa.ChunkedArray, high: pa.ChunkedArray
) -> pa.ChunkedArray:
    """The counts of nulls that the rest of a file's statistics does not contradict; else null."""
    is_bounded = pc.or_(pc.is_valid(low), pc.is_valid(high))
    most = pc.subtract(rows, pc.cast(is_bounded, pa.int64()))
    fits = pc.and_(pc.greater_equal(nulls, 0), pc.fill_null(pc.less_equal(nulls, most), True))  # noqa: FBT003 - a value
    return pc.if_else(fits, nulls, pa.scalar(None, pa.int64()))


def has_bounds(kind: pa.DataType) -> bool:
    """Whether statistics have bounds for values of this type."""
    return bool(_is_number(kind) or _is_spelled(kind) or pt.is_string(kind) or pt.is_boolean(kind))


def _is_number(kind: pa.DataType) -> bool:
    return bool(pt.is_integer(kind) or pt.is_floating(kind) or pt.is_decimal(kind))


def _is_repeated(kind: pa.DataType) -> bool:
    """Whether a value has any number of values inside."""
    return bool(pt.is_list(kind) or pt.is_large_list(kind) or pt.is_fixed_size_list(kind) or pt.is_map(kind))


def _is_spelled(kind: pa.DataType) -> bool:
    """Whether JSON holds values of this type as text."""
    return bool(pt.is_date(kind) or pt.is_timestamp(kind))


# --- from texts to columns -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Wanted:
    """One value to read from each text: its key, path and type, and how to convert it in texts that Arrow refuses."""

    key: str
    path: Path
    kind: pa.DataType
    convert: Callable[[Any], Any]


def _decode(
    texts: pa.ChunkedArray, leaves: Mapping[Path, pa.DataType], *, as_written: bool = False
) -> dict[str, pa.ChunkedArray]:
    wanted = list(_wanted(leaves, as_written=as_written))
    if not leaves and len(texts) <= _FEW_TEXTS:
        found = _read_one_by_one(texts, wanted)
        # Arrow can read some texts that are no JSON, such as with a bare NaN.
        if not any(values.null_count for values in found):
            return dict(zip((each.key for each in wanted), found, strict=True))
    schema = _nested_schema(wanted)
    pieces: dict[str, list[pa.Array]] = {each.key: [] for each in wanted}
    for piece in _pieces(texts):
        for found in _read_piece(piece, schema, wanted):
            for each, values in zip(wanted, found, strict=True):
                pieces[each.key].extend(values.chunks)
    return {each.key: pa.chunked_array(pieces[each.key], each.kind) for each in wanted}


def _wanted(leaves: Mapping[Path, pa.DataType], *, as_written: bool) -> Iterator[_Wanted]:
    yield _Wanted("rows", ("numRecords",), pa.int64(), _integer(pa.int64()))
    for number, (path, kind) in enumerate(leaves.items()):
        if as_written or not _is_repeated(kind):
            yield _Wanted(f"nulls {number}", ("nullCount", *path), pa.int64(), _integer(pa.int64()))
        if has_bounds(kind):
            spelled = pa.string() if _is_spelled(kind) else kind
            yield _Wanted(f"low {number}", ("minValues", *path), spelled, _converter(spelled, ROUND_FLOOR))
            yield _Wanted(f"high {number}", ("maxValues", *path), spelled, _converter(spelled, ROUND_CEILING))


def _nested_schema(wanted: Sequence[_Wanted]) -> pa.Schema:
    tree: dict[str, Any] = {}
    for each in wanted:
        inner = tree
        for name in each.path[:-1]:
            inner = inner.setdefault(name, {})
        inner[each.path[-1]] = each.kind

    def kind_of(node: Any) -> pa.DataType:
        return pa.struct([(name, kind_of(below)) for name, below in node.items()]) if isinstance(node, dict) else node

    return pa.schema([("s", kind_of(tree))])


def _pieces(texts: pa.ChunkedArray) -> Iterator[pa.Array]:
    if not len(texts):
        return
    length = max(1, len(texts) * _PIECE_BYTES // max(texts.nbytes, 1))
    for start in range(0, len(texts), length):
        piece = texts.slice(start, length).combine_chunks(memory_pool=_POOL)
        yield from piece.chunks if isinstance(piece, pa.ChunkedArray) else [piece]


def _read_piece(texts: pa.Array, schema: pa.Schema, wanted: Sequence[_Wanted]) -> Iterator[list[pa.ChunkedArray]]:
    try:
        parsed = _parse(texts, schema)
    except pa.ArrowException:
        if len(texts) > _SMALL_PIECE:
            half = len(texts) // 2
            yield from _read_piece(texts.slice(0, half), schema, wanted)
            yield from _read_piece(texts.slice(half), schema, wanted)
            return
        yield _read_one_by_one(texts, wanted)
        return
    yield [pc.struct_field(parsed, list(each.path)) for each in wanted]


def _parse(texts: pa.Array, schema: pa.Schema) -> pa.ChunkedArray:
    present = texts.fill_null("null")
    if pc.any(pc.equal(pc.binary_length(present), 0)).as_py():
        present = pc.if_else(pc.equal(pc.binary_length(present), 0), "null", present)
    lines = pc.binary_join_element_wise(pa.scalar('{"s":'), present, pa.scalar("}\n"), "", memory_pool=_POOL)
    offsets = lines.buffers()[1]
    first, last = (memoryview(offsets).cast("i")[lines.offset + index] for index in (0, len(lines)))
    found = pj.read_json(
        pa.BufferReader(lines.buffers()[2].slice(first, last - first)),  # noqa: TID251 - the buffer is Arrow's
        read_options=pj.ReadOptions(block_size=_BLOCK_BYTES),
        parse_options=pj.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore"),
    )
    if found.num_rows != len(texts):
        raise pa.ArrowInvalid(f"{len(texts)} texts, {found.num_rows} objects")
    return found["s"]


# --- text by text ----------------------------------------------------------------------------------------------------


def _read_one_by_one(texts: pa.Array | pa.ChunkedArray, wanted: Sequence[_Wanted]) -> list[pa.ChunkedArray]:
    trees = [_tree(text) for text in texts.to_pylist()]
    return [
        pa.chunked_array([pa.array([each.convert(_at(tree, each.path)) for tree in trees], each.kind)])
        for each in wanted
    ]


def _tree(text: str | None) -> Mapping[str, Any]:
    try:
        return _EMPTY if text is None else _DECODER.decode(text)
    except (*MALFORMED_JSON, ArithmeticError):
        return _EMPTY


def _at(tree: Any, path: Path) -> Any:
    for name in path:
        tree = tree.get(name) if isinstance(tree, dict) else None
    return tree


def _converter(kind: pa.DataType, rounding: str) -> Callable[[Any], Any]:
    """A function that reads a JSON value as `kind`: rounds outwards if it has more digits, returns None if invalid."""
    if pt.is_integer(kind):
        return _integer(kind)
    if pt.is_decimal(kind):
        return lambda value: _decimal(value, kind, rounding)
    if pt.is_floating(kind):
        return _float
    python = bool if pt.is_boolean(kind) else str
    return lambda value: value if isinstance(value, python) else None


def _integer(kind: pa.DataType) -> Callable[[Any], int | None]:
    bound = 2 ** (kind.bit_width - 1)

    def convert(value: Any) -> int | None:
        fits = isinstance(value, int) and not isinstance(value, bool) and -bound <= value < bound
        return value if fits else None

    return convert


def _float(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, (int, Decimal)):
        return None
    try:
        return float(value)
    except OverflowError:
        return None


def _decimal(value: Any, kind: pa.DataType, rounding: str) -> Decimal | None:
    if isinstance(value, bool) or not isinstance(value, (int, Decimal)):
        return None
    try:
        rounded = Decimal(value).quantize(Decimal(1).scaleb(-kind.scale), rounding, _DECIMALS)
    except ArithmeticError:
        return None
    return rounded if rounded.is_finite() and abs(rounded) < Decimal(10) ** (kind.precision - kind.scale) else None


# --- outwards --------------------------------------------------------------------------------------------------------


def _widened(low: pa.ChunkedArray, high: pa.ChunkedArray, kind: pa.DataType) -> tuple[pa.ChunkedArray, pa.ChunkedArray]:
    if pt.is_timestamp(kind):
        return _moments(low, high, kind)
    if pt.is_date(kind):
        return _spelled(low, kind), _spelled(high, kind)
    if pt.is_floating(kind):
        return tuple(pc.if_else(pc.is_nan(bound), pa.scalar(None, kind), bound) for bound in (low, high))
    if pt.is_decimal(kind) and kind.precision > _FLOAT_DIGITS:
        return _decimal_bounds(low, high, kind)
    return low, high


def _moments(low: pa.ChunkedArray, high: pa.ChunkedArray, kind: pa.DataType) -> tuple[pa.ChunkedArray, ...]:
    """Widen timestamps: writers round maximums down to the millisecond."""
    slacks = [pc.if_else(_may_hide_seconds(bound, kind), _OFFSET_SLACK_US, 0) for bound in (low, high)]
    lows, highs = (_spelled(bound, kind).cast(pa.int64()) for bound in (low, high))
    highest = pc.add(pc.add(highs, slacks[1]), _MILLISECOND_US)
    return pc.subtract(lows, slacks[0]).cast(kind), highest.cast(kind)


def _may_hide_seconds(texts: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    if kind.tz is None:
        return pc.and_(pc.is_null(texts), False)  # noqa: FBT003 - a value
    return pc.invert(pc.ends_with(texts.fill_null("Z"), "Z"))


def _spelled(texts: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    """Parse ISO-8601 dates or timestamps; null if invalid."""
    try:
        return texts.cast(kind)
    except pa.ArrowInvalid:
        encoded = texts.combine_chunks().dictionary_encode()
        values = pa.array([_moment(text, kind) for text in encoded.dictionary.to_pylist()], kind)
        return pa.chunked_array([values.take(encoded.indices)])


def _moment(text: str, kind: pa.DataType) -> date | datetime | None:
    try:
        if pt.is_date(kind):
            return date.fromisoformat(text)
        moment = datetime.fromisoformat(text)
        if kind.tz is not None:
            # Without an offset, the time zone is unknown.
            return None if moment.tzinfo is None else moment.astimezone(UTC)
    except (ValueError, OverflowError):
        return None
    # Some writers mark a timestamp without time zone as UTC.
    return None if moment.utcoffset() else moment.replace(tzinfo=None)


def _decimal_bounds(low: pa.ChunkedArray, high: pa.ChunkedArray, kind: pa.DataType) -> tuple[pa.ChunkedArray, ...]:
    wide = pa.decimal256(kind.precision + 2, kind.scale)
    lows, highs = low.cast(wide), high.cast(wide)
    down = pc.subtract(lows, _rounding_error(lows))
    up = pc.add(highs, _rounding_error(highs))
    return down.cast(wide), up.cast(wide)


def _rounding_error(values: pa.ChunkedArray) -> pa.ChunkedArray:
    """More than a value can lose on its way through a 64-bit float."""
    kind = values.type
    share = pc.multiply(pc.abs(values.cast(pa.float64())), 10.0**-_FLOAT_DIGITS)
    step = pa.scalar(Decimal(1).scaleb(-kind.scale), pa.decimal256(kind.precision, kind.scale))
    return pc.add(share.cast(kind, safe=False), step).cast(kind)
