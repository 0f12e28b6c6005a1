"""MERGE by the library deltalake, said with the rules of an upsert."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from deltalake import DeltaTable
from deltalake.table import TableMerger

Rules = Mapping[str, Sequence[tuple[str | None, str | Mapping[str, str]]]]


def merge_of_deltalake(path: str, source: Any, on: str, **options: Any) -> TableMerger:
    return DeltaTable(path).merge(source, on, source_alias="source", target_alias="target", **options)


def with_rules(merge: TableMerger, rules: Rules) -> TableMerger:
    """The merge with the arguments of `Table.upsert`, such as `when_matched`."""
    for condition, action in rules.get("when_matched", ()):
        if action == "delete":
            merge = merge.when_matched_delete(condition)
        elif action == "update":
            merge = merge.when_matched_update_all(condition)
        else:
            merge = merge.when_matched_update(dict(action), condition)  # type: ignore[arg-type]
    for condition, action in rules.get("when_not_matched", ()):
        if action == "insert":
            merge = merge.when_not_matched_insert_all(condition)
        else:
            merge = merge.when_not_matched_insert(dict(action), condition)  # type: ignore[arg-type]
    for condition, action in rules.get("when_not_matched_by_source", ()):
        if action == "delete":
            merge = merge.when_not_matched_by_source_delete(condition)
        else:
            merge = merge.when_not_matched_by_source_update(dict(action), condition)  # type: ignore[arg-type]
    return merge
