"""What a table owes to its next compaction and checkpoint, told from its log alone."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow.compute as pc

from tidelog.log.format import properties
from tidelog.log.state.loader import LogState
from tidelog.log.state.segment import list_segment, pointed_version
from tidelog.log.storage import Store

# A file below this share of the target size is small.
SMALL_SHARE = 3 / 4


@dataclass(frozen=True, slots=True)
class Debt:
    """What makes one version of a table slower to read than it needs to be.

    `files` counts the live files; of these, `small_files` with `small_bytes` together are smaller than three quarters
    of `tidelog.targetFileSize`, and `dead_row_files` have a deletion vector, with `dead_rows` rows in all. `log_tail`
    counts the commits since the newest checkpoint.

    A small file that has no other beside it in its partition counts, too, though no compaction can make it larger.
    """

    files: int
    small_files: int
    small_bytes: int
    dead_rows: int
    dead_row_files: int
    log_tail: int


def debt_of(store: Store, state: LogState) -> Debt:
    """The debt of one version; works on whole columns, and makes no object of a file."""
    adds = state.files().adds
    sizes = adds["size"]
    target = properties.size_bytes(state.head.metadata.configuration, properties.TARGET_FILE_SIZE)
    small = sizes.filter(pc.less(sizes, target * SMALL_SHARE))
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

    The log's own pointer to its newest checkpoint is one small file, a listing one name for each commit that is kept;
    so only where the pointer does not help is the log listed.
    """
    pointed = pointed_version(store)
    if pointed is not None and 0 <= pointed <= version:
        return version - pointed
    return len(list_segment(store, version).commit_versions)
