"""Debezium's envelopes as rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from tidelog.streaming.capture.changes import PLACEHOLDER, ChangeRows, RowChange, unread
from tidelog.streaming.capture.column_names import Rename, names_in_records
from tidelog.streaming.capture.order import BY_POSITION, ORDERS, debezium_order, require_epoch
from tidelog.streaming.capture.schemas import Schema, keys_of, struct_of, with_columns_of
from tidelog.streaming.capture.values import (
    ADAPTIVE,
    BASE64,
    MICROS,
    MILLIS,
    NANOS,
    PRECISE,
    Encoding,
    Meaning,
    require_option,
)
from tidelog.streaming.sink.control import DELETES, TRUNCATES, UPSERTS

# What Debezium makes of a timestamp whose precision is not given.
_UNITS = {"mysql": MILLIS, "mariadb": MILLIS, "sqlserver": NANOS}
_OPERATIONS = {"c": UPSERTS, "u": UPSERTS, "r": UPSERTS, "d": DELETES, "t": TRUNCATES}
_MESSAGE = "m"


def debezium(  # noqa: PLR0913 - the public signature
    frame: DataFrame,
    *,
    schema: Schema | None = None,
    keys: Sequence[str] = (),
    value: str = "value",
    order: str = BY_POSITION,
    epoch: int = 0,
    decimals: str = PRECISE,
    binaries: str = BASE64,
    timestamps: str | Mapping[str, str] = ADAPTIVE,
    zone: str | None = None,
    unavailable: str = PLACEHOLDER,
    new_columns: bool = False,
    rename: Rename | None = None,
) -> DataFrame:
    """Debezium's change records as rows for the sink of `capture.sink`.

    The envelopes are JSON, with or without their schema, or a struct, as Spark's `from_avro` makes it. Left out are
    tombstones, heartbeats, messages, and records of transactions and of schema changes. A value that its column does
    not hold exactly makes the record a dead letter.

    Args:
        frame: Records of Kafka or of files. Only `value` is needed. With `offset`, the later of two records at one
            position counts. With `headers`, values that are left out of a row whose key was changed are found in a
            topic with several partitions, too.
        schema: The columns of the rows, which are matched by their names: a Table, a schema of pyarrow's or Spark's, or
            DDL text such as `"id BIGINT, name STRING NOT NULL"`. None: those of the records' own schemas, which needs a
            batch that the executors keep until the next one. If no record has a schema, the changes are dead letters.
        keys: The columns that identify a row. Default: the primary key of a Table.
        value: The column with the envelopes: bytes, text, or a struct.
        order: `position`: the source's, for PostgreSQL, MySQL, MariaDB, SQL Server and Oracle, and else its clock.
            `time`: the source's clock. `offset`: that of the record in its topic.
        epoch: From 0 to 255; records of a higher one are newer than all of a lower one. Raise it once a database was
            restored, or another one has taken its place.
        decimals: How a text is a number, in records without a schema: `precise`, bytes in base64; `string` or `double`.
            It is the connector's `decimal.handling.mode`.
        binaries: How bytes are written: `base64`, `hex`, or `latin1`.
        timestamps: The unit of timestamps that are numbers, in records without a schema: `milliseconds`,
            `microseconds`, `nanoseconds`, or a dict of them by column. `adaptive`: that of the connector.
        zone: The time zone of timestamps without one, such as `UTC`. Without it they do not fit a TIMESTAMP.
        unavailable: The text that stands for a value which the source left out; its column keeps the value that the
            table has.
        new_columns: Whether rows also have the columns that the records' schemas have and `schema` lacks, and if
            `schema` is a Table with `delta.enableTypeWidening` their wider types. It needs a batch. A record whose
            schema has a column that no row can have is a dead letter.
        rename: The columns of the records that have another name in the rows, as `{"_order": "order_number"}`; with
            None as its name a column is left out. A record that has the new name for another column is a dead letter.

    Returns:
        A row for each change, or two if it changes a key: the columns of the schema; `_op`, which is `u` for a row as
        it is now, `d` for a deletion, `t` for a truncate; `_order`, `_transaction`, `_unchanged`, the columns that
        were left out; for a record that cannot be read `_reason`; and `_raw`, the bytes of the record.

    Raises:
        ConfigurationError, SchemaMismatchError: An argument is invalid, or `rename` goes with no record of the batch.
    """
    require_epoch(epoch)
    require_option("order", order, ORDERS)
    columns = StructType([]) if schema is None else struct_of(schema)
    has_all = schema is None or new_columns
    sources = names_in_records(rename, None if has_all else columns)
    if has_all:
        frame, columns = with_columns_of(frame, value, columns, schema, rename or {})
    names = keys_of(keys, schema, columns)
    units = {} if isinstance(timestamps, str) else dict(timestamps)
    encoding = Encoding(decimals, binaries, timestamps if isinstance(timestamps, str) else ADAPTIVE, units, zone)
    form = Debezium([sources.get(name, name) for name in names], order, epoch)
    return ChangeRows(columns, names, encoding, form, unavailable, dict(rename or {}), has_all).of(frame, value)


@dataclass(frozen=True, slots=True)
class Debezium:
    """The format of Debezium's envelopes."""

    keys: Sequence[str]
    order: str = BY_POSITION
    epoch: int = 0

    def changes(self, body: Any, declared: Mapping[str, Meaning] | None, offset: int | None) -> Iterable[RowChange]:
        """See RecordFormat."""
        if body is None:
            return ()
        if not isinstance(body, dict):
            return unread("the record is no envelope of Debezium")
        op = body.get("op")
        if op == _MESSAGE or (op is None and _is_no_change(body)):
            return ()
        if not isinstance(op, str) or op not in _OPERATIONS:
            return unread(_without_op(body) if op is None else f"unknown op: {str(op)[:20]}")
        source = body.get("source")
        known = source if isinstance(source, dict) else {}
        position = debezium_order(known, op, self.order, self.epoch, offset, body.get("ts_ms"))
        if not isinstance(source, dict) or position is None:
            return unread("the record's source has no position")
        before, after = body.get("before"), body.get("after")
        row = before if op == "d" else after
        operation = _OPERATIONS[op]
        if operation != TRUNCATES and not isinstance(row, dict):
            return unread(f"the record has no row in {'before' if op == 'd' else 'after'}")
        found = RowChange(
            operation,
            row if isinstance(row, dict) else {},
            position,
            _transaction(body, source),
            before if op == "u" and isinstance(before, dict) else None,
            declared,
            _UNITS.get(str(source.get("connector")), MICROS),
            event=_event(source),
        )
        if found.before is not None and _differs(found.before, found.data, self.keys):
            return found._replace(op=DELETES, data=found.before), found._replace(old_key=found.before)
        return (found,)


def _differs(before: Mapping[str, Any], after: Mapping[str, Any], keys: Sequence[str]) -> bool:
    """Whether a row had another key. Without a replica identity, a row before has only nulls."""
    return any(before.get(name) is not None and before[name] != after.get(name) for name in keys)


def _event(source: Mapping[str, Any]) -> str | None:
    """What the deletion of a changed key and the new row have in common, and no other record."""
    lsn, transaction = source.get("lsn"), source.get("txId")
    is_known = source.get("connector") == "postgresql" and lsn is not None and transaction is not None
    return f"{lsn}:{transaction}" if is_known else None


def _transaction(body: Mapping[str, Any], source: Mapping[str, Any]) -> str | None:
    """The id that all records of a transaction share. The envelope's own has the record's position for PostgreSQL."""
    of_envelope = body.get("transaction")
    ids = (source.get("txId"), source.get("gtid"), of_envelope.get("id") if isinstance(of_envelope, dict) else None)
    return next((str(found) for found in ids if found is not None), None)


def _is_no_change(body: Mapping[str, Any]) -> bool:
    """Whether a record is not about a row: a heartbeat, a transaction, or a change of the schema."""
    if "before" in body or "after" in body:
        return False
    is_marker = body.get("status") in ("BEGIN", "END") and "id" in body
    is_heartbeat = set(body) == {"ts_ms"}
    return is_marker or is_heartbeat or "ddl" in body or "tableChanges" in body


def _without_op(body: Mapping[str, Any]) -> str:
    if "__op" in body or "__deleted" in body:
        return "the record is flattened (ExtractNewRecordState): read it with capture.operations"
    return "the record is no envelope of Debezium: it has no op"
