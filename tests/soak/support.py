"""Helpers of the soak's own tests."""

from __future__ import annotations

from typing import Any

from tests.soak.sampling import Sample

START_S = 1_000_000.0


def sample(at_s: float, **given: Any) -> Sample:
    """A sample of a table that gets a version a second, with one file."""
    sizes = {"parts": 1, "files": 1, "small_files": 0, "dead_rows": 0, "log_tail": 0}
    on_disk = {"data_files": 1, "other_files": 0, "disk_bytes": 0, "log_files": 0}
    values: dict[str, Any] = {"version": int(at_s), **sizes, **on_disk, **given}
    return Sample(at_s, START_S + at_s, **values)
