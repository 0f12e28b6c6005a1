"""The partitions of files as typed values: `01` and `1` of an integer column are one partition."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import pyarrow as pa
import pyarrow.types as pt

from tidelog.log.format.actions import AddFile, Commit, Metadata, RemoveFile
from tidelog.log.format.paths import canonical
from tidelog.log.format.schema import columns_of, physical_name
from tidelog.log.state import files as file_state
from tidelog.log.state.files import FileState, FileValues

# One value for each partition column, so that equal partitions are equal tuples.
Partition: TypeAlias = tuple[Any, ...]

_NAN = "NaN"


class Placed(Protocol):
    """A file with its partition values."""

    @property
    def partition_values(self) -> Mapping[str, str | None] | None:
        """The `partitionValues` of the action; None if the writer left them out."""


@dataclass(frozen=True, slots=True)
class Place:
    """The partition values of a file, without its statistics."""

    partition_values: Mapping[str, str | None] | None
    stats: str | None = None


def partitions_of(files: Sequence[Placed], metadata: Metadata) -> list[Partition | None]:
    """Each file's partition; None if the log does not say. A table without partitions has one partition, `()`."""
    maps = [None if file.partition_values is None else list(file.partition_values.items()) for file in files]
    return decoded(
        FileValues(pa.table({"partitionValues": pa.array(maps, pa.map_(pa.string(), pa.string()))})), metadata
    )


def decoded(values: FileValues, metadata: Metadata) -> list[Partition | None]:
    """Like `partitions_of`, for files whose partition values are already decoded columns."""
    schema = columns_of(metadata, "")
    fields = [schema.field(name) for name in metadata.partition_columns]
    if not fields:
        return [()] * values.files.num_rows
    found = [values.partition(physical_name(field), field.type) for field in fields]
    rows = zip(*(_comparable(column) for column, _ in found), strict=True)
    known = zip(*(flags.to_pylist() for _, flags in found), strict=True)
    return [row if all(flags) else None for row, flags in zip(rows, known, strict=True)]


def partitions_in(table: pa.Table, metadata: Metadata) -> set[Partition]:
    """The partitions of rows. The columns of `table` have the names of the schema."""
    return set(zip(*(_comparable(table[name]) for name in metadata.partition_columns), strict=True))


def describe_partition(file: Placed, metadata: Metadata) -> str:
    """A file's partition in words, such as `day=2026-01-31`."""
    if not metadata.partition_columns:
        return "the whole table"
    schema = columns_of(metadata, "")
    values = file.partition_values or {}
    texts = (f"{name}={values.get(physical_name(schema.field(name)))}" for name in metadata.partition_columns)
    return f"the partition {', '.join(texts)}"


def _comparable(column: pa.ChunkedArray) -> Iterable[Any]:
    values = column.to_pylist()
    if pt.is_floating(column.type):
        return [_NAN if value != value else value for value in values]  # noqa: PLR0124 - NaN is not itself
    # The log stores an empty string as null.
    return [None if value in ("", b"") else value for value in values]


class FilesByPartition:
    """The live files of a version and its tombstones. Implements `Before`, to classify the next commit.

    Needs a few hundred bytes for each file. Paths are canonical.
    """

    def __init__(self, state: FileState, metadata: Metadata) -> None:
        self._metadata = metadata
        self._vectors: dict[str, str | None] = {}
        self._partitions: dict[str, Partition | None] = {}
        self._members: defaultdict[Partition | None, set[str]] = defaultdict(set)
        keys = (key.partition("\0") for key in file_state.keys(state.adds).to_pylist())
        for (path, _, vector), partition in zip(keys, decoded(state.values, metadata), strict=True):
            self._put(path, vector.replace("\0", "") or None, partition)
        gone = {canonical(path) for path in state.removes["path"].to_pylist()}
        self._removed = gone.difference(self._vectors)

    def holds(self, adds: Sequence[AddFile]) -> bool:
        """Whether all these logical files are live."""
        keys = (add.key for add in adds)
        return all(path in self._vectors and self._vectors[path] == vector for path, vector in keys)

    def removed(self, adds: Sequence[AddFile]) -> Collection[str]:
        """The paths of those of these files that were removed, as far as tombstones and commits show."""
        return {path for add in adds if (path := canonical(add.path)) in self._removed}

    def beside(self, files: Sequence[AddFile | RemoveFile]) -> Collection[str]:
        """The live paths in the partitions of these files; all live paths if a file's partition is unknown."""
        touched = {self._partition(file, recorded) for file, recorded in self._with_partitions(files)}
        if None in touched:
            return set(self._vectors)
        # A file whose partition is unknown (None) can be in any of them.
        return set().union(*(self._members.get(partition, ()) for partition in (*touched, None)))

    def apply(self, commit: Commit) -> None:
        """Move to the version after `commit`."""
        for remove in commit.removes:
            self._drop(canonical(remove.path))
            self._removed.add(canonical(remove.path))
        for add, partition in self._with_partitions(commit.adds):
            self._put(*add.key, partition)
            self._removed.discard(canonical(add.path))

    def take_back(self, commit: Commit) -> None:
        """Move to the version before `commit`, which must be the commit of the current version.

        Afterwards it is unknown whether a file that the commit added had been removed earlier.
        """
        known = {canonical(add.path): self._partitions.get(canonical(add.path)) for add in commit.adds}
        for path in known:
            self._drop(path)
        for remove, recorded in self._with_partitions(commit.removes):
            path, vector = remove.key
            self._put(path, vector, known.get(path) if recorded is None else recorded)
            self._removed.discard(path)

    def _with_partitions(
        self, files: Sequence[AddFile | RemoveFile] | Sequence[AddFile] | Sequence[RemoveFile]
    ) -> list[tuple[AddFile | RemoveFile, Partition | None]]:
        return list(zip(files, partitions_of(files, self._metadata), strict=True))

    def _partition(self, file: AddFile | RemoveFile, recorded: Partition | None) -> Partition | None:
        return self._partitions.get(canonical(file.path)) if recorded is None else recorded

    def _put(self, path: str, vector: str | None, partition: Partition | None) -> None:
        self._drop(path)
        self._vectors[path] = vector
        self._partitions[path] = partition
        self._members[partition].add(path)

    def _drop(self, path: str) -> None:
        if path in self._vectors:
            del self._vectors[path]
            self._members[self._partitions.pop(path)].discard(path)
