"""The files that may hold rows which a transaction would have read, had they been there: what rule 5 looks at."""

from __future__ import annotations

from tidelog.log.conflict.effects import Effect, brings_back
from tidelog.log.conflict.live import Live
from tidelog.log.conflict.moves import Blobs
from tidelog.log.format.actions import AddFile


class Arrivals:
    """Files with rows of the winners, followed through compactions.

    A compacted file holds rows of before as well: of these, those that match are deleted by the transaction anyway.
    """

    def __init__(self, live: Live, blobs: Blobs) -> None:
        self._live = live
        self._blobs = blobs
        self._paths: dict[str, int] = {}

    def apply(self, effect: Effect) -> None:
        """Take one more winner in, before the live files know of it."""
        for move in effect.moves:
            if any(path in self._paths for path in move.inputs):
                self._paths.update(dict.fromkeys(move.outputs, effect.version))
        if any(path in self._paths for path, died in effect.removed.items() if not died):
            self._paths.update(dict.fromkeys(effect.arrived, effect.version))
        for path, add in effect.added.items():
            live = self._live.files.get(path)
            if live is None or live.key != add.key:
                self._paths[path] = effect.version
        if not effect.keeps_dead_rows_dead:
            for path, vectored in effect.vectored.items():
                if brings_back(vectored, self._blobs):
                    self._paths[path] = effect.version

    def at_head(self) -> dict[str, AddFile]:
        """Those files that are live."""
        found = {path: self._live.files.get(path) for path in self._paths}
        return {path: file for path, file in found.items() if isinstance(file, AddFile)}

    def brought_by(self, path: str) -> int:
        """The winner whose rows, the newest of them, lie in the file."""
        return self._paths[path]
