"""The net effect of a run of changes: at most one row per key."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidelog.log.arrays import BoolArray
from tidelog.log.data.grouping import group_numbers
from tidelog.log.data.row_values import differing, shown
from tidelog.log.data.writer import CHANGE_TYPE
from tidelog.log.errors import DuplicateKeyError
from tidelog.log.read.change_files import (
    COMMIT_TIMESTAMP,
    COMMIT_VERSION,
    DELETE,
    INSERT,
    UPDATE_POSTIMAGE,
    UPDATE_PREIMAGE,
)

_CHANGE_COLUMNS = frozenset({CHANGE_TYPE, COMMIT_VERSION, COMMIT_TIMESTAMP})


def net_changes(changes: pa.Table, keys: Sequence[str], path: str) -> pa.Table:
    """Reduce `changes` (mode `cdc`, in commit order) to the net effect on each key, ordered by commit version.

    - a key that is new: `insert` with its last row
    - a key that is gone: `delete` with its first row
    - a key that has a different row: `update_postimage` with its last row
    - a key that was neither there before nor after, or has an equal row again: nothing

    Version and time are those of the key's last change. As a key, null is equal to null.

    Raises DuplicateKeyError if the changes show that a key has several rows at a time, because then its net effect is
    not one row. A row that no commit of the interval touches is not in `changes`, so nothing is known of it.
    """
    if not changes.num_rows:
        return changes
    # Sort by key, then by version, and within a version old rows before new rows.
    is_old = pc.is_in(changes[CHANGE_TYPE], value_set=pa.array([DELETE, UPDATE_PREIMAGE]))
    is_new = np.array(pc.invert(is_old))
    groups = np.array(group_numbers(changes, list(keys)))
    order = np.lexsort((is_new, np.array(changes[COMMIT_VERSION]), groups))
    groups, is_new = groups[order], is_new[order]
    same_group = groups[1:] == groups[:-1]
    doubled = np.flatnonzero(same_group & (is_new[1:] == is_new[:-1]))
    if not len(doubled):
        # Old and new rows take turns. An old row that is not the new row before it was there beside that one.
        returned = np.flatnonzero(same_group & is_new[:-1])
        doubled = returned[_differ(changes, order[returned], order[returned + 1])]
    if len(doubled):
        row = changes.slice(int(order[doubled[0]]), 1)
        raise _duplicate(row, list(keys), path)
    first = np.concatenate([[True], ~same_group])
    last = np.concatenate([~same_group, [True]])
    existed, exists = ~is_new[first], is_new[last]
    first_rows, last_rows = order[first], order[last]
    changed = _differ(changes, first_rows, last_rows)
    keep = (existed != exists) | (existed & exists & changed)
    # A deleted key shows the row that it had before the interval.
    shown = np.where(exists, last_rows, first_rows)[keep]
    stamped = last_rows[keep]
    kinds = np.where(exists, np.where(existed, UPDATE_POSTIMAGE, INSERT), DELETE)[keep]
    return _assembled(changes, shown, stamped, kinds)


def _assembled(changes: pa.Table, shown: Any, stamped: Any, kinds: Any) -> pa.Table:
    """The data columns of the rows `shown` with the commit version and time of the rows `stamped`, in their order."""
    by_version = np.argsort(stamped, kind="stable")
    data, stamps = changes.take(pa.array(shown[by_version])), changes.take(pa.array(stamped[by_version]))
    columns = []
    for field in changes.schema:
        if field.name == CHANGE_TYPE:
            columns.append(pa.chunked_array([pa.array(kinds[by_version], pa.string())]))
        else:
            columns.append((stamps if field.name in _CHANGE_COLUMNS else data)[field.name])
    return pa.table(columns, schema=changes.schema)


def _differ(changes: pa.Table, left: Any, right: Any) -> BoolArray:
    """Whether each pair of rows differs in any column of the table."""
    result = np.zeros(len(left), dtype=bool)
    data = changes.select([name for name in changes.column_names if name not in _CHANGE_COLUMNS])
    apart = np.flatnonzero(left != right)
    result[apart] = differing(data.take(pa.array(left[apart])), data.take(pa.array(right[apart])))
    return result


def _duplicate(row: pa.Table, keys: list[str], path: str) -> DuplicateKeyError:
    key = shown(row.select(keys))
    version = row[COMMIT_VERSION][0].as_py()
    return DuplicateKeyError(
        f"the key {key} of {path} has several rows at a time in version {version}, so its net effect is not one row",
        advice="read with the change mode 'cdc', or make the keys unique",
        path=path,
        key=str(key),
    )
