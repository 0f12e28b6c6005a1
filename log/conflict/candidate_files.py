"""The files that may hold rows which a transaction would have read, had they been there: what rule 5 looks at."""

from __future__ import annotations

from collections.abc import Iterable

from tidelog.log.conflict.effects import Effect, brings_back
from tidelog.log.conflict.live_files import LiveFiles
from tidelog.log.conflict.moves import Blobs
from tidelog.log.format.actions import AddFile


class CandidateFiles:
    """Files with rows of the winners, followed through compactions.

    A compacted file holds rows of before as well: of these, those that match are deleted by the transaction anyway.
    """

    def __init__(self, live: LiveFiles, blobs: Blobs) -> None:
        self._live = live
        self._blobs = blobs
        self._paths: dict[str, int] = {}
        # What came in with the winners' rows, by the file in which these lie now: rows that cannot match there, by
        # the statistics of the file that brought them, cannot match in a larger file either.
        self._origins: dict[str, dict[str, AddFile]] = {}
        self._held: set[str] = set()

    def apply(self, effect: Effect, *, held: bool = False) -> None:
        """Take one more winner in, before the live files know of it. `held`: it may follow, unless `release` is called.

        A compaction of rows of which some are held and some are not holds none.
        """
        if held:
            self._held.update(effect.added)
        for move in effect.moves:
            self._carry(move.inputs, move.outputs, effect.version)
        self._carry([path for path, died in effect.removed.items() if not died], effect.arrived, effect.version)
        for path in effect.removed:
            # What is gone was carried on, and a long race must not hold all that ever was.
            self._paths.pop(path, None)
            self._origins.pop(path, None)
            self._held.discard(path)
        for path, add in effect.added.items():
            live = self._live.files.get(path)
            if live is None or live.key != add.key:
                self._paths[path] = effect.version
                self._origins[path] = {path: add}
        if not effect.keeps_dead_rows_dead:
            for path, vectored in effect.vectored.items():
                if brings_back(vectored, self._blobs):
                    self._paths[path] = effect.version
                    self._origins[path] = {path: vectored.file}

    def release(self) -> None:
        """Look at what was held, too: another winner may have built on it, so that it cannot follow any more."""
        self._held.clear()

    def at_head(self) -> dict[str, AddFile]:
        """Those files that are live."""
        found = {path: self._live.files.get(path) for path in self._paths if path not in self._held}
        return {path: file for path, file in found.items() if isinstance(file, AddFile)}

    def origins(self, paths: Iterable[str]) -> dict[str, dict[str, AddFile]]:
        """For each of some files those that brought the winners' rows in them, by path."""
        return {path: self._origins[path] for path in paths}

    def _carry(self, sources: Iterable[str], targets: Iterable[str], version: int) -> None:
        carried = [path for path in sources if path in self._paths]
        if not carried:
            return
        origins: dict[str, AddFile] = {}
        for path in carried:
            origins |= self._origins[path]
        held = all(path in self._held for path in carried)
        for target in targets:
            self._paths[target] = version
            self._origins[target] = self._origins.get(target, {}) | origins
            if held:
                self._held.add(target)
            else:
                self._held.discard(target)

    def brought_by(self, path: str) -> int:
        """The winner whose rows, the newest of them, lie in the file."""
        return self._paths[path]
