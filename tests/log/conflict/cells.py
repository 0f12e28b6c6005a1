"""The jobs for the cells of the conflict matrices, what each does to rows, and the table that they run on."""

# ruff: noqa: ARG001, ARG005 - all jobs have one signature

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa

from tests.log.support import memory_url
from tidelog.compaction_daemon import stage
from tidelog.log import OperationClass, Table, Transaction
from tidelog.log.storage.memory import MemoryStore

SCHEMA = pa.schema([("p", pa.string()), ("k", pa.int64()), ("v", pa.int64())])
Row = tuple[str, int, int]
Rows = frozenset[Row]


@dataclass(frozen=True)
class Layout:
    """How the table is partitioned, and in which partitions the two jobs work."""

    name: str
    partitioned: bool
    earlier: str
    later: str

    @property
    def overlaps(self) -> bool:
        """Whether the two jobs have a partition in common."""
        return not self.partitioned or self.earlier == self.later


LAYOUTS = (
    Layout("one partition", partitioned=True, earlier="a", later="a"),
    Layout("disjoint partitions", partitioned=True, earlier="a", later="b"),
    Layout("not partitioned", partitioned=False, earlier="a", later="a"),
)


@dataclass(frozen=True)
class Job:
    """An operation in one partition. `number` makes its rows distinct."""

    name: str
    operation_class: OperationClass
    stage: Callable[[Table, Layout, str, int], Transaction]
    rows: Callable[[Rows, Layout, str, int], Rows]


def _where(layout: Layout, part: str) -> str | None:
    return f"p = '{part}'" if layout.partitioned else None


def _data(rows: Iterator[Row] | list[Row]) -> list[dict[str, object]]:
    return [{"p": p, "k": k, "v": v} for p, k, v in rows]


def _inside(rows: Rows, layout: Layout, part: str) -> Rows:
    return frozenset(row for row in rows if not layout.partitioned or row[0] == part)


def _overwritten(part: str, number: int) -> list[Row]:
    return [(part, 500 + number, number)]


def _inserted(part: str, number: int) -> list[Row]:
    # Rows that other jobs match, and one that they do not.
    return [(part, 1, 70 + number), (part, 2, 70 + number), (part, 3, 70 + number), (part, 900 + number, 0)]


def _upserted(part: str, number: int) -> list[Row]:
    return [(part, 3, 90 + number), (part, 950 + number, number)]


def _compacted(level: str) -> Callable[[Table, Layout, str, int], Transaction]:
    return lambda table, layout, part, number: stage(table, level, where=_where(layout, part))


def _same(rows: Rows, layout: Layout, part: str, number: int) -> Rows:
    return rows


def _updated(rows: Rows, layout: Layout, part: str, number: int) -> Rows:
    return frozenset((p, k, v + 1000) if (p, k) == (part, 2) else (p, k, v) for p, k, v in rows)


def _merged(rows: Rows, layout: Layout, part: str, number: int) -> Rows:
    new = _upserted(part, number)
    keys = {row[:2] for row in new}
    return frozenset(row for row in rows if row[:2] not in keys) | frozenset(new)


JOBS: Mapping[str, Job] = {
    job.name: job
    for job in (
        Job(
            "OVERWRITE",
            OperationClass.OVERWRITE,
            lambda table, layout, part, number: table.begin().overwrite(
                _data(_overwritten(part, number)), where=_where(layout, part)
            ),
            lambda rows, layout, part, number: rows - _inside(rows, layout, part) | {*_overwritten(part, number)},
        ),
        Job(
            "TRUNCATE",
            OperationClass.OVERWRITE,
            lambda table, layout, part, number: table.begin().truncate(where=_where(layout, part)),
            lambda rows, layout, part, number: rows - _inside(rows, layout, part),
        ),
        Job(
            "INSERT",
            OperationClass.INSERT,
            lambda table, layout, part, number: table.begin().insert(_data(_inserted(part, number))),
            lambda rows, layout, part, number: rows | {*_inserted(part, number)},
        ),
        Job(
            "DELETE",
            OperationClass.UPDATE_DELETE,
            lambda table, layout, part, number: table.begin().delete(f"p = '{part}' AND k = 1"),
            lambda rows, layout, part, number: frozenset(row for row in rows if row[:2] != (part, 1)),
        ),
        Job(
            "UPDATE",
            OperationClass.UPDATE_DELETE,
            lambda table, layout, part, number: table.begin().update(f"p = '{part}' AND k = 2", {"v": "v + 1000"}),
            _updated,
        ),
        Job(
            "UPSERT",
            OperationClass.UPDATE_DELETE,
            lambda table, layout, part, number: table.begin().upsert(_data(_upserted(part, number)), keys=["p", "k"]),
            _merged,
        ),
        Job("MINOR", OperationClass.MINOR, _compacted("minor"), _same),
        Job("MAJOR", OperationClass.MAJOR, _compacted("major"), _same),
    )
}


class Template:
    """A table that is filled once and copied for each pair of jobs.

    Each partition has three small files, one with a dead row if the table has deletion vectors.
    """

    def __init__(self, layout: Layout, *, vectors: bool, properties: Mapping[str, object]) -> None:
        self._url = memory_url()
        table = Table.create(
            self._url,
            SCHEMA,
            partition_by=["p"] if layout.partitioned else [],
            properties={"delta.enableDeletionVectors": vectors, **properties},
        )
        for part in ("a", "b"):
            for keys in ((0, 1, 2, 3, 8), (4, 5), (6, 7)):
                table.insert(_data([(part, key, key) for key in keys]))
        table.delete("k = 8")
        self.rows = rows_of(table)

    def copy(self) -> Table:
        """Another table with the same content."""
        url = memory_url()
        MemoryStore(url)._files.update(MemoryStore(self._url)._files)
        return Table.open(url)


def rows_of(table: Table) -> Rows:
    """The table's rows, which must be distinct."""
    found = [(row["p"], row["k"], row["v"]) for row in table.refresh().scan().to_arrow().to_pylist()]
    assert len(found) == len(set(found)), f"doubled rows: {sorted(found)}"
    return frozenset(found)
