"""Rewrites that the verification refused, in a size that a page can show."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from tidelog.compaction_daemon.rewriting.digests import Sums
from tidelog.compaction_daemon.rewriting.refusals import Refusal, RefusedFile, refusals
from tidelog.log import Table
from tidelog.log.system import to_datetime

# Each is a file of its own, and can name thousands of files.
_MAX_REFUSALS, _MAX_FILES = 20, 50


@dataclass(frozen=True, slots=True)
class RefusalOutline:
    """A rewrite that the verification refused, in a bounded size; for the terms see `Refusal`.

    Attributes:
        num_inputs: How many files were read.
        num_outputs: How many files were written.
        inputs: The first 50 files that were read.
        outputs: The first 50 files that were written.
    """

    at: datetime
    version: int | None
    partition_values: Mapping[str, str | None]
    cluster_by: tuple[str, ...]
    cluster_order: str
    differences: tuple[str, ...]
    read: Sums
    written: Sums
    num_inputs: int
    num_outputs: int
    inputs: tuple[RefusedFile, ...]
    outputs: tuple[RefusedFile, ...]


def refusal_outlines(table: Table) -> tuple[RefusalOutline, ...]:
    """The newest refused rewrites of a table, newest first; at most 20."""
    return tuple(_outline(record) for record in refusals(table.store, table.id, _MAX_REFUSALS))


def _outline(record: Refusal) -> RefusalOutline:
    return RefusalOutline(
        at=to_datetime(record.time_ms),
        version=record.version,
        partition_values=record.partition_values,
        cluster_by=record.cluster_by,
        cluster_order=record.cluster_order,
        differences=record.differences,
        read=record.read,
        written=record.written,
        num_inputs=len(record.inputs),
        num_outputs=len(record.outputs),
        inputs=record.inputs[:_MAX_FILES],
        outputs=record.outputs[:_MAX_FILES],
    )
