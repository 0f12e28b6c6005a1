"""The files of the snapshot that a stream begins with, in an order that a restart finds again."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidelog.log.arrays import Int64Array
from tidelog.log.data.reader import DataFile, physical_rows
from tidelog.log.format.statistics import num_records
from tidelog.log.pruning.file_pruning import prune_values
from tidelog.log.read.change_files import ChangeFile
from tidelog.log.read.scan import Selection
from tidelog.log.read.snapshot import Snapshot
from tidelog.log.state.files import FileValues, to_adds
from tidelog.log.storage import Store
from tidelog.streaming.feed_planning.limits import Admission

_NUMBER = "number"
_UNKNOWN = -1


class SnapshotUnits:
    """The files of one snapshot, oldest first. They stay in Arrow columns: a million of them take some 100 MB.

    `count` is the number of all files. Those that can have selected rows are read, and count for the limits.
    """

    def __init__(self, snapshot: Snapshot, selection: Selection, *, count_in: Store | None = None) -> None:
        """A row count that the log lacks is read from the file in the store `count_in`, or is 0 without it."""
        self.version = snapshot.version
        self.timestamp_ms = int(snapshot.timestamp.timestamp() * 1000)
        files = snapshot.files()
        order = pc.sort_indices(files, sort_keys=[("modificationTime", "ascending"), ("path", "ascending")])
        self._files: pa.Table = files.take(order)
        self.count: int = files.num_rows
        values = FileValues(self._files)
        if selection.tree is not None:
            numbered = FileValues(self._files.append_column(_NUMBER, pa.array(np.arange(self.count))))
            metadata = snapshot.state.head.metadata
            kept = prune_values(numbered, selection.tree, selection.row_schema, metadata).files
            matching = np.sort(kept[_NUMBER].to_numpy())
        else:
            matching = np.arange(self.count)
        self._sizes: Int64Array = self._files["size"].to_numpy()
        self._rows: Int64Array = pc.fill_null(values.live_rows(), _UNKNOWN).to_numpy()
        self._matching = matching[self._rows[matching] != 0]
        self._count_in = count_in

    def advance(self, start: int, admission: Admission) -> int:
        """How many files are read once the next micro-batch has taken what it admits after the first `start`."""
        ahead = self._matching[np.searchsorted(self._matching, start) :]
        for number in ahead:
            if not admission.admits(1, int(self._sizes[number]), self._rows_of(int(number))):
                return int(number)
        return self.count

    @property
    def has_rows(self) -> bool:
        """Whether any file can have selected rows."""
        return bool(len(self._matching))

    def between(self, start: int, end: int) -> list[ChangeFile]:
        """The files after the first `start`, up to the first `end`, that can have selected rows."""
        low, high = np.searchsorted(self._matching, [start, end])
        return [
            ChangeFile(DataFile.of(add), self.version, self.timestamp_ms, add.size, num_records(add.stats))
            for add in to_adds(self._files.take(pa.array(self._matching[low:high])))
        ]

    def _rows_of(self, number: int) -> int:
        if self._rows[number] != _UNKNOWN:
            return int(self._rows[number])
        (add,) = to_adds(self._files.slice(number, 1))
        return physical_rows(self._count_in, DataFile.of(add)) if self._count_in else 0
