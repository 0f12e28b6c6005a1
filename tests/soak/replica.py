"""A copy of the table as a consumer keeps it: the rows and the position, in one SQLite database.

A batch of changes and the position after it are one transaction, so a kill at any moment leaves both or neither. A
batch that was missed or came twice cannot stay unnoticed: every row that a change inserts must be new, and every row
that it removes must be there with the same values.
"""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from tests.soak.rows import Row

_SCHEMA = """
CREATE TABLE IF NOT EXISTS rows (stream TEXT, id INTEGER, part INTEGER, state TEXT, touches INTEGER, payload TEXT,
    PRIMARY KEY (stream, id)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS position (one INTEGER PRIMARY KEY CHECK (one = 1), batch INTEGER, version INTEGER,
    digest TEXT, batches INTEGER, replays INTEGER, changes INTEGER);
INSERT OR IGNORE INTO position VALUES (1, -1, 0, '', 0, 0, 0);
"""
_APPEARS = {"insert", "update_postimage"}
_BUSY_S = 30.0


class ReplicaError(Exception):
    """The changes do not fit the rows: some were missed, or came twice."""


class Change(NamedTuple):
    """A row of the change feed."""

    version: int
    kind: str
    row: Row


@dataclass(frozen=True, slots=True)
class Position:
    """How far a replica is.

    Attributes:
        batch: The number of the newest batch; -1 before the first.
        version: Every commit up to this version was applied.
        digest: The changes of the newest batch, hashed.
        batches: How many batches were applied.
        replays: How many batches came again after a kill, and were skipped.
        changes: How many changed rows were applied.
    """

    batch: int
    version: int
    digest: str
    batches: int
    replays: int
    changes: int


class Replica:
    """The copy at a path; made if it is not there yet."""

    def __init__(self, path: Path) -> None:
        self._database = sqlite3.connect(path, timeout=_BUSY_S, isolation_level=None)
        self._database.execute("PRAGMA journal_mode = WAL")
        self._database.execute("PRAGMA synchronous = NORMAL")  # a kill of the process loses nothing
        self._database.executescript(_SCHEMA)

    def close(self) -> None:
        """Close the database."""
        self._database.close()

    @property
    def position(self) -> Position:
        """How far it is."""
        return _position(self._database)

    def apply(self, batch: int, version: int, changes: Iterable[Change]) -> bool:
        """Apply a batch and move on; False if it was there already. Raises ReplicaError.

        `version` is the newest version that the batch covers. The batches must come in order without a gap, and one
        that comes again must have the same changes.
        """
        found = sorted(changes)
        digest = hashlib.sha256(repr(found).encode()).hexdigest()
        with self._database:
            self._database.execute("BEGIN IMMEDIATE")
            before = self.position
            if batch == before.batch:
                if digest != before.digest:
                    raise ReplicaError(f"batch {batch} came again with other changes")
                self._database.execute("UPDATE position SET replays = replays + 1")
                return False
            if batch != before.batch + 1:
                raise ReplicaError(f"batch {batch} came after batch {before.batch}")
            if any(change.version <= before.version for change in found):
                raise ReplicaError(f"batch {batch} has changes of version {found[0].version}; {before.version} is done")
            # Within a commit the rows that go come before those that come: an update is a row that goes and one that
            # comes, of the same key.
            for change in sorted(found, key=lambda change: (change.version, change.kind in _APPEARS)):
                self._apply(change)
            self._database.execute(
                "UPDATE position SET batch = ?, version = ?, digest = ?, batches = batches + 1, changes = changes + ?",
                (batch, max(version, before.version), digest, len(found)),
            )
        return True

    def _apply(self, change: Change) -> None:
        if change.kind in _APPEARS:
            try:
                self._database.execute("INSERT INTO rows VALUES (?, ?, ?, ?, ?, ?)", change.row)
            except sqlite3.IntegrityError as error:
                raise ReplicaError(f"{change} comes, but its key is there") from error
            return
        gone = self._database.execute(
            "DELETE FROM rows WHERE stream = ? AND id = ? AND part = ? AND state = ? AND touches = ? AND payload = ?",
            change.row,
        )
        if gone.rowcount != 1:
            raise ReplicaError(f"{change} goes, but it is not there")


def position_of(path: Path) -> Position | None:
    """How far the replica at a path is, which another process writes; None before it is there."""
    if not path.exists():
        return None
    try:
        with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=_BUSY_S)) as database:
            return _position(database)
    except sqlite3.OperationalError:  # it has no tables yet
        return None


def rows_of(path: Path) -> Iterator[Row]:
    """The rows of the replica at a path."""
    with closing(sqlite3.connect(path, timeout=_BUSY_S)) as database:
        for row in database.execute("SELECT stream, id, part, state, touches, payload FROM rows"):
            yield Row(*row)


def _position(database: sqlite3.Connection) -> Position:
    return Position(
        *database.execute("SELECT batch, version, digest, batches, replays, changes FROM position").fetchone()
    )
