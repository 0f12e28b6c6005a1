"""The progress of the pipeline, from the table's log and the consumer's totals."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime

from examples.flights.folder import Folder
from examples.flights.pipeline import TotalsFile
from tidelog.log import CommitRecord, OperationClass, Table


@dataclass(frozen=True, slots=True)
class Progress:
    """The progress at one moment. `files_written` counts all files that batches wrote, `live_files` those of the newest
    version.
    """

    version: int = -1
    time_version: datetime | None = None
    batches: int = 0
    rows: int = 0
    files_written: int = 0
    live_files: int = 0
    compactions: int = 0
    consumer_batches: int = 0
    consumer_rows: int = 0

    @property
    def lag_rows(self) -> int:
        """Rows in the table that the consumer has not counted yet."""
        return max(0, self.rows - self.consumer_rows)


class Watch:
    """Follows the table's log; each look reads only what is new."""

    def __init__(self, folder: Folder) -> None:
        self._table = Table.open(str(folder.table))
        self._totals = TotalsFile(folder.totals)
        self._seen = Progress()

    def look(self) -> Progress:
        """The progress now."""
        self._table.refresh()
        news = self._table.history(self._table.version - self._seen.version)
        for record in reversed(news):
            self._seen = _after(self._seen, record)
        batches, totals = self._totals.read()
        self._seen = replace(
            self._seen,
            time_version=self._table.time_version,
            live_files=self._table.at().num_files,
            consumer_batches=batches,
            consumer_rows=sum(total.flights for total in totals.values()),
        )
        return self._seen


def _after(progress: Progress, record: CommitRecord) -> Progress:
    if record.operation_class is OperationClass.MINOR:
        return replace(progress, version=record.version, compactions=progress.compactions + 1)
    if not record.data_change:
        return replace(progress, version=record.version)
    return replace(
        progress,
        version=record.version,
        batches=progress.batches + 1,
        rows=progress.rows + int(record.metrics["numOutputRows"]),
        files_written=progress.files_written + int(record.metrics["numFiles"]),
    )
