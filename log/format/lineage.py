"""Lineage: the record of where a compaction moved each row, so that a change staged before it can follow its rows.

It is stored in `commitInfo.tidelog.lineage`. Each group lists its inputs in order (path, id of the deletion vector that
the rewrite *read*, physical rows) and every output it wrote (path, rows). If the output keeps the order, live row `r`
of input `i` has the address `base_i + rank(r)`: `base_i` is the number of live rows in the inputs before `i`, and
`rank(r)` the number of live positions before `r`.

If the output has another order (clustered, or rebased over another compaction), the group names a row map instead; see
`tidelog.log.data.row_maps`.
"""

from __future__ import annotations

from typing import Any

import msgspec


class LineageInput(msgspec.Struct, frozen=True, rename="camel"):
    """A file that was read. `rows` counts its physical rows, including dead ones."""

    path: str
    dv_id: str | None
    rows: int


class LineageOutput(msgspec.Struct, frozen=True):
    """A file that was written, with its row count, whether or not the commit added it."""

    path: str
    rows: int


class LineageGroup(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """The live rows of `inputs` became the rows of `outputs`: in order, or as the file `row_map` says."""

    inputs: tuple[LineageInput, ...]
    outputs: tuple[LineageOutput, ...]
    row_map: str | None = None


class Lineage(msgspec.Struct, frozen=True):
    """All groups of a compaction's commit."""

    groups: tuple[LineageGroup, ...]

    def to_builtins(self) -> Any:
        """The lineage as plain objects for commitInfo."""
        return msgspec.to_builtins(self)


def from_builtins(raw: Any) -> Lineage | None:
    """The lineage recorded in a commit; None if there is none or it cannot be read."""
    if raw is None:
        return None
    try:
        return msgspec.convert(raw, Lineage)
    except msgspec.ValidationError:
        return None
