"""How the command line writes: JSON for programs, tables for people.

What comes from a table or a path is made presentable here (`tidelog.log.presentable`), whether it goes to a terminal or
not: it can be printed to one later. Only CSV for a file or a pipe holds the values as they are.

Colour and tables that fit are for terminals only; `NO_COLOR` turns colour off and `FORCE_COLOR` turns it on. In a
terminal that is too narrow for a table, cells are folded between words, and if that is not enough, each row becomes a
block with one field per line. No word is ever cut to make it fit.
"""

from __future__ import annotations

import io
import json
import sys
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from rich.cells import cell_len
from rich.console import Console
from rich.padding import Padding
from rich.table import Table as Grid
from rich.text import Text

# How many characters of a value a table shows, wherever it is written to.
_CELL = 60
# Without a terminal that sets a width, lines are as long as they need to be.
_UNBOUNDED = 100_000
# The fewest characters in which a long text is folded next to a short one, and a sentence next to a row of numbers.
_NARROWEST_FOLD = 20
_NARROWEST_REASON = 30
_GAP = 2


class _QuietConsole(Console):
    """Leave a closed pipe to the program; rich would exit as if something had failed."""

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


def say(text: str) -> None:
    """Write one line for people, on which nothing can move a terminal's cursor. A terminal folds it between words."""
    line, width = one_line(text), terminal_width()
    if width is not None and cell_len(line) > width:
        line = "\n".join(textwrap.wrap(line, width, break_long_words=False, break_on_hyphens=False))
    sys.stdout.write(f"{line}\n")


def complain(text: str) -> None:
    """Write one line to standard error; on a terminal an error's code is red."""
    line = Text(one_line(" ".join(text.splitlines())))
    line.highlight_regex(r"\bTIDELOG_[A-Z_]+(?=:)", "bold red")
    _QuietConsole(stderr=True).print(line, markup=False, highlight=False, soft_wrap=True)


def write_json(value: Mapping[str, Any], *, at_once: bool = False) -> None:
    """Write one JSON object as one line; with `at_once` a reader gets it while the command still runs."""
    sys.stdout.write(json_text(value) + "\n")
    if at_once:
        sys.stdout.flush()


def coloured(text: str, style: str) -> Text:
    """A cell that has a colour on a terminal."""
    return Text(one_line(text), style=style)


def write_grid(
    columns: Sequence[str],
    rows: Iterable[Sequence[Any]],
    *,
    numbers: Iterable[int] = (),
    whole: Iterable[int] = (),
    optional: Iterable[int] = (),
    reasons: bool = False,
) -> None:
    """Write rows under the names of their columns.

    In a terminal that is too narrow, the columns that are neither in `numbers` nor in `whole` are folded between words.
    If that is not enough, the columns at `optional` are left out, which a line below the table says. Then, with
    `reasons`, the last column goes below each row. And then each row becomes a block with one field per line.

    Args:
        columns: The names of the columns.
        rows: The cells of each row.
        numbers: The places of columns that are aligned to the right.
        whole: The places of columns that are not folded either.
        optional: The places of columns that a table can do without.
        reasons: Whether the last column holds sentences.
    """
    names = [spelled_out(name) for name in columns]
    cells = [[_cell_text(value) for value in row] for row in rows]
    right, without = set(numbers), set(optional)
    keep = right | set(whole)
    every = range(len(names))
    for shown in (every, [index for index in every if index not in without]):
        for gap in (_GAP, 1):
            widths = _widths(names, cells, shown, gap=gap, keep=keep, reasons=reasons)
            if widths is not None:
                _write_table(names, cells, widths, gap=gap, right=right)
                if len(shown) < len(names) and cells:
                    say(f"without {', '.join(names[index] for index in sorted(without))}: the terminal is too narrow")
                return
    if reasons and _write_above_reasons(names, cells, right):
        return
    _write_blocks(names, cells)


def write_fields(fields: Mapping[str, Any]) -> None:
    """Write names and values, one pair per line; a value that is a list has a line for each entry."""
    rows = []
    for name, value in fields.items():
        entries = value if isinstance(value, list) else [value]
        for number, entry in enumerate(entries or ["none"]):
            text = entry if isinstance(entry, Text) else Text(one_line(plain_text(entry)))
            rows.append((Text("" if number else name, style="bold"), text))
    write_aligned(rows)


def write_aligned(rows: Sequence[Sequence[Text]]) -> None:
    """Write rows without a header; the last column is folded, or in a narrow terminal put on separate lines."""
    labels = max((sum(cell_len(label.plain) + _GAP for label in row[:-1]) for row in rows), default=0)
    width = terminal_width()
    grid = Grid.grid(padding=(0, _GAP, 0, 0))
    if width is not None and width - labels < _NARROWEST_FOLD:
        for row in rows:
            heading = Text("  ").join(label for label in row[:-1] if label.plain)
            if heading.plain:
                grid.add_row(heading)
            grid.add_row(Padding(row[-1], (0, 0, 0, _GAP)))
    else:
        for _ in rows[0][:-1] if rows else ():
            grid.add_column(no_wrap=True)
        grid.add_column(overflow="fold")
        for row in rows:
            grid.add_row(*row)
    _print(grid)


def terminal_width() -> int | None:
    """The width of the terminal that standard output goes to; None if it goes elsewhere."""
    return _QuietConsole().width if sys.stdout.isatty() else None


def _widths(
    names: Sequence[str],
    cells: Sequence[Sequence[Text]],
    shown: Sequence[int],
    *,
    gap: int,
    keep: set[int],
    reasons: bool,
) -> dict[int, int] | None:
    """The width of each column; None if the terminal is too narrow even if they are folded between words."""
    texts = {index: [names[index], *(row[index].plain for row in cells)] for index in shown}
    widths = {index: max(map(cell_len, found)) for index, found in texts.items()}
    width = terminal_width()
    if width is None:
        return widths
    least = {
        index: widths[index]
        if index in keep
        else max(cell_len(word) for text in found for word in text.split() or [""])
        for index, found in texts.items()
    }
    last = shown[-1]
    if reasons:
        least[last] = max(least[last], min(widths[last], _NARROWEST_REASON))
    space = width - gap * (len(widths) - 1)
    while sum(widths.values()) > space:
        wide = [index for index, found in widths.items() if found > least[index]]
        if not wide:
            return None
        widths[max(wide, key=widths.__getitem__)] -= 1
    return widths


def _write_table(
    names: Sequence[str], cells: Sequence[Sequence[Text]], widths: Mapping[int, int], *, gap: int, right: set[int]
) -> None:
    grid = Grid(box=None, pad_edge=False, padding=(0, gap, 0, 0), header_style="bold")
    for index, width in widths.items():
        justify = "right" if index in right else "left"
        grid.add_column(Text(names[index]), justify=justify, overflow="fold", width=width)  # type: ignore[arg-type]
    for row in cells:
        grid.add_row(*(row[index] for index in widths))
    _print(grid)


def _write_above_reasons(names: Sequence[str], cells: Sequence[Sequence[Text]], right: set[int]) -> bool:
    """Write each row's last cell below the row. False, and nothing is written, if the other cells are too wide."""
    shown = range(len(names) - 1)
    for gap in (_GAP, 1):
        widths = _widths(names, cells, shown, gap=gap, keep=set(shown), reasons=False)
        if widths is not None:
            break
    else:
        return False
    lines = Grid.grid()
    lines.add_column(overflow="fold")
    for row in ([Text(name, style="bold") for name in names], *cells):
        padded = []
        for index in shown:
            blank = " " * (widths[index] - cell_len(row[index].plain))
            padded.append(Text.assemble(blank, row[index]) if index in right else Text.assemble(row[index], blank))
        lines.add_row(Text(" " * gap).join(padded))
        lines.add_row(Padding(row[-1], (0, 0, 0, _GAP)))
    _print(lines)
    return True


def _write_blocks(names: Sequence[str], cells: Sequence[Sequence[Text]]) -> None:
    """Write each row as a block with one field per line, and an empty line between blocks."""
    if not cells:
        write_aligned([(Text(name, style="bold"), Text()) for name in names])
    for number, row in enumerate(cells):
        if number:
            sys.stdout.write("\n")
        write_aligned([(Text(name, style="bold"), value) for name, value in zip(names, row, strict=True)])


def _print(grid: Grid) -> None:
    if sys.stdout.isatty():
        _QuietConsole(highlight=False).print(grid)
        return
    console = _QuietConsole(width=_UNBOUNDED, highlight=False, file=io.StringIO())
    with console.capture() as captured:
        console.print(grid)
    sys.stdout.writelines(f"{line.rstrip()}\n" for line in captured.get().splitlines())


def _cell_text(value: Any) -> Text:
    return value if isinstance(value, Text) else Text(cell(value))


def cell(value: Any) -> str:
    """What a table shows of a value: its beginning, with nothing in it that can move a terminal's cursor."""
    if value is None:
        return ""
    text = spelled_out(plain_text(value)[: _CELL + 1])
    if len(text) <= _CELL:
        return text
    # Between two words if there is a place in the second half.
    end = text.rfind(" ", _CELL // 2, _CELL)
    return f"{text[: _CELL - 1 if end < 0 else end]}…"


def spelled_out(text: str) -> str:
    r"""A value with its control characters spelled out, such as `\x1b`."""
    if text.isprintable():
        return text
    from tidelog.log.presentable import printable  # noqa: PLC0415 - see COMMANDS in `app`

    return printable(text)


def one_line(text: str) -> str:
    """A message as one line without control characters and without credentials."""
    from tidelog.log.presentable import presentable  # noqa: PLC0415 - as above

    return presentable(text)


def lines(text: str) -> str:
    """A message of several lines without control characters and without credentials."""
    from tidelog.log.presentable import presentable_lines  # noqa: PLC0415 - as above

    return presentable_lines(text)


def plain_text(value: Any) -> str:
    """A value of JSON as text: text as it is, a nested value or a truth value as JSON."""
    if isinstance(value, bool | dict | list):
        return json_text(value)
    return str(value)


def timestamp_text(moment: datetime | None, *, timespec: str = "auto") -> str | None:
    """ISO-8601 text, in UTC with `Z` if the moment has a zone. `timespec` is that of `datetime.isoformat`."""
    if moment is None or moment.tzinfo is None:
        return None if moment is None else moment.isoformat(timespec=timespec)
    return moment.astimezone(UTC).isoformat(timespec=timespec).replace("+00:00", "Z")


def counted(number: int, what: str) -> str:
    """A number of things: `1 file`, `1,200 files`."""
    return f"{number:,} {what}" + ("" if number == 1 else "s")


def schema_fields(schema: Any) -> list[dict[str, Any]]:
    """The columns of an Arrow schema as values of JSON."""
    return [{"name": field.name, "type": str(field.type), "nullable": field.nullable} for field in schema]


def json_text(value: Any) -> str:
    """A value as JSON that a terminal shows as it is: control characters are escaped."""
    encoding = (getattr(sys.stdout, "encoding", None) or "").lower()
    text = json.dumps(value, ensure_ascii=not encoding.startswith("utf"), allow_nan=False)
    return text if text.isprintable() else "".join(_escaped(text))


def _escaped(text: str) -> Iterator[str]:
    for character in text:
        yield character if character.isprintable() else json.dumps(character)[1:-1]
