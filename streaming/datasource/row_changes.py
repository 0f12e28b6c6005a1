"""UPDATE, DELETE and MERGE by keys of `spark.sql`, from the plan that Spark made of the statement.

`RowChanges.java` finds the statements. Conditions and new values are translated from Spark's expressions, so they mean
what they mean in Spark, or are refused by name. The rows of a MERGE's source are Spark's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's convention

from tidelog.log import Committed, Table, Transaction
from tidelog.log.commit.burial import columns_of_rows
from tidelog.log.data.conform import conform
from tidelog.log.data.indexed_key import IndexedKey
from tidelog.log.errors import PredicateError, TidelogError
from tidelog.log.operations.merge_rules import Rule, merge_rules
from tidelog.log.presentable import brief
from tidelog.log.system import REAL_SYSTEM
from tidelog.streaming.datasource.spark_expressions import (
    ExpressionText,
    computed_columns,
    each,
    is_collated,
    is_constant,
    is_widening,
    node_kind,
    type_name,
)
from tidelog.streaming.executors.plain_frame import quoted
from tidelog.streaming.executors.spark_table import SparkTable


@dataclass(frozen=True, slots=True)
class Done:
    """What a statement did: its commit, and the number of rows."""

    committed: Committed
    rows: int


_Value = TypeVar("_Value")
# The states of SQL for values that cannot be computed: "data exceptions".
_OF_VALUES = "22"
# What one process does of a MERGE that Spark's tasks could run: rows of a source, bytes of a table in which it looks
# for keys, and bytes of a source, or of a table that it reads wholly.
_MOST_ROWS = 100_000
_MOST_BYTES = 2**30
_MOST_BYTES_OF_ALL = 256 * 2**20
# Spark's estimate for what it knows nothing of is far above this.
_UNKNOWN_BYTES = 2**60
# Spark's error for a result that is too large for the driver names its setting.
_RESULT_SIZE = "spark.driver.maxResultSize"
# Under this local property a caller of Spark says where to keep the outcome: Spark runs a statement in a thread of its
# own, and has no room for a result.
OUTCOME = "tidelog.outcome"
_outcomes: dict[str | None, Done | TidelogError] = {}


def outcome(key: str) -> Done | TidelogError | None:
    """What the statement under this key did, or its error; None if it was another one. It can be asked for once."""
    return _outcomes.pop(key, None)


def translated(spark: SparkSession, table: Table, plan: Any) -> Done:
    """Run a statement by its plan, in which Spark has given each column its value.

    Raises PredicateError for what has no translation, and for a MERGE that is more work than one process should do, and
    the errors of the methods of `SparkTable`.
    """
    if node_kind(plan) == "MergeIntoTable":
        return _merge(_chosen(_Merge(spark, plan), table))
    if node_kind(plan) == "UpdateTable":
        return _update(spark, table, plan)
    return _delete(spark, table, plan)


def with_outcome(spark: SparkSession, run: Callable[[], Done]) -> None:
    """Run a statement, and keep its outcome for a caller of Spark who wants it. Raises the errors of `run`."""
    try:
        found: Done | TidelogError = run()
    except TidelogError as error:
        found = error
    key = spark.sparkContext.getLocalProperty(OUTCOME)
    if key is not None:
        _outcomes[key] = found
    if isinstance(found, TidelogError):
        raise found


def _update(spark: SparkSession, table: Table, plan: Any) -> Done:
    text = ExpressionText(computed=computed_columns(plan.table()))

    def new_value(node: Any, field: Any) -> str | pa.Array:
        try:
            return text.new_value(node, type_name(field))
        except PredicateError as error:
            if not is_constant(node):
                raise _unless_nested(node) or error from None
        return _constant(spark, node, table.schema.field(str(field.name())))

    values = _values(plan.assignments(), new_value)
    condition = plan.condition().get() if plan.condition().isDefined() else None
    done = SparkTable(spark, table).update("true" if condition is None else _condition(condition, text), values)
    return Done(done, done.metrics.get("numUpdatedRows", 0))


def _unless_nested(node: Any) -> PredicateError | None:
    """The error for a value with parts that an UPDATE makes of a row's values; None for any other."""
    if not type_name(node).startswith(("struct<", "array<", "map<")):
        return None
    return PredicateError(
        f"UPDATE cannot make {brief(node.sql())}, a struct, an array or a map, of the values of a row",
        advice="use MERGE INTO ... USING (SELECT key, ... AS value FROM ...) AS s ON t.key = s.key "
        "WHEN MATCHED THEN UPDATE SET column = s.value",
        token=str(node.sql()),
    )


def _constant(spark: SparkSession, node: Any, field: pa.Field) -> pa.Array:
    """A constant expression that has no translation, such as a struct, as an array of the column's type."""
    one_row: Any = spark.range(1)._jdf  # noqa: SLF001 - PySpark has no plans
    plan = one_row.queryExecution().analyzed()
    value = _in_utc(_rows(spark, plan, [node]).select(F.col("c1").alias(field.name)).toArrow())
    return conform(value, pa.schema([field]))[field.name].combine_chunks()


def _rows(spark: SparkSession, plan: Any, values: Sequence[Any]) -> DataFrame:
    """The rows of a plan and more values, as the columns c0, c1 and so on."""
    jvm: Any = spark.sparkContext._jvm  # noqa: SLF001 - PySpark's only way to the JVM
    made = DataFrame(jvm.tidelog.RowChanges.rows(spark._jsparkSession, plan, list(values)), spark)  # noqa: SLF001
    # By their places: columns of a source can have one name.
    return made.toDF(*(f"c{place}" for place in range(len(made.columns))))


def _values(assignments: Any, text: Callable[[Any, Any], _Value]) -> dict[str, _Value]:
    """The new value of each column, by `text`. Raises PredicateError."""
    values: dict[str, _Value] = {}
    for assignment in each(assignments):
        key = assignment.key()
        values[str(key.name())] = text(assignment.value(), key)
    if not values:
        # Spark's plan does not say any more which columns get the values that they have.
        raise PredicateError("each column gets the value that it has", advice="let Spark's tasks write the rows")
    return values


def _condition(node: Any, text: ExpressionText) -> str:
    # An unknown condition selects nothing.
    is_unknown = node_kind(node) == "Literal" and node.value() is None
    return "false" if is_unknown else text.text(node)


def _delete(spark: SparkSession, table: Table, plan: Any) -> Done:
    where = _condition(plan.condition(), ExpressionText(computed=computed_columns(plan.table())))
    # All rows are deleted without reading them, unless they leave tombstones, which a TRUNCATE takes away.
    reads_none = where == "true" and columns_of_rows(table.head.metadata, table.path) is None
    done = table.truncate() if reads_none else SparkTable(spark, table).delete(where)
    return Done(done, done.metrics.get("numDeletedRows", 0))


# --- MERGE ------------------------------------------------------------------------------------------------------------


def _merge(run: Callable[[], Committed]) -> Done:
    try:
        done = run()
    except PySparkException as error:
        if not (error.getSqlState() or "").startswith(_OF_VALUES):
            raise
        raise PredicateError(
            "a value or condition of MERGE fails for a row of the source, and it is computed for each of them, also "
            f"for those that the clause leaves out: {str(error).partition(chr(10))[0]}",
            advice="compute it in the source for the rows that have it, as in CASE WHEN x <> 0 THEN 10 / x END",
        ) from error
    return Done(done, sum(done.metrics.get(f"numTargetRows{kind}", 0) for kind in ("Inserted", "Updated", "Deleted")))


def _chosen(merge: _Merge, table: Table) -> Callable[[], Committed]:
    """The way of a MERGE that costs least: by this process alone if it is small, else as an upsert of Spark's tasks.

    Raises PredicateError if it should run in Spark's own way: both sides are read then, and sorted by their keys.
    """
    snapshot = table.at()
    size = pc.sum(snapshot.state.files().adds["size"]).as_py() or 0
    indexed = IndexedKey.of(snapshot.state.head.metadata, snapshot.schema)
    finds_keys = size <= _MOST_BYTES or (indexed is not None and set(indexed.names) == set(merge.keys))
    reads_all = merge.has_rules_by_source and size > _MOST_BYTES_OF_ALL
    if finds_keys and not reads_all and merge.source_bytes <= _MOST_BYTES_OF_ALL:
        return lambda: merge.by_rules(table)
    if not finds_keys and merge.is_plain():
        # The statistics of files, which an upsert compares with its keys, leave out most of a large table.
        return lambda: merge.upserted(table)
    raise _too_large(f"its source has about {merge.source_bytes:,} bytes, and the table {size:,}")


def _too_large(what: str) -> PredicateError:
    return PredicateError(f"the MERGE is too large for one process: {what}", advice="let Spark's tasks run it")


class _Merge:
    """A MERGE by keys.

    Spark's tasks run it as an upsert if it writes whole rows. Otherwise the driver collects the source, and the rows of
    the table that change.
    """

    def __init__(self, spark: SparkSession, plan: Any) -> None:
        self.spark = spark
        self._plan = plan
        columns = list(each(plan.targetTable().output()))
        # Columns that Spark has added for an expression that it needs twice are none of the table's.
        self._computed = computed_columns(plan.targetTable())
        names = {column.exprId().id(): str(column.name()) for column in columns}
        self._target = {number: name for number, name in names.items() if not name.startswith("_common_expr_")}
        self._source = [column.exprId().id() for column in each(plan.sourceTable().output())]
        # The place of the source's column for each key.
        self._keys = self._pairs(plan.mergeCondition())

    def _pairs(self, condition: Any) -> dict[str, int]:
        if node_kind(condition) == "And":
            pairs = self._pairs(condition.left())
            for name, place in self._pairs(condition.right()).items():
                if pairs.setdefault(name, place) != place:
                    raise _refused(f"ON {condition.sql()}, which compares {name!r} twice")
            return pairs
        if node_kind(condition) == "EqualTo":
            sides = [self._widened(side) for side in (condition.left(), condition.right())]
            if all(node_kind(side) == "AttributeReference" and not is_collated(side) for side in sides):
                first, second = (side.exprId().id() for side in sides)
                for mine, theirs in ((first, second), (second, first)):
                    if mine in self._target and mine not in self._computed and theirs in self._source:
                        return {self._target[mine]: self._source.index(theirs)}
        raise _refused(f"ON {condition.sql()}")

    def _widened(self, side: Any) -> Any:
        """A column of the source below its conversion to the type of a wider key."""
        if node_kind(side) != "Cast" or node_kind(side.child()) != "AttributeReference":
            return side
        is_source = side.child().exprId().id() in self._source
        return side.child() if is_source and is_widening(side) else side

    @property
    def keys(self) -> list[str]:
        """The table's columns by which rows are matched."""
        return list(self._keys)

    @property
    def has_rules_by_source(self) -> bool:
        """Whether rows of the table are changed that no row of the source matches."""
        return bool(self._plan.notMatchedBySourceActions().size())

    @property
    def source_bytes(self) -> int:
        """The size of the source by Spark's estimate; 0 if it is not known."""
        size = int(str(self._plan.sourceTable().stats().sizeInBytes()))
        return size if size < _UNKNOWN_BYTES else 0

    # --- whole rows

    def is_plain(self) -> bool:
        """Whether it is an upsert: DELETE by a condition over the source, then UPDATE and INSERT of whole rows."""
        matched, new = list(each(self._plan.matchedActions())), list(each(self._plan.notMatchedActions()))
        if self._plan.notMatchedBySourceActions().size() or self._reads_target():
            return False
        deletes = [action for action in matched[:1] if node_kind(action) == "DeleteAction"]
        rest = [*matched[len(deletes) :], *new]
        if [node_kind(action) for action in rest] != ["UpdateAction", "InsertAction"]:
            return False
        update, insert = rest
        conditions = [action.condition() for action in (*deletes, insert) if action.condition().isDefined()]
        if update.condition().isDefined() or len(conditions) != 2 * len(deletes):
            return False
        found = [self._whole_row(action) for action in (update, insert)]
        if not all(self._reads_source(condition.get()) for condition in conditions) or None in found:
            return False
        values, others = found
        if values is None or others is None or not all(values[name].semanticEquals(others[name]) for name in values):
            return False
        # A key that the row gets is the one that it was found by.
        for name, place in self._keys.items():
            bare = self._widened(values[name])
            if node_kind(bare) != "AttributeReference" or bare.exprId().id() != self._source[place]:
                return False
        self._values, self._conditions = values, [condition.get() for condition in conditions]
        return True

    def _reads_target(self) -> bool:
        """Whether the source reads the table itself: then the rows must be of the version that is changed."""
        jvm: Any = self.spark.sparkContext._jvm  # noqa: SLF001 - PySpark's only way to the JVM
        return bool(jvm.tidelog.RowChanges.reads(self._plan))

    def _reads_source(self, node: Any) -> bool:
        """Whether an expression reads nothing but the source."""
        names = {attribute.exprId().id() for attribute in each(node.references().toSeq())}
        return names <= set(self._source)

    def _whole_row(self, action: Any) -> dict[str, Any] | None:
        """The value of each column; None if one reads the table, or is missing."""
        assignments = list(each(action.assignments()))
        values = {str(given.key().name()): given.value() for given in assignments}
        whole = set(values) == set(self._target.values()) and all(map(self._reads_source, values.values()))
        return values if whole else None

    def upserted(self, table: Table) -> Committed:
        """Run it as an upsert."""
        own = SparkTable(self.spark, table)
        names, first = list(self._target.values()), len(self._source)
        rows = self._rows([*(self._values[name] for name in names), *self._conditions])
        columns = [F.col(f"c{first + place}").alias(name) for place, name in enumerate(names)]
        if not self._conditions:
            return own.upsert_once(rows.select(*columns), self.keys)
        gone, new = (F.col(f"c{first + len(names) + place}") for place in (0, 1))
        checked = F.when(gone.isNotNull() & new.eqNullSafe(~gone), gone).otherwise(
            F.raise_error(
                F.lit(
                    "MERGE is supported if just those rows of the source are inserted for which the condition of "
                    "DELETE is false; a row has another value, or null: write coalesce(condition, false)"
                )
            ).cast("boolean")
        )
        free = _free("gone", names)
        rows = rows.select(*columns, checked.alias(free))
        return own.upsert_once(rows, self.keys, quoted(free))

    def _rows(self, values: Sequence[Any]) -> DataFrame:
        return _rows(self.spark, self._plan.sourceTable(), values)

    # --- rules

    def by_rules(self, table: Table) -> Committed:
        """Run it with rules."""
        prefix = _free("source_", [name[: len("source_")] for name in self._target.values()])
        expressions = ExpressionText(lambda node: self._sided(node, prefix), self._computed)
        computed: list[Any] = []

        def text(node: Any, field: Any = None, *, has_source: bool = True) -> str:
            try:
                return expressions.text(node) if field is None else expressions.new_value(node, type_name(field))
            except PredicateError:
                if not (has_source and self._reads_source(node)):
                    raise
            # Spark computes it for each row of the source.
            computed.append(node)
            return f"source.{prefix}{len(self._source) + len(computed) - 1}"

        def rules(actions: Any, *, has_source: bool = True) -> list[Rule]:
            found: list[Rule] = []
            of_action = partial(text, has_source=has_source)
            for action in each(actions):
                where = of_action(action.condition().get()) if action.condition().isDefined() else None
                gone = node_kind(action) == "DeleteAction"
                values = {} if gone else _values(action.assignments(), of_action)
                found.append((where, "delete" if gone else values))
            return found

        given = merge_rules(
            rules(self._plan.matchedActions()),
            rules(self._plan.notMatchedActions()),
            rules(self._plan.notMatchedBySourceActions(), has_source=False),
            REAL_SYSTEM.now_ms,
        )
        given = replace(given, reads_all=self._reads_target())
        source: pa.Table | None = None

        def staged(transaction: Transaction) -> Transaction:
            nonlocal source
            # A source that reads the table is read in each attempt, and any other once: it could give other rows.
            if source is None or given.reads_all:
                rows = self._rows(computed)
                columns = [F.col(name).alias(f"{prefix}{place}") for place, name in enumerate(rows.columns)]
                keys = [F.col(f"c{place}").alias(name) for name, place in self._keys.items()]
                rows = rows.select(*columns, *keys)
                source = _in_utc(_few(rows))
                if source.num_rows > _MOST_ROWS:
                    raise _too_large(f"its source has more than {_MOST_ROWS:,} rows")
            return transaction.merge(source, given, list(self._keys))

        return table.statement(staged)

    def _sided(self, node: Any, prefix: str) -> str:
        number = node.exprId().id()
        if number in self._target:
            return f"target.{quoted(self._target[number])}"
        return f"source.{prefix}{self._source.index(number)}"


def _few(rows: DataFrame) -> pa.Table:
    """The rows, or one more than `_MOST_ROWS`. Raises PredicateError if they are too many bytes for the driver."""
    try:
        return rows.limit(_MOST_ROWS + 1).toArrow()
    except PySparkException as error:
        if _RESULT_SIZE not in str(error):
            raise
        raise _too_large("its source is too large for the driver") from error


def _free(name: str, names: Sequence[str]) -> str:
    """A name that no column has."""
    while name.lower() in {other.lower() for other in names}:
        name += "_"
    return name


def _in_utc(rows: pa.Table) -> pa.Table:
    """Spark names the session's time zone in the types."""
    fields = [
        field.with_type(pa.timestamp("us", "UTC")) if pt.is_timestamp(field.type) and field.type.tz else field
        for field in rows.schema
    ]
    return rows.cast(pa.schema(fields))


def _refused(part: str) -> PredicateError:
    return PredicateError(f"a MERGE with {part} has no translation", advice="let Spark's tasks run it")
