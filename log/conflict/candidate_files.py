"""Rule 5: the live files with rows from winners, which the transaction might have read."""

from __future__ import annotations

from collections.abc import Iterable

from tidelog.log.conflict.effects import Effect, brings_back
from tidelog.log.conflict.live_files import LiveFiles
from tidelog.log.conflict.moves import Blobs
from tidelog.log.format.actions import AddFile


class CandidateFiles:
    """Files with rows that winners added, followed through compactions.

    A compacted file also holds older rows. Those that match are already among the transaction's deletes.
    """

    def __init__(self, live: LiveFiles, blobs: Blobs) -> None:
        self._live = live
        self._blobs = blobs
        # The newest winner with rows in each file.
        self._versions: dict[str, int] = {}
        # For each file, the winners' files that its rows came from. Rows that cannot match by the statistics of the
        # file that brought them cannot match in a larger file either.
        self._origins: dict[str, dict[str, AddFile]] = {}
        self._held: set[str] = set()

    def apply(self, effect: Effect, *, held: bool = False) -> None:
        """Add the files of one more winner. Call this before `LiveFiles.apply`.

        `held` files are not candidates until `release` is called: their winner can be ordered after the transaction.
        If a compaction mixes held rows with rows that are not, its output is not held.
        """
        if held:
            self._held.update(effect.added)
        for move in effect.moves:
            self._carry(move.inputs, move.outputs, effect.version)
        self._carry([path for path, died in effect.removed.items() if not died], effect.arrived, effect.version)
        for path in effect.removed:
            # Its rows have been carried to other files. Forgetting it keeps a long race small.
            self._versions.pop(path, None)
            self._origins.pop(path, None)
            self._held.discard(path)
        for path, add in effect.added.items():
            live = self._live.files.get(path)
            if live is None or live.key != add.key:
                self._versions[path] = effect.version
                self._origins[path] = {path: add}
        if not effect.keeps_dead_rows_dead:
            for path, vectored in effect.vectored.items():
                if brings_back(vectored, self._blobs):
                    self._versions[path] = effect.version
                    self._origins[path] = {path: vectored.file}

    def release(self) -> None:
        """Make held files candidates: another winner may have built on them, so they cannot be ordered later."""
        self._held.clear()

    def at_head(self) -> dict[str, AddFile]:
        """The candidate files that are live."""
        found = {path: self._live.files.get(path) for path in self._versions if path not in self._held}
        return {path: file for path, file in found.items() if isinstance(file, AddFile)}

    def origins(self, paths: Iterable[str]) -> dict[str, dict[str, AddFile]]:
        """For each of these files, the winners' files that its rows came from, by path."""
        return {path: self._origins[path] for path in paths}

    def _carry(self, sources: Iterable[str], targets: Iterable[str], version: int) -> None:
        carried = [path for path in sources if path in self._versions]
        if not carried:
            return
        origins: dict[str, AddFile] = {}
        for path in carried:
            origins |= self._origins[path]
        held = all(path in self._held for path in carried)
        for target in targets:
            self._versions[target] = version
            self._origins[target] = self._origins.get(target, {}) | origins
            if held:
                self._held.add(target)
            else:
                self._held.discard(target)

    def brought_by(self, path: str) -> int:
        """The newest winner with rows in the file."""
        return self._versions[path]
