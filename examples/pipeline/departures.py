"""What is announced of the flights, and what must be in the pipeline's tables then."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from examples.pipeline.folder import Folder
from examples.shared.check import Check, same_rows
from examples.shared.departures import CANCELLED, KEY, SCHEMA, Departures, announce
from tidelog.log import Table

# The sequence of AutoCDC: a flight happens after it was planned.
ANNOUNCED = "announced"
_PLANNED, _HAPPENED = 0, 1
_DELAYS = pa.schema(
    [("carrier", pa.string()), ("flights", pa.int64()), ("departed", pa.int64()), ("minutes", pa.int64())]
)


class Announcements:
    """Files of rows that the pipeline reads, each a day of flights as planned or as they happened."""

    def __init__(self, folder: Folder, departures: Departures) -> None:
        self._folder = folder
        self._departures = departures
        self._given: list[pa.Table] = []

    def plan(self, day: int) -> None:
        """Announce the flights of a day as they are planned."""
        self._announce(self._departures.planned(day), _PLANNED)

    def happen(self, day: int) -> None:
        """Announce the flights of a day as they departed, or were cancelled."""
        self._announce(self._departures.actual(day), _HAPPENED)

    def _announce(self, rows: pa.Table, kind: int) -> None:
        rows = rows.append_column(ANNOUNCED, pa.repeat(pa.scalar(kind, pa.int32()), len(rows)))
        announce(rows, self._folder.incoming, len(self._given))
        self._given.append(rows)

    @property
    def rows(self) -> pa.Table:
        """All rows that were announced."""
        return pa.concat_tables(self._given)

    @property
    def flights(self) -> pa.Table:
        """The newest announcement of each flight that is not cancelled."""
        rows = self.rows
        newest = rows.group_by(KEY).aggregate([(ANNOUNCED, "max")]).rename_columns([KEY, ANNOUNCED])
        found = rows.join(newest, [KEY, ANNOUNCED], join_type="inner")
        return found.filter(pc.not_equal(found["status"], CANCELLED)).select(SCHEMA.names)

    @property
    def delays(self) -> pa.Table:
        """How late each carrier is."""
        columns: list[tuple[str, str]] = [(KEY, "count"), ("delay", "count"), ("delay", "sum")]
        return self.flights.group_by("carrier").aggregate(columns).rename_columns(_DELAYS.names).cast(_DELAYS)

    def checks(self) -> list[Check]:
        """Whether each table of the pipeline has the rows that it must have, computed from the source alone."""
        expected = {
            "announcements": self.rows,
            "flights": self.flights,
            "delays": self.delays,
        }
        found = []
        for name, rows in expected.items():
            own = Table.open(str(self._folder.table_of(name))).scan(columns=rows.column_names).to_arrow()
            what = f"{name} has what was announced: {len(own):,} rows of {len(rows):,}"
            found.append(Check(what, same_rows(own.cast(rows.schema), rows)))
        return found
