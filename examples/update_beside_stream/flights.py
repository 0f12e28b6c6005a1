"""The table of flights, the stream that fills it, and what must be in it at the end."""

from __future__ import annotations

import sys
import time
from collections import Counter

import pyarrow as pa
import pyarrow.compute as pc

from examples.shared.child_process import ChildProcess
from examples.shared.command import StuckError
from examples.shared.departures import CANCELLED, KEY, LATE, LATE_MINUTES, SCHEMA, Departures, announce, day_of
from examples.update_beside_stream.folder import Folder
from tidelog.log import Table

# How often a statement has looked at the flight.
CHECKED = "checked"
DELETE_CANCELLED = f"status = '{CANCELLED}'"
IS_LATE = f"status <> '{LATE}' AND delay > {LATE_MINUTES}"
SET_LATE = {"status": f"'{LATE}'"}
SET_CHECKED = {CHECKED: f"{CHECKED} + 1"}
_LOOK_S = 0.02
_STUCK_S = 300.0


class Flights:
    """A table that a stream fills day by day, whenever the demo announces a day."""

    def __init__(self, folder: Folder, departures: Departures) -> None:
        self.path = str(folder.table)
        self.table = Table.create(self.path, SCHEMA.append(pa.field(CHECKED, pa.int32())))
        self.days = 0
        self.checks: Counter[int] = Counter()
        self.writer = _writer(folder)
        self._folder = folder
        self._departures = departures
        folder.incoming.mkdir(parents=True)

    @property
    def is_complete(self) -> bool:
        """Whether every day was announced."""
        return self.days == self._departures.days

    def announce_day(self) -> None:
        """Give a day's flights to the stream."""
        announce(self._day(self.days), self._folder.incoming, self.days)
        self.days += 1

    def await_days(self) -> None:
        """Wait until the stream has committed every announced day. Raises StuckError, ChildEndedError."""
        newest = Table.open(self.path)
        deadline_s = time.monotonic() + _STUCK_S
        while not newest.refresh().scan(where_day(self.days - 1), [KEY]).count():
            self.writer.require_running()
            if time.monotonic() > deadline_s:
                raise StuckError(f"the stream did not commit day {self.days} within {_STUCK_S:.0f} seconds")
            time.sleep(_LOOK_S)

    def check_day(self, number: int) -> None:
        """Note that a statement has looked at a day's flights."""
        self.checks[number] += 1

    def expected(self) -> pa.Table:
        """The rows that must be in the table, computed from the source alone, once all statements ran a last time."""
        days = []
        for number in range(self.days):
            rows = self._day(number, self.checks[number])
            rows = rows.filter(pc.not_equal(rows["status"], CANCELLED))
            status = pc.if_else(pc.greater(rows["delay"], LATE_MINUTES), LATE, rows["status"])
            days.append(rows.set_column(rows.schema.get_field_index("status"), "status", status))
        return pa.concat_tables(days)

    def _day(self, number: int, checked: int = 0) -> pa.Table:
        rows = self._departures.actual(number)
        return rows.append_column(CHECKED, pa.repeat(pa.scalar(checked, pa.int32()), len(rows)))


def where_day(number: int) -> str:
    """The predicate for a day."""
    return f"day = '{day_of(number)}'"


def _writer(folder: Folder) -> ChildProcess:
    paths = folder.incoming, folder.table, folder.checkpoints / "writer", folder.scratch / "writer"
    command = [sys.executable, "-m", "examples.shared.stream_writer", *map(str, paths)]
    return ChildProcess("writer", command, folder.logs)
