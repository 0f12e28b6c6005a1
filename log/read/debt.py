"""Table debt: small files, dead rows and the uncheckpointed log tail, measured from the log only."""

from __future__ import annotations

import math
from dataclasses import dataclass

import pyarrow.compute as pc

from tidelog.log.format import properties
from tidelog.log.state.loader import LogState
from tidelog.log.state.segment import list_segment, pointed_version
from tidelog.log.storage import Store

# A file smaller than this share of the target size is small.
SMALL_SHARE = 3 / 4


@dataclass(frozen=True, slots=True)
class Debt:
    """What makes one version of a table slower to read than it needs to be; returned by `Table.debt`.

    A small file counts even if it is the only file of its partition, although compaction cannot make it larger.

    Attributes:
        files: The number of live files.
        small_files: Those of them that are smaller than three quarters of `tidelog.targetFileSize`.
        small_bytes: The total size of the small files, in bytes.
        dead_rows: Rows that are deleted but still stored, in live files.
        dead_row_files: The number of live files with dead rows (with a deletion vector).
        log_tail: The number of commits since the newest checkpoint.

    Example:
        >>> if table.debt().small_files > 100:
        ...     table.compact()

    """

    files: int
    small_files: int
    small_bytes: int
    dead_rows: int
    dead_row_files: int
    log_tail: int


def debt_of(store: Store, state: LogState) -> Debt:
    """The debt of one version. Works on whole columns, without a Python object for each file."""
    adds = state.files().adds
    sizes = adds["size"]
    target = properties.size_bytes(state.head.metadata.configuration, properties.TARGET_FILE_SIZE)
    # Arrow compares whole numbers of any size with each other, but not with a fraction.
    small = sizes.filter(pc.less(sizes, math.ceil(target * SMALL_SHARE)))
    vectors = adds["deletionVector"]
    return Debt(
        files=adds.num_rows,
        small_files=len(small),
        small_bytes=pc.sum(small).as_py() or 0,
        dead_rows=pc.sum(pc.struct_field(vectors, "cardinality")).as_py() or 0,
        dead_row_files=len(vectors) - vectors.null_count,
        log_tail=_log_tail(store, state.head.version),
    )


def _log_tail(store: Store, version: int) -> int:
    """How many commits a reader of the version has to replay.

    The log is listed only if its pointer to the newest checkpoint does not help: the pointer is one small file, but a
    listing has one name for each retained commit.
    """
    pointed = pointed_version(store)
    if pointed is not None and 0 <= pointed <= version:
        return version - pointed
    return len(list_segment(store, version).commit_versions)
