"""The report of one micro-batch, and how long each of its phases took."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from tidelog.log.system import System


@dataclass(frozen=True, slots=True)
class BatchReport:
    """What a sink did with one micro-batch; see `Sink.last` and `subscribe`. Immutable.

    Args:
        batch_id: Spark's number of the batch.
        version: Version of the table that the batch committed; None if the batch was skipped or changed nothing. A
            first batch without rows commits the claim of the sink's name.
        rows: Rows of the batch. For an upsert with `order_by`: the rows that were kept.
        files: Data files that the commit added.
        bytes: Size of those files.
        skipped: The batch was already in the table, so Spark replayed it.
        rebased_over: Versions that other writers committed while the batch was in progress.
        seconds: Duration of each phase (identify, throttle, collect, write, commit) that the batch went through.
        mode: The sink's mode: `append`, `upsert` or `overwrite-partitions`.
        writer: Who wrote the files, `driver` or `spark`; None if nothing was written.
        metrics: Counts of the operation, such as the inserted, updated and deleted rows of an upsert.
        debt_files: Small files in the table when the throttle last measured them; None without a throttle.
        delayed_s: How long the throttle delayed the batch, in seconds.
        sink: The sink's name.
        path: The table.
        query_id: The streaming query; it lasts as long as the checkpoint.
        run_id: The run of the query; it lasts until the query stops.
    """

    batch_id: int
    version: int | None
    rows: int
    files: int
    bytes: int
    skipped: bool
    rebased_over: tuple[int, ...] = ()
    seconds: Mapping[str, float] = field(default_factory=dict)
    mode: str = "append"
    writer: str | None = None
    metrics: Mapping[str, int] = field(default_factory=dict)
    debt_files: int | None = None
    delayed_s: float = 0.0
    sink: str = "default"
    path: str = ""
    query_id: str = ""
    run_id: str = ""

    @property
    def outcome(self) -> str:
        """`committed`, `skipped` (already in the table), or `empty` (nothing to commit)."""
        if self.skipped:
            return "skipped"
        return "empty" if self.version is None else "committed"

    @property
    def rows_per_second(self) -> float:
        """Rows divided by the duration of all phases, including delays; 0 if nothing was written."""
        total_s = sum(self.seconds.values())
        return self.rows / total_s if total_s > 0 else 0.0

    def to_dict(self) -> dict[str, Any]:
        """The fields, `outcome` and `rows_per_second`, as values that JSON can hold."""
        return {
            "outcome": self.outcome,
            "sink": self.sink,
            "path": self.path,
            "query_id": self.query_id,
            "run_id": self.run_id,
            "batch_id": self.batch_id,
            "version": self.version,
            "mode": self.mode,
            "writer": self.writer,
            "rows": self.rows,
            "files": self.files,
            "bytes": self.bytes,
            "skipped": self.skipped,
            "rebased_over": list(self.rebased_over),
            "metrics": dict(self.metrics),
            "seconds": dict(self.seconds),
            "rows_per_second": self.rows_per_second,
            "debt_files": self.debt_files,
            "delayed_s": self.delayed_s,
        }

    def to_json(self) -> str:
        """The same as `to_dict`, as one line of JSON."""
        return json.dumps(self.to_dict())


class Phases:
    """Measures phases: `with phases("write"): ...`. `seconds` maps each phase to its total duration."""

    def __init__(self, system: System) -> None:
        self.seconds: dict[str, float] = {}
        self._system = system

    @contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        """Measure the block and add its duration to the phase."""
        started = self._system.monotonic_s()
        try:
            yield
        finally:
            self.seconds[name] = self.seconds.get(name, 0.0) + self._system.monotonic_s() - started
