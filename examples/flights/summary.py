"""The end of the demo: check that each row is in the table once, and summarise the run."""

from __future__ import annotations

import math
import statistics
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from examples.flights.folder import Folder
from examples.flights.pipeline import BatchTimes, Total, Totals, TotalsFile, totals_of
from examples.flights.progress import Progress, Watch
from examples.flights.source import archive
from tidelog.log import Table


@dataclass(frozen=True, slots=True)
class Verdict:
    """The totals of the source itself, of the table's rows and of the consumer."""

    source: Totals
    table: Totals
    consumer: Totals

    @property
    def holds(self) -> bool:
        """Whether all three agree."""
        return not self.differences()

    def differences(self) -> list[str]:
        """A line for each origin and month on which they disagree."""
        keys = sorted({*self.source, *self.table, *self.consumer})
        return [
            f"{origin} in month {month}: source {_cell(self.source, origin, month)}, "
            f"table {_cell(self.table, origin, month)}, consumer {_cell(self.consumer, origin, month)}"
            for origin, month in keys
            if not self.source.get((origin, month))
            == self.table.get((origin, month))
            == self.consumer.get((origin, month))
        ]


def verify(folder: Folder, days: int) -> Verdict:
    """Compute all three totals. Those of the source use nothing that the pipeline wrote."""
    return Verdict(source_totals(archive(), days), table_totals(folder), TotalsFile(folder.totals).read()[1])


def source_totals(path: Path, days: int) -> Totals:
    """The totals of the first `days` days of the packaged file, read with pandas."""
    with zipfile.ZipFile(path) as archived, archived.open("flights.csv") as stream:
        flights = pd.read_csv(stream, usecols=["year", "month", "day", "origin", "distance"])
    dates = pd.to_datetime(flights[["year", "month", "day"]])
    wanted = flights[dates.dt.dayofyear <= days]
    grouped = wanted.groupby(["origin", "month"])["distance"].agg(["size", "sum"]).reset_index()
    columns = {"size": "flights", "sum": "miles"}
    return totals_of(
        {str(key): value for key, value in row.items()} for row in grouped.rename(columns=columns).to_dict("records")
    )


def table_totals(folder: Folder) -> Totals:
    """The totals of the newest version's rows, read without Spark."""
    if not folder.table.exists():
        return {}
    rows = Table.open(str(folder.table)).scan(columns=["origin", "month", "distance"]).to_arrow()
    grouped = rows.group_by(["origin", "month"]).aggregate([([], "count_all"), ("distance", "sum")])
    return totals_of(grouped.rename_columns(["origin", "month", "flights", "miles"]).to_pylist())


def lines(folder: Folder, verdict: Verdict, took_s: float) -> list[str]:
    """The summary, one fact per line."""
    progress = Watch(folder).look()
    rows = [
        sum(total.flights for total in totals.values()) for totals in (verdict.source, verdict.table, verdict.consumer)
    ]
    facts = [
        ("batches", f"{progress.batches:,}, one per day"),
        ("versions", _versions(progress)),
        ("files", f"{progress.files_written:,} before compaction, {progress.live_files:,} after"),
        ("consumer", f"{progress.consumer_batches:,} batches of the change feed"),
        ("rows", f"source {rows[0]:,}, table {rows[1]:,}, consumer {rows[2]:,}: {_word(verdict)}"),
        ("micro-batch", _times(BatchTimes(folder.batch_times).read_ms())),
        ("this run", f"{took_s:.0f} s"),
        ("table", str(folder.table)),
    ]
    return [f"  {name:<12} {fact}" for name, fact in facts]


def _versions(progress: Progress) -> str:
    when = "none" if progress.time_version is None else progress.time_version.isoformat(timespec="milliseconds")
    return (
        f"ID version {progress.version} ({progress.batches:,} batches, {progress.compactions:,} compactions), "
        f"time version {when}"
    )


def _word(verdict: Verdict) -> str:
    return "equal for each origin and month" if verdict.holds else "THEY DIFFER"


def _times(times_ms: Sequence[int]) -> str:
    if not times_ms:
        return "no times recorded"
    p99 = sorted(times_ms)[math.ceil(len(times_ms) * 0.99) - 1]
    return f"median {statistics.median(times_ms):.0f} ms, p99 {p99} ms (of {len(times_ms):,})"


def _cell(totals: Totals, origin: str, month: int) -> str:
    total = totals.get((origin, month), Total())
    return f"{total.flights:,} flights and {total.miles:,} miles"
