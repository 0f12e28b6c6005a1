"""The records of Maxwell as rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame

from tidelog.streaming.capture.changes import RowChange, unread
from tidelog.streaming.capture.column_names import Rename
from tidelog.streaming.capture.order import (
    BY_OFFSET,
    BY_POSITION,
    file_position,
    number_text,
    order_text,
    require_epoch,
)
from tidelog.streaming.capture.schemas import Schema, rows_of_texts
from tidelog.streaming.capture.values import AS_TEXT, BASE64, MICROS, Encoding, Meaning, MisfitError, require_option
from tidelog.streaming.sink.control import DELETES, UPSERTS

_ORDERS = (BY_POSITION, BY_OFFSET)
_SNAPSHOT, _UPDATE = "bootstrap-insert", "update"
_OPERATIONS = {"insert": UPSERTS, _UPDATE: UPSERTS, "delete": DELETES, _SNAPSHOT: UPSERTS}
_OTHER = ("bootstrap-", "table-", "database-")
# Before every file of MySQL's log.
_BEGINNING = "0" * 24


def maxwell(  # noqa: PLR0913 - the public signature
    frame: DataFrame,
    *,
    schema: Schema,
    keys: Sequence[str] = (),
    value: str = "value",
    order: str = BY_POSITION,
    epoch: int = 0,
    binaries: str = BASE64,
    zone: str | None = None,
    rename: Rename | None = None,
) -> DataFrame:
    """Maxwell's change records as rows for the sink of `capture.sink`.

    Records of schema changes, and those that begin and end a bootstrap, are left out.

    Args:
        frame: Records of Kafka or of files, streaming or not; only `value` is needed, and `offset` for the order.
        schema: The columns of the rows; see `debezium`.
        keys: The columns that identify a row.
        value: The column with the records.
        order: `position`: MySQL's, which Maxwell writes with `output_binlog_position=true`; rows of a bootstrap have
            none, and any change is newer. `offset`: that of the record in its topic.
        epoch: From 0 to 255; records of a higher one are newer than all of a lower one.
        binaries: How bytes are written: `base64`, `hex`, or `latin1`.
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
    return rows_of_texts(frame, value, schema, keys, rename, encoding, lambda names: Maxwell(names, order, epoch))


@dataclass(frozen=True, slots=True)
class Maxwell:
    """The format of Maxwell's records."""

    keys: Sequence[str]
    order: str = BY_POSITION
    epoch: int = 0

    def changes(self, body: Any, declared: Mapping[str, Meaning] | None, offset: int | None) -> Iterable[RowChange]:
        """See RecordFormat."""
        kind = body.get("type") if isinstance(body, dict) else None
        if not isinstance(kind, str):
            return unread("the record is none of Maxwell's: it has no type")
        operation = _OPERATIONS.get(kind)
        if operation is None:
            return () if kind.startswith(_OTHER) else unread(f"unknown type: {kind[:20]}")
        row, old = body.get("data"), body.get("old")
        if not isinstance(row, dict):
            return unread("the record has no row in data")
        try:
            order = self._order(body, kind, offset)
        except MisfitError:
            return unread(f"the record has no {self.order}")
        number = body.get("gtid") or body.get("xid")
        change = RowChange(operation, row, order, None if number is None else str(number), None, declared)
        if kind == _UPDATE and isinstance(old, dict) and any(name in old for name in self.keys):
            return change._replace(op=DELETES, data={**row, **old}), change
        return (change,)

    def _order(self, body: Mapping[str, Any], kind: str, offset: int | None) -> str:
        if self.order == BY_OFFSET:
            return order_text(self.epoch, number_text(offset), "", offset, is_change=True)
        # The last row of a transaction has `commit` in place of its number.
        is_last = body.get("xoffset") is None and body.get("commit") is True
        number = "F" * 8 if is_last else number_text(body.get("xoffset") or 0, 8)
        place = body.get("position")
        if kind == _SNAPSHOT:
            return order_text(self.epoch, _BEGINNING, number, offset, is_change=False)
        file, _, position = place.rpartition(":") if isinstance(place, str) else ("", "", None)
        return order_text(self.epoch, file_position(file, position), number, offset, is_change=True)
