"""Find the files that may hold a row matching a predicate, using partition values and statistics only.

The predicate is translated into a condition on files. Each part of it is asked two questions about a file: can a row
make it true, and can a row make it false? NOT swaps the two; a null makes neither true. For `NOT n < 5`:

    NOT n < 5 can be true   =  n < 5 can be false  =  the highest n >= 5
    NOT n < 5 can be false  =  n < 5 can be true   =  the lowest n < 5

If a fact about a file is unknown (no statistics, an unreadable value, a function), both answers are "maybe" and the
file is kept. A part that uses only partition columns or constants is evaluated exactly. See `file_facts`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from tidelog.log import predicate
from tidelog.log.format.actions import Metadata
from tidelog.log.predicate import Expression
from tidelog.log.pruning.file_outcomes import FileOutcomes
from tidelog.log.state.files import FileValues


class File(Protocol):
    """A file with its partition values and, if known, statistics."""

    @property
    def partition_values(self) -> Mapping[str, str | None] | None:
        """The `partitionValues` of the `add` action."""

    @property
    def stats(self) -> str | None:
        """The `stats` of the `add` action: JSON text, or None."""


# If a smaller share of the files is left, their statistics are decoded for this call only, not for all files.
_FEW = 0.25


@dataclass(frozen=True, slots=True)
class Pruned:
    """`files` are the files that may hold a matching row, of `total`. The other two fields count the files dropped."""

    files: pa.Table
    total: int
    by_partition: int
    by_statistics: int


def prune(files: pa.Table, expression: Expression, schema: pa.Schema, metadata: Metadata) -> pa.Table:
    """The files that may hold a row for which `expression` is true.

    `files` has the columns of the `add` action, `schema` is the table's. Never drops a file that holds such a row,
    provided that its statistics and partition values are correct.
    """
    return prune_values(FileValues(files), expression, schema, metadata).files


def may_match(files: Sequence[File], expression: Expression, schema: pa.Schema, metadata: Metadata) -> list[bool]:
    """For each file, whether `prune` would keep it. A file without statistics is judged by its partition only."""
    maps = [_items(file.partition_values) for file in files]
    table = pa.table(
        {
            "partitionValues": pa.array(maps, pa.map_(pa.string(), pa.string())),
            "stats": pa.array([file.stats for file in files], pa.string()),
            "number": pa.array(range(len(files)), pa.int64()),
        }
    )
    kept = set(prune(table, expression, schema, metadata)["number"].to_pylist())
    return [number in kept for number in range(len(files))]


def _items(values: Mapping[str, str | None] | None) -> list[tuple[str, str | None]] | None:
    return None if values is None else list(values.items())


def prune_values(values: FileValues, expression: Expression, schema: pa.Schema, metadata: Metadata) -> Pruned:
    """Like `prune`, with decoded columns that the caller keeps, and counts of the files that each rule dropped."""
    total = values.files.num_rows
    facts = FileOutcomes(values, schema, metadata)
    asked = facts.leaves_of(expression)
    by_partition = _keep(values.files, facts.answer(expression, with_statistics=False))
    left = by_partition.num_rows
    if not left or not asked:
        return Pruned(by_partition, total, total - left, 0)
    if left < total * _FEW and not values.has(asked):
        facts = FileOutcomes(FileValues(by_partition), schema, metadata)
    answers = facts.answer(expression, with_statistics=True)
    kept = _keep(facts.values.files, answers)
    return Pruned(kept, total, total - left, left - kept.num_rows)


def is_partition_only(expression: Expression, metadata: Metadata) -> bool:
    """Whether partition values are enough to evaluate `expression` for every row."""
    return predicate.columns(expression) <= set(metadata.partition_columns)


def wholly_matching(
    values: FileValues, expression: Expression, schema: pa.Schema, metadata: Metadata
) -> pa.BooleanArray:
    """For each file, whether `expression` is certainly true for all its rows, according to the log."""
    return FileOutcomes(values, schema, metadata).certainty(expression)


def _keep(files: pa.Table, answers: pa.BooleanArray) -> pa.Table:
    return files if answers.true_count == len(answers) else files.filter(answers)
