"""How the command line writes: JSON for programs, tables for people, CSV for spreadsheets.

In JSON a timestamp is ISO-8601 text (in UTC with `Z`; without a zone for `timestamp_ntz`), a date `2026-01-31`, a
decimal a text with all its digits, binary base64, a map an object where its keys are texts and else a list of
`{"key", "value"}`, and a number that JSON lacks `"NaN"`, `"Infinity"` or `"-Infinity"`.
"""

from __future__ import annotations

import base64
import io
import json
import math
import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.types as pt
from rich.console import Console
from rich.table import Table as Grid
from rich.text import Text

# What a cell of a table shows of a value, wherever it is written to.
_CELL = 60
# Where no terminal sets a width, rows are as long as their cells.
_UNBOUNDED = 100_000


class _QuietConsole(Console):
    """Leaves a closed pipe to the program; rich would exit as if something had failed."""

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


_err = _QuietConsole(stderr=True)


def say(text: str) -> None:
    """One line for people."""
    sys.stdout.write(f"{text}\n")


def complain(text: str) -> None:
    """One line to standard error."""
    _err.print(" ".join(text.splitlines()), markup=False, highlight=False, soft_wrap=True)


def write_json(value: Mapping[str, Any], *, at_once: bool = False) -> None:
    """One JSON object as one line; `at_once` where somebody may read along while the command runs."""
    sys.stdout.write(_json_text(value) + "\n")
    if at_once:
        sys.stdout.flush()


def write_grid(columns: Sequence[str], rows: Iterable[Sequence[Any]], *, numbers: Iterable[int] = ()) -> None:
    """Rows below the names of their columns; the columns at `numbers` are set to the right."""
    right = set(numbers)
    grid = Grid(box=None, pad_edge=False, header_style="bold")
    for index, name in enumerate(columns):
        justify = "right" if index in right else "left"
        grid.add_column(Text(printable(name)), justify=justify, no_wrap=True, overflow="ellipsis")  # type: ignore[arg-type]
    for row in rows:
        grid.add_row(*(Text(cell(value)) for value in row))
    _print(grid)


def write_fields(fields: Mapping[str, Any]) -> None:
    """Names and values, one pair a line; a value that is a list has a line for each of its entries."""
    grid = Grid.grid(padding=(0, 2))
    grid.add_column(style="bold", no_wrap=True)
    grid.add_column(overflow="fold")
    for name, value in fields.items():
        entries = value if isinstance(value, list) else [value]
        for number, entry in enumerate(entries or ["none"]):
            grid.add_row(Text("" if number else name), Text(printable(_plain_text(entry))))
    _print(grid)


def _print(grid: Grid) -> None:
    if sys.stdout.isatty():
        _QuietConsole(highlight=False).print(grid)
        return
    console = _QuietConsole(width=_UNBOUNDED, highlight=False, file=io.StringIO())
    with console.capture() as captured:
        console.print(grid)
    sys.stdout.writelines(f"{line.rstrip()}\n" for line in captured.get().splitlines())


# --- rows of tables --------------------------------------------------------------------------------------------------


def rows_of(batch: pa.RecordBatch) -> Iterable[dict[str, Any]]:
    """The rows of a batch as values of JSON."""
    kinds = [field.type for field in batch.schema]
    names = batch.schema.names
    for values in zip(*(column.to_pylist() for column in batch.columns), strict=True):
        yield {name: to_json(value, kind) for name, value, kind in zip(names, values, kinds, strict=True)}


def to_json(value: Any, kind: pa.DataType) -> Any:
    """A value of an Arrow type as a value of JSON, as the module says."""
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
        return timestamp_text(value)
    return value.isoformat() if isinstance(value, date) else value


def timestamp_text(moment: datetime | None) -> str | None:
    """ISO-8601, in UTC with `Z` where the moment has a zone."""
    if moment is None or moment.tzinfo is None:
        return None if moment is None else moment.isoformat()
    return moment.astimezone(UTC).isoformat().replace("+00:00", "Z")


def write_csv_header(names: Sequence[str]) -> None:
    """The first line of a CSV file."""
    sys.stdout.write(",".join(map(_csv_cell, names)) + "\n")


def write_csv_row(values: Iterable[Any]) -> None:
    """One line of CSV: null is nothing, an empty text `""`, a nested value its JSON."""
    sys.stdout.write(",".join(map(_csv_cell, values)) + "\n")


def _csv_cell(value: Any) -> str:
    if value is None:
        return ""
    text = _plain_text(value)
    if not text or any(sign in text for sign in ',"\r\n') or text != text.strip():
        return '"' + text.replace('"', '""') + '"'
    return text


def cell(value: Any) -> str:
    """What a table shows of a value: its beginning, with nothing in it that could move a terminal's cursor."""
    if value is None:
        return ""
    text = printable(_plain_text(value)[: _CELL + 1])
    return text if len(text) <= _CELL else text[: _CELL - 1] + "…"


def printable(text: str) -> str:
    """`text` with line ends, escapes and their like spelled out."""
    return text if text.isprintable() else "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def _plain_text(value: Any) -> str:
    if isinstance(value, bool | dict | list):
        return _json_text(value)
    return str(value)


def _json_text(value: Any) -> str:
    encoding = (getattr(sys.stdout, "encoding", None) or "").lower()
    return json.dumps(value, ensure_ascii=not encoding.startswith("utf"), allow_nan=False)
