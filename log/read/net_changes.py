"""The net effect of a run of changes: one row a key at most."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidelog.log.arrays import BoolArray
from tidelog.log.data.grouping import group_numbers
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
    """What `changes` (change mode `cdc`, in commit order) come to for each key, ordered by commit version.

    A key that was not there before and is after is an `insert` of its last row; one that was there and is gone a
    `delete` of its first; one that was there and has another row now an `update_postimage`; one whose row is the same
    again gives nothing. Version and time are those of the key's last change. Null is a value like another here.

    Raises DuplicateKeyError where a key has several rows at once, so that no single row is its net effect.
    """
    if not changes.num_rows:
        return changes
    # Sorted by key, then by version; within a version what is taken away comes before what takes its place.
    takes_away = pc.is_in(changes[CHANGE_TYPE], value_set=pa.array([DELETE, UPDATE_PREIMAGE]))
    gives = np.array(pc.invert(takes_away))
    groups = np.array(group_numbers(changes, list(keys)))
    order = np.lexsort((gives, np.array(changes[COMMIT_VERSION]), groups))
    groups, gives = groups[order], gives[order]
    same_group = groups[1:] == groups[:-1]
    doubled = np.flatnonzero(same_group & (gives[1:] == gives[:-1]))
    if len(doubled):
        row = changes.slice(int(order[doubled[0]]), 1)
        raise _duplicate(row, keys, path)
    first = np.concatenate([[True], ~same_group])
    last = np.concatenate([~same_group, [True]])
    was_there, is_there = ~gives[first], gives[last]
    first_rows, last_rows = order[first], order[last]
    changed = _differ(changes, first_rows, last_rows)
    keep = (was_there != is_there) | (was_there & is_there & changed)
    # A deleted key shows the row that readers before the interval know.
    shown = np.where(is_there, last_rows, first_rows)[keep]
    stamped = last_rows[keep]
    kinds = np.where(is_there, np.where(was_there, UPDATE_POSTIMAGE, INSERT), DELETE)[keep]
    return _assembled(changes, shown, stamped, kinds)


def _assembled(changes: pa.Table, shown: Any, stamped: Any, kinds: Any) -> pa.Table:
    """Data columns of the rows `shown`, commit version and time of the rows `stamped`, in the order of the latter."""
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
    """For each pair of rows, whether any column of the table differs."""
    result = np.zeros(len(left), dtype=bool)
    names = [name for name in changes.column_names if name not in _CHANGE_COLUMNS]
    apart = np.flatnonzero(left != right)
    before, after = (changes.select(names).take(pa.array(rows[apart])) for rows in (left, right))
    # Python's equality knows every type, nested ones too; NaN is made equal to itself.
    differs = [_plain(one) != _plain(two) for one, two in zip(before.to_pylist(), after.to_pylist(), strict=True)]
    result[apart] = differs
    return result


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(inner) for inner in value]
    return "NaN" if isinstance(value, float) and value != value else value  # noqa: PLR0124 - only NaN differs


def _duplicate(row: pa.Table, keys: Sequence[str], path: str) -> DuplicateKeyError:
    key = {name: row[name][0].as_py() for name in keys}
    version = row[COMMIT_VERSION][0].as_py()
    return DuplicateKeyError(
        f"the key {key} of {path} has several rows at once by version {version}, so it has no net effect",
        advice="read with the mode 'cdc', or make the keys unique",
        path=path,
        key=str(key),
    )
