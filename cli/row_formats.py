"""How `scan` and `changes` write rows: as a table, JSON lines or CSV.

In JSON a timestamp is ISO-8601 text (in UTC with `Z`; without a zone for `timestamp_ntz`), a date `2026-01-31` (in the
years that Python lacks `-0044-03-15` or `+12026-01-31`, a timestamp accordingly), a
decimal a text with all its digits, binary base64, a map an object if its keys are texts and otherwise a list of
`{"key", "value"}`, and a number that JSON lacks `"NaN"`, `"Infinity"` or `"-Infinity"`. In CSV null is nothing, an
empty text `""`, and a nested value its JSON.
"""

from __future__ import annotations

import base64
import itertools
import math
import sys
from collections.abc import Iterable, Iterator, Sequence
from datetime import MAXYEAR, UTC, date, datetime, timedelta
from decimal import Decimal
from enum import StrEnum
from typing import Annotated, Any, TypeAlias, cast

import pyarrow as pa
import pyarrow.types as pt
import typer

from tidelog.cli import output
from tidelog.cli.spinner import Progress
from tidelog.cli.wrong_use import wrong_value
from tidelog.log.errors import ConfigurationError
from tidelog.log.read.scan import RowReader

# How many rows a table shows by default: enough to see what there is, few enough to read.
_TABLE_ROWS = 100
# Showing the count costs more than a row does.
_COUNTED_AT_ONCE = 1000
# The calendar repeats itself after these.
_CYCLE_YEARS, _CYCLE_DAYS = 400, 146_097
# From the first day of the year 1 to 1970.
_EPOCH_DAYS = 719_162
_DAY_US = 86_400_000_000


class OutputFormat(StrEnum):
    """How rows are written."""

    TABLE = "table"
    JSON = "json"
    CSV = "csv"


def _parse_format(text: Any) -> OutputFormat:
    try:
        return OutputFormat(text)
    except ValueError:
        raise wrong_value("--format", f"one of {', '.join(OutputFormat)}", text) from None


FormatOption: TypeAlias = Annotated[
    OutputFormat | None,
    typer.Option(
        "--format", metavar="table|json|csv", parser=_parse_format, help="How to print rows. By default a table."
    ),
]


def require_format(chosen: OutputFormat | None, *, as_json: bool) -> OutputFormat:
    """The format that was asked for. Raises ConfigurationError for `--json` with another format."""
    if as_json and chosen not in (None, OutputFormat.JSON):
        raise ConfigurationError(f"--json and --format {chosen.value} exclude each other", advice="leave one out")
    return OutputFormat.JSON if as_json else chosen or OutputFormat.TABLE


def write_rows(reader: RowReader, chosen: OutputFormat, limit: int | None, progress: Progress) -> None:
    """Write the rows of `reader`, at most `limit`, and count them in `progress`."""
    if chosen is OutputFormat.TABLE:
        _write_table(reader, limit, progress)
        return
    if chosen is OutputFormat.CSV:
        write_csv_header(reader.schema.names)
    for row in _counted(itertools.islice(_rows(reader), limit), progress):
        progress.stop_on_terminal()  # the rows themselves show the progress
        if chosen is OutputFormat.JSON:
            output.write_json(row)
        else:
            write_csv_row(row.values())


def _write_table(reader: RowReader, limit: int | None, progress: Progress) -> None:
    shown = limit or _TABLE_ROWS
    rows = list(_counted(itertools.islice(_rows(reader), shown + 1), progress))
    progress.stop()
    values = [list(row.values()) for row in rows[:shown]]
    output.write_grid(reader.schema.names, values, numbers=number_columns(reader.schema))
    if len(rows) > shown and limit is None:
        output.complain(f"only the first {shown} rows are shown; --limit N shows more, --format csv or json shows all")


def _counted(rows: Iterable[dict[str, Any]], progress: Progress) -> Iterator[dict[str, Any]]:
    for number, row in enumerate(rows, start=1):
        if number % _COUNTED_AT_ONCE == 0:
            progress.count(number, "rows")
        yield row


def _rows(reader: RowReader) -> Iterator[dict[str, Any]]:
    for batch in reader.to_batches():
        yield from rows_of(batch)


def number_columns(schema: pa.Schema) -> list[int]:
    """The places of the columns that hold numbers."""
    return [
        index
        for index, field in enumerate(schema)
        if pt.is_integer(field.type) or pt.is_floating(field.type) or pt.is_decimal(field.type)
    ]


# --- values as JSON --------------------------------------------------------------------------------------------------


def rows_of(batch: pa.RecordBatch) -> Iterable[dict[str, Any]]:
    """The rows of a batch as values of JSON."""
    kinds = [field.type for field in batch.schema]
    names = batch.schema.names
    for values in zip(*(_python_values(column) for column in batch.columns), strict=True):
        yield {name: to_json(value, kind) for name, value, kind in zip(names, values, kinds, strict=True)}


def _python_values(column: pa.Array) -> list[Any]:
    """The values of a column. A date or timestamp outside of Python's years 1 to 9999 becomes its text."""
    try:
        return cast("list[Any]", column.to_pylist())
    except (OverflowError, ValueError):
        return [_python_value(scalar) for scalar in column]


def _python_value(scalar: pa.Scalar) -> Any:
    kind = scalar.type
    if not scalar.is_valid:
        return None
    if pt.is_struct(kind):
        return {field.name: _python_value(scalar[index]) for index, field in enumerate(kind)}
    if pt.is_map(kind):
        return [(_python_value(entry[0]), _python_value(entry[1])) for entry in scalar.values]
    if pt.is_list(kind) or pt.is_large_list(kind) or pt.is_fixed_size_list(kind):
        return [_python_value(item) for item in scalar.values]
    try:
        return scalar.as_py()
    except (OverflowError, ValueError):
        if pt.is_date32(kind):
            return _far_date(scalar.value)
        if pt.is_timestamp(kind) and kind.unit == "us":
            days, microseconds = divmod(scalar.value, _DAY_US)
            time = (datetime.min.replace(tzinfo=UTC) + timedelta(microseconds=microseconds)).time().isoformat()
            return f"{_far_date(days)}T{time}{'Z' if kind.tz else ''}"
        raise


def _far_date(days: int) -> str:
    """The ISO-8601 text of a date in any year, by its days since 1970."""
    cycles, rest = divmod(days + _EPOCH_DAYS, _CYCLE_DAYS)
    near = date.fromordinal(rest + 1)
    year = near.year + cycles * _CYCLE_YEARS
    sign = "-" if year < 0 else "+" if year > MAXYEAR else ""
    return f"{sign}{abs(year):04d}-{near.month:02d}-{near.day:02d}"


def to_json(value: Any, kind: pa.DataType) -> Any:
    """A value of an Arrow type as a value of JSON, in the forms that the module's docstring lists."""
    if value is None:
        return None
    if pt.is_struct(kind):
        return {field.name: to_json(value[field.name], field.type) for field in kind}
    if pt.is_map(kind):
        pairs = [(to_json(key, kind.key_type), to_json(item, kind.item_type)) for key, item in value]
        if pt.is_string(kind.key_type) or pt.is_large_string(kind.key_type):
            return dict(pairs)
        return [{"key": key, "value": item} for key, item in pairs]
    if pt.is_list(kind) or pt.is_large_list(kind) or pt.is_fixed_size_list(kind):
        return [to_json(item, kind.value_type) for item in value]
    return scalar_to_json(value)


def scalar_to_json(value: Any) -> Any:
    """A value that is not nested as a value of JSON."""
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, Decimal):
        return f"{value:f}"
    if isinstance(value, datetime):
        return output.timestamp_text(value)
    return value.isoformat() if isinstance(value, date) else value


# --- CSV -------------------------------------------------------------------------------------------------------------


def write_csv_header(names: Sequence[str]) -> None:
    """Write the first line of a CSV file."""
    write_csv_row(names)


def write_csv_row(values: Iterable[Any]) -> None:
    """Write one line of CSV. On a terminal, control characters in a value are spelled out."""
    on_terminal = sys.stdout.isatty()
    sys.stdout.write(",".join(_csv_cell(value, on_terminal=on_terminal) for value in values) + "\n")


def _csv_cell(value: Any, *, on_terminal: bool) -> str:
    if value is None:
        return ""
    text = output.spelled_out(output.plain_text(value)) if on_terminal else output.plain_text(value)
    if not text or any(sign in text for sign in ',"\r\n') or text != text.strip():
        return '"' + text.replace('"', '""') + '"'
    return text
