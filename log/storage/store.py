"""The interface that every store offers.

Paths are relative to the table's root, with `/`; an absolute path or URI of the same kind of store is taken as it is.
A commit rests on three guarantees: a file is visible whole or not at all, only one of several concurrent
`put_if_absent` calls for a path succeeds, and a listing shows what was written before it began.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, BinaryIO


@dataclass(frozen=True, slots=True)
class FileStatus:
    """A file as a listing shows it: bare `name`, size in bytes, modification time in ms since the epoch."""

    name: str
    size_bytes: int
    modified_ms: int


class Store(ABC):
    """The files below one root. Safe to use from several threads; picklable, so that Spark's tasks can read.

    `storage_options` are as they were given, with the secrets among them.
    """

    url: str
    storage_options: Mapping[str, Any] = MappingProxyType({})

    @abstractmethod
    def read(self, path: str) -> bytes:
        """The whole content. Raises FileNotFoundError."""

    @abstractmethod
    def put_if_absent(self, path: str, content: bytes, *, durable: bool = True) -> None:
        """Create the file, whole, if and only if there is none. Raises FileExistsError where there is one.

        `durable`: on return the content outlives a crash of the machine. Only hints that can be rebuilt do without.
        """

    @abstractmethod
    def replace(self, path: str, content: bytes) -> None:
        """Create or overwrite the file atomically. Only for pointers that can be rebuilt."""

    @abstractmethod
    def list(self, folder: str) -> list[FileStatus]:
        """The files (not folders) directly in `folder`, in the order of their names; empty where it is absent."""

    def names(self, folder: str) -> Collection[str]:
        """The bare names of the files that `list` would show, in any order.

        For a store that knows names without asking for each file: a log can hold hundreds of thousands.
        """
        return [status.name for status in self.list(folder)]

    @abstractmethod
    def walk(self, folder: str = "") -> Iterator[tuple[str, FileStatus]]:
        """Every file below the root, or a folder in it, with its path from the root, in no order.

        Hidden folders are included; links are not followed.

        A file that is written or deleted meanwhile may or may not show.
        """

    @abstractmethod
    def delete(self, path: str) -> None:
        """Remove the file; one that is absent already is no error."""

    @abstractmethod
    def open_input(self, path: str) -> Any:
        """The file for random access, as pyarrow takes it. Raises FileNotFoundError."""

    @abstractmethod
    def create(self, path: str) -> AbstractContextManager[BinaryIO]:
        """A new file of a name never used before, durable once the block ends; gone if the block raises."""

    @abstractmethod
    def modified_ms(self, path: str) -> int:
        """The file's modification time in ms since the epoch. Raises FileNotFoundError."""

    def sync(self, paths: Sequence[str]) -> None:  # noqa: B027 - an object is durable once it shows
        """Make files durable that another program (Spark's JVM) wrote below the root."""

    def remove_empty_folders(self) -> None:  # noqa: B027 - most stores have no folders
        """Remove the empty folders at and below the root, where the store has folders at all."""
