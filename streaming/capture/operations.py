"""Rows with a column that says what happened to them, as rows for a sink."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - Spark's convention
from pyspark.sql.types import (
    ByteType,
    DateType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    TimestampNTZType,
    TimestampType,
)

from tidelog.log.data.ordering import present
from tidelog.log.errors import SchemaMismatchError
from tidelog.streaming.capture.order import require_epoch
from tidelog.streaming.executors.plain_frame import EXACT_TEXT, quoted
from tidelog.streaming.sink.control import (
    DELETES,
    OPERATION,
    ORDER,
    RAW,
    RESERVED,
    TRANSACTION,
    TRUNCATES,
    UNCHANGED,
    UPSERTS,
)
from tidelog.streaming.sink.dead_letters import REASON

_UPSERTS = ("c", "r", "u", "i", "create", "read", "insert", "update", "upsert")
_DELETES = ("d", "delete")
_TRUNCATES = ("t", "truncate")


def operations(
    frame: DataFrame,
    *,
    order: str | Sequence[str],
    op: str = "op",
    upserts: Sequence[str] = _UPSERTS,
    deletes: Sequence[str] = _DELETES,
    truncates: Sequence[str] = _TRUNCATES,
    epoch: int = 0,
) -> DataFrame:
    """Rows with a column that says what happened as rows for the sink of `capture.sink`.

    For example Debezium's records that were flattened with `add.fields=op,lsn`, once `from_json` has decoded them:
    `capture.operations(frame, op="__op", order="__lsn")`.

    Args:
        frame: The rows, streaming or not: whole rows, or of a deletion at least the key.
        order: The columns that say which of two rows of a key is newer, compared in turn: whole numbers, dates,
            timestamps, and texts of one length.
        op: The column that says what happened. It becomes no column of the table.
        upserts: What it is for a row as it is now; lower and upper case are equal.
        deletes: What it is for a deletion.
        truncates: What it is for the deletion of all older rows.
        epoch: From 0 to 255; records of a higher one are newer than all of a lower one.

    Returns:
        The rows; see `debezium`. `_raw` is JSON.

    Raises:
        ConfigurationError, SchemaMismatchError: An argument is invalid.
    """
    require_epoch(epoch)
    (operation,) = present(frame.columns, [op])
    for name in frame.columns:
        if name.lower() in RESERVED and name != operation:
            raise SchemaMismatchError(
                f"the frame has a column {name!r}, a name of the sink's",
                advice=f"rename it: frame.withColumnRenamed({name!r}, ...)",
                column=name,
            )
    kind = F.lower(F.col(quoted(operation)).cast("string"))
    known = (
        F.when(kind.isin(*upserts), UPSERTS).when(kind.isin(*deletes), DELETES).when(kind.isin(*truncates), TRUNCATES)
    )
    names = present(frame.columns, [order] if isinstance(order, str) else order)
    position = F.concat_ws(".", F.lit(f"{epoch:02X}"), *(_sortable(frame, name) for name in names))
    is_null = F.lit(False)  # noqa: FBT003 - a value
    for name in names:
        is_null = is_null | F.col(quoted(name)).isNull()
    reason = (
        F.when(kind.isNull(), F.lit(f"the column {operation} is null"))
        .when(known.isNull(), F.concat(F.lit("unknown operation: "), F.substring(kind, 1, 20)))
        .when(is_null, F.lit(f"a column of the order is null: {', '.join(names)}"))
    )
    raw = F.to_json(F.struct(*(F.col(quoted(name)) for name in frame.columns)), EXACT_TEXT).cast("binary")
    return frame.select(
        *(F.col(quoted(name)) for name in frame.columns if name != operation),
        known.alias(OPERATION),
        F.when(~is_null, position).alias(ORDER),
        F.lit(None).cast("string").alias(TRANSACTION),
        F.array().cast("array<string>").alias(UNCHANGED),
        reason.alias(REASON),
        raw.alias(RAW),
    )


def _sortable(frame: DataFrame, name: str) -> Column:
    """A column as a text of one length, which sorts as the values do."""
    kind, column = frame.schema[name].dataType, F.col(quoted(name))
    if isinstance(kind, StringType):
        return column
    if isinstance(kind, TimestampNTZType):
        return F.date_format(column, "yyyyMMddHHmmssSSSSSS")
    if isinstance(kind, DateType):
        column = F.unix_date(column)
    elif isinstance(kind, TimestampType):
        column = F.unix_micros(column)
    elif not isinstance(kind, ByteType | ShortType | IntegerType | LongType):
        raise SchemaMismatchError(
            f"the column {name!r} is {kind.simpleString()}, which cannot be compared as a text",
            advice="choose a whole number, a date, a timestamp, or a text of one length",
            column=name,
        )
    # With its sign turned over, a number sorts as its digits without a sign do.
    return F.lpad(F.hex(column.cast("bigint").bitwiseXOR(F.lit(-(2**63)).cast("bigint"))), 16, "0")
