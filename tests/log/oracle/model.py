"""The serial model: rows in a dictionary, and the effect of an operation that runs alone.

It has no files, versions or conflicts. A row's identity is the address at which it was inserted, which a compaction
does not change.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias


class Row(NamedTuple):
    """A row. `p` is the partition column if the table is partitioned, and an ordinary column otherwise."""

    k: int
    p: int
    v: int


Address: TypeAlias = tuple[str, int]
Rows: TypeAlias = Mapping[Address, Row]
# An order, and whether a record of an equal one has no effect; by key.
Tombstone: TypeAlias = tuple[int, bool]
Tombstones: TypeAlias = Mapping[int, Tombstone]


@dataclass(frozen=True)
class Moment:
    """The state of the model: the rows, those that a RESTORE would bring back, the `txn` versions, and tombstones.

    `tombstones` has of each deleted key the greatest order, and whether it was that of a row which a DELETE removed.
    Those go only where the table `is_ordered`: it has the primary key `k` and the order `v`.
    """

    rows: Rows
    restorable: Rows
    transactions: Mapping[str, int] = field(default_factory=dict)
    tombstones: Tombstones = field(default_factory=dict)
    is_ordered: bool = False

    def graves(self, dead: Iterable[Address]) -> Tombstones:
        """The tombstones that these rows leave if a DELETE removes them."""
        found: dict[int, Tombstone] = {}
        for row in (self.rows[address] for address in dead if self.is_ordered):
            found[row.k] = max(found.get(row.k, (row.v, True)), (row.v, True))
        return found


@dataclass(frozen=True)
class Effect:
    """The effect of an operation: rows that die, rows that come back, new rows, and tombstones.

    `lifts` says that it takes away all tombstones of the version before.
    """

    dead: frozenset[Address] = frozenset()
    back: frozenset[Address] = frozenset()
    born: tuple[Row, ...] = ()
    buried: Tombstones = field(default_factory=dict)
    lifts: bool = False

    @property
    def is_empty(self) -> bool:
        return not (self.dead or self.back or self.born or self.buried or self.lifts)


def after(moment: Moment, effect: Effect) -> Counter[Row]:
    """The rows of the table after the effect, with their counts."""
    kept = [row for address, row in moment.rows.items() if address not in effect.dead]
    returned = [moment.restorable[address] for address in effect.back]
    return Counter([*kept, *returned, *effect.born])


@dataclass(frozen=True)
class Where:
    """A comparison of one column with a number, as SQL text and as a function."""

    column: str
    comparison: str
    value: int

    @property
    def sql(self) -> str:
        return f"{self.column} {self.comparison} {self.value}"

    def matches(self, row: Row) -> bool:
        return _COMPARISONS[self.comparison](getattr(row, self.column), self.value)

    def among(self, rows: Rows) -> frozenset[Address]:
        return frozenset(address for address, row in rows.items() if self.matches(row))


_COMPARISONS: dict[str, Callable[[int, int], bool]] = {
    "=": lambda left, right: left == right,
    "<=": lambda left, right: left <= right,
    "<": lambda left, right: left < right,
    ">=": lambda left, right: left >= right,
    ">": lambda left, right: left > right,
}


def with_keys(rows: Rows, keys: Iterable[int]) -> frozenset[Address]:
    wanted = set(keys)
    return frozenset(address for address, row in rows.items() if row.k in wanted)


def in_partitions(rows: Rows, partitions: Iterable[int] | None) -> frozenset[Address]:
    """The rows of these partitions; None is the whole table."""
    if partitions is None:
        return frozenset(rows)
    wanted = set(partitions)
    return frozenset(address for address, row in rows.items() if row.p in wanted)
