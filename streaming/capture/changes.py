"""Changes of any format as rows for a sink: the columns of a schema, and what the sink has to know beside them.

Records are decoded by Python in Spark's tasks, from batches of Arrow's. Spark's functions for JSON round numbers with
many digits. Its variants do not, but 20,000 records of ten columns took 6 s with them, and a second to plan each batch;
this takes 2 s, and nothing to plan. What an upsert writes goes through Python in any case.
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, NamedTuple, Protocol
from uuid import UUID

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - Spark's convention
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    StringType,
    StructField,
    StructType,
    VariantType,
)

from tidelog.log.errors import SchemaMismatchError
from tidelog.streaming import spark_versions
from tidelog.streaming.capture.column_names import Names, PlaceError, Rename, names_in_records
from tidelog.streaming.capture.declared import SchemaError, parsed
from tidelog.streaming.capture.values import (
    ADAPTIVE,
    MICROS,
    MOST_SCALE,
    UNREADABLE,
    Digits,
    Encoding,
    Meaning,
    MisfitError,
    Reader,
    as_json,
    reader_of,
    unscaled_of,
    value_shown,
)
from tidelog.streaming.executors.plain_frame import EXACT_TEXT, quoted
from tidelog.streaming.sink.control import DELETES, OLD_KEY, OPERATION, ORDER, RAW, TRANSACTION, UNCHANGED, UPSERTS
from tidelog.streaming.sink.dead_letters import REASON

PLACEHOLDER = "__debezium_unavailable_value"
# The header of the record of a row whose key was changed.
_OLD_KEY = "__debezium.oldkey"
# The type of headers in a frame of Kafka's records, with `includeHeaders=true`.
_HEADERS = "array<struct<key:string,value:binary>>"
_CONTROL = StructType(
    [
        StructField(OPERATION, StringType()),
        StructField(ORDER, StringType()),
        StructField(TRANSACTION, StringType()),
        StructField(UNCHANGED, ArrayType(StringType())),
        StructField(REASON, StringType()),
        StructField(RAW, BinaryType()),
    ]
)
_MISSING = object()
# Those that a decimal in a variant can have.
_MOST_DIGITS = 38
# A longer number is refused by Spark's parser of JSON.
_LONGEST_NUMBER = 1000
# What the name of a column ends with while its JSON and its variant are both there.
_PARSED = "\0parsed"
# Of a whole number by the scale of its column.
_FACTORS = frozenset(10**scale for scale in range(MOST_SCALE + 1))
_NO_SCHEMA = (
    "no record of the batch has a schema: pass schema=, or let the connector write schemas: "
    "value.converter.schemas.enable=true"
)
# So many bytes of records are put together at most: a batch of Arrow's has at most 2 GiB in a column.
_AT_ONCE = 64 * 2**20


class RowChange(NamedTuple):
    """One change: `data` is its row, or with `op` DELETES at least the key, `before` the row before it, if known.

    `old_key` has at least the key before it, if it changes the key and that is known.

    `declared` is what the record's schema says of the columns, and `unit` that of timestamps in a record without one.
    A record that cannot be read has a `reason`, and no `op`. All records of one change in the source have its `event`,
    if that is known. `raw` is the record, if it is not the whole one that was read.
    """

    op: str | None
    data: Mapping[str, Any]
    order: str | None = None
    transaction: str | None = None
    before: Mapping[str, Any] | None = None
    declared: Mapping[str, Meaning] | None = None
    unit: str = MICROS
    reason: str | None = None
    old_key: Mapping[str, Any] | None = None
    event: str | None = None
    raw: bytes | None = None


def unread(reason: str) -> list[RowChange]:
    """What becomes of a record that cannot be read."""
    return [RowChange(None, {}, reason=reason)]


class RecordFormat(Protocol):
    """A format of change records. It is sent to Spark's tasks."""

    def changes(self, body: Any, declared: Mapping[str, Meaning] | None, offset: int | None) -> Iterable[RowChange]:
        """The changes in the body of a record, without its schema; none if it is not about a row."""


class _Column(NamedTuple):
    """A column of the rows, and how it is read; `source` is its name in the records."""

    name: str
    source: str
    nullable: bool
    is_key: bool
    unit: str
    kind: str
    read: Reader


@dataclass(frozen=True, slots=True)
class ChangeRows:
    """The schema and the key of the rows, and how the records are written.

    `rename` gives columns of the records other names in the rows. `has_all`: the rows have all columns that the
    records' own schemas have, or else the record is a dead letter.
    """

    schema: StructType
    keys: Sequence[str]
    encoding: Encoding
    format: RecordFormat
    placeholder: str = ""
    rename: Rename = field(default_factory=dict)
    has_all: bool = False

    def of(self, frame: DataFrame, value: str) -> DataFrame:
        """A row for each change of the records in a frame, with the columns of the schema and of the sink."""
        variants = [of.name for of in self.schema if isinstance(of.dataType, VariantType)]
        rows = records_of(frame, value).mapInArrow(self.batches(), self._decoded)
        return _with_variants(rows, variants, self._decoded.names) if variants else rows

    def batches(self) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
        """The function for Spark's tasks."""
        types = spark_versions.columns_to_arrow(self._decoded)
        self.columns(types)  # raises here what would be raised there
        return _Task(self, types)

    @property
    def _decoded(self) -> StructType:
        """What the tasks give: a variant is JSON there."""
        kinds = [(of.name, StringType() if isinstance(of.dataType, VariantType) else of.dataType) for of in self.schema]
        control = [*_CONTROL]
        if self.placeholder and self.keys and set(self.keys) <= set(self.schema.names):
            control.append(
                StructField(OLD_KEY, StructType([StructField(of, self.schema[of].dataType) for of in self.keys]))
            )
        return StructType([*(StructField(name, kind) for name, kind in kinds), *control])

    def columns(self, types: pa.Schema) -> list[_Column]:
        """How each column is read; `types` begins with theirs. Raises ConfigurationError."""
        found, sources = [], names_in_records(self.rename, None)
        for place, of in enumerate(self.schema):
            name, is_variant = of.name, isinstance(of.dataType, VariantType)
            read = _variant if is_variant else reader_of(name, types.field(place).type, self.encoding)
            unit = self.encoding.units.get(name, self.encoding.unit)
            source, kind = sources.get(name, name), of.dataType.simpleString()
            found.append(_Column(name, source, of.nullable, name in self.keys, unit, kind, read))
        return found


def _with_variants(rows: DataFrame, variants: Sequence[str], names: Sequence[str]) -> DataFrame:
    """The rows, whose JSON in these columns becomes variants. The tasks have made sure that it is JSON.

    Spark has limits on the size of a variant: a record that passes them is a dead letter.
    """
    parsed = {f"{name}{_PARSED}": F.try_parse_json(quoted(name)) for name in variants}
    reason = F.col(REASON)
    for name in variants:
        is_too_large = F.col(quoted(name)).isNotNull() & F.col(quoted(f"{name}{_PARSED}")).isNull()
        reason = F.coalesce(reason, F.when(is_too_large, F.lit(f"the column {name}: the JSON does not fit a variant")))
    columns = [
        F.col(quoted(f"{name}{_PARSED}")).alias(name)
        if name in variants
        else reason.alias(name)
        if name == REASON
        else F.col(quoted(name))
        for name in names
    ]
    return rows.withColumns(parsed).select(*columns)


def _variant(value: Any, meaning: Meaning, unit: str) -> str:  # noqa: ARG001 - as all readers
    """JSON, which a column of a database holds as text."""
    text: str = value if type(value) is str else as_json(value)
    try:
        json.loads(text, object_pairs_hook=_distinct, parse_float=_exact, parse_int=_exact, parse_constant=_no_json)
    except (ValueError, RecursionError) as error:
        raise MisfitError from error
    return text


def _distinct(pairs: list[tuple[str, Any]]) -> None:
    """Raise MisfitError for an object that has a name twice, which a variant cannot."""
    if len({name for name, _ in pairs}) < len(pairs):
        raise MisfitError


def _exact(number: str) -> None:
    """Raise MisfitError for a number that a variant does not hold with all of its digits."""
    if len(number) > _LONGEST_NUMBER:
        raise MisfitError
    whole, _, fraction = number.lstrip("-").partition(".")
    is_decimal = (whole + fraction).isdecimal() and len(fraction) <= _MOST_DIGITS
    if is_decimal and len((whole + fraction).lstrip("0")) <= _MOST_DIGITS:
        return
    double = float(number)
    if not math.isfinite(double) or Decimal(repr(double)) != Decimal(number):
        raise MisfitError


def _no_json(constant: str) -> None:
    """Raise MisfitError for NaN and the infinities."""
    raise MisfitError(constant)


def records_of(frame: DataFrame, value: str) -> DataFrame:
    """The records with a value, as JSON in bytes, with their offsets and the old keys in their headers, if known."""
    known = {name.lower(): name for name in frame.columns}
    if value.lower() not in known:
        raise SchemaMismatchError(
            f"the frame lacks the column {value!r} with the records",
            advice=f"pass value=, one of {', '.join(frame.columns)}",
            column=value,
        )
    name = known[value.lower()]
    kind, column = frame.schema[name].dataType, frame[quoted(name)]
    if isinstance(kind, StructType):
        content = F.to_json(column, EXACT_TEXT).cast("binary")
    elif isinstance(kind, BinaryType | StringType):
        content = column.cast("binary")
    else:
        raise SchemaMismatchError(
            f"the column {name!r} is {kind.simpleString()}, not bytes, text or a struct of envelopes",
            advice="pass the column with the records' values as value=",
            column=name,
        )
    offset = frame["offset"].cast("bigint") if "offset" in known else F.lit(None).cast("bigint")
    old_key = F.lit(None).cast("binary")
    if "headers" in known and frame.schema[known["headers"]].dataType.simpleString() == _HEADERS:
        headers = F.filter(frame[known["headers"]], lambda header: header["key"] == _OLD_KEY)
        old_key = F.get(headers, F.lit(0))["value"]
    columns = (content.alias("content"), offset.alias("offset"), old_key.alias("old_key"))
    return frame.where(column.isNotNull()).select(*columns)


@dataclass(frozen=True, slots=True)
class _Task:
    rows: ChangeRows
    types: pa.Schema

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        builder = _Builder(self.rows, self.types)
        for batch in batches:
            yield from builder.built(batch)


class _Builder:
    def __init__(self, rows: ChangeRows, types: pa.Schema) -> None:
        self._format = rows.format
        self._types = types
        self._columns = rows.columns(types)
        self._is_left_out = _left_out(rows.placeholder)
        self._has_old_key = OLD_KEY in types.names
        self._previous: RowChange | None = None
        self._names = Names(rows.rename, rows.schema.names)
        self._has_all = rows.has_all
        # The columns that were placed last: most records have the same.
        self._placed: Sequence[str] = ()
        self._declared: Mapping[str, Meaning] | None = None

    def built(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """The rows of some records, in one batch unless they are large."""
        columns, size = self._none(), 0
        for content, offset, old_key in zip(*(column.to_pylist() for column in batch.columns), strict=True):
            size += self._record(columns, content, offset, old_key)
            if size > _AT_ONCE:
                yield self._batch(columns)
                columns, size = self._none(), 0
        yield self._batch(columns)

    def _none(self) -> list[list[Any]]:
        return [[] for _ in self._types]

    def _record(self, columns: list[list[Any]], content: bytes, offset: int | None, old_key: bytes | None) -> int:
        """Add the rows of a record, and return the size of what they have of it.

        Whatever a record raises, it alone is a dead letter: the stream would be stopped by it for ever.
        """
        begin, previous = len(columns[-1]), self._previous
        try:
            return self._rows(columns, self._changes(content, offset), content, old_key)
        except Exception as error:  # noqa: BLE001 - see above
            for values in columns:
                del values[begin:]
            self._previous = previous
            reason = str(error) if isinstance(error, PlaceError) else f"the record cannot be read: {error_shown(error)}"
            return self._rows(columns, unread(reason), content, None)

    def _rows(
        self, columns: list[list[Any]], changes: Iterable[RowChange], content: bytes, old_key: bytes | None
    ) -> int:
        size = 0
        for change in changes:
            self._require_places(change)
            self._add(columns, change, content, old_key)
            self._previous = change
            size += len(change.raw or content)
        return size

    def _require_places(self, change: RowChange) -> None:
        """Raise PlaceError if a column of the record would be lost, or nothing says what the columns are."""
        if self._has_all and change.declared is not None and change.declared is not self._declared:
            self._names.require_all(change.declared)
            self._declared = change.declared
        if not self._columns and change.op is not None:
            raise PlaceError(_NO_SCHEMA, "")
        if (present := tuple(change.data)) != self._placed:
            self._names.require_clear(change.data)
            self._placed = present

    def _batch(self, columns: list[list[Any]]) -> pa.RecordBatch:
        try:
            return self._of_types(columns)
        except (pa.ArrowException, OverflowError, TypeError, ValueError):
            pass
        for row in range(len(columns[-1])):
            try:
                self._of_types([values[row : row + 1] for values in columns])
            except (pa.ArrowException, OverflowError, TypeError, ValueError) as error:
                self._give_up(columns, row, f"the record cannot be read: {error_shown(error)}")
        return self._of_types(columns)

    def _of_types(self, columns: Sequence[Sequence[Any]]) -> pa.RecordBatch:
        arrays = [pa.array(values, of.type) for values, of in zip(columns, self._types, strict=True)]
        return pa.RecordBatch.from_arrays(arrays, schema=self._types)

    def _give_up(self, columns: Sequence[list[Any]], row: int, reason: str) -> None:
        """Make a dead letter of a row."""
        for values, of in zip(columns, self._types, strict=True):
            if of.name != RAW:
                values[row] = {REASON: reason, UNCHANGED: []}.get(of.name)

    def _changes(self, content: bytes, offset: int | None) -> Iterable[RowChange]:
        try:
            body, declared = parsed(content)
        except SchemaError as error:
            return unread(f"the record's schema cannot be read: {error}")
        except UNREADABLE as error:
            return unread(f"the record is not JSON: {error}")
        return self._format.changes(body, declared, offset)

    def _add(self, columns: list[list[Any]], change: RowChange, content: bytes, old_key: bytes | None) -> None:
        reason, unchanged = change.reason, []
        for values, column in zip(columns, self._columns, strict=False):
            found = None
            if change.op == UPSERTS or (change.op == DELETES and column.is_key):
                value = change.data.get(column.source, _MISSING)
                if change.op == UPSERTS and not column.is_key and self._is_left_out(value):
                    value = _MISSING if change.before is None else change.before.get(column.source, _MISSING)
                    if value is _MISSING or value is None or self._is_left_out(value):
                        unchanged.append(column.name)
                        values.append(None)
                        continue
                try:
                    found = self._read(column, change, value)
                except MisfitError as error:
                    reason = reason or str(error)
            values.append(found)
        control: list[Any] = [change.op, change.order, change.transaction, unchanged, reason, change.raw or content]
        if self._has_old_key:
            control.append(self._old_key(change, old_key) if unchanged else None)
        for values, value in zip(columns[len(self._columns) :], control, strict=True):
            values.append(value)

    def _old_key(self, change: RowChange, header: bytes | None) -> dict[str, Any] | None:
        """The key that the row had before; None if that is unknown.

        It is in a header of the record, if the frame has headers. In any case that of the deletion comes before it.
        """
        previous, gone = self._previous, change.old_key
        if gone is None and header is not None:
            with suppress(*UNREADABLE):
                gone, _ = parsed(header)
        elif gone is None and previous is not None and previous.op == DELETES:
            gone = previous.data if change.event is not None and change.event == previous.event else None
        if not isinstance(gone, dict):
            return None
        try:
            return {of.name: self._read(of, change, gone.get(of.source)) for of in self._columns if of.is_key}
        except MisfitError:
            return None

    def _read(self, column: _Column, change: RowChange, value: Any) -> Any:
        """The value of a column. Raises MisfitError with a reason."""
        if value is None or value is _MISSING:
            if column.is_key or not column.nullable:
                kind = "is of the key" if column.is_key else "is NOT NULL"
                state = "null" if value is None else "missing"
                raise MisfitError(f"the column {column.name}, which {kind}, is {state}")
            return None
        meaning = None if change.declared is None else change.declared.get(column.source)
        unit = change.unit if column.unit == ADAPTIVE else column.unit
        try:
            return column.read(value, meaning, unit)
        except Exception as error:  # whatever a value raises, it is one that the column does not have
            text = f"the column {column.name}: {value_shown(value)} does not fit {column.kind} exactly"
            raise MisfitError(text) from error


def error_shown(error: Exception) -> str:
    """An error, short enough for a reason."""
    return f"{type(error).__name__}: {str(error)[:200]}"


def _left_out(text: str) -> Callable[[Any], bool]:
    """Whether a value says that the source left one out, for the text by which Debezium says so.

    It writes the text, or its bytes; in a list it writes one of these, or the UUID of the text. In a list of numbers it
    writes each byte of the text as a number, in whichever way the element's type has numbers.
    """
    if not text:
        return lambda value: False  # noqa: ARG005 - any value
    content = text.encode()
    coded = base64.b64encode(content).decode()
    uuid = str(UUID(bytes=hashlib.md5(content, usedforsecurity=False).digest(), version=3))
    texts, parts, entries = {text, coded, f'{{"{text}":"{text}"}}'}, {text, coded, uuid}, {text: text}

    def is_left_out(value: Any) -> bool:
        if type(value) is str:
            return value in texts
        if type(value) is list:
            if len(value) == 1 and type(value[0]) is str and value[0] in parts:
                return True
            return len(value) == len(content) and _are_bytes(value, content)
        return type(value) is dict and value == entries

    return is_left_out


def _are_bytes(numbers: Sequence[Any], content: bytes) -> bool:
    """Whether numbers are the bytes: whole ones, floats, or decimals of one scale."""
    first = numbers[0]
    if type(first) is int:
        return numbers == list(content)
    if isinstance(first, Digits):
        return all(
            isinstance(number, Digits | int) and float(number) == byte
            for number, byte in zip(numbers, content, strict=True)
        )
    try:
        found = [unscaled_of(number) for number in numbers]
    except MisfitError:
        return False
    factor, rest = divmod(found[0], content[0])
    return not rest and factor in _FACTORS and found == [byte * factor for byte in content]
