"""Which files were in which partition, moved along the log commit by commit, forward or back."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence

from tidelog.log.conflict.partitions import Partition, decoded, partitions_of
from tidelog.log.format.actions import AddFile, Commit, Metadata, RemoveFile
from tidelog.log.format.paths import canonical
from tidelog.log.state import files as file_state
from tidelog.log.state.files import FileState


class FilesByPartition:
    """The live files of a version, and the removed ones that it remembers; answers as `Before` what a commit asks.

    Holds a few hundred bytes a file. Paths are canonical.
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
        """The paths, of these files', that were removed, as far as tombstones and commits tell."""
        return {path for add in adds if (path := canonical(add.path)) in self._removed}

    def beside(self, files: Sequence[AddFile | RemoveFile]) -> Collection[str]:
        """The live paths in the partitions of these files; all where the partition of one is not told."""
        touched = {self._partition(file, told) for file, told in self._told(files)}
        if None in touched:
            return set(self._vectors)
        # A file whose own partition is not told may lie in any of them.
        return set().union(*(self._members.get(partition, ()) for partition in (*touched, None)))

    def apply(self, commit: Commit) -> None:
        """Move to the version after `commit`."""
        for remove in commit.removes:
            self._drop(canonical(remove.path))
            self._removed.add(canonical(remove.path))
        for add, partition in self._told(commit.adds):
            self._put(*add.key, partition)
            self._removed.discard(canonical(add.path))

    def take_back(self, commit: Commit) -> None:
        """Move to the version before `commit`, which led to this one.

        Whether a file that it added had been removed before is then not known.
        """
        known = {canonical(add.path): self._partitions.get(canonical(add.path)) for add in commit.adds}
        for path in known:
            self._drop(path)
        for remove, told in self._told(commit.removes):
            path, vector = remove.key
            self._put(path, vector, known.get(path) if told is None else told)
            self._removed.discard(path)

    def _told(
        self, files: Sequence[AddFile | RemoveFile] | Sequence[AddFile] | Sequence[RemoveFile]
    ) -> list[tuple[AddFile | RemoveFile, Partition | None]]:
        return list(zip(files, partitions_of(files, self._metadata), strict=True))

    def _partition(self, file: AddFile | RemoveFile, told: Partition | None) -> Partition | None:
        return self._partitions.get(canonical(file.path)) if told is None else told

    def _put(self, path: str, vector: str | None, partition: Partition | None) -> None:
        self._drop(path)
        self._vectors[path] = vector
        self._partitions[path] = partition
        self._members[partition].add(path)

    def _drop(self, path: str) -> None:
        if path in self._vectors:
            del self._vectors[path]
            self._members[self._partitions.pop(path)].discard(path)
