"""Helpers for the tests of upkeep."""

from __future__ import annotations

import random
import uuid
from typing import Any

from tests.log.faults import Around
from tests.log.support import Clock, new_table, numbers
from tidelog.compaction_daemon import Upkeep, UpkeepReport
from tidelog.log import Table
from tidelog.log.storage import Store

HOUR = 3_600_000
DAY = 24 * HOUR
RETENTIONS = {"delta.logRetentionDuration": "3 days", "delta.deletedFileRetentionDuration": "2 days"}


class Both(Clock):
    """A wall clock and a monotonic one that tests move together. Each look at the second takes `per_look_s`.

    Ids are the same in each run, because the times of a table's clean-ups follow from its id.
    """

    per_look_s = 0.0
    looked_s = 0.0

    def __init__(self) -> None:
        super().__init__()
        self._random = random.Random(13)

    def uuid(self) -> str:
        return str(uuid.UUID(int=self._random.getrandbits(128), version=4))

    def monotonic_s(self) -> float:
        self.looked_s += self.per_look_s
        return self.ms / 1000 + self.looked_s


class Requests(Around):
    """Counts every request."""

    count = 0

    def __getattribute__(self, name: str) -> Any:
        if name in {
            "read",
            "put_if_absent",
            "replace",
            "list",
            "walk",
            "delete",
            "open_input",
            "create",
            "modified_ms",
        }:
            self.count += 1
        return super().__getattribute__(name)


def busy(store: Store, clock: Both, *, days: int = 5, **properties: object) -> Table:
    """A table that a day's commits replace completely, with a checkpoint each day."""
    table = new_table(store, properties={**RETENTIONS, **properties}, system=clock)
    for day in range(days):
        table.overwrite(numbers([day]))
        table.checkpoint()
        clock.ms += DAY
    return table


def through(upkeep: Upkeep, table: Table, clock: Both, *, hours: int) -> list[UpkeepReport]:
    """Call it twice an hour; the reports of the calls that did anything."""
    found = []
    for _ in range(2 * hours):
        clock.ms += HOUR // 2
        report = upkeep.run(table.refresh())
        if report.did_anything or report.errors:
            found.append(report)
    return found
