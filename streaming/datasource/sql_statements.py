"""`sql(spark, text)`: UPDATE, DELETE and MERGE by keys, also where `spark.sql` cannot take them, as on Spark Connect.

There the text is read here, and predicates are those of `table(spark, path)`; a classic session has Spark's own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import sqlglot
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from sqlglot import expressions as exp

from tidelog.log import Committed, Table
from tidelog.log.errors import ConfigurationError, PredicateError, TidelogError
from tidelog.log.predicate.dialect import STATEMENTS
from tidelog.log.presentable import brief
from tidelog.log.system import REAL_SYSTEM
from tidelog.streaming.datasource import row_changes
from tidelog.streaming.datasource.procedure_texts import ProcedureCall, procedure_call
from tidelog.streaming.datasource.procedures import is_own_table, run_procedure
from tidelog.streaming.datasource.sql_catalog import table_place
from tidelog.streaming.executors.plain_frame import quoted
from tidelog.streaming.executors.session import is_connect, prepare_session
from tidelog.streaming.executors.spark_table import SparkTable

_CATALOG = "tidelog"
_CATALOG_SETTING = "spark.sql.catalog.tidelog"
_WORDS = {"UPDATE": exp.Update, "DELETE": exp.Delete, "MERGE": exp.Merge}
# What a statement, and the name of its table, can have.
_PARTS: Mapping[type, set[str]] = {
    exp.Update: {"this", "expressions", "where"},
    exp.Delete: {"this", "where"},
    exp.Merge: {"this", "using", "on", "whens"},
    exp.Table: {"this", "db", "catalog", "alias"},
}
# How Spark says so: it takes HISTORY and DETAIL for names of tables.
# That of a server which does not have tidelog.
_NO_PROCEDURE = "UNRESOLVED_ROUTINE"
_UNKNOWN = {"PARSE_SYNTAX_ERROR", "TABLE_OR_VIEW_NOT_FOUND"}
_UPDATE = "UPDATE tidelog.`/path` SET column = value WHERE predicate"
_MERGE = (
    "MERGE INTO tidelog.`/path` AS t USING source AS s ON t.key = s.key [WHEN MATCHED AND condition THEN DELETE] WHEN "
    "MATCHED THEN UPDATE SET * WHEN NOT MATCHED [AND NOT condition] THEN INSERT *"
)


def sql(spark: SparkSession, text: str) -> DataFrame:
    """Run a statement on a table of the catalog `tidelog`, and all others by Spark.

    UPDATE, DELETE and MERGE by keys, `CALL tidelog.system...`, and statements that Spark's parser does not know:
    OPTIMIZE, VACUUM, RESTORE, DESCRIBE HISTORY and DESCRIBE DETAIL.

    In a classic session `spark.sql` takes them as well; this also works on Spark Connect, and says what was changed. A
    change is one commit, or none if it fails. Executors do the work, as for `table(spark, path)`; predicates and new
    values are tidelog's (see "Predicates" in the reference), not Spark's.

    MERGE takes equalities of columns with the same names as its condition, UPDATE SET * and INSERT *, and one
    DELETE: `WHEN MATCHED AND s.gone THEN DELETE`, with `WHEN NOT MATCHED AND NOT s.gone THEN INSERT *`. The source has
    all columns of the table, each key once, and no null in a key. A row for which that condition is null is written.

    Args:
        spark: A Spark session, classic or Spark Connect.
        text: One SQL statement. A table is tidelog.`/path`, or a name below the catalog's warehouse.

    Returns:
        Of UPDATE, DELETE and MERGE a row with the version of the commit and `num_affected_rows`; of the statements that
        Spark does not know what their procedure returns; else Spark's frame.

    Raises:
        PredicateError: A part of the statement is not supported; the error says what is.
        ConfigurationError: Spark does not know the statement, such as OPTIMIZE, and the table is none of tidelog's.
        SchemaMismatchError, DuplicateKeyError, AppendOnlyError, ConflictError: As for the methods of `SparkTable`.

    Example:
        sql(spark, "UPDATE tidelog.`/data/orders` SET state = 'paid' WHERE id = 7")
    """
    call: ProcedureCall | None = None
    refused: PredicateError | None = None
    try:
        call = procedure_call(text)
    except PredicateError as error:
        refused = error
    is_call = call is not None and call.statement == "CALL"
    if call is not None and (not is_call or is_connect(spark)) and is_own_table(spark, call.values.get("table")):
        return run_procedure(spark, call.name, call.values)
    try:
        return _ran(spark, text)
    except PySparkException as error:
        if call is not None and is_call and is_connect(spark) and error.getCondition() == _NO_PROCEDURE:
            return run_procedure(spark, call.name, call.values)
        if is_call or error.getCondition() not in _UNKNOWN:
            raise
        if refused is not None:
            raise refused from error
        if call is None:
            raise
        raise ConfigurationError(
            f"{call.statement} is not a statement of Spark, and {call.values['table']} is not a table of tidelog's",
            advice=f"name one by its path, as in tidelog.`/path/to/table`: then it is {call}",
        ) from error


def _ran(spark: SparkSession, text: str) -> DataFrame:
    if not is_connect(spark) and spark.conf.get(_CATALOG_SETTING, None) is not None:
        return _by_spark(spark, text)
    words = text.split(maxsplit=1)
    kind = _WORDS.get(words[0].upper()) if words else None
    if kind is None:
        return spark.sql(text)
    try:
        statement = sqlglot.parse_one(text, dialect=STATEMENTS)
    except sqlglot.ParseError:
        return spark.sql(text)  # its error is Spark's
    if not isinstance(statement, kind) or not _is_ours(statement.this):
        return spark.sql(text)
    done, rows = _run(_Statement(spark, statement, *_place(spark, statement.this)))
    return _result(spark, done, rows)


def _by_spark(spark: SparkSession, text: str) -> DataFrame:
    key = REAL_SYSTEM.uuid()
    spark.sparkContext.setLocalProperty(row_changes.OUTCOME, key)
    failed: PySparkException | None = None
    try:
        frame = spark.sql(text)
    except PySparkException as error:
        failed = error
    finally:
        # Taken in any case: nobody else would.
        done = row_changes.outcome(key)
        spark.sparkContext.setLocalProperty(row_changes.OUTCOME, None)  # type: ignore[arg-type]
    if failed is not None:
        raise done if isinstance(done, TidelogError) else failed
    return _result(spark, done.committed, done.rows) if isinstance(done, row_changes.Done) else frame


def _result(spark: SparkSession, done: Committed, rows: int) -> DataFrame:
    return spark.createDataFrame([(done.version, rows)], "version long, num_affected_rows long")


class _Statement:
    """A statement, and the table that it changes."""

    def __init__(
        self, spark: SparkSession, parsed: exp.Expression, path: str, storage_options: Mapping[str, str]
    ) -> None:
        self.spark = spark
        self.parsed = parsed
        for part, known in ((parsed, _PARTS[type(parsed)]), (parsed.this, _PARTS[exp.Table])):
            for name, more in part.args.items():
                if more and name not in known:
                    raise _unsupported(more if isinstance(more, exp.Expression) else parsed, f"{_UPDATE}; {_MERGE}")
        prepare_session(spark)
        opened = Table.open(path, storage_options=storage_options)
        self.schema = opened.schema
        self.table = SparkTable(spark, opened)

    def where(self) -> str:
        """The condition of UPDATE and DELETE."""
        where = self.parsed.args.get("where")
        return "true" if where is None else _text(where.this, self.parsed.this.alias_or_name) or "true"


def _run(statement: _Statement) -> tuple[Committed, int]:
    run = {exp.Update: _update, exp.Delete: _delete, exp.Merge: _merge}[type(statement.parsed)]
    return run(statement)


def _names(table: exp.Expression) -> list[str]:
    return [part.name for part in table.parts] if isinstance(table, exp.Table) else []


def _is_ours(table: exp.Expression) -> bool:
    names = _names(table)
    return bool(names) and names[0] == _CATALOG


def _place(spark: SparkSession, table: exp.Expression) -> tuple[str, dict[str, str]]:
    """The table's path, and its storage options."""
    names = _names(table)
    return table_place(spark, names[1:] if names[0] == _CATALOG and len(names) > 1 else names)


def _text(node: Any, table: str, refused: str | None = None) -> str | None:
    """A part of a statement as text, without the name of the table before those of its columns.

    Raises PredicateError for a column of the table `refused`, and for a parameter.
    """
    if node is None:
        return None
    _require_values(node)
    plain = node.copy()
    for column in list(plain.find_all(exp.Column)):
        first, *rest = column.parts
        if rest and refused is not None and first.name.lower() == refused.lower():
            raise _unsupported(node, _MERGE)
        if rest and first.name.lower() == table.lower():
            short = exp.column(*reversed([part.copy() for part in rest]))
            if column is plain:
                plain = short
            else:
                column.replace(short)
    return str(plain.sql(dialect=STATEMENTS))


def _names_in(part: exp.Expression | None) -> set[str]:
    """The names of columns, and of what is above them, in lower case."""
    columns = () if part is None else part.find_all(exp.Column)
    return {name.name.lower() for column in columns for name in column.parts}


def _require_values(part: exp.Expression) -> None:
    """Raise PredicateError for a parameter, whose value is not in the text."""
    found = part.find(exp.Placeholder, exp.Parameter)
    if found is not None:
        raise _unsupported(found, "the value into the text")


def _update(statement: _Statement) -> tuple[Committed, int]:
    values: dict[str, str] = {}
    name = statement.parsed.this.alias_or_name
    for assignment in statement.parsed.expressions:
        column = assignment.this if isinstance(assignment, exp.EQ) else None
        above = [part.name.lower() for part in column.parts[:-1]] if isinstance(column, exp.Column) else None
        # A part above can be the table's name, or a struct whose field is set.
        if column is None or above not in ([], [name.lower()]):
            raise _unsupported(assignment, _UPDATE)
        values[column.name] = _text(assignment.expression, name) or ""
    done = statement.table.update(statement.where(), values)
    return done, done.metrics.get("numUpdatedRows", 0)


def _delete(statement: _Statement) -> tuple[Committed, int]:
    done = statement.table.delete(statement.where())
    return done, done.metrics.get("numDeletedRows", 0)


def _merge(statement: _Statement) -> tuple[Committed, int]:
    parsed, schema = statement.parsed, statement.schema
    target, source = parsed.this, parsed.args["using"]
    keys = _keys(parsed.args["on"], target.alias_or_name, source.alias_or_name)
    delete = _merge_delete(parsed)
    gone = _text(delete, source.alias_or_name, refused=target.alias_or_name)
    _require_values(source)
    rows = statement.spark.sql(exp.select("*").from_(source).sql(dialect=STATEMENTS))
    found = {name.lower() for name in rows.columns}
    missing = [name for name in schema.names if name.lower() not in found]
    if missing:
        raise PredicateError(
            f"the source of MERGE lacks the columns {', '.join(missing)}",
            advice="UPDATE SET * and INSERT * need all columns of the table: add them to the source",
        )
    # Columns that only the condition names are not the table's.
    own = {name.lower() for name in schema.names}
    more = [name for name in rows.columns if name.lower() in _names_in(delete) - own]
    rows = rows.select(*map(quoted, [*schema.names, *more]))
    done = statement.table.upsert(rows, keys=keys, delete_where=gone, order_by=())
    return done, sum(done.metrics.get(f"numTargetRows{kind}", 0) for kind in ("Inserted", "Updated", "Deleted"))


def _keys(condition: exp.Expression, target: str, source: str) -> Sequence[str]:
    keys = []
    for part in condition.flatten() if isinstance(condition, exp.And) else [condition]:
        sides = [part.this, part.expression] if isinstance(part, exp.EQ) else []
        names = {side.table: side.name for side in sides if isinstance(side, exp.Column)}
        if set(names) != {target, source} or len(set(names.values())) != 1:
            raise _unsupported(part, _MERGE)
        keys.append(next(iter(names.values())))
    return keys


def _merge_delete(statement: exp.Expression) -> exp.Expression | None:
    """The condition under which a row of the source deletes its key."""
    delete: exp.Expression | None = None
    inserts: list[exp.Expression | None] = []
    updates = 0
    for when in statement.args["whens"].expressions:
        refuse = partial(_unsupported, when, _MERGE)
        matched, condition, then = when.args.get("matched"), when.args.get("condition"), when.args.get("then")
        if when.args.get("source"):
            raise refuse()
        is_delete = isinstance(then, exp.Var) and then.name == "DELETE"
        if matched and is_delete and condition is not None and delete is None and not updates:
            delete = condition
        elif matched and isinstance(then, exp.Update) and _is_all(then.expressions) and condition is None:
            updates += 1
        elif not matched and isinstance(then, exp.Insert) and _is_all([then.this]):
            inserts.append(condition)
        else:
            raise refuse()
    if updates != 1 or len(inserts) != 1 or not _is_not(inserts[0], delete):
        raise _unsupported(statement, _MERGE)
    return delete


def _is_all(parts: Sequence[exp.Expression]) -> bool:
    return len(parts) == 1 and isinstance(parts[0], exp.Star)


def _is_not(condition: exp.Expression | None, delete: exp.Expression | None) -> bool:
    """Whether the first is the opposite of the second, or both are missing."""
    if condition is None or delete is None:
        return condition is delete
    inner = condition.this.unnest() if isinstance(condition, exp.Not) else None
    return inner is not None and inner == delete.unnest()


def _unsupported(part: Any, instead: str) -> PredicateError:
    return PredicateError(
        f"{brief(part.sql(dialect=STATEMENTS))} is not supported here",
        advice=f"write {instead}; or use the methods of tidelog.streaming.table(spark, path)",
    )
