"""The records of Canal as rows: its flat messages, each with several rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame

from tidelog.streaming.capture.changes import RowChange, unread
from tidelog.streaming.capture.column_names import Rename
from tidelog.streaming.capture.order import BY_OFFSET, BY_TIME, number_text, order_text, require_epoch
from tidelog.streaming.capture.schemas import Schema, rows_of_texts
from tidelog.streaming.capture.values import (
    AS_TEXT,
    LATIN1,
    MICROS,
    Encoding,
    Meaning,
    MisfitError,
    as_json,
    require_option,
)
from tidelog.streaming.sink.control import DELETES, TRUNCATES, UPSERTS

_ORDERS = (BY_OFFSET, BY_TIME)
_UPDATE, _TRUNCATE = "UPDATE", "TRUNCATE"
# What is kept beside each row of a message if all of it, as often as there are rows, has more than so many characters.
_READ_BY, _MOST_BESIDE, _LONGEST_BESIDE = ("type", "database", "table", "es", "ts", "id", "gtid", "isDdl"), 2**24, 100
_OPERATIONS = {"INSERT": UPSERTS, _UPDATE: UPSERTS, "DELETE": DELETES}


def canal(  # noqa: PLR0913 - the public signature
    frame: DataFrame,
    *,
    schema: Schema,
    keys: Sequence[str] = (),
    value: str = "value",
    order: str = BY_OFFSET,
    epoch: int = 0,
    binaries: str = LATIN1,
    zone: str | None = None,
    rename: Rename | None = None,
) -> DataFrame:
    """Canal's change records, its flat messages in JSON, as rows for the sink of `capture.sink`.

    Records of schema changes are left out, and a TRUNCATE is one.

    Args:
        frame: Records of Kafka or of files, streaming or not; only `value` is needed, and `offset` for the order.
        schema: The columns of the rows; see `debezium`.
        keys: The columns that identify a row.
        value: The column with the records.
        order: `offset`: that of the record in its topic, whose order is that of the database for each key. `time`: when
            the statement ran, in milliseconds (`es`), and the number of the message.
        epoch: From 0 to 255; records of a higher one are newer than all of a lower one.
        binaries: How bytes are written: `latin1`, `base64`, or `hex`.
        zone: The time zone of timestamps without one, such as `UTC`. Without it they do not fit a TIMESTAMP.
        rename: The columns of the records that have another name in the rows; see `debezium`.

    Returns:
        A row for each change; see `debezium`.

    Raises:
        ConfigurationError, SchemaMismatchError: An argument is invalid.
    """
    require_epoch(epoch)
    require_option("order", order, _ORDERS)
    encoding = Encoding(AS_TEXT, binaries, MICROS, {}, zone)
    return rows_of_texts(frame, value, schema, keys, rename, encoding, lambda names: Canal(names, order, epoch))


@dataclass(frozen=True, slots=True)
class Canal:
    """The format of Canal's flat messages."""

    keys: Sequence[str]
    order: str = BY_OFFSET
    epoch: int = 0

    def changes(self, body: Any, declared: Mapping[str, Meaning] | None, offset: int | None) -> Iterable[RowChange]:
        """See RecordFormat."""
        kind = body.get("type") if isinstance(body, dict) else None
        if not isinstance(kind, str):
            return unread("the record is none of Canal's: it has no type")
        is_schema_change = body.get("isDdl") is True
        if is_schema_change and kind != _TRUNCATE:
            return ()
        if not is_schema_change and kind not in _OPERATIONS:
            return unread(f"unknown type: {kind[:20]}")
        rows = [{}] if is_schema_change else body.get("data")
        if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
            return unread("the record has no rows in data")
        try:
            orders = [self._order(body, offset, place) for place in range(len(rows))]
        except MisfitError:
            return unread(f"the record has no {self.order}")
        number = body.get("gtid") or None
        beside = _beside(body, len(rows)) if len(rows) > 1 else None
        changes = [
            RowChange(
                TRUNCATES if is_schema_change else _OPERATIONS[kind],
                row,
                order,
                None if number is None else str(number),
                None,
                declared,
                raw=None if beside is None else _part(beside, body, place),
            )
            for place, (row, order) in enumerate(zip(rows, orders, strict=True))
        ]
        return self._with_old_keys(changes, body.get("old")) if kind == _UPDATE else changes

    def _with_old_keys(self, changes: Sequence[RowChange], old: Any) -> Iterator[RowChange]:
        for place, change in enumerate(changes):
            before = old[place] if isinstance(old, list) and place < len(old) else None
            if isinstance(before, dict) and any(name in before for name in self.keys):
                yield change._replace(op=DELETES, data={**change.data, **before})
            yield change

    def _order(self, body: Mapping[str, Any], offset: int | None, place: int) -> str:
        if self.order == BY_OFFSET:
            major, minor = number_text(offset), number_text(place, 8)
        else:
            major, minor = number_text(body.get("es")), number_text(body.get("id")) + number_text(place, 8)
        return order_text(self.epoch, major, minor, offset, is_change=True)


def _beside(body: Mapping[str, Any], count: int) -> Mapping[str, Any]:
    """What a message says beside its rows, for each of them; if that is too much, only what it is read by."""
    beside = {name: value for name, value in body.items() if name not in ("data", "old")}
    if len(as_json(beside)) * count <= _MOST_BESIDE:
        return beside
    return {name: beside[name] for name in _READ_BY if name in beside and len(as_json(beside[name])) <= _LONGEST_BESIDE}


def _part(beside: Mapping[str, Any], body: Mapping[str, Any], place: int) -> bytes:
    """A message with one of its rows: whole ones, one for each of many rows, could be too much for the memory."""
    old = body.get("old")
    part = {"old": [old[place]]} if isinstance(old, list) and place < len(old) else {}
    return as_json({**beside, "data": [body["data"][place]], **part}).encode()
