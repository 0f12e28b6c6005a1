"""The table that is followed: a board of departures, changed by a stream, by statements and by compactions."""

from __future__ import annotations

from examples.follow.folder import Folder
from examples.shared.departures import (
    CANCELLED,
    DEPARTED,
    KEY,
    LATE,
    LATE_MINUTES,
    SCHEMA,
    Departures,
    announce,
    day_of,
)
from tidelog.log import Table

# Flights leave the board after a week.
_DAYS_SHOWN = 7
# The table gets change files from this day on. Before, an update is a delete and an insert of the same key.
CHANGE_FILES_FROM = 8
_MAJOR_EVERY = 6


class Board:
    """The statements of a day come when the stream has committed its flights."""

    def __init__(self, folder: Folder, departures: Departures) -> None:
        self.table = Table.create(str(folder.table), SCHEMA, properties={"tidelog.primaryKey": KEY})
        self.days = 0
        self._incoming = folder.incoming
        self._departures = departures
        self._waits_for: int | None = None

    def begin(self, days: int) -> None:
        """Fill the table with the first days, without the stream: what the follower finds when it starts."""
        self._incoming.mkdir(parents=True)
        for _ in range(days):
            self.table.insert(self._departures.planned(self.days))
            self._change(self.days)
            self.days += 1
        self.table.compact()

    @property
    def is_full(self) -> bool:
        """Whether there are no more days."""
        return self.days == self._departures.days

    @property
    def is_waiting(self) -> bool:
        """Whether the stream has not committed a day yet that was announced."""
        return self._waits_for is not None

    def announce_next(self) -> None:
        """Give the next day to the stream, unless it still has one."""
        if self._waits_for is None:
            announce(self._departures.planned(self.days), self._incoming, self.days)
            self._waits_for = self.days
            self.days += 1

    def change_if_arrived(self) -> bool:
        """Run the statements of a day if the stream has committed its flights; False while it has not."""
        if self._waits_for is None:
            return True
        if not self.table.refresh().scan(f"day = '{day_of(self._waits_for)}'", [KEY]).count():
            return False
        self._change(self._waits_for)
        self._waits_for = None
        return True

    def _change(self, number: int) -> None:
        day = day_of(number)
        if number == CHANGE_FILES_FROM:
            self.table.set_properties({"delta.enableChangeDataFeed": True})
        # What happened: most flights departed, a few were cancelled.
        self.table.upsert(self._departures.actual(number), delete_where=f"status = '{CANCELLED}'")
        self.table.update(
            f"day = '{day}' AND status = '{DEPARTED}' AND delay > {LATE_MINUTES}", {"status": f"'{LATE}'"}
        )
        if number >= _DAYS_SHOWN:
            self.table.delete(f"day <= '{day_of(number - _DAYS_SHOWN)}'")
        if number % _MAJOR_EVERY == _MAJOR_EVERY - 1:
            self.table.compact(level="major")
