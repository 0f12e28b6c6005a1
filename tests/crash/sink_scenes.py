"""What the crash tests' program writes, and what must be in its tables afterwards.

A scene is one streaming query with its batch function: one sink, or two in a row, into one table or two. All scenes
read one folder, whose file number k is batch k of each.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

# Where the process is stopped, in the order in which a batch passes these points.
BEFORE_WRITING = "before writing"
BETWEEN_FILES = "between files"
BEFORE_COMMIT = "after files and vectors, before the commit gets its name"
AFTER_COMMIT = "after the commit got its name, before the sink knows"
AFTER_SINK = "after the sink, before Spark's commit log"
POINTS = (BEFORE_WRITING, BETWEEN_FILES, BEFORE_COMMIT, AFTER_COMMIT, AFTER_SINK)
COMMITTED = {AFTER_COMMIT, AFTER_SINK}

SCHEMA = pa.schema([("id", pa.int64()), ("part", pa.int64()), ("made", pa.int64()), ("op", pa.string())])
SPARK_SCHEMA = "id long, part long, made long, op string"


@dataclass(frozen=True)
class Part:
    """One call of a sink within a batch function; `remainder` chooses the even or the odd ids."""

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
        """The rows of a batch that the sink is given."""
        if self.mode == "overwrite-partitions":
            return f"part <> {batch % 3}"
        return "true" if self.remainder is None else f"id % 2 = {self.remainder}"

    def rows(self, batch: int) -> list[dict[str, Any]]:
        """The same rows, in Python."""
        rows = batch_rows(batch)
        if self.mode == "overwrite-partitions":
            return [row for row in rows if row["part"] != batch % 3]
        return [row for row in rows if self.remainder in {None, row["id"] % 2}]


@dataclass(frozen=True)
class Scene:
    """`halts_tasks`: between files means between those of two tasks of Spark's, one of which is held up."""

    name: str
    parts: tuple[Part, ...]
    halts_tasks: bool = field(default=False)


def _single(mode: str, writer: str) -> Scene:
    name = f"{mode}-{writer}"
    return Scene(name, (Part(name, mode, writer),))


SCENES = (
    *(_single(mode, writer) for mode in ("append", "upsert", "overwrite-partitions") for writer in ("driver", "spark")),
    Scene("tasks", (Part("tasks", writer="spark", partitioned=False),), halts_tasks=True),
    Scene(
        "two sinks",
        (
            Part("shared", writer="driver", name="even", remainder=0),
            Part("shared", writer="spark", name="odd", remainder=1),
        ),
    ),
    Scene("two tables", (Part("first", writer="spark"), Part("second", "upsert"))),
)


def batch_rows(batch: int) -> list[dict[str, Any]]:
    """Ten new ids, four of the batch before anew, two of them deleted."""
    new = [(10 * batch + k, "u") for k in range(10)]
    old = [(10 * (batch - 1) + k, "d" if k > 3 else "u") for k in range(6)] if batch else []
    return [{"id": key, "part": key % 3, "made": batch, "op": op} for key, op in [*new, *old]]


def expected(calls: Sequence[tuple[Part, int]]) -> list[tuple[int, int, str]]:
    """(id, made, op) of a table after these calls of sinks (part, batch), sorted."""
    rows: list[dict[str, Any]] = []
    for part, batch in calls:
        given = part.rows(batch)
        if part.mode == "overwrite-partitions":
            touched = {row["part"] for row in given}
            rows = [row for row in rows if row["part"] not in touched]
        elif part.mode == "upsert":
            keys = {row["id"] for row in given}
            rows = [row for row in rows if row["id"] not in keys]
            given = [row for row in given if row["op"] != "d"]
        rows += given
    return sorted((row["id"], row["made"], row["op"]) for row in rows)


def calls_of(scene: Scene, table: str, batches: int, *, last_of_all: bool) -> list[tuple[Part, int]]:
    """The calls that must be in a table after so many whole batches, and where `last_of_all` does not hold those of one
    more but for its last sink's.
    """
    whole = [(part, batch) for batch in range(batches) for part in scene.parts]
    begun = [] if last_of_all else [(part, batches) for part in scene.parts[:-1]]
    return [(part, batch) for part, batch in [*whole, *begun] if part.table == table]


def folder_of(base: Path, kind: str, name: str) -> Path:
    return base / kind / name.replace(" ", "-")
