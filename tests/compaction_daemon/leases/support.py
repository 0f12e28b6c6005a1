"""Hosts with clocks of their own, which share a table in memory."""

from __future__ import annotations

import json
import threading
from dataclasses import dataclass, field
from typing import Any

from tests.log.support import START_MS, live_files, memory_store, new_table, numbers, stage_compaction
from tidelog.compaction_daemon.leases import Held, Lease
from tidelog.compaction_daemon.leases.lease_record import LEASES_FOLDER, app_id
from tidelog.log import Committed, Table
from tidelog.log.state.loader import load
from tidelog.log.storage import Store
from tidelog.log.system import System

HOUR_S = 3600.0


@dataclass
class Time:
    """The time that passes for everybody."""

    s: float = 0.0


@dataclass
class Host(System):
    """A machine. Its clock of the day is wrong by `wrong_s`, and its monotonic clock began at `began_s`."""

    name: str
    time: Time
    wrong_s: float = 0.0
    began_s: float = 0.0
    ids: int = 0
    lock: Any = field(default_factory=threading.Lock)

    def now_ms(self) -> int:
        return START_MS + round((self.time.s + self.wrong_s) * 1000)

    def monotonic_s(self) -> float:
        return self.time.s + self.began_s

    def sleep_s(self, seconds: float) -> None:
        """Waits between two tries take no time."""

    def uuid(self) -> str:
        with self.lock:
            self.ids += 1
            return f"{self.name}-{self.ids:04d}"


class Hosts:
    """A table, and hosts that know it."""

    def __init__(self, rows: int = 3) -> None:
        self.time = Time()
        clock = Host("store", self.time)
        self.store: Store = memory_store(clock)
        table = new_table(self.store, system=clock)
        for number in range(rows):
            table.insert(numbers([number]))

    def host(self, name: str, *, wrong_s: float = 0.0, began_s: float = 0.0, store: Store | None = None) -> Table:
        """The table, opened on another machine."""
        system = Host(name, self.time, wrong_s, began_s)
        return Table(store or self.store, load(self.store), system)

    def records(self, shard: str = "0") -> dict[int, dict[str, Any]]:
        folder = f"{LEASES_FOLDER}/{shard}"
        return {int(name[:20]): json.loads(self.store.read(f"{folder}/{name}")) for name in self.store.names(folder)}

    def newest(self, shard: str = "0") -> dict[str, Any]:
        found = self.records(shard)
        return found[max(found)]

    def epochs(self, shard: str = "0") -> list[int]:
        """The epochs in the log, in order."""
        found = []
        for version in range(load(self.store).head.version + 1):
            for line in self.store.read(f"_delta_log/{version:020d}.json").splitlines():
                action = json.loads(line).get("txn")
                if action and action["appId"] == app_id(shard):
                    found.append(action["version"])
        return found


def taken(table: Table, owner: str, **more: Any) -> Lease:
    found = Lease.take(table, owner=owner, **more)
    assert isinstance(found, Lease), found
    return found


def held(table: Table, owner: str, **more: Any) -> Held:
    found = Lease.take(table, owner=owner, **more)
    assert isinstance(found, Held), found
    return found


def compacts(table: Table, lease: Lease) -> int:
    """The version that a compaction under the lease commits. It adds two files first, so that there is work."""
    for number in (100, 101):
        table.insert(numbers([number]))
    outcome = stage_compaction(table, live_files(table.refresh())).fenced(lease.fence).commit()
    assert isinstance(outcome, Committed)
    return outcome.version


def through(lease: Lease, store: Store) -> Lease:
    """The lease, whose store is `store` from now on."""
    lease._store = store
    return lease
