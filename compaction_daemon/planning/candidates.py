"""Candidates: live files with the row counts that the log knows; and PackedFiles, the decisions on them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import pyarrow as pa

from tidelog.log.internals import SMALL_SHARE, AddFile, FileValues, to_adds


@dataclass(frozen=True, slots=True)
class Candidate:
    """A live file. `rows` counts its physical rows, dead ones included; None if its statistics have no count."""

    add: AddFile
    rows: int | None

    @property
    def dead_rows(self) -> int:
        """The number of rows in its deletion vector."""
        return self.add.deletion_vector.cardinality if self.add.deletion_vector else 0

    @property
    def is_dead(self) -> bool:
        """Whether all of its rows are known to be dead."""
        return self.rows is not None and 0 < self.rows == self.dead_rows

    @property
    def live_bytes(self) -> float:
        """The bytes of its live rows, if all rows are equally large; the file's size if its rows are not counted."""
        return self.add.size * (1 - self.dead_rows / self.rows) if self.rows else self.add.size


@dataclass(frozen=True, slots=True)
class PackedFiles:
    """Files of one partition to rewrite into `outputs` files; or to leave alone, for the reason `refused`."""

    files: tuple[Candidate, ...]
    outputs: int = 1
    refused: str | None = None


def candidates_of(table: pa.Table) -> list[Candidate]:
    """The files of a table of the schema ADD, in its order."""
    rows = FileValues(table).rows().to_pylist()
    return [Candidate(add, count) for add, count in zip(to_adds(table), rows, strict=True)]


def is_small(add: AddFile, target: int) -> bool:
    """Whether a file is well below the target size, in bytes."""
    return add.size < target * SMALL_SHARE


def by_partition(found: Iterable[Candidate]) -> list[list[Candidate]]:
    """The files of each partition by modification time, oldest first; files with the same time are in commit order."""
    groups: dict[tuple[tuple[str, str | None], ...], list[Candidate]] = {}
    for file in found:
        groups.setdefault(tuple(sorted(file.add.partition_values.items())), []).append(file)
    return [sorted(group, key=lambda file: file.add.modification_time) for group in groups.values()]
