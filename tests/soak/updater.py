"""A program that is killed: it updates, deletes, upserts and drops partitions. When asked to, it does all a last time.

It writes down what it is about to do where that is a decision, so that it does the same again after a kill. So it needs
not know whether a statement had committed when it was killed.

python -m tests.soak.updater FOLDER
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pyarrow.compute as pc

from tests.soak.folder import Folder
from tests.soak.journal import Journal
from tests.soak.rows import DELETE_WHERE, DELETES_KEY, KEYED_PART, KEYS, UPDATE_SET, UPDATE_WHERE, round_rows
from tests.soak.settings import STREAMS, Settings
from tidelog.log import Table
from tidelog.log.errors import CommitStateUnknownError, ConflictError, RetryableError

_PAUSE_S = 0.4
_UPDATE_EVERY, _DELETE_EVERY, _DROP_EVERY = 2, 3, 20
_LAST_TRIES = 30
_SAY_EVERY = 50


class Updater:
    """The statements, and what became of them."""

    def __init__(self, folder: Folder, settings: Settings) -> None:
        self.counts: Counter[str] = Counter()
        self._folder = folder
        self._settings = settings
        self._table = Table.open(str(folder.table))
        self._journal = Journal.read(folder.journal)
        # The last process may not have carried out what it wrote down.
        self._redo = [self._upsert, self._drop]

    def turn(self) -> None:
        """Run the statements that are due. A statement that loses every race comes again later."""
        if self._redo:
            if self._try("redo", self._redo[0]):
                self._redo.pop(0)
            return
        self._next_round()
        if not self._try("upsert", self._upsert):
            self._redo = [self._upsert]
        number = self._journal.round
        if number % _UPDATE_EVERY == 0:
            self._try("update", self._update)
        if number % _DELETE_EVERY == 0:
            self._try("delete", self._delete)
        if number % _DROP_EVERY == 0 and self._decide_drop() and not self._try("drop", self._drop):
            self._redo.append(self._drop)

    def finish(self) -> None:
        """Run each statement until it has committed on the rows as they are now."""
        for statement in (*self._redo, self._drop, self._update, self._delete):
            tries = 0
            while not self._try("last", statement):
                tries += 1
                assert tries < _LAST_TRIES, statement
                time.sleep(_PAUSE_S)

    def _try(self, name: str, statement: Callable[[], object]) -> bool:
        try:
            statement()
        except (ConflictError, RetryableError, CommitStateUnknownError) as error:
            self.counts[f"{name}: {type(error).__name__}"] += 1
            return False
        self.counts[name] += 1
        return True

    def _next_round(self) -> None:
        self._decide(Journal(self._journal.round + 1, self._journal.dropped_below))

    def _decide_drop(self) -> bool:
        """Whether there are partitions to drop. They are so old that no stream writes them any more."""
        rows = self._table.refresh().scan(f"part > {KEYED_PART}", ["stream", "part"]).to_arrow()
        newest = [pc.max(rows.filter(pc.equal(rows["stream"], name))["part"]).as_py() or 0 for name in STREAMS]
        below = min(newest) - self._settings.kept_parts
        if below <= self._journal.dropped_below:
            return False
        self._decide(Journal(self._journal.round, below))
        return True

    def _decide(self, journal: Journal) -> None:
        journal.write(self._folder.journal)
        self._journal = journal

    def _upsert(self) -> None:
        if self._journal.round:
            data = round_rows(self._settings.seed, self._journal.round)
            self._table.upsert(data, keys=KEYS, delete_where=DELETES_KEY)

    def _update(self) -> None:
        self._table.update(UPDATE_WHERE, UPDATE_SET)

    def _delete(self) -> None:
        self._table.delete(DELETE_WHERE)

    def _drop(self) -> None:
        if self._journal.dropped_below:
            self._table.truncate(where=f"part > {KEYED_PART} AND part < {self._journal.dropped_below}")


def main(root: str) -> None:
    folder = Folder(Path(root))
    settings = folder.settings
    updater, turns = Updater(folder, settings), 0
    while not folder.request("updater").exists():
        updater.turn()
        turns += 1
        if turns % _SAY_EVERY == 0:
            print(dict(updater.counts), flush=True)
        time.sleep(_PAUSE_S)
    updater.finish()
    print(dict(updater.counts), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
