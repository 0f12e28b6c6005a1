"""The checks at the end of a demo."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa


@dataclass(frozen=True, slots=True)
class Check:
    """One condition that must hold."""

    what: str
    holds: bool

    def __str__(self) -> str:
        return f"  {'ok' if self.holds else 'FAILED':<7}{self.what}"


def same_rows(left: pa.Table, right: pa.Table) -> bool:
    """Whether both have the same rows, each as often; their order does not matter."""
    return bool(_sorted(left).equals(_sorted(right)))


def _sorted(rows: pa.Table) -> pa.Table:
    return rows.sort_by([(name, "ascending") for name in rows.column_names]).combine_chunks()
