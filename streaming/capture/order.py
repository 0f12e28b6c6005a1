"""The order of change records, as one text that compares in every engine: the greater text is the newer record.

    02.00000000016E3A08.1.00000000016E39F0.000000000011
    |  |                | |                offset in its topic, if the frame has it
    |  |                | the position of this change
    |  |                0 a row of a snapshot, 1 a change
    |  the position as the source commits, or its clock
    the epoch

Each part has a fixed width. A text is a function of the record alone, so a record that is read again has the same one.
"""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 - Spark's convention

from tidelog.log.errors import ConfigurationError
from tidelog.streaming.capture.values import part_of

BY_POSITION, BY_TIME = ORDERS = ("position", "time")
_MOST_EPOCHS = 256
_LSN = r"^[0-9A-Fa-f]{8}:[0-9A-Fa-f]{8}:[0-9A-Fa-f]{4}$"


def require_epoch(epoch: int) -> None:
    """Raise ConfigurationError for an epoch that the order has no room for."""
    if epoch not in range(_MOST_EPOCHS):
        raise ConfigurationError(f"epoch={epoch!r} is not a whole number from 0 to 255", advice="begin with 0")


def order_of(epoch: int, major: Column, is_change: Column, minor: Column, offset: Column | None) -> Column:
    """The order of a record; null if its position is."""
    number = F.lit("000000000000") if offset is None else hexadecimal(F.coalesce(offset, F.lit(0)), 12)
    rank = F.when(is_change, "1").otherwise("0")
    dot = F.lit(".")
    return F.concat(F.lit(f"{epoch:02X}"), dot, major, dot, rank, dot, minor, dot, number)


def hexadecimal(number: Column, width: int = 16) -> Column:
    """A number from 0 on, in a fixed width; null for one below."""
    whole = number.try_cast("bigint")
    return F.when(whole >= 0, F.lpad(F.hex(whole), width, "0"))


def debezium_order(source: Column, operation: Column, order: str, epoch: int, offset: Column | None) -> Column:
    """The order of a Debezium record, by the variant `source`; null if that has no position."""
    snapshot = part_of(source, "$.snapshot", "string")
    is_change = (operation != "r") & F.coalesce(snapshot.isin("false"), F.lit(True))  # noqa: FBT003 - a value
    time = _nanoseconds(source)
    positions = [(hexadecimal(time), F.lit(""))]
    conditions = [F.lit(True)]  # noqa: FBT003 - a value
    if order == BY_POSITION:
        by_connector = {
            ("postgresql",): _postgresql(source, is_change),
            ("mysql", "mariadb"): _mysql(source),
            ("sqlserver",): _sql_server(source),
            ("oracle",): _oracle(source),
        }
        connector = part_of(source, "$.connector", "string")
        positions = [*by_connector.values(), *positions]
        conditions = [*(connector.isin(*names) for names in by_connector), *conditions]
    found = F.lit(None).cast("string")
    for condition, (major, minor) in reversed(list(zip(conditions, positions, strict=True))):
        found = F.when(condition, order_of(epoch, major, is_change, minor, offset)).otherwise(found)
    return found


def _nanoseconds(source: Column) -> Column:
    nanos, micros, millis = (part_of(source, f"$.ts_{unit}", "bigint") for unit in ("ns", "us", "ms"))
    thousand, million = F.lit(1000).cast("bigint"), F.lit(1_000_000).cast("bigint")
    return F.coalesce(nanos, F.try_multiply(micros, thousand), F.try_multiply(millis, million))


def _postgresql(source: Column, is_change: Column) -> tuple[Column, Column]:
    """A transaction's changes are written to the log before it commits, and are sent after it has.

    So a change can have a smaller `lsn` than a snapshot that did not see it. `sequence` begins with the commit that was
    sent before the change.
    """
    lsn = part_of(source, "$.lsn", "bigint")
    sequence = F.try_parse_json(part_of(source, "$.sequence", "string"))
    before = part_of(sequence, "$[0]", "string").try_cast("bigint")
    known = F.coalesce(lsn, F.when(~is_change, F.lit(0).cast("bigint")))
    return hexadecimal(F.when(known.isNotNull(), F.greatest(known, before))), hexadecimal(known)


def _mysql(source: Column) -> tuple[Column, Column]:
    number = F.regexp_extract(part_of(source, "$.file", "string"), r"\.(\d+)$", 1).try_cast("bigint")
    major = F.concat(hexadecimal(number, 8), hexadecimal(part_of(source, "$.pos", "bigint")))
    return major, hexadecimal(F.coalesce(part_of(source, "$.row", "bigint"), F.lit(0)), 8)


def _sql_server(source: Column) -> tuple[Column, Column]:
    def digits(name: str) -> Column:
        text = part_of(source, f"$.{name}", "string")
        return F.when(text.rlike(_LSN), F.upper(F.translate(text, ":", "")))

    change = F.coalesce(digits("change_lsn"), F.lit("0" * 20))
    event = hexadecimal(F.coalesce(part_of(source, "$.event_serial_no", "bigint"), F.lit(0)), 8)
    return digits("commit_lsn"), F.concat(change, event)


def _oracle(source: Column) -> tuple[Column, Column]:
    def number(name: str) -> Column:
        text = part_of(source, f"$.{name}", "string")
        return F.when(text.rlike(r"^\d{1,20}$"), F.lpad(text, 20, "0"))

    scn = number("scn")
    event = hexadecimal(F.coalesce(part_of(source, "$.ssn", "bigint"), F.lit(0)), 8)
    return F.coalesce(number("commit_scn"), scn), F.concat(scn, event)
