"""The live files that a transaction and its winners name."""

from __future__ import annotations

from typing import TypeAlias

from pyroaring import BitMap64

from tidelog.log.conflict.effects import Effect
from tidelog.log.conflict.moves import Blobs
from tidelog.log.format.actions import AddFile, DeletionVectorDescriptor, RemoveFile

LogicalFile: TypeAlias = AddFile | RemoveFile
"""A data file with its deletion vector. A staged compaction knows its inputs only by the removes that it will write."""


class LiveFiles:
    """Files by canonical path. `rows` holds the physical row counts of the files whose rows are followed."""

    def __init__(self, blobs: Blobs) -> None:
        self.files: dict[str, LogicalFile] = {}
        self.rows: dict[str, int] = {}
        self._blobs = blobs

    def dead(self, path: str) -> BitMap64:
        """The dead rows of a live file."""
        return self.dead_in(self.files[path].deletion_vector)

    def dead_in(self, vector: DeletionVectorDescriptor | None) -> BitMap64:
        """The rows in a vector."""
        return BitMap64() if vector is None else self._blobs.dead_rows(vector)

    def apply(self, effect: Effect) -> None:
        """Move to the state after one more commit."""
        for path in effect.removed:
            self.files.pop(path, None)
        for files in (effect.added, effect.arrived):
            self.files.update(files)
        self.files.update({path: vectored.file for path, vectored in effect.vectored.items()})
        for move in effect.moves:
            self.rows.update(zip(move.outputs, move.output_rows, strict=True))
