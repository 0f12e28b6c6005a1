"""UPDATE, DELETE and MERGE by keys of `spark.sql`, from the plan that Spark made of the statement.

`RowChanges.java` finds the statements. Conditions and new values are translated from Spark's expressions, so they mean
what they mean in Spark, or are refused by name. The rows of a MERGE's source are Spark's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's convention

from tidelog.log import Committed, Table
from tidelog.log.errors import PredicateError, TidelogError
from tidelog.streaming.datasource.spark_expressions import (
    each,
    is_widening,
    new_value,
    node_kind,
    predicate_text,
    type_name,
)
from tidelog.streaming.datasource.sql_catalog import changed_place
from tidelog.streaming.executors.plain_frame import quoted
from tidelog.streaming.executors.session import prepare_session
from tidelog.streaming.executors.spark_table import SparkTable

_FORM = (
    "ON t.key = s.key [WHEN MATCHED AND condition THEN DELETE] WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED "
    "[AND NOT condition] THEN INSERT *"
)
_GONE = "gone"


@dataclass(frozen=True, slots=True)
class Done:
    """What a statement did: its commit, and the number of rows."""

    committed: Committed
    rows: int


# Under this local property a caller of Spark says where to keep the outcome: Spark runs a statement in a thread of its
# own, and has no room for a result.
OUTCOME = "tidelog.outcome"
_outcomes: dict[str | None, Done | TidelogError] = {}


def outcome(key: str) -> Done | TidelogError | None:
    """What the statement under this key did, or its error; None if it was another one. It can be asked for once."""
    return _outcomes.pop(key, None)


def change(spark: SparkSession, request: Mapping[str, Any], plan: Any) -> None:
    """Run the statement of a plan on the table of the request's options.

    Raises PredicateError for what has no translation, and the errors of the methods of `SparkTable`.
    """
    try:
        path, storage_options = changed_place(request)
        prepare_session(spark)
        table = SparkTable(spark, Table.open(path, storage_options=storage_options))
        run = {"UpdateTable": _update, "DeleteFromTable": _delete, "MergeIntoTable": _merge}[node_kind(plan)]
        found: Done | TidelogError = run(spark, table, plan)
    except TidelogError as error:
        found = error
    key = spark.sparkContext.getLocalProperty(OUTCOME)
    if key is not None:
        _outcomes[key] = found
    if isinstance(found, TidelogError):
        raise found


def _update(_: SparkSession, table: SparkTable, plan: Any) -> Done:
    values: dict[str, str] = {}
    for assignment in each(plan.assignments()):
        key, value = assignment.key(), assignment.value()
        if node_kind(key) != "AttributeReference":
            raise PredicateError(
                f"{key.sql()} is a field of a struct, and cannot be set by itself",
                advice="set the whole column",
            )
        name = str(key.name())
        if node_kind(value) == "AttributeReference" and value.semanticEquals(key):
            continue
        if name in values:
            raise PredicateError(f"the column {name!r} is set twice", advice="set it once")
        values[name] = new_value(value, type_name(key))
    condition = plan.condition().get() if plan.condition().isDefined() else None
    if not values:
        values = {str(key.name()): quoted(str(key.name())) for key in [next(each(plan.assignments())).key()]}
    done = table.update("true" if condition is None else _condition(condition), values)
    return Done(done, done.metrics.get("numUpdatedRows", 0))


def _condition(node: Any) -> str:
    # An unknown condition selects nothing.
    return "false" if node_kind(node) == "Literal" and node.value() is None else predicate_text(node)


def _delete(_: SparkSession, table: SparkTable, plan: Any) -> Done:
    done = table.delete(_condition(plan.condition()))
    return Done(done, done.metrics.get("numDeletedRows", 0))


# --- MERGE ------------------------------------------------------------------------------------------------------------


def _merge(spark: SparkSession, table: SparkTable, plan: Any) -> Done:
    merge = _Merge(plan)
    keys = merge.keys()
    delete, inserts = merge.clauses()
    rows = merge.rows(spark, [node for node in (delete, inserts) if node is not None])
    if delete is not None and inserts is not None:
        gone, new = F.col(rows.columns[-2]), F.col(rows.columns[-1])
        checked = F.when(gone.isNotNull() & new.eqNullSafe(~gone), gone).otherwise(
            F.raise_error(
                F.lit(
                    "MERGE is supported if just those rows of the source are inserted for which the condition of "
                    "DELETE is false; a row has another value, or null: write coalesce(condition, false)"
                )
            ).cast("boolean")
        )
        rows = rows.select(*map(quoted, rows.columns[:-2]), checked.alias(rows.columns[-2]))
    done = table.upsert(rows, keys=keys, delete_where=None if delete is None else quoted(rows.columns[-1]))
    return Done(done, sum(done.metrics.get(f"numTargetRows{kind}", 0) for kind in ("Inserted", "Updated", "Deleted")))


class _Merge:
    """The parts of a MERGE."""

    def __init__(self, plan: Any) -> None:
        self._plan = plan
        columns = each(plan.targetTable().output())
        self._target = {attribute.exprId().id(): str(attribute.name()) for attribute in columns}
        self._source = [attribute.exprId().id() for attribute in each(plan.sourceTable().output())]
        if plan.notMatchedBySourceActions().size():
            raise self._refused("WHEN NOT MATCHED BY SOURCE")
        if plan.withSchemaEvolution():
            raise self._refused("WITH SCHEMA EVOLUTION")
        # The place of the source's column for each column of the table.
        self._columns: dict[str, int] = {}

    def _refused(self, part: str) -> PredicateError:
        return PredicateError(
            f"MERGE with {part} is not supported by spark.sql",
            advice=f"write {_FORM}; or collect the source, and use Table.upsert with when_matched and other rules",
        )

    def keys(self) -> list[str]:
        """The key columns, by their names in the table."""
        return sorted(self._pairs(self._plan.mergeCondition()))

    def _pairs(self, condition: Any) -> dict[str, int]:
        if node_kind(condition) == "And":
            return {**self._pairs(condition.left()), **self._pairs(condition.right())}
        if node_kind(condition) == "EqualTo":
            sides = [self._widened(side) for side in (condition.left(), condition.right())]
            if all(node_kind(side) == "AttributeReference" for side in sides):
                first, second = (side.exprId().id() for side in sides)
                for mine, theirs in ((first, second), (second, first)):
                    if mine in self._target and theirs in self._source:
                        self._set(self._target[mine], self._source.index(theirs), condition)
                        return {self._target[mine]: theirs}
        raise self._refused(f"ON {condition.sql()}")

    def _widened(self, side: Any) -> Any:
        """A column of the source below its conversion to the type of a wider key."""
        if node_kind(side) != "Cast" or node_kind(side.child()) != "AttributeReference":
            return side
        is_source = side.child().exprId().id() in self._source
        return side.child() if is_source and is_widening(side) else side

    def _set(self, column: str, place: int, part: Any) -> None:
        if self._columns.setdefault(column, place) != place:
            raise self._refused(f"another column of the source for {column!r} ({part.sql()})")

    def clauses(self) -> tuple[Any | None, Any | None]:
        """The condition under which a matched row is deleted, and that of inserts, over the source."""
        matched, new = list(each(self._plan.matchedActions())), list(each(self._plan.notMatchedActions()))
        delete: Any | None = None
        if len(matched) == 2 and node_kind(matched[0]) == "DeleteAction":  # noqa: PLR2004 - DELETE and UPDATE
            delete = self._over_source(matched.pop(0).condition())
        if [node_kind(action) for action in (*matched, *new)] != ["UpdateAction", "InsertAction"]:
            raise self._refused("other clauses")
        (update,), (insert,) = matched, new
        if update.condition().isDefined():
            raise self._refused("a condition for UPDATE")
        inserts = self._over_source(insert.condition())
        if (delete is None) != (inserts is None):
            raise self._refused("a condition for only one of DELETE and INSERT")
        for action in (update, insert):
            self._take_assignments(action)
        return delete, inserts

    def _over_source(self, condition: Any) -> Any | None:
        if not condition.isDefined():
            return None
        found = condition.get()
        for attribute in each(found.references().toSeq()):
            if attribute.exprId().id() not in self._source:
                raise self._refused(f"a condition over the table ({found.sql()})")
        return found

    def _take_assignments(self, action: Any) -> None:
        """Where the source has the value of each column."""
        seen = set()
        for assignment in each(action.assignments()):
            key, value = assignment.key(), assignment.value()
            while node_kind(value) in {"Cast", "CheckOverflowInTableInsert"}:
                value = value.child()
            if node_kind(key) != "AttributeReference" or node_kind(value) != "AttributeReference":
                raise self._refused(f"{key.sql()} = {assignment.value().sql()}")
            if value.exprId().id() not in self._source:
                raise self._refused(f"{key.sql()} = {assignment.value().sql()}")
            self._set(str(key.name()), self._source.index(value.exprId().id()), key)
            seen.add(str(key.name()))
        missing = [name for name in self._target.values() if name not in seen]
        if missing:
            raise self._refused(f"no value for {', '.join(missing)}")

    def rows(self, spark: SparkSession, conditions: Sequence[Any]) -> DataFrame:
        """The rows of the source with the columns of the table, and the conditions behind them."""
        context: Any = spark.sparkContext
        jvm: Any = context._jvm  # noqa: SLF001 - PySpark's only way to the JVM
        java = spark._jsparkSession  # noqa: SLF001 - as above
        made = DataFrame(jvm.tidelog.RowChanges.rows(java, self._plan.sourceTable(), list(conditions)), spark)
        # By their places: columns of a source can have one name.
        numbered = made.toDF(*(f"c{place}" for place in range(len(made.columns))))
        names = list(self._target.values())
        free = _GONE
        while free in {name.lower() for name in names}:
            free += "_"
        chosen = [F.col(f"c{self._columns[name]}").alias(name) for name in names]
        first = len(self._source)
        chosen += [F.col(f"c{first + place}").alias(f"{free}{place}") for place in range(len(conditions))]
        return numbered.select(*chosen)
