"""The tombstones of a table: which files have them at a version. An UPSERT with an order leaves them, and a DELETE of
rows in a table with an order; see `tidelog.log.data.tombstones`.

A commit that changes the files names all of them in `commitInfo.tidelog.tombstones`, and has an entry of the
application `tidelog/tombstones` with its own version. So the newest entry says which commit to read.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec

from tidelog.log.format import commit_info
from tidelog.log.format.actions import CommitInfo

# The application id of the entries.
TOMBSTONES = "tidelog/tombstones"
KEY = "tombstones"


class TombstoneFile(msgspec.Struct, frozen=True, rename="camel"):
    """A file of tombstones: its path below the table, and of how many rows, the newest of them when.

    `keys` and `order` are the columns by which its rows were found and compared, by their names in data files.
    """

    path: str
    rows: int
    newest_ms: int
    keys: tuple[str, ...]
    order: tuple[str, ...]


class TombstoneList(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a commit says of tombstones.

    `files` are all that count from this version on. `own` is the one with the keys that the commit itself deleted. It
    is None for a RESTORE, which takes tombstones back, and for a commit with too many keys for one file. `previous` is
    the version of the list before this one.
    """

    files: tuple[TombstoneFile, ...]
    own: str | None = None
    previous: int | None = None

    def to_builtins(self) -> Any:
        """The list as plain objects for commitInfo."""
        return msgspec.to_builtins(self)


def list_of(info: CommitInfo) -> TombstoneList | None:
    """The list recorded in a commit; None if there is none or it cannot be read."""
    raw = commit_info.tidelog(info).get(KEY)
    if raw is None:
        return None
    try:
        return msgspec.convert(raw, TombstoneList)
    except msgspec.ValidationError:
        return None


def listed_files(info: CommitInfo) -> tuple[TombstoneFile, ...]:
    """The files of the list recorded in a commit; none if there is no list."""
    found = list_of(info)
    return () if found is None else found.files


@dataclass(frozen=True, slots=True)
class TombstoneChange:
    """What a transaction does to the list, by the columns `order` of the table.

    It adds `own`, with the keys that it deletes, or `several` files with them, and `merged`, which has what the files
    at the paths `replaced` have. If one of those is not in the list any more, `merged` is left out. Files with nothing
    newer than `expired_ms` leave the list. A RESTORE sets the list to `restored`.

    With `keys`, the columns of the key, it has compared nothing: `own` and `several` have the rows that it deletes.
    `rows_differ` says that a rebase has changed which rows these are.
    """

    order: tuple[str, ...] = ()
    own: TombstoneFile | None = None
    several: tuple[TombstoneFile, ...] = ()
    merged: TombstoneFile | None = None
    replaced: frozenset[str] = frozenset()
    expired_ms: int = 0
    restored: tuple[TombstoneFile, ...] | None = None
    keys: tuple[str, ...] = ()
    rows_differ: bool = False

    @property
    def is_ordered(self) -> bool:
        """Whether the transaction has compared rows with tombstones."""
        return self.restored is None and not self.keys

    @property
    def written(self) -> tuple[TombstoneFile, ...]:
        """The files that were written for it."""
        return (*self.several, *(file for file in (self.own, self.merged) if file is not None))

    def after(self, files: tuple[TombstoneFile, ...]) -> tuple[TombstoneFile, ...]:
        """The list after the commit, if `files` is the list before it."""
        if self.restored is not None:
            return self.restored
        left = [file for file in files if file.newest_ms >= self.expired_ms]
        if self.merged is not None and self.replaced <= {file.path for file in files}:
            left = [*(file for file in left if file.path not in self.replaced), self.merged]
        return (*left, *self.several, *(() if self.own is None else (self.own,)))
