"""The changes of one commit, as units that can be read independently.

- A version with `cdc` files has its changes in them and nowhere else.
- Otherwise the rows of an added file were inserted, and those of a removed file deleted. A file removed and added again
  with another deletion vector changed the rows in which the two vectors differ.
- A commit that did both can have copied rows that did not change: see `mixed_commits`. An overwrite has not, because it
  replaces whatever is there.
- A compaction (`dataChange=false`) changes no rows.

Source: the Delta protocol, "Change Data Files". delta-spark's `readChangeFeed` shows the same, but for rows that a
commit rewrote unchanged, and for updates without change files.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, TypeAlias, get_args

import pyarrow as pa

from tidelog.log import predicate
from tidelog.log.conflict.operation_class import OperationClass, recorded_class
from tidelog.log.data.reader import DataFile
from tidelog.log.errors import NotAppendOnlyError, PredicateError
from tidelog.log.format import commit_info, properties, statistics
from tidelog.log.format.actions import AddFile, Commit, DeletionVectorDescriptor, Metadata, RemoveFile
from tidelog.log.format.paths import canonical
from tidelog.log.format.schema import columns_of, own_names
from tidelog.log.read.change_files import (
    DELETE,
    INSERT,
    UPDATE_POSTIMAGE,
    UPDATE_PREIMAGE,
    ChangeFile,
    VectorDifference,
    read_change_file,
)
from tidelog.log.read.mixed_commits import Change, MixedFiles, read_mixed, split
from tidelog.log.state.loader import partition_values_at
from tidelog.log.storage import Store

Mode: TypeAlias = Literal["append", "cdc", "net"]
CHANGE_MODES: tuple[Mode, ...] = get_args(Mode)


@dataclass(frozen=True)
class ChangeSource:
    """What the changes of a commit depend on, beside the commit: the table as its reader knows it; picklable."""

    store: Store
    metadata: Metadata

    @cached_property
    def schema(self) -> pa.Schema:
        """The table's columns."""
        return columns_of(self.metadata, self.store.url)

    @property
    def partition_columns(self) -> tuple[str, ...]:
        """The partition columns."""
        return self.metadata.partition_columns

    @property
    def primary_key(self) -> tuple[str, ...]:
        """The columns of `tidelog.primaryKey`, as the table spells them."""
        return tuple(own_names(properties.primary_key(self.metadata.configuration), self.schema))


def changed_rows(commit: Commit) -> bool:
    """Whether the commit removed or changed rows, which a reader in the mode `append` cannot show."""
    return any(remove.data_change for remove in commit.removes)


def only_inserts(commit: Commit) -> list[AddFile] | None:
    """The files with rows whose rows a commit inserted, in their order; None if it did more than add whole files."""
    paths = {canonical(add.path) for add in commit.adds if not add.deletion_vector}
    is_update = commit_info.operation_name(commit.info) == "UPDATE"
    if is_update or commit.cdc or changed_rows(commit) or len(paths) < len(commit.adds):
        return None
    return [add for add in commit.adds if add.data_change and statistics.num_records(add.stats) != 0]


def commit_changes(
    commit: Commit,
    timestamp_ms: int,
    mode: Mode,
    source: ChangeSource,
    *,
    skip_changes: bool = False,
    with_statistics: bool = True,
) -> list[Change]:
    """The units that hold the changes of `commit`; none if it changed no rows.

    In the mode `append` these are the files whose rows it inserted. In the others, rows that were taken away come
    before rows that were added, if both are in one unit or in no partition that the commit rewrote. A unit that has no
    rows according to the log is left out. The units of a commit are always the same, in the same order, as long as the
    table's columns and primary key are.

    With `skip_changes`, a commit for which `changed_rows` is true has no units in the mode `append`. Otherwise it is a
    NotAppendOnlyError.

    Without `with_statistics`, which are there for a predicate, units do not have them, and many files take half of the
    memory.
    """
    if mode == "append":
        if changed_rows(commit):
            if skip_changes:
                return []
            raise _not_append_only(commit, source.store.url)
        inserts = _Inserts(commit, timestamp_ms, INSERT, with_statistics=with_statistics)
        return [*_with_rows(inserts.of(add) for add in commit.adds if add.data_change)]
    if commit.cdc:
        files = [(DataFile(cdc.path, cdc.partition_values, None), cdc.size) for cdc in commit.cdc]
        return [ChangeFile(file, commit.version, timestamp_ms, size, None, change_type=None) for file, size in files]
    sides = _Sides(commit, timestamp_ms, source, with_statistics=with_statistics)
    if not (sides.removed and sides.added) or _is_overwrite(commit, source):
        return [*sides.removed, *sides.added]
    mixed = MixedFiles(tuple(sides.removed), tuple(sides.added), source.schema, _keys(commit, source))
    # Whether the keys of a foreign MERGE are known depends on a property, and its units must not.
    return [mixed] if _is_foreign_merge(commit) else split(mixed, source.partition_columns)


def read_change_batches(store: Store, change: Change, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The rows of a unit with exactly `schema`: any of the table's columns and the change columns."""
    if isinstance(change, MixedFiles):
        return read_mixed(store, change, schema)
    return read_change_file(store, change, schema)


class _Sides:
    """The files whose rows a commit took away (`removed`) and added (`added`)."""

    def __init__(self, commit: Commit, timestamp_ms: int, source: ChangeSource, *, with_statistics: bool) -> None:
        self._commit = commit
        self._timestamp_ms = timestamp_ms
        self._with_statistics = with_statistics
        operation = commit_info.operation_name(commit.info)
        update = operation == "UPDATE"
        self._old, self._new = (UPDATE_PREIMAGE, UPDATE_POSTIMAGE) if update else (DELETE, INSERT)
        self._rows_return = operation == "RESTORE"
        adds = {canonical(add.path): add for add in commit.adds if add.data_change}
        removes = {canonical(remove.path): remove for remove in commit.removes if remove.data_change}
        removed: list[ChangeFile] = []
        added: list[ChangeFile] = []
        for path, remove in removes.items():
            if path in adds:
                removed += self._died(adds[path], remove)
            else:
                values = remove.partition_values
                if values is None:
                    values = partition_values_at(source.store, source.metadata, commit.version - 1, remove)
                rows = statistics.live_rows(remove)
                file = DataFile(remove.path, values, remove.deletion_vector)
                removed.append(self._file(file, remove.size or 0, rows, self._old, None, remove.stats))
        inserts = _Inserts(commit, timestamp_ms, self._new, with_statistics=with_statistics)
        for path, add in adds.items():
            if path in removes:
                added += self._returned(add, removes[path])
            else:
                added.append(inserts.of(add))
        self.removed, self.added = _with_rows(removed), _with_rows(added)

    def _died(self, add: AddFile, remove: RemoveFile) -> Iterator[ChangeFile]:
        """The rows of a file that died when its vector changed."""
        before, after = remove.deletion_vector, add.deletion_vector
        # The new add's statistics need not cover the rows that died.
        yield from self._difference(add, after, before, self._old, remove.stats)

    def _returned(self, add: AddFile, remove: RemoveFile) -> Iterator[ChangeFile]:
        """The rows of a file that came back when its vector changed."""
        before, after = remove.deletion_vector, add.deletion_vector
        grew = before is not None and after is not None and after.cardinality > before.cardinality
        # Only a restore brings rows back. Elsewhere a larger vector is assumed to contain the smaller one.
        if self._rows_return or not grew:
            yield from self._difference(add, before, after, self._new, add.stats)

    def _difference(
        self,
        add: AddFile,
        dead: DeletionVectorDescriptor | None,
        live: DeletionVectorDescriptor | None,
        change_type: str,
        stats: str | None,
    ) -> Iterator[ChangeFile]:
        if dead is None or dead == live:
            return
        file = DataFile(add.path, add.partition_values, None)
        contained = live is None or (not self._rows_return and dead.cardinality > live.cardinality)
        rows = dead.cardinality - (live.cardinality if live and contained else 0)
        yield self._file(file, add.size, rows, change_type, VectorDifference(dead, live), stats)

    def _file(
        self,
        file: DataFile,
        size: int,
        rows: int | None,
        change_type: str,
        difference: VectorDifference | None,
        stats: str | None,
    ) -> ChangeFile:
        version, stamp = self._commit.version, self._timestamp_ms
        # How many rows a file has decides how the positions in its vectors are read.
        if not (self._with_statistics or difference or file.deletion_vector):
            stats = None
        return ChangeFile(file, version, stamp, size, rows, change_type, difference, stats)


def _is_overwrite(commit: Commit, source: ChangeSource) -> bool:
    """Whether the commit replaced all rows of its scope: then none of them was rewritten."""
    operation = commit_info.operation_name(commit.info)
    if operation == "RESTORE":
        return False
    own = recorded_class(commit)
    if own is not None:
        return own is OperationClass.OVERWRITE
    parameters = commit_info.operation_parameters(commit.info)
    if parameters.get("outputMode") == "Complete" or operation.endswith(("REPLACE TABLE AS SELECT", "REPLACE TABLE")):
        return True
    if operation != "WRITE" or parameters.get("mode") != "Overwrite":
        return False
    # An overwrite by a predicate on data can rewrite the rows beside those that it replaces.
    where = parameters.get("predicate")
    return where is None or _is_scope(where, source)


def _is_scope(where: str, source: ChangeSource) -> bool:
    """Whether another engine's predicate selects whole partitions."""
    try:
        tree = predicate.parse(where, source.schema)
    except PredicateError:
        return False
    return predicate.columns(tree) <= set(source.partition_columns)


def _is_foreign_merge(commit: Commit) -> bool:
    return recorded_class(commit) is None and commit_info.operation_name(commit.info) == "MERGE"


def _keys(commit: Commit, source: ChangeSource) -> tuple[str, ...]:
    """The key columns by which the commit replaced rows; none if it did not, or if that is unknown."""
    keys = source.primary_key if _is_foreign_merge(commit) else commit_info.upsert_keys(commit.info)
    return keys if set(keys) <= set(source.schema.names) else ()


class _Inserts:
    """Files whose rows a commit inserted. Those of one partition share their partition values."""

    def __init__(self, commit: Commit, timestamp_ms: int, change_type: str, *, with_statistics: bool) -> None:
        self._version = commit.version
        self._timestamp_ms = timestamp_ms
        self._change_type = change_type
        self._with_statistics = with_statistics
        self._partitions: dict[tuple[tuple[str, str | None], ...], dict[str, str | None]] = {}

    def of(self, add: AddFile) -> ChangeFile:
        """The rows of an added file."""
        values = add.partition_values
        values = self._partitions.setdefault(tuple(values.items()), values)
        vector = add.deletion_vector
        file = DataFile(add.path, values, vector, add.size, add.base_row_id, add.default_row_commit_version)
        rows = statistics.live_rows(add)
        stats = add.stats if self._with_statistics or vector else None
        return ChangeFile(file, self._version, self._timestamp_ms, add.size, rows, self._change_type, stats=stats)


def _with_rows(files: Iterable[ChangeFile]) -> list[ChangeFile]:
    return [file for file in files if file.rows != 0]


def _not_append_only(commit: Commit, path: str) -> NotAppendOnlyError:
    return NotAppendOnlyError(
        f"version {commit.version} of {path} removed or changed rows, which an append-only reader cannot show",
        advice=f"pass after={commit.version} (exclusive here, inclusive in Delta), or mode='cdc'",
        path=path,
        version=commit.version,
    )
