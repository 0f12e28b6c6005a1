"""The epochs of daemons: who took which, and what the others may not do any more.

Whether a daemon may commit is judged by what it was told, not by what its commit says: the fence may be missing.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tests.simulation.history import History, Owner, Written
from tidelog.compaction_daemon.leases.lease_record import LEASES_FOLDER, app_id

if TYPE_CHECKING:
    from tests.simulation.files import File
    from tests.simulation.world import World
    from tidelog.compaction_daemon.leases import Lease

_RECORD = re.compile(rf"{LEASES_FOLDER}/0/(\d{{20}})\.json")


@dataclass
class Epochs:
    """Who took which epoch, and what the others may therefore not do any more.

    `taken` are the owners by table and epoch; `shut_out` says of each table below which epoch nothing may be committed,
    because a takeover has returned; `working` says under which epoch an operation of an actor compacts.
    """

    world: World
    taken: dict[tuple[str, int], str] = field(default_factory=dict)
    shut_out: dict[str, int] = field(default_factory=dict)
    working: dict[Owner, tuple[str, int]] = field(default_factory=dict)
    _newest: dict[str, tuple[int, dict[str, Any], int]] = field(default_factory=dict)

    def took(self, table_id: str, lease: Lease) -> None:
        """A daemon was told that it has the lease."""
        if not self._is_current(table_id):
            return
        known = self.taken.setdefault((table_id, lease.epoch), lease.owner)
        if known != lease.owner:
            self.world.object("lease", f"epoch {lease.epoch} was taken by {known} and by {lease.owner}")
        if lease.took_over:
            self.shut_out[table_id] = max(lease.epoch, self.shut_out.get(table_id, 0))

    def appeared(self, path: str, file: File) -> None:
        """A record of a lease, or a commit, appeared."""
        if path.startswith(LEASES_FOLDER):
            self._check_record(path, file)
        elif self.working and path.startswith("_delta_log/"):
            self._check_commits(self.world.history)

    def _check_record(self, path: str, file: File) -> None:
        """Nobody may take over from an owner that gave a sign of life within its time to live."""
        match = _RECORD.fullmatch(path)
        if match is None:
            return
        now_ms, number, record = self.world.scheduler.now_ms, int(match[1]), json.loads(file.content)
        if not self._is_current(record["table"]):
            return
        before = self._newest.get(record["table"])
        if number < self._highest() or (before is not None and number < before[0]):
            return  # a number that was written and deleted before, which its writer gives up again
        if before is not None and record.get("request") is not None and record["time"] == before[1]["time"]:
            self._newest[record["table"]] = number, record, before[2]  # another daemon asks: no sign of life
            return
        self._newest[record["table"]] = number, record, now_ms
        if before is None or before[1]["state"] != "held" or before[1]["owner"] == record["owner"]:
            return
        silent_ms = now_ms - before[2]
        if silent_ms < before[1]["ttlMs"]:
            self.world.object("lease", f"{path} takes over after {silent_ms} ms")

    def _highest(self) -> int:
        """The highest number, also of a record of another table."""
        found = (_RECORD.fullmatch(path) for path in self.world.files.names)
        return max(int(match[1]) for match in found if match)

    def _is_current(self, table_id: str) -> bool:
        """Whether it is not another table's: a drop deletes the records, and who sleeps through it commits nothing."""
        current = self.world.history.current
        return not current.ended and current.table_id == table_id

    def _check_commits(self, history: History) -> None:
        """After a takeover the older owners commit nothing."""
        written = history.current.last
        found = None if written.owner is None or written.is_empty else self.working.get(written.owner)
        if found is not None and found[1] < self.shut_out.get(found[0], 0):
            self.world.object(
                "fence", f"version {written.version} is of epoch {found[1]}, after {self.shut_out[found[0]]} took over"
            )

    def check_log(self) -> None:
        """The epochs in the log never go down, and every compaction of a daemon carries its own."""
        for table in self.world.history.incarnations:
            newest = 0
            for version in sorted(table.commits):
                written = table.commits[version]
                epoch = epoch_of(written)
                if epoch is not None and epoch < newest:
                    self.world.object("fence", f"version {version} is of epoch {epoch}, after {newest}")
                newest = max(newest, epoch or 0)
                working = None if written.owner is None or written.is_empty else self.working.get(written.owner)
                if working is not None and working[1] != epoch:
                    self.world.object("fence", f"version {version} carries epoch {epoch} instead of {working[1]}")


def epoch_of(written: Written) -> int | None:
    """The epoch that a commit carries; None if it is no daemon's."""
    for line in written.lines:
        if "txn" in line and line["txn"]["appId"] == app_id("0"):
            return int(line["txn"]["version"])
    return None
