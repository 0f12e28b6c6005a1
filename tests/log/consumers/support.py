"""Helpers for the tests of consumers: a table with a history, a clock that also counts seconds, and claims on it."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from tests.log.support import START_MS, Clock, memory_store, new_table, numbers
from tidelog.compaction_daemon import expire, vacuum
from tidelog.log import Table
from tidelog.log.consumers.claims import claim
from tidelog.log.consumers.consumer import Consumer
from tidelog.log.consumers.consumer_status import ConsumerStatus, consumers
from tidelog.log.errors import HistoryExpiredError
from tidelog.log.state.loader import load
from tidelog.log.storage import Store

DAY = 86_400_000
ONE_DAY = timedelta(days=1)


class Watch(Clock):
    """A clock whose seconds go with its milliseconds."""

    def monotonic_s(self) -> float:
        return self.ms / 1000


def overwritten(clock: Clock, *, days: int = 10, properties: Mapping[str, object] | None = None) -> Table:
    """A table whose version n holds the row n alone, since day n, with a checkpoint after every second version.

    Now it is two days later.
    """
    store = memory_store(clock)
    store._files.update(_files(days, tuple((properties or {}).items())))
    clock.ms = START_MS + (days + 2) * DAY
    return on(store, clock)


@functools.cache
def _files(days: int, properties: tuple[tuple[str, object], ...]) -> Mapping[str, tuple[bytes, int]]:
    """The files of such a table, which is built once."""
    clock = Watch()
    store = memory_store(clock)
    table = new_table(store, system=clock, properties=dict(properties))
    for day in range(1, days + 1):
        clock.ms = START_MS + day * DAY
        table.overwrite(numbers([day]))
        if day % 2 == 0:
            table.checkpoint()
    return dict(store._files)


def on(store: Store, clock: Clock) -> Table:
    return Table(store, load(store), clock)


def claimed(table: Table, clock: Clock, name: str = "c", **more: Any) -> Consumer:
    values: dict[str, Any] = {"owner": "me", "position": 3, **more}
    return claim(table.store, table.refresh().head, name, system=clock, **values)


def confirmed(table: Table, clock: Clock, name: str = "c", **more: Any) -> Consumer:
    consumer = claimed(table, clock, name, **more)
    consumer.confirm()
    return consumer


def status_of(table: Table, clock: Clock) -> dict[str, ConsumerStatus]:
    return {found.name: found for found in consumers(table.store, table.refresh().head, clock)}


def only(table: Table, clock: Clock) -> ConsumerStatus:
    (found,) = status_of(table, clock).values()
    return found


def clean_up(table: Table) -> None:
    expire(table, older_than=ONE_DAY)
    vacuum(table, older_than=ONE_DAY)


def read_after(table: Table, position: int) -> list[int]:
    """The rows that were inserted after `position`. Requires that the state at it can be read as well."""
    before = [position] if position > 0 else []
    if position >= 0:
        assert table.refresh().at(version=position).scan().to_arrow()["n"].to_pylist() == before
    changes = table.changes(after=position).to_arrow().to_pylist()
    inserted = [row["n"] for row in changes if row["_change_type"] == "insert"]
    deleted = [row["n"] for row in changes if row["_change_type"] == "delete"]
    assert deleted == [*before, *inserted][:-1]
    return inserted


def can_read(table: Table, position: int) -> bool:
    try:
        read_after(table, position)
    except HistoryExpiredError:
        return False
    return True


def records(table: Table, name: str = "c") -> dict[int, dict[str, Any]]:
    folder = f"_tidelog/consumers/{name}"
    return {
        int(status.name[:20]): json.loads(table.store.read(f"{folder}/{status.name}"))
        for status in table.store.list(folder)
    }
