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
from dataclasses import dataclass
from decimal import Decimal
from functools import lru_cache
from typing import Any, NamedTuple, Protocol
from uuid import UUID

import msgspec
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
from tidelog.streaming.capture.values import (
    ADAPTIVE,
    MICROS,
    Encoding,
    Meaning,
    MisfitError,
    Reader,
    as_json,
    from_json,
    reader_of,
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


class _Wrapped(msgspec.Struct):
    """A record with its schema, neither of them decoded."""

    schema: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    payload: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


_WRAPPED = msgspec.json.Decoder(_Wrapped)


@lru_cache(maxsize=64)
def declared_columns(schema: bytes) -> Mapping[str, Meaning]:
    """The types that a record's schema gives the columns of `after`, or all of its fields if it has no `after`."""
    whole = from_json(schema)
    fields = whole.get("fields") if isinstance(whole, dict) else None
    for of in fields or ():
        if isinstance(of, dict) and of.get("field") == "after":
            return {str(part.get("field")): part for part in of.get("fields") or ()}
    return {}


def parsed(content: bytes) -> tuple[Any, Mapping[str, Meaning] | None]:
    """A record without its schema, and what the schema says. Raises ValueError if it is not JSON."""
    try:
        wrapped = _WRAPPED.decode(content)
    except msgspec.ValidationError:
        return from_json(content), None
    if isinstance(wrapped.schema, msgspec.Raw) and isinstance(wrapped.payload, msgspec.Raw):
        return from_json(bytes(wrapped.payload)), declared_columns(bytes(wrapped.schema))
    return from_json(content), None


class _Column(NamedTuple):
    name: str
    nullable: bool
    is_key: bool
    unit: str
    kind: str
    read: Reader


@dataclass(frozen=True, slots=True)
class ChangeRows:
    """The schema and the key of the rows, and how the records are written."""

    schema: StructType
    keys: Sequence[str]
    encoding: Encoding
    format: RecordFormat
    placeholder: str = ""

    def of(self, frame: DataFrame, value: str) -> DataFrame:
        """A row for each change of the records in a frame, with the columns of the schema and of the sink."""
        variants = [of.name for of in self.schema if isinstance(of.dataType, VariantType)]
        rows = records_of(frame, value).mapInArrow(self.batches(), self._decoded)
        # The tasks have made sure that it is JSON.
        return rows.withColumns({name: F.parse_json(quoted(name)) for name in variants}) if variants else rows

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
        found = []
        for place, of in enumerate(self.schema):
            name, is_variant = of.name, isinstance(of.dataType, VariantType)
            read = _variant if is_variant else reader_of(name, types.field(place).type, self.encoding)
            unit = self.encoding.units.get(name, self.encoding.unit)
            found.append(_Column(name, of.nullable, name in self.keys, unit, of.dataType.simpleString(), read))
        return found


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
            yield builder.built(batch)


class _Builder:
    def __init__(self, rows: ChangeRows, types: pa.Schema) -> None:
        self._format = rows.format
        self._types = types
        self._columns = rows.columns(types)
        texts, lists, maps = _placeholders(rows.placeholder)
        self._texts, self._lists, self._maps = texts, lists, maps
        self._has_old_key = OLD_KEY in types.names
        self._previous: RowChange | None = None

    def built(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The rows of some records."""
        columns: list[list[Any]] = [[] for _ in self._types]
        for content, offset, old_key in zip(*(column.to_pylist() for column in batch.columns), strict=True):
            for change in self._changes(content, offset):
                self._add(columns, change, content, old_key)
                self._previous = change
        arrays = [pa.array(values, of.type) for values, of in zip(columns, self._types, strict=True)]
        return pa.RecordBatch.from_arrays(arrays, schema=self._types)

    def _changes(self, content: bytes, offset: int | None) -> Iterable[RowChange]:
        try:
            body, declared = parsed(content)
        except (ValueError, RecursionError) as error:
            return unread(f"the record is not JSON: {error}")
        return self._format.changes(body, declared, offset)

    def _add(self, columns: list[list[Any]], change: RowChange, content: bytes, old_key: bytes | None) -> None:
        reason, unchanged = change.reason, []
        for values, column in zip(columns, self._columns, strict=False):
            found = None
            if change.op == UPSERTS or (change.op == DELETES and column.is_key):
                value = change.data.get(column.name, _MISSING)
                if change.op == UPSERTS and not column.is_key and self._is_left_out(value):
                    value = _MISSING if change.before is None else change.before.get(column.name, _MISSING)
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
            with suppress(ValueError, RecursionError):
                gone, _ = parsed(header)
        elif gone is None and previous is not None and previous.op == DELETES:
            gone = previous.data if change.event is not None and change.event == previous.event else None
        if not isinstance(gone, dict):
            return None
        try:
            return {of.name: self._read(of, change, gone.get(of.name)) for of in self._columns if of.is_key}
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
        meaning = None if change.declared is None else change.declared.get(column.name)
        unit = change.unit if column.unit == ADAPTIVE else column.unit
        try:
            return column.read(value, meaning, unit)
        except (MisfitError, ValueError, ArithmeticError, AttributeError, TypeError) as error:
            text = f"the column {column.name}: {value_shown(value)} does not fit {column.kind} exactly"
            raise MisfitError(text) from error

    def _is_left_out(self, value: Any) -> bool:
        """Whether the source says that it left a value out."""
        if type(value) is str:
            return value in self._texts
        if type(value) is list:
            return value in self._lists
        return type(value) is dict and value in self._maps


def _placeholders(text: str) -> tuple[set[str], list[list[Any]], list[dict[str, str]]]:
    """How Debezium writes that it left out a value: as a text, bytes, and in lists of these, numbers and UUIDs."""
    if not text:
        return set(), [], []
    content = text.encode()
    coded = base64.b64encode(content).decode()
    uuid = UUID(bytes=hashlib.md5(content, usedforsecurity=False).digest(), version=3)
    return {text, coded, f'{{"{text}":"{text}"}}'}, [[text], [coded], [str(uuid)], list(content)], [{text: text}]
