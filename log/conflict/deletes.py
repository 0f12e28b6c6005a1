"""Rules 1 and 4: the rows that a transaction deletes, followed through winners and judged at the head."""

from __future__ import annotations

import numpy as np
from pyroaring import BitMap64

from tidelog.log.arrays import Int64Array
from tidelog.log.conflict.live_files import LiveFiles
from tidelog.log.conflict.moves import Move, Rows, concatenated, starts, to_bitmap, to_numbers
from tidelog.log.conflict.staged import RowDelete, Staged
from tidelog.log.format.paths import canonical


class FollowedDeletes:
    """The rows that the transaction deletes, at their current addresses."""

    def __init__(self, staged: Staged, live: LiveFiles) -> None:
        self._staged = staged
        self._live = live
        self.moved = False
        self._starts = starts([len(delete.positions) for delete in staged.deletes])
        at = {}
        for delete, start in zip(staged.deletes, self._starts.tolist(), strict=True):
            path = canonical(delete.file.path)
            live.files[path] = delete.file
            live.rows[path] = delete.physical_rows
            positions = to_numbers(delete.positions)
            at[path] = positions, start + np.arange(len(positions))
        self.rows = Rows(at)

    def follow(self, move: Move) -> None:
        """Translate the addresses of rows that the move relocates."""
        followed = self.rows.follow(move)
        self.moved = self.moved or followed is not self.rows
        self.rows = followed

    def live_in(self, path: str) -> bool:
        """Whether any of them is live in this file after the winners folded so far."""
        if path not in self.rows.at or path not in self._live.files:
            return False
        positions, _ = self.rows.at[path]
        return bool(to_bitmap(positions) - self._live.dead(path))

    def judge(self) -> tuple[dict[str, BitMap64], Int64Array]:
        """The rows that are still live, by file path, and the numbers of those that winners deleted."""
        alive: dict[str, BitMap64] = {}
        lost = []
        for path, (positions, numbers) in self.rows.at.items():
            if path not in self._live.files:
                lost.append(numbers)
                continue
            mine = to_bitmap(positions)
            left = mine - self._live.dead(path)
            if left:
                alive[path] = left
            if len(left) < len(mine):
                lost.append(numbers[~np.isin(positions, to_numbers(left))])
        return alive, concatenated(lost)

    def lost_of_each(self, lost: Int64Array) -> list[Int64Array]:
        """The numbers of the lost rows of each staged delete, counted from its own first row."""
        ordered = np.sort(lost)
        bounds = [(start, start + len(delete.positions)) for start, delete in self._with_starts()]
        cuts = np.searchsorted(ordered, np.array(bounds, np.int64).reshape(-1, 2))
        return [ordered[low:high] - start for (start, _), (low, high) in zip(bounds, cuts.tolist(), strict=True)]

    def _with_starts(self) -> list[tuple[int, RowDelete]]:
        return [*zip(self._starts.tolist(), self._staged.deletes, strict=True)]

    def dead_images(self, lost: Int64Array) -> dict[str, BitMap64]:
        """The positions of the images of lost rows, by the path of the added file that holds them."""
        dead: dict[str, BitMap64] = {}
        if not len(lost):
            return dead
        for delete, inside in zip(self._staged.deletes, self.lost_of_each(lost), strict=True):
            if delete.images is None:
                continue
            adds, positions = delete.images.adds[inside], delete.images.positions[inside]
            for number in np.unique(adds).tolist():
                path = canonical(self._staged.adds[number].path)
                dead[path] = dead.get(path, BitMap64()) | to_bitmap(positions[adds == number])
        return dead
