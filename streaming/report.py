"""What a sink tells of the micro-batch that it handled last."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class BatchReport:
    """One micro-batch.

    `version` is the commit that holds it, None for an empty batch and for one that had been `skipped` because it was
    committed already. `rebased_over` are the versions that others committed meanwhile. `seconds` maps each phase
    (identify, collect, write, commit) to its duration.
    """

    batch_id: int
    version: int | None
    rows: int
    files: int
    bytes: int
    skipped: bool
    rebased_over: tuple[int, ...] = ()
    seconds: Mapping[str, float] = field(default_factory=dict)
