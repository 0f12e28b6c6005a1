"""What UPDATE, DELETE and MERGE must make of rows: by SELECTs of Spark over a copy of the rows, without tidelog.

A statement is data here: `Update`, `Delete` and `Merge` have its text for a table, and the SELECT of the same meaning.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, TypeAlias

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.types import DataType, DecimalType, IntegralType

from tidelog.streaming.spark_versions import columns_from_arrow

COPY, SOURCE = "copy_of_rows", "source_of_rows"
CARDINALITY, CONSTRAINT = "MERGE_CARDINALITY_VIOLATION", "TIDELOG_CONSTRAINT_VIOLATION"
# What a column gets; `place.city` is a field of a struct.
Assignments: TypeAlias = Mapping[str, str]


@dataclass(frozen=True)
class Expected:
    """The rows afterwards, and how many rows the statement takes of each kind; or the condition of Spark's error."""

    rows: Counter[str]
    deleted: int = 0
    updated: int = 0
    inserted: int = 0
    error: str | None = None


@dataclass(frozen=True)
class Update:
    """UPDATE ... SET ... WHERE."""

    values: Assignments
    where: str | None

    def text(self, target: str) -> str:
        """The statement."""
        given = ", ".join(f"{name} = {value}" for name, value in self.values.items())
        return f"UPDATE {target} AS t SET {given}" + (f" WHERE {self.where}" if self.where else "")

    def actions(self, schema: pa.Schema) -> str:
        """A SELECT of the rows that it takes: the kind, and the new values."""
        return _select(_where(self.where), {1: ("U", self.values)}, schema)


@dataclass(frozen=True)
class Delete:
    """DELETE FROM ... WHERE."""

    where: str | None

    def text(self, target: str) -> str:
        """The statement."""
        return f"DELETE FROM {target} AS t" + (f" WHERE {self.where}" if self.where else "")

    def actions(self, schema: pa.Schema) -> str:
        """A SELECT of the rows that it takes: the kind, and the new values."""
        return _select(_where(self.where), {1: ("D", {})}, schema)


@dataclass(frozen=True)
class Clause:
    """A clause of MERGE. Its values are None for DELETE; `*` stands for all columns of the source."""

    when: str | None
    values: Assignments | str | None


@dataclass(frozen=True)
class Merge:
    """MERGE INTO ... USING the view `source_of_rows`."""

    on: str
    matched: Sequence[Clause] = field(default=())
    new: Sequence[Clause] = field(default=())
    others: Sequence[Clause] = field(default=())

    def text(self, target: str) -> str:
        """The statement."""
        parts = [f"MERGE INTO {target} AS t USING {SOURCE} AS s ON {self.on}"]
        groups = (("MATCHED", self.matched), ("NOT MATCHED", self.new), ("NOT MATCHED BY SOURCE", self.others))
        for when, clauses in groups:
            for clause in clauses:
                condition = f" AND {clause.when}" if clause.when else ""
                parts.append(f"WHEN {when}{condition} THEN {self._action(clause, inserts=when == 'NOT MATCHED')}")
        return " ".join(parts)

    @staticmethod
    def _action(clause: Clause, *, inserts: bool) -> str:
        if clause.values is None:
            return "DELETE"
        if isinstance(clause.values, str):
            return "INSERT *" if inserts else "UPDATE SET *"
        if inserts:
            return f"INSERT ({', '.join(clause.values)}) VALUES ({', '.join(clause.values.values())})"
        return "UPDATE SET " + ", ".join(f"{name} = {value}" for name, value in clause.values.items())

    @property
    def counts_matches(self) -> bool:
        """Whether a row of the table may match only one of the source: not if all that it does is to DELETE."""
        return bool(self.matched) and not (len(self.matched) == 1 and self.matched[0] == Clause(None, None))

    def actions(self, schema: pa.Schema) -> str:
        """A SELECT of the rows that it takes: the kind, and the new values."""
        numbers: dict[int, tuple[str, Assignments]] = {0: ("K", {})}
        cases = []
        for clauses, kind in ((self.matched, "U"), (self.others, "U"), (self.new, "I")):
            texts = []
            for clause in clauses:
                number = len(numbers)
                values = clause.values or {}
                if isinstance(values, str):
                    values = {name: f"s.{name}" for name in schema.names}
                if kind == "I":
                    values = {name: values.get(name, "NULL") for name in schema.names}
                numbers[number] = ("D" if clause.values is None else kind, values)
                texts.append(f"WHEN {clause.when or 'true'} THEN {number}")
            # A row of the source without a clause is none of the table's.
            rest = -1 if kind == "I" else 0
            cases.append(f"CASE {' '.join(texts)} ELSE {rest} END" if texts else str(rest))
        matched, others, new = cases
        rows = (
            f"(SELECT t, s, CASE WHEN t IS NOT NULL AND s IS NOT NULL THEN {matched} WHEN t IS NOT NULL THEN {others} "
            f"ELSE {new} END AS _k FROM {_structs(COPY, 't')} FULL OUTER JOIN {_structs(SOURCE, 's')} ON {self.on})"
        )
        return _select(rows, numbers, schema, source="s")


Statement: TypeAlias = Update | Delete | Merge


@dataclass(frozen=True)
class Rules:
    """What a table makes of each row that a statement writes: generated columns, and a constraint that must be true."""

    generated: Assignments = field(default_factory=dict)
    constraint: str = "true"


def expected(spark: SparkSession, statement: Statement, before: pa.Table, rules: Rules = Rules()) -> Expected:
    """What becomes of the rows `before`."""
    numbered = before.append_column("_row", pa.array(range(before.num_rows), pa.int64()))
    view(spark, COPY, numbered)
    columns = ", ".join(
        f"{rules.generated[name]} AS {name}" if name in rules.generated else name for name in before.schema.names
    )
    try:
        found = spark.sql(
            f"SELECT *, NOT ({rules.constraint}) AS _breaks FROM "
            f"(SELECT _kind, _row, _pair, {columns} FROM ({statement.actions(before.schema)}))"
        ).toArrow()
    except PySparkException as error:
        return Expected(multiset(before), error=error.getCondition())
    taken: dict[str, list[int | None]] = {kind: [] for kind in "DUIK"}
    for kind, row in zip(found["_kind"].to_pylist(), found["_row"].to_pylist(), strict=True):
        taken[kind].append(row)
    if isinstance(statement, Merge) and statement.counts_matches:
        pairs = found.filter(found["_pair"])["_row"].to_pylist()
        if len(pairs) > len(set(pairs)):
            return Expected(multiset(before), error=CARDINALITY)
    written = found.filter(pa.array([kind in "UI" for kind in found["_kind"].to_pylist()], pa.bool_()))
    if any(breaks is not False for breaks in written["_breaks"].to_pylist()):
        return Expected(multiset(before), error=CONSTRAINT)
    gone = {*taken["D"], *taken["U"]}
    rows = multiset(before.take(pa.array([row for row in range(before.num_rows) if row not in gone], pa.int64())))
    rows += multiset(written.select(before.schema.names))
    return Expected(rows, len(set(taken["D"])), len(taken["U"]), len(taken["I"]))


def view(spark: SparkSession, name: str, rows: pa.Table) -> None:
    """Make the rows a view of the session. Spark would take a time without a zone for one with it."""
    spark.createDataFrame(rows, columns_from_arrow(rows.schema)).createOrReplaceTempView(name)


def multiset(rows: pa.Table) -> Counter[str]:
    """The rows as texts, in which NaN is equal to itself, with the number of each."""
    return Counter(repr({name: _plain(value) for name, value in row.items()}) for row in rows.to_pylist())


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat() if value.tzinfo else value.isoformat()
    return sorted(value) if isinstance(value, list) and value and isinstance(value[0], tuple) else value


def _where(condition: str | None) -> str:
    return f"(SELECT t, 1 AS _k FROM {_structs(COPY, 't')} WHERE {condition or 'true'})"


def _structs(view: str, alias: str) -> str:
    """The rows of a view as one column each, a struct: `t.id` is its field."""
    return f"(SELECT struct(*) AS {alias} FROM {view})"


def _select(
    rows: str, numbers: Mapping[int, tuple[str, Assignments]], schema: pa.Schema, source: str | None = None
) -> str:
    """The new values of the rows, each with the kind of what happens to it."""
    kinds = " ".join(f"WHEN {number} THEN '{kind}'" for number, (kind, _) in numbers.items())
    pair = f"t IS NOT NULL AND {source} IS NOT NULL" if source else "false"
    columns = [f"CASE _k {kinds} END AS _kind", "t._row AS _row", f"{pair} AS _pair"]
    types = columns_from_arrow(schema)
    for name in schema.names:
        values = {number: _value(name, given, schema) for number, (_, given) in numbers.items()}
        kind = types[name].dataType
        cases = " ".join(f"WHEN {n} THEN {_assigned(value, kind)}" for n, value in values.items() if value is not None)
        columns.append(f"CASE _k {cases} ELSE t.{name} END AS {name}" if cases else f"t.{name} AS {name}")
    return f"SELECT {', '.join(columns)} FROM {rows} WHERE _k > 0 OR _k = 0 AND {pair}"


def _assigned(value: str, kind: DataType) -> str:
    """A value as a column gets it: a number that does not fit is an error, whatever the mode of the session."""
    name = kind.simpleString()
    if not isinstance(kind, IntegralType | DecimalType):
        return f"CAST({value} AS {name})"
    # NaN is null as a decimal.
    is_null = f"{value} IS NULL" + f" OR isnan(double({value}))" * isinstance(kind, DecimalType)
    return f"coalesce(try_cast({value} AS {name}), if({is_null}, NULL, raise_error('CAST_OVERFLOW')))"


def _value(column: str, given: Assignments, schema: pa.Schema) -> str | None:
    """The new value of a column, also if only fields of it are set; None if it stays."""
    fields = {name: value for name, value in given.items() if name.startswith(f"{column}.")}
    if not fields:
        return given.get(column)
    kind = schema.field(column).type
    names = [kind.field(place).name for place in range(kind.num_fields)]
    values = (f"'{name}', {fields.get(f'{column}.{name}', f't.{column}.{name}')}" for name in names)
    return f"named_struct({', '.join(values)})"
