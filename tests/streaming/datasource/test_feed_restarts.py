"""A stream that crashes anywhere gives each change once: as often as Spark remembers the micro-batch.

Spark stores a micro-batch's end before it runs the batch, and its completion after. So a crash either forgets the
end, which is then planned anew, or runs the same interval again.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.streaming.datasource.engine import Query
from tidelog.compaction_daemon import compact
from tidelog.log import Table

SCHEMA = pa.schema([("part", pa.int64()), ("n", pa.int64())])

WRITES = st.one_of(
    st.tuples(st.just("insert"), st.integers(1, 4)),
    st.tuples(st.sampled_from(["delete", "update", "upsert"]), st.integers(0, 3)),
    st.tuples(st.sampled_from(["overwrite", "compact", "property", "checkpoint"]), st.just(0)),
)
EVENTS = st.sampled_from(["trigger", "restart", "crash before the end is stored", "crash in the batch"])
LIMITS = st.fixed_dictionaries(
    {},
    optional={
        "maxFilesPerTrigger": st.integers(1, 4).map(str),
        "maxBytesPerTrigger": st.integers(1, 5000).map(str),
        "maxRowsPerTrigger": st.integers(1, 5).map(str),
    },
)


def write(table: Table, kind: str, number: int) -> None:
    match kind:
        case "insert":
            table.insert([{"part": part, "n": table.version} for part in range(number)])
        case "delete":
            table.delete(f"part = {number}")
        case "update":
            table.update(f"part = {number}", {"n": "n + 1000"})
        case "upsert":
            table.upsert([{"part": number, "n": table.version}], keys=["part"])
        case "overwrite":
            table.overwrite([{"part": 0, "n": -1}])
        case "compact":
            compact(table)
        case "property":
            table.set_properties({"delta.checkpointInterval": str(50 + table.version)})
        case _:
            table.checkpoint()


class Stream:
    """A query that is stopped and started, with the rows of the batches that Spark remembers."""

    def __init__(self, table: Table, options: dict[str, str], *, self_limited: bool) -> None:
        self.options = {"path": table.path, **options}
        self.self_limited = self_limited
        self.query = Query(self.options, self_limited=self_limited)
        self.rows: list[dict[str, Any]] = []

    def restart(self, stored: dict[str, Any] | None = None) -> None:
        self.query = Query(self.options, offset=self.query.offset, stored=stored, self_limited=self.self_limited)

    def event(self, kind: str) -> None:
        match kind:
            case "trigger":
                self.query.prepare()
                self.rows += self.query.trigger() or []
            case "restart":
                self.restart()
            case "crash before the end is stored":
                start = self.query.start()
                self.query.prepare()
                self.query.replay(start, self.query.end(start))
                self.restart()
            case _:
                start = self.query.start()
                self.query.prepare()
                end = self.query.end(start)
                if end == self.query.offset:
                    return
                first = self.query.replay(start, end)
                self.restart(stored=end)
                again = self.query.replay(start, end)
                assert again == first
                self.query.offset = end
                self.rows += again


def run(seen: Stream, table: Table, events: list[Any]) -> None:
    for event in events:
        if isinstance(event, tuple):
            write(table, *event)
        else:
            seen.event(event)
    for batch in seen.query.run():
        seen.rows += batch


def counted(rows: list[dict[str, Any]]) -> Counter[tuple[Any, ...]]:
    return Counter(tuple(row.values()) for row in rows)


@settings(max_examples=25)
@given(st.lists(WRITES, max_size=5), st.lists(WRITES | EVENTS, max_size=14), LIMITS, st.booleans(), st.booleans())
def test_every_change_once(
    before: list[Any], events: list[Any], limits: dict[str, str], initial_snapshot: bool, self_limited: bool
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        table = Table.create(str(Path(folder) / "t"), SCHEMA, partition_by=["part"])
        for kind, number in before:
            write(table, kind, number)
        start = table.refresh().version if initial_snapshot else None
        snapshot = [
            {**row, "_change_type": "insert", "_commit_version": start} for row in table.scan().to_arrow().to_pylist()
        ]
        options = {"initialSnapshot": "true"} if initial_snapshot else {}
        seen = Stream(table, {"changes": "cdc", **limits, **options}, self_limited=self_limited)
        # Spark stores where the stream begins with its first batch.
        seen.event("trigger")
        run(seen, table, events)
        expected = table.changes(after=start, mode="cdc").to_arrow().to_pylist()
        for row in [*seen.rows, *expected]:
            del row["_commit_timestamp"]
        assert counted(seen.rows) == counted([*(snapshot if initial_snapshot else []), *expected])
        versions = [row["_commit_version"] for row in seen.rows]
        assert versions == sorted(versions)
