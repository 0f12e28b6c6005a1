"""The streams that the crash test's program runs, and the rows that must be in their tables afterwards.

A scenario is one streaming query. Its batch function calls one sink, or two in a row, on one table or two. All
scenarios read one folder, whose file number k is batch k of each of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

# Where the process is killed, in the order in which a batch passes these points.
BEFORE_WRITING = "before writing"
BETWEEN_FILES = "between files"
BEFORE_COMMIT = "after files and vectors, before the commit file is linked"
AFTER_COMMIT = "after the commit file is linked, before the sink knows"
AFTER_SINK = "after the sink, before Spark's commit log"
POINTS = (BEFORE_WRITING, BETWEEN_FILES, BEFORE_COMMIT, AFTER_COMMIT, AFTER_SINK)
COMMITTED = {AFTER_COMMIT, AFTER_SINK}

SCHEMA = pa.schema([("id", pa.int64()), ("part", pa.int64()), ("made", pa.int64()), ("op", pa.string())])
SPARK_SCHEMA = "id long, part long, made long, op string"


@dataclass(frozen=True)
class SinkCall:
    """One call of a sink in a batch function; `remainder` selects the even or the odd ids."""

    table: str
    mode: str = "append"
    writer: str = "driver"
    name: str = "default"
    partitioned: bool = True
    remainder: int | None = None

    def arguments(self) -> dict[str, Any]:
        arguments: dict[str, Any] = {"mode": self.mode, "writer": self.writer, "name": self.name}
        if self.mode == "upsert":
            arguments |= {
                "keys": ["id"],
                "delete_where": "op = 'd'",
                "properties": {"delta.enableChangeDataFeed": True},
            }
        return arguments | ({"partition_by": ["part"]} if self.partitioned else {})

    def where(self, batch: int) -> str:
        """A SQL condition for the rows of a batch that this call writes."""
        if self.mode == "overwrite-partitions":
            return f"part <> {batch % 3}"
        return "true" if self.remainder is None else f"id % 2 = {self.remainder}"

    def rows(self, batch: int) -> list[dict[str, Any]]:
        """The same rows as `where` selects."""
        rows = batch_rows(batch)
        if self.mode == "overwrite-partitions":
            return [row for row in rows if row["part"] != batch % 3]
        return [row for row in rows if self.remainder in {None, row["id"] % 2}]


@dataclass(frozen=True)
class Scenario:
    """A streaming query with the calls of its batch function.

    `blocks_task`: the point between files is within a Spark job, while one of its two tasks is blocked.
    """

    name: str
    calls: tuple[SinkCall, ...]
    blocks_task: bool = field(default=False)


def _single(mode: str, writer: str) -> Scenario:
    name = f"{mode}-{writer}"
    return Scenario(name, (SinkCall(name, mode, writer),))


SCENARIOS = (
    *(_single(mode, writer) for mode in ("append", "upsert", "overwrite-partitions") for writer in ("driver", "spark")),
    Scenario("tasks", (SinkCall("tasks", writer="spark", partitioned=False),), blocks_task=True),
    Scenario(
        "two sinks",
        (
            SinkCall("shared", writer="driver", name="even", remainder=0),
            SinkCall("shared", writer="spark", name="odd", remainder=1),
        ),
    ),
    Scenario("two tables", (SinkCall("first", writer="spark"), SinkCall("second", "upsert"))),
)


# One program runs the scenarios of a group side by side. `make test` runs `main`: each writer, and a kill in a job.
_MAIN = {"append-driver", "upsert-spark", "tasks"}
GROUPS = {
    "main": tuple(scenario for scenario in SCENARIOS if scenario.name in _MAIN),
    "rest": tuple(scenario for scenario in SCENARIOS if scenario.name not in _MAIN),
    "workers": tuple(scenario for scenario in SCENARIOS if scenario.name in {"append-spark", "upsert-driver"}),
    "named": tuple(scenario for scenario in SCENARIOS if scenario.name in {"append-driver", "upsert-spark"}),
}


def group_of(scenario: Scenario) -> str:
    """The group of `main` and `rest` that the scenario runs in."""
    return next(name for name, scenarios in GROUPS.items() if scenario in scenarios)


def batch_rows(batch: int) -> list[dict[str, Any]]:
    """Ten new ids, and six of the batch before: four rewritten and two deleted."""
    new = [(10 * batch + k, "u") for k in range(10)]
    old = [(10 * (batch - 1) + k, "d" if k > 3 else "u") for k in range(6)] if batch else []
    return [{"id": key, "part": key % 3, "made": batch, "op": op} for key, op in [*new, *old]]


def expected(calls: Sequence[tuple[SinkCall, int]]) -> list[tuple[int, int, str]]:
    """(id, made, op) of a table after these calls with their batches, sorted."""
    rows: list[dict[str, Any]] = []
    for call, batch in calls:
        given = call.rows(batch)
        if call.mode == "overwrite-partitions":
            touched = {row["part"] for row in given}
            rows = [row for row in rows if row["part"] not in touched]
        elif call.mode == "upsert":
            keys = {row["id"] for row in given}
            rows = [row for row in rows if row["id"] not in keys]
            given = [row for row in given if row["op"] != "d"]
        rows += given
    return sorted((row["id"], row["made"], row["op"]) for row in rows)


def calls_on(scenario: Scenario, table: str, batches: int, *, complete: bool) -> list[tuple[SinkCall, int]]:
    """The calls that a table must have the rows of after this many whole batches.

    If not `complete`, one more batch has committed all of its calls except the last.
    """
    whole = [(call, batch) for batch in range(batches) for call in scenario.calls]
    partial = [] if complete else [(call, batches) for call in scenario.calls[:-1]]
    return [(call, batch) for call, batch in [*whole, *partial] if call.table == table]


def folder_of(base: Path, kind: str, name: str) -> Path:
    return base / kind / name.replace(" ", "-")
