"""A program that is killed: it reads the table's changes rarely, and clean-up has to wait for it.

python -m tests.soak.slow_consumer FOLDER
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

from tests.soak.folder import Folder, read_whole
from tests.soak.replica import Change, Replica
from tests.soak.rows import SCHEMA, Row
from tests.soak.settings import Settings
from tidelog.log import Table
from tidelog.log.consumers.claims import claim
from tidelog.log.consumers.consumer import Consumer
from tidelog.log.system import REAL_SYSTEM

_LOOK_S = 0.2
# One transaction of the replica. Small, so that kills come between two of them as well.
_VERSIONS_AT_ONCE = 10
NAME = "slow"


class SlowConsumer:
    """The consumer, registered, with its replica, which knows the position best."""

    def __init__(self, folder: Folder, settings: Settings) -> None:
        self.replica = Replica(folder.replica(NAME))
        self._settings = settings
        self._last_read = folder.slow_read
        self._table = Table.open(str(folder.table))
        self._owned: Consumer = claim(
            self._table.store,
            self._table.head,
            NAME,
            owner=f"soak {NAME}",
            position=self.replica.position.version,
            system=REAL_SYSTEM,
        )
        self._owned.confirm()

    @property
    def is_due(self) -> bool:
        """Whether the last read is long ago, also if an earlier process made it."""
        self._owned.heartbeat_if_due()
        if not self._last_read.exists():
            self._last_read.touch()
        return time.time() - self._last_read.stat().st_mtime >= self._settings.slow_s

    def read(self) -> None:
        """Apply all that is new."""
        newest = self._table.refresh().version
        while (before := self.replica.position).version < newest:
            until = min(newest, before.version + _VERSIONS_AT_ONCE)
            rows = self._table.changes(after=before.version, until=until, mode="cdc").to_arrow().to_pylist()
            self.replica.apply(before.batch + 1, until, map(_change, rows))
            self._owned.advance(until)
        self._last_read.touch()

    def release(self) -> None:
        """Free the name."""
        self._owned.release()


def _change(row: dict[str, Any]) -> Change:
    return Change(row["_commit_version"], row["_change_type"], Row(*(row[name] for name in SCHEMA.names)))


def main(root: str) -> None:
    folder = Folder(Path(root))
    settings = folder.settings
    consumer = SlowConsumer(folder, settings)
    while (wanted := read_whole(folder.request(NAME))) is None:
        if consumer.is_due:
            consumer.read()
        time.sleep(_LOOK_S)
    consumer.read()
    assert consumer.replica.position.version >= wanted["version"]
    consumer.release()


if __name__ == "__main__":
    main(*sys.argv[1:])
