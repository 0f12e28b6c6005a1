"""What a sink tells of a micro-batch."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class BatchReport:
    """One micro-batch.

    `version` is the commit that holds it, None for an empty batch and for one that had been `skipped` because it was
    committed already, or changed nothing. `rows` counts the batch's rows, of an upsert with `order_by` those that
    count; `files` and `bytes` what the commit added. `rebased_over` are the versions that others committed meanwhile.
    `seconds` maps each phase (identify, collect, write, commit, ...) to its duration.

    `mode` and `writer` ("driver" or "spark", None where nothing was written) say how the rows were written, `metrics`
    what the operation counted (an upsert's inserted, updated and deleted rows). `debt_files` are the table's small
    files as far as a throttle looked, `delayed_s` is how long it held the batch back. `query_id` lives as long as the
    checkpoint, `run_id` until the query stops.
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
        """What became of the batch: `committed`, `skipped` or `empty`."""
        if self.skipped:
            return "skipped"
        return "empty" if self.version is None else "committed"

    @property
    def rows_per_second(self) -> float:
        """Rows by the time that all phases took, delays included; 0 where nothing was written."""
        total_s = sum(self.seconds.values())
        return self.rows / total_s if total_s > 0 else 0.0

    def to_dict(self) -> dict[str, Any]:
        """The fields, `outcome` and `rows_per_second` as values of JSON."""
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
        """`to_dict` as one line of JSON."""
        return json.dumps(self.to_dict())
