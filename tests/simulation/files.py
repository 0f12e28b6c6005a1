"""The content of a simulated store, which all actors share, and everything that it ever held."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Protocol


@dataclass
class File:
    """A file. Several names can lead to it. `synced` is how much of it survives a power failure.

    `changed_ms` is when a name was last given to it or taken from it.
    """

    content: bytes
    modified_ms: int
    synced: int = 0
    changed_ms: int = 0


class Observer(Protocol):
    """Is told of each name that appears or disappears."""

    def appeared(self, path: str, file: File) -> None: ...
    def vanished(self, path: str) -> None: ...
    def changed(self, path: str, before: File | None) -> None: ...


@dataclass
class Files:
    """The files by their paths below the table's root.

    `durable` are the names, also of folders, that survive a power failure.
    """

    observer: Observer
    names: dict[str, File] = field(default_factory=dict)
    folders: set[str] = field(default_factory=lambda: {""})
    archive: dict[str, File] = field(default_factory=dict)
    durable: set[str] = field(default_factory=set)
    changes: Counter[str] = field(default_factory=Counter)
    """How often a name in a folder was made or removed."""

    def load(self, stored: Mapping[str, tuple[bytes, int]]) -> None:
        """Begin with these files, without telling the observer."""
        for path, (content, modified_ms) in stored.items():
            self.names[path] = self.archive[path] = File(content, modified_ms, len(content))
            self.durable.add(path)
            parts = path.split("/")[:-1]
            folders = ["/".join(parts[: length + 1]) for length in range(len(parts))]
            self.folders.update(folders)
            self.durable.update(folders)

    def add(self, path: str, file: File) -> None:
        """Give the file a name, in place of the file that has it."""
        if path not in self.names:
            self.durable.discard(path)
            self.changes[_folder(path)] += 1
        self.observer.changed(path, self.names.get(path))
        self.names[path] = self.archive[path] = file
        self.observer.appeared(path, file)

    def remove(self, path: str) -> None:
        """Remove a name."""
        self.observer.changed(path, self.names[path])
        del self.names[path]
        self.changes[_folder(path)] += 1
        self.observer.vanished(path)

    def add_folder(self, path: str) -> None:
        """Make a folder, unless it exists."""
        if path not in self.folders:
            self.folders.add(path)
            self.changes[_folder(path)] += 1

    def remove_folder(self, path: str) -> None:
        """Remove an empty folder."""
        self.folders.discard(path)
        self.durable.discard(path)
        self.changes[_folder(path)] += 1

    def names_state(self, folder: str) -> int:
        """See Disk."""
        return self.changes[folder]

    def survives(self, path: str) -> bool:
        """Whether a power failure leaves this file whole and with this name. The file must exist."""
        file = self.names[path]
        folders = self.folders.intersection(itertools.accumulate(path.split("/"), "{}/{}".format)) - {""}
        return self.durable.issuperset({path, *folders}) and file.synced >= len(file.content)

    def below(self, folder: str) -> Iterator[str]:
        """The paths at any depth below a folder."""
        prefix = f"{folder}/" if folder else ""
        return (path for path in self.names if path.startswith(prefix))


def _folder(path: str) -> str:
    return path.rpartition("/")[0]


class Stored(Mapping[str, tuple[bytes, int]]):
    """Everything that the store ever held, with the commits of one table, as the oracle's reader expects it."""

    def __init__(self, files: Files, commits: Mapping[str, bytes]) -> None:
        self._files = files
        self._commits = commits

    def __getitem__(self, path: str) -> tuple[bytes, int]:
        if path in self._commits:
            return self._commits[path], 0
        file = self._files.archive[path]
        return file.content, file.modified_ms

    def __contains__(self, path: object) -> bool:
        return path in self._commits or path in self._files.archive

    def __iter__(self) -> Iterator[str]:
        return iter({**self._commits, **self._files.archive})

    def __len__(self) -> int:
        return len({**self._commits, **self._files.archive})
