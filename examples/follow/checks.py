"""The end of the demo: the copy has the same rows as the table, now and after each of its batches."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder

from examples.follow.folder import Folder
from examples.follow.position import Batch
from examples.shared.check import Check, same_rows
from tidelog.log import OperationClass, Table

_SHOWN_DIFFERENCES = 3


@dataclass(frozen=True, slots=True)
class Lag:
    """How far the copy is behind, and what there was to follow."""

    time_versions: int
    followed: int
    compactions: int
    versions: int

    @property
    def behind(self) -> int:
        """Time versions of the table that the copy does not have yet."""
        return self.time_versions - self.followed


def lag(table: Table, followed_version: int) -> Lag:
    """The lag of a follower that has read up to a version of `table`."""
    commits = table.history()
    changing = [commit.version for commit in commits if commit.time_version is not None]
    compactions = sum(commit.operation_class in {OperationClass.MINOR, OperationClass.MAJOR} for commit in commits)
    return Lag(len(changing), sum(version <= followed_version for version in changing), compactions, len(commits))


def checks(folder: Folder, batches: Sequence[Batch], behind: int) -> list[Check]:
    """The conditions, described with their numbers."""
    table, copy = Table.open(str(folder.table)), Table.open(str(folder.copy))
    ours = table.scan().to_arrow(), copy.scan().to_arrow()
    delta = _by_delta_rs(table), _by_delta_rs(copy)
    on_the_way = [batch for batch in batches if not _is_equal_after(batch, table, copy)]
    numbers = [batch.number for batch in batches]
    return [
        Check(f"nothing is left to follow: {behind} time versions behind", behind == 0),
        Check(_described("tidelog reads the same rows from both", *ours), same_rows(*ours)),
        Check(_described("so does delta-rs", *delta), same_rows(*delta)),
        Check(
            f"each version of the copy was a version of the table: {len(batches) - len(on_the_way)} of {len(batches)}",
            not on_the_way,
        ),
        Check(
            f"each micro-batch is one commit of the copy: {len(batches)} batches, versions "
            f"{_range([batch.copy_version for batch in batches])}",
            numbers == list(range(len(batches)))
            and all(after.copy_version == before.copy_version + 1 for before, after in pairwise(batches))
            and bool(batches)
            and copy.version == batches[-1].copy_version,
        ),
    ]


def differences(table: pa.Table, copy: pa.Table) -> list[str]:
    """Some rows that only one of them has."""
    left, right = (Counter(tuple(row.values()) for row in rows.to_pylist()) for rows in (table, copy))
    found = [("table", row) for row in left - right] + [("copy", row) for row in right - left]
    return [f"only in the {place}: {row}" for place, row in found[:_SHOWN_DIFFERENCES]]


def _is_equal_after(batch: Batch, table: Table, copy: Table) -> bool:
    return same_rows(
        table.at(version=batch.version).scan().to_arrow(), copy.at(version=batch.copy_version).scan().to_arrow()
    )


def _described(what: str, table: pa.Table, copy: pa.Table) -> str:
    text = f"{what}: {len(table):,} and {len(copy):,}"
    return "; ".join([text, *differences(table, copy)])


def _by_delta_rs(table: Table) -> pa.Table:
    rows = QueryBuilder().register("rows", DeltaTable(table.path)).execute("SELECT * FROM rows").read_all()
    return pa.table(rows).cast(table.schema)


def _range(versions: Sequence[int]) -> str:
    return f"{versions[0]} to {versions[-1]}" if versions else "none"
