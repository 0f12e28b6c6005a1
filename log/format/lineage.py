"""Lineage: how a compaction records where each row went, so that a change staged before it can follow.

It lies in `commitInfo.tidelog.lineage`. For each group: its inputs (path, the id of the deletion vector that the
rewrite *read*, physical rows) in order, and every output written (path, rows). For order-preserving output the
address of live row `r` of input `i` is `base_i + rank(r)`: `base_i` the live rows of the inputs before `i`, `rank`
the live positions before `r`.

Output in another order (clustered, or rebased over another compaction) names a row map
instead; see `tidelog.log.data.row_maps`.
"""

from __future__ import annotations

from typing import Any

import msgspec


class LineageInput(msgspec.Struct, frozen=True, rename="camel"):
    """A file that was read: `rows` counts its physical rows, dead ones included."""

    path: str
    dv_id: str | None
    rows: int


class LineageOutput(msgspec.Struct, frozen=True):
    """A file that was written, `rows` long, whether or not it was added."""

    path: str
    rows: int


class LineageGroup(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """The rows of `inputs`, in order, became the rows of `outputs`, in order; or as the file `row_map` says."""

    inputs: tuple[LineageInput, ...]
    outputs: tuple[LineageOutput, ...]
    row_map: str | None = None


class Lineage(msgspec.Struct, frozen=True):
    """All groups of one compaction commit."""

    groups: tuple[LineageGroup, ...]

    def to_builtins(self) -> Any:
        """The plain objects that go into commitInfo."""
        return msgspec.to_builtins(self)


def from_builtins(raw: Any) -> Lineage | None:
    """The lineage that a commit records, or None where it records none that can be read."""
    if raw is None:
        return None
    try:
        return msgspec.convert(raw, Lineage)
    except msgspec.ValidationError:
        return None
