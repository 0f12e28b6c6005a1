"""The operations of the histories: how to stage each on a table, and its effect in the model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, auto

import pyarrow as pa

from tests.log.oracle import model
from tests.log.oracle.compactions import Compaction
from tests.log.oracle.foreign import Foreign, ForeignKind
from tests.log.oracle.model import Address, Effect, Moment, Row, Rows, Where
from tests.log.oracle.settings import INITIAL_VERSION, Setting
from tidelog.log import Committed, Table, Transaction

# The partition of the rows that delete their key.
GONE = 9


class Kind(Enum):
    """The kinds of operations that the judge distinguishes."""

    BLIND = auto()
    REPLACING = auto()
    REPLACING_MATCHES = auto()
    DELETE = auto()
    UPDATE = auto()
    UPSERT = auto()
    ORDERED = auto()
    MERGE = auto()
    COMPACTION = auto()
    METADATA = auto()
    FOREIGN = auto()


@dataclass(frozen=True)
class Operation:
    """One operation. `name` is its name in a history."""

    name: str

    kind = Kind.BLIND
    operation_class = "INSERT"

    def stage(self, table: Table) -> Transaction:
        raise NotImplementedError(self.name)

    def effect(self, moment: Moment) -> Effect:
        """Its effect on the rows if it runs alone."""
        raise NotImplementedError(self.name)

    def matched(self, rows: Rows) -> frozenset[Address]:
        """The rows that it looks for."""
        del rows
        return frozenset()


@dataclass(frozen=True)
class Insert(Operation):
    rows: tuple[Row, ...]
    key: tuple[str, int] | None = None

    def stage(self, table: Table) -> Transaction:
        return table.begin().insert(_dicts(self.rows), idempotency_key=self.key)

    def run(self, table: Table) -> Committed:
        """Run the statement."""
        return table.insert(_dicts(self.rows), idempotency_key=self.key)

    def effect(self, moment: Moment) -> Effect:
        if self.key is not None and moment.transactions.get(self.key[0], -1) >= self.key[1]:
            return Effect()
        return Effect(born=self.rows)


@dataclass(frozen=True)
class Delete(Operation):
    where: Where

    kind = Kind.DELETE
    operation_class = "UPDATE_DELETE"

    def stage(self, table: Table) -> Transaction:
        return table.begin().delete(self.where.sql)

    def effect(self, moment: Moment) -> Effect:
        dead = self.matched(moment.rows)
        return Effect(dead=dead, buried=moment.graves(dead))

    def matched(self, rows: Rows) -> frozenset[Address]:
        return self.where.among(rows)


@dataclass(frozen=True)
class Update(Operation):
    """Sets `column` to `number`, or adds `number` to it if `added`."""

    where: Where
    column: str
    added: bool
    number: int

    kind = Kind.UPDATE
    operation_class = "UPDATE_DELETE"

    def stage(self, table: Table) -> Transaction:
        text = f"{self.column} + {self.number}" if self.added else str(self.number)
        return table.begin().update(self.where.sql, {self.column: text})

    def effect(self, moment: Moment) -> Effect:
        dead = self.matched(moment.rows)
        images = {address: self._image(moment.rows[address]) for address in sorted(dead)}
        gone = [address for address, image in images.items() if image.k != moment.rows[address].k]
        return Effect(dead=dead, born=tuple(images.values()), buried=moment.graves(gone))

    def matched(self, rows: Rows) -> frozenset[Address]:
        return self.where.among(rows)

    def _image(self, row: Row) -> Row:
        old = getattr(row, self.column)
        return row._replace(**{self.column: old + self.number if self.added else self.number})


@dataclass(frozen=True)
class Upsert(Operation):
    """An upsert with the key `k`. Rows with a negative `v` delete their key."""

    rows: tuple[Row, ...]

    kind = Kind.UPSERT
    operation_class = "UPDATE_DELETE"

    def stage(self, table: Table) -> Transaction:
        return table.begin().upsert(_dicts(self.rows), keys=["k"], order_by=(), delete_where="v < 0")

    def effect(self, moment: Moment) -> Effect:
        gone = model.with_keys(moment.rows, (row.k for row in self.rows if row.v < 0))
        return Effect(
            dead=self.matched(moment.rows),
            born=tuple(row for row in self.rows if row.v >= 0),
            buried=moment.graves(gone),
        )

    def matched(self, rows: Rows) -> frozenset[Address]:
        return model.with_keys(rows, (row.k for row in self.rows))


@dataclass(frozen=True)
class Ordered(Operation):
    """An upsert with the key `k` and the order `v`. Rows in the partition 9 delete their key."""

    rows: tuple[Row, ...]

    kind = Kind.ORDERED
    operation_class = "UPDATE_DELETE"

    def stage(self, table: Table) -> Transaction:
        return table.begin().upsert(_dicts(self.rows), keys=["k"], order_by="v", delete_where=f"p = {GONE}")

    def effect(self, moment: Moment) -> Effect:
        dead: set[Address] = set()
        born, buried = [], {}
        for row in self.rows:
            found = model.with_keys(moment.rows, [row.k])
            newest = max((moment.rows[address].v for address in found), default=None)
            if not found and (tombstone := moment.tombstones.get(row.k)) is not None:
                newest, wins_ties = tombstone
                if wins_ties and row.v == newest:
                    continue
            if newest is not None and row.v < newest:
                continue
            dead |= found
            if row.p != GONE:
                born.append(row)
            elif found or newest is None or row.v > newest:
                buried[row.k] = (row.v, False)
        return Effect(dead=frozenset(dead), born=tuple(born), buried=buried)

    def matched(self, rows: Rows) -> frozenset[Address]:
        return model.with_keys(rows, (row.k for row in self.rows))


@dataclass(frozen=True)
class Merge(Operation):
    """An upsert with the key `k` and rules: rows with new keys are inserted, and if `adds`, others get more `v`."""

    rows: tuple[Row, ...]
    adds: bool = True

    kind = Kind.MERGE
    operation_class = "UPDATE_DELETE"

    def stage(self, table: Table) -> Transaction:
        return table.begin().upsert(
            _dicts(self.rows),
            keys=["k"],
            when_matched=[(None, {"v": "target.v + source.v"})] if self.adds else [],
            when_not_matched=[(None, "insert")],
        )

    def effect(self, moment: Moment) -> Effect:
        dead, added = self.matched(moment.rows), {row.k: row.v for row in self.rows}
        old = [moment.rows[address] for address in sorted(dead)]
        known = {row.k for row in old}
        new = [row for row in self.rows if row.k not in known]
        if not self.adds:
            return Effect(born=tuple(new))
        return Effect(dead=dead, born=(*(row._replace(v=row.v + added[row.k]) for row in old), *new))

    def matched(self, rows: Rows) -> frozenset[Address]:
        return model.with_keys(rows, (row.k for row in self.rows))


@dataclass(frozen=True)
class Overwrite(Operation):
    """Overwrites the table, the partition `p = partition`, or with `dynamic` the partitions of the rows."""

    rows: tuple[Row, ...]
    partition: int | None = None
    dynamic: bool = False

    kind = Kind.REPLACING
    operation_class = "OVERWRITE"

    def stage(self, table: Table) -> Transaction:
        where = None if self.partition is None else f"p = {self.partition}"
        return table.begin().overwrite(_dicts(self.rows), where=where, dynamic=self.dynamic)

    def effect(self, moment: Moment) -> Effect:
        scope = None if self.partition is None else [self.partition]
        if self.dynamic:
            scope = [row.p for row in self.rows]
        lifts = scope is None and bool(moment.tombstones)
        return Effect(dead=model.in_partitions(moment.rows, scope), born=self.rows, lifts=lifts)


@dataclass(frozen=True)
class ReplaceWhere(Operation):
    """Overwrites the rows that match `where`, which all new rows do."""

    where: Where
    rows: tuple[Row, ...]

    kind = Kind.REPLACING_MATCHES
    operation_class = "UPDATE_DELETE"

    def stage(self, table: Table) -> Transaction:
        return table.begin().overwrite(_dicts(self.rows), where=self.where.sql)

    def effect(self, moment: Moment) -> Effect:
        return Effect(dead=self.matched(moment.rows), born=self.rows)

    def matched(self, rows: Rows) -> frozenset[Address]:
        return self.where.among(rows)


@dataclass(frozen=True)
class Truncate(Operation):
    partition: int | None = None

    kind = Kind.REPLACING
    operation_class = "OVERWRITE"

    def stage(self, table: Table) -> Transaction:
        return table.begin().truncate(where=None if self.partition is None else f"p = {self.partition}")

    def effect(self, moment: Moment) -> Effect:
        scope = None if self.partition is None else [self.partition]
        lifts = scope is None and bool(moment.tombstones)
        return Effect(dead=model.in_partitions(moment.rows, scope), lifts=lifts)


@dataclass(frozen=True)
class Restore(Operation):
    """Restores the version at which every history starts."""

    kind = Kind.REPLACING
    operation_class = "OVERWRITE"

    def stage(self, table: Table) -> Transaction:
        return table.begin().restore(version=INITIAL_VERSION)

    def effect(self, moment: Moment) -> Effect:
        return Effect(
            dead=frozenset(moment.rows.keys() - moment.restorable.keys()),
            back=frozenset(moment.restorable.keys() - moment.rows.keys()),
        )


@dataclass(frozen=True)
class Compact(Operation):
    compaction: Compaction

    kind = Kind.COMPACTION

    @property
    def operation_class(self) -> str:  # type: ignore[override]
        return self.compaction.level

    def stage(self, table: Table) -> Transaction:
        return self.compaction.stage(table)

    def effect(self, moment: Moment) -> Effect:
        del moment
        return Effect()


@dataclass(frozen=True)
class AddColumn(Operation):
    kind = Kind.METADATA
    operation_class = "NONE"

    def stage(self, table: Table) -> Transaction:
        return table.begin().add_columns([pa.field("added", pa.int64())])

    def effect(self, moment: Moment) -> Effect:
        del moment
        return Effect()


@dataclass(frozen=True)
class SetProperties(Operation):
    properties: tuple[tuple[str, str], ...]

    kind = Kind.METADATA
    operation_class = "NONE"

    def stage(self, table: Table) -> Transaction:
        return table.begin().set_properties(dict(self.properties))

    def effect(self, moment: Moment) -> Effect:
        del moment
        return Effect()


@dataclass(frozen=True)
class ForeignWrite(Operation):
    """A commit by another engine. It is computed and written at the newest version, so it never loses a race."""

    foreign: Foreign

    kind = Kind.FOREIGN
    operation_class = ""


def catalogue(setting: Setting) -> dict[str, Operation]:
    """The operations of the histories on tables of this setting, by name."""
    found: list[Operation] = [
        Insert("INSERT", (Row(101, 1, 1010), Row(102, 2, 1020))),
        Insert("INSERT k=1", (Row(1, 2, 1001),)),
        Insert("INSERT once", (Row(103, 1, 1030),), key=("app", 1)),
        Delete("DELETE k=1", Where("k", "=", 1)),
        Delete("DELETE k<=3", Where("k", "<=", 3)),
        Delete("DELETE p=1", Where("p", "=", 1)),
        Update("UPDATE k=1", Where("k", "=", 1), "v", added=True, number=500),
        Update("UPDATE v<70", Where("v", "<", 70), "v", added=True, number=1000),
        Update("UPDATE k>=7", Where("k", ">=", 7), "k", added=False, number=1),
        Update("UPDATE p of k=4", Where("k", "=", 4), "p", added=False, number=2),
        Upsert("UPSERT", (Row(1, 1, 3001), Row(301, 2, 3010))),
        Upsert("UPSERT delete", (Row(3, 1, 3003), Row(4, 1, -1))),
        Ordered("ORDERED", (Row(1, 1, 15), Row(3, 1, 5), Row(304, 2, 7))),
        Ordered("ORDERED delete", (Row(4, GONE, 50), Row(5, GONE, 1), Row(304, GONE, 9))),
        Merge("MERGE", (Row(1, 1, 5001), Row(302, 2, 5020))),
        Merge("MERGE new", (Row(1, 1, 6001), Row(303, 2, 6030)), adds=False),
        Overwrite("OVERWRITE", (Row(1, 1, 2001), Row(201, 2, 2010))),
        ReplaceWhere("REPLACE k<=3", Where("k", "<=", 3), (Row(1, 1, 4001), Row(3, 2, 4003))),
        Truncate("TRUNCATE"),
        Restore("RESTORE"),
        Compact("MINOR", Compaction("MINOR")),
        Compact("MINOR of two", Compaction("MINOR", files=2)),
        Compact("MAJOR", Compaction("MAJOR")),
        Compact("MAJOR into two", Compaction("MAJOR", pieces=2)),
        Compact("MAJOR clustered", Compaction("MAJOR", clustered=True)),
        AddColumn("ADD COLUMN"),
        SetProperties("SET", (("delta.checkpointInterval", "50"),)),
    ]
    if setting.partitioned:
        found.append(Overwrite("OVERWRITE p=1", (Row(2, 1, 2002),), partition=1))
        found.append(Overwrite("OVERWRITE dynamic", (Row(202, 2, 2020),), dynamic=True))
        found.append(Truncate("TRUNCATE p=1", partition=1))
    found += [ForeignWrite(kind.value, Foreign(kind)) for kind in ForeignKind if setting.vectors or not kind.vectors]
    return {operation.name: operation for operation in found}


# Operations of single tests, left out of the exhaustive histories to keep these short.
MORE = (
    Delete("DELETE k<5", Where("k", "<", 5)),
    Delete("DELETE k=5", Where("k", "=", 5)),
    Delete("DELETE v>1000", Where("v", ">", 1000)),
    Delete("DELETE k=3", Where("k", "=", 3)),
    Update("UPDATE k<=3", Where("k", "<=", 3), "k", added=False, number=1),
    Ordered("ORDERED same", (Row(1, 1, 10),)),
    Ordered("ORDERED late", (Row(4, 1, 45),)),
)


def _dicts(rows: tuple[Row, ...]) -> list[Mapping[str, int]]:
    return [row._asdict() for row in rows]
