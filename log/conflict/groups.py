"""Rules 2 and 3: one group of a staged compaction, followed through winners and judged at the head.

Rows are numbered in lineage order: the live rows of the first input, then those of the second, and so on. As long as no
winner moves an input's rows they are not listed one by one: the deletion vectors show which of them died.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
from pyroaring import BitMap64

from tidelog.log.arrays import Int64Array
from tidelog.log.conflict.effects import LiveFiles, LogicalFile
from tidelog.log.conflict.moves import Addresses, Move, Rows, concatenated, located, starts, to_bitmap, to_numbers
from tidelog.log.conflict.staged import MoveGroup
from tidelog.log.data.row_maps import ROW_MAP_COLUMNS, row_map_schema
from tidelog.log.format.actions import RemoveFile
from tidelog.log.format.lineage import LineageGroup, LineageInput
from tidelog.log.format.paths import canonical


@dataclass(frozen=True, slots=True)
class JudgedGroup:
    """What is left of a group.

    `moved` are its live rows in outputs of winners' compactions, `dead` the dead rows of its own outputs, by path.
    """

    group: MoveGroup
    moved: Mapping[str, BitMap64]
    dead: Mapping[str, BitMap64]


class FollowedGroup:
    """The rows of one group at their current addresses. `level` ranks the compaction: MINOR below MAJOR.

    `taken_by` is the last winner that took rows from the group, 0 if none did.
    """

    def __init__(self, group: MoveGroup, live: LiveFiles, level: int) -> None:
        self.group = group
        self.taken_by = 0
        self._dropped = False
        self._live = live
        self._level = level
        self._removes = {canonical(remove.path): remove for remove in group.inputs}
        self._plain = {canonical(entry.path): entry for entry in group.lineage.inputs}
        counts = [entry.rows - _dead_count(self._removes[path]) for path, entry in self._plain.items()]
        self._starts = dict(zip(self._plain, starts(counts).tolist(), strict=True))
        self._counts = dict(zip(self._plain, counts, strict=True))
        self._total = sum(counts)
        self._elsewhere = Rows({})
        self._claimed: Int64Array = concatenated([])
        for path, entry in self._plain.items():
            live.files[path] = self._removes[path]
            live.rows[path] = entry.rows

    def touches(self, path: str) -> bool:
        """Whether this file holds rows of the group."""
        return path in self._plain or path in self._elsewhere.at

    def drop(self, version: int) -> None:
        """Drop the group: its rows cannot be followed through this winner."""
        self._dropped = True
        self.taken_by = version

    def follow(self, move: Move, level: int, version: int) -> bool:
        """Follow rows that a winner's compaction moved. Returns whether the group had any."""
        touched = [path for path in move.inputs if self.touches(path)]
        if not touched:
            return False
        at = dict(self._elsewhere.at)
        before = {path: at.pop(path) if path in at else self._listed(path) for path in touched}
        after = Rows(before).follow(move)
        self._elsewhere = Rows({**at, **after.at})
        if level >= self._level:
            taken = [numbers for path, (_, numbers) in after.at.items() if path not in before]
            self._claimed = np.union1d(self._claimed, concatenated(taken))
            self.taken_by = version
        return True

    def judge(self, *, vectors: bool) -> JudgedGroup | None:
        """What is left of the group at the head, or None. Without `vectors`, a lost or moved row drops the group."""
        if self._dropped:
            return None
        alive = {path: rows for path, rows in self._movable_elsewhere().items() if len(rows[0])}
        lost = self._lost(concatenated([rows[1] for rows in alive.values()]))
        left = self._total - len(lost)
        if (len(lost) or self._elsewhere.at) and not vectors:
            return None
        inputs = tuple(self._removes_at_head())
        # Wholly dead inputs can be removed, but are not worth a commit if winners moved all the live rows.
        if not left and (not inputs or len(self._claimed)):
            return None
        group = replace(self.group, inputs=inputs)
        if self._elsewhere.at and left:
            group = self._remapped(group, alive, lost)
        return JudgedGroup(group, {path: to_bitmap(rows[0]) for path, rows in alive.items()}, self._dead_outputs(lost))

    def _listed(self, path: str) -> tuple[Int64Array, Int64Array]:
        """The rows of an input and their numbers. From now on they are followed one by one."""
        rows = self._rows_of(path)
        del self._plain[path]
        return rows

    def _rows_of(self, path: str) -> tuple[Int64Array, Int64Array]:
        positions = np.arange(self._live.rows[path])
        read = to_numbers(self._live.dead_in(self._removes[path].deletion_vector))
        if len(read):
            positions = np.delete(positions, read)
        return positions, self._starts[path] + np.arange(len(positions))

    def _movable_elsewhere(self) -> dict[str, tuple[Int64Array, Int64Array]]:
        """The live rows in winners' outputs, except those that a compaction of this level or above placed there."""
        return {
            path: self._without_dead(path, rows)
            for path, rows in self._elsewhere.at.items()
            if path in self._live.files
        }

    def _without_dead(self, path: str, rows: tuple[Int64Array, Int64Array]) -> tuple[Int64Array, Int64Array]:
        dead = self._live.dead(path)
        keep = ~np.isin(rows[1], self._claimed)
        if dead:
            keep &= ~np.isin(rows[0], to_numbers(dead))
        return rows[0][keep], rows[1][keep]

    def _lost(self, alive_elsewhere: Int64Array) -> Int64Array:
        """The numbers of the rows to mark dead in the outputs, ascending: winners deleted or placed them."""
        followed = concatenated([numbers for _, numbers in self._elsewhere.at.values()])
        lost = [np.setdiff1d(followed, alive_elsewhere, assume_unique=True)]
        for path in self._plain:
            if path not in self._live.files:
                lost.append(self._starts[path] + np.arange(self._counts[path]))
                continue
            read = self._live.dead_in(self._removes[path].deletion_vector)
            died = self._live.dead(path) - read
            if died:
                positions = to_numbers(died)
                ranks = positions - np.searchsorted(to_numbers(read), positions)
                lost.append(self._starts[path] + ranks)
        return np.sort(concatenated(lost))

    def _removes_at_head(self) -> Iterator[RemoveFile]:
        """The removes, with the vectors at the head, of the inputs that are live and that no winner moved."""
        for path in self._plain:
            if path in self._live.files:
                yield _with_current_vector(self._removes[path], self._live.files[path])

    def _dead_outputs(self, lost: Int64Array) -> dict[str, BitMap64]:
        to = self._outputs_of(lost)
        names = [canonical(entry.path) for entry in self.group.lineage.outputs]
        return {names[file]: to_bitmap(to.positions[to.files == file]) for file in np.unique(to.files).tolist()}

    def _outputs_of(self, numbers: Int64Array) -> Addresses:
        """The addresses of these rows in the outputs."""
        row_map = self.group.row_map
        if row_map is None:
            return located(numbers, starts([entry.rows for entry in self.group.lineage.outputs]))
        # A row map lists the rows in the order of their numbers.
        files, positions = (row_map[name].to_numpy()[numbers] for name in ("output", "output_position"))
        return Addresses(files.astype(np.int64), positions.astype(np.int64))

    def _remapped(
        self, group: MoveGroup, alive: Mapping[str, tuple[Int64Array, Int64Array]], lost: Int64Array
    ) -> MoveGroup:
        """The group with a row map from the addresses that are live at the head."""
        rows = dict(alive)
        for path in self._plain:
            if path in self._live.files:
                positions, numbers = self._rows_of(path)
                keep = ~np.isin(numbers, lost)
                rows[path] = positions[keep], numbers[keep]
        to = self._outputs_of(concatenated([numbers for _, numbers in rows.values()]))
        columns = (
            concatenated([np.full(len(at), number) for number, (at, _) in enumerate(rows.values())]),
            concatenated([at for at, _ in rows.values()]),
            to.files,
            to.positions,
        )
        inputs = tuple(
            LineageInput(self._live.files[path].path, self._live.files[path].key[1], self._live.rows[path])
            for path in rows
        )
        lineage = LineageGroup(inputs, group.lineage.outputs)
        row_map = pa.table(dict(zip(ROW_MAP_COLUMNS, columns, strict=True)), schema=row_map_schema())
        return replace(group, lineage=lineage, row_map=row_map)


def _with_current_vector(remove: RemoveFile, live: LogicalFile) -> RemoveFile:
    if isinstance(live, RemoveFile):
        return live
    return live.removed(remove.deletion_timestamp or 0, data_change=False)


def _dead_count(remove: RemoveFile) -> int:
    return remove.deletion_vector.cardinality if remove.deletion_vector else 0
