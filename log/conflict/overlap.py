"""Whether a winner and a staged transaction have overlapping scopes, as the conflict matrix requires.

The scope of a staged transaction is the partitions that it writes, that its reads can match and that it replaces. Only
the commit of a winner is known: its scope is the partitions of its files, or the whole table if tidelog recorded that.
A table without partitions is one scope.
"""

from __future__ import annotations

from collections.abc import Sequence

from tidelog.log.conflict.partitions import Partition, Place, Placed, describe_partition, partitions_in, partitions_of
from tidelog.log.conflict.staged import Reads, Staged
from tidelog.log.format import commit_info
from tidelog.log.format.actions import AddFile, Commit, Metadata, RemoveFile
from tidelog.log.format.schema import columns_of
from tidelog.log.predicate import Expression
from tidelog.log.pruning.file_pruning import File, may_match
from tidelog.log.pruning.partition_scope import Scope

WHOLE_TABLE = "the whole table"


def overlap(staged: Staged, winner: Commit, metadata: Metadata) -> tuple[str, str] | None:
    """Where the scopes overlap, in words, and a file of the winner in that place; None if they do not overlap."""
    theirs: list[AddFile | RemoveFile] = [*winner.adds, *winner.removes]
    first = theirs[0].path if theirs else ""
    if not metadata.partition_columns or is_whole_table(winner):
        return WHOLE_TABLE, first
    hits = places_in_scope(staged, [Place(file.partition_values) for file in theirs], metadata)
    return next(
        ((describe_partition(file, metadata), file.path) for file, hit in zip(theirs, hits, strict=True) if hit), None
    )


def is_whole_table(winner: Commit) -> bool:
    """Whether tidelog recorded that the commit replaced the whole table."""
    return commit_info.tidelog(winner.info).get("scope") == "table"


def places_in_scope(staged: Staged, places: Sequence[Place], metadata: Metadata) -> list[bool]:
    """For each place, whether it is, or may be, in the scope of a staged transaction."""
    hits = [False] * len(places)
    written = partitions_of(_written(staged), metadata)
    if None in written:
        return [True] * len(places)
    _mark(hits, _among(places, {partition for partition in written if partition is not None}, metadata))
    _mark(hits, may_have_read(staged, places, metadata))
    return hits


def may_have_read(staged: Staged, files: Sequence[File], metadata: Metadata) -> list[bool]:
    """For each file, whether the transaction may have read, or replaces, a row of it."""
    hits = [staged.restores is not None] * len(files)
    if staged.reads is not None:
        _mark(hits, _looked_for(staged.reads, files, metadata))
    if staged.replaces is not None:
        _mark(hits, _replaced(staged.replaces, files, metadata))
    return hits


def _written(staged: Staged) -> list[Placed]:
    written: list[Placed] = [*staged.adds, *staged.cdc]
    for group in staged.moves:
        written += [*group.inputs, *group.outputs]
    for delete in staged.deletes:
        written += [delete.file, *(delete.survivors or ())]
    return written


def _looked_for(reads: Reads, files: Sequence[File], metadata: Metadata) -> list[bool]:
    if reads.keys is None:
        return _may_match(files, reads.predicate, metadata)
    if metadata.partition_columns and set(metadata.partition_columns) <= set(reads.keys.column_names):
        return _among(files, partitions_in(reads.keys, metadata), metadata)
    return [True] * len(files)


def _replaced(scope: Scope, files: Sequence[File], metadata: Metadata) -> list[bool]:
    if scope.predicate is not None:
        return _may_match(files, scope.predicate, metadata)
    if scope.partitions is not None:
        return _among(files, partitions_in(scope.partitions, metadata), metadata)
    return [True] * len(files)


def _may_match(files: Sequence[File], expression: Expression, metadata: Metadata) -> list[bool]:
    return may_match(files, expression, columns_of(metadata, ""), metadata)


def _among(files: Sequence[Placed], partitions: set[Partition], metadata: Metadata) -> list[bool]:
    """Whether each file is in one of the partitions, or may be because its partition is unknown."""
    return [found is None or found in partitions for found in partitions_of(files, metadata)]


def _mark(hits: list[bool], more: Sequence[bool]) -> None:
    hits[:] = [hit or other for hit, other in zip(hits, more, strict=True)]
