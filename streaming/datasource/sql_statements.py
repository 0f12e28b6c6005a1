"""`sql(spark, text)`: UPDATE, DELETE with any predicate, and MERGE by keys, on tables of the SQL catalog `tidelog`.

Spark 4 has these statements for a table only through interfaces that rewrite rows one by one. Here they are the methods
of `table(spark, path)`, with their predicates, conflicts and errors. Everything else goes to `spark.sql`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import pyarrow as pa
import sqlglot
from pyspark.sql import DataFrame, SparkSession
from sqlglot import expressions as exp

from tidelog.log import Committed, Table
from tidelog.log.errors import PredicateError
from tidelog.log.presentable import brief
from tidelog.streaming.datasource.sql_catalog import table_place
from tidelog.streaming.executors.plain_frame import quoted
from tidelog.streaming.executors.session import is_connect, prepare_session
from tidelog.streaming.executors.spark_table import SparkTable

_DIALECT = "spark"
_CATALOG = "tidelog"
_WORDS = {"UPDATE": exp.Update, "DELETE": exp.Delete, "MERGE": exp.Merge}
_MERGE = (
    "MERGE INTO tidelog.`/path` AS t USING source AS s ON t.key = s.key [WHEN MATCHED AND condition THEN DELETE] WHEN "
    "MATCHED THEN UPDATE SET * WHEN NOT MATCHED [AND NOT condition] THEN INSERT *"
)


def sql(spark: SparkSession, text: str) -> DataFrame:
    """Run a statement: UPDATE, DELETE and MERGE by keys on a table of the catalog `tidelog`, and all others by Spark.

    A change is one commit, or none if it fails. Executors do the work, as for `table(spark, path)`; predicates and new
    values are tidelog's (see "Predicates" in the reference), not Spark's.

    MERGE takes equalities of columns with the same names as its condition, UPDATE SET * and INSERT *, and one
    DELETE: `WHEN MATCHED AND s.gone THEN DELETE`, with `WHEN NOT MATCHED AND NOT s.gone THEN INSERT *`. The source has
    all columns of the table, each key once, and no null in a key. A row for which that condition is null is written.

    Args:
        spark: A Spark session, classic or Spark Connect.
        text: One SQL statement. A table is tidelog.`/path`, or a name below the catalog's warehouse.

    Returns:
        Of UPDATE, DELETE and MERGE a row with the version of the commit and `num_affected_rows`; else Spark's frame.

    Raises:
        PredicateError: A part of the statement is not supported; the error says what is.
        SchemaMismatchError, DuplicateKeyError, AppendOnlyError, ConflictError: As for the methods of `SparkTable`.

    Example:
        sql(spark, "UPDATE tidelog.`/data/orders` SET state = 'paid' WHERE id = 7")
    """
    words = text.split(maxsplit=1)
    kind = _WORDS.get(words[0].upper()) if words else None
    if kind is None:
        return spark.sql(text)
    try:
        statement = sqlglot.parse_one(text, dialect=_DIALECT)
    except sqlglot.ParseError:
        return spark.sql(text)  # its error is Spark's
    if not isinstance(statement, kind) or not _is_ours(spark, statement.this):
        return spark.sql(text)
    run = {exp.Update: _update, exp.Delete: _delete, exp.Merge: _merge}[kind]
    done, rows = run(spark, statement)
    return spark.createDataFrame([(done.version, rows)], "version long, num_affected_rows long")


def _names(table: exp.Expression) -> list[str]:
    return [part.name for part in table.parts] if isinstance(table, exp.Table) else []


def _is_ours(spark: SparkSession, table: exp.Expression) -> bool:
    names = _names(table)
    current = "" if is_connect(spark) else spark.catalog.currentCatalog()
    return bool(names) and (names[0] == _CATALOG or current == _CATALOG)


def _opened(spark: SparkSession, table: exp.Expression) -> tuple[SparkTable, pa.Schema]:
    """The table, and its columns."""
    names = _names(table)
    names = names[1:] if names[0] == _CATALOG and len(names) > 1 else names
    path, storage_options = table_place(spark, names)
    prepare_session(spark)
    opened = Table.open(path, storage_options=storage_options)
    return SparkTable(spark, opened), opened.schema


def _text(node: Any, table: str, refused: str | None = None) -> str | None:
    """A part of a statement as text, without the name of the table before those of its columns.

    Raises PredicateError for a column of the table `refused`.
    """
    if node is None:
        return None
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
    return str(plain.sql(dialect=_DIALECT))


def _where(statement: exp.Expression) -> str:
    where = statement.args.get("where")
    return (_text(where.this, statement.this.alias_or_name) or "true") if where is not None else "true"


def _update(spark: SparkSession, statement: exp.Expression) -> tuple[Committed, int]:
    values: dict[str, str] = {}
    name = statement.this.alias_or_name
    for assignment in statement.expressions:
        column = assignment.this if isinstance(assignment, exp.EQ) else None
        above = [part.name.lower() for part in column.parts[:-1]] if isinstance(column, exp.Column) else None
        # A part above can be the table's name, or a struct whose field is set.
        if column is None or above not in ([], [name.lower()]):
            raise _unsupported(assignment, "UPDATE tidelog.`/path` SET column = value WHERE predicate")
        values[column.name] = _text(assignment.expression, name) or ""
    table, _ = _opened(spark, statement.this)
    done = table.update(_where(statement), values)
    return done, done.metrics.get("numUpdatedRows", 0)


def _delete(spark: SparkSession, statement: exp.Expression) -> tuple[Committed, int]:
    table, _ = _opened(spark, statement.this)
    done = table.delete(_where(statement))
    return done, done.metrics.get("numDeletedRows", 0)


def _merge(spark: SparkSession, statement: exp.Expression) -> tuple[Committed, int]:
    target, source = statement.this, statement.args["using"]
    keys = _keys(statement.args["on"], target.alias_or_name, source.alias_or_name)
    delete = _merge_delete(statement, target.alias_or_name, source.alias_or_name)
    table, schema = _opened(spark, target)
    rows = spark.sql(exp.select("*").from_(source).sql(dialect=_DIALECT))
    found = {name.lower() for name in rows.columns}
    missing = [name for name in schema.names if name.lower() not in found]
    if missing:
        raise PredicateError(
            f"the source of MERGE lacks the columns {', '.join(missing)}",
            advice="UPDATE SET * and INSERT * need all columns of the table: add them to the source",
        )
    rows = rows.select(*map(quoted, schema.names))
    done = table.upsert(rows, keys=keys, delete_where=delete)
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


def _merge_delete(statement: exp.Expression, target: str, source: str) -> str | None:
    """The condition under which a row of the source deletes its key."""
    delete: exp.Expression | None = None
    updates = inserts = 0
    for when in statement.args["whens"].expressions:
        refuse = partial(_unsupported, when, _MERGE)
        matched, condition, then = when.args.get("matched"), when.args.get("condition"), when.args.get("then")
        if when.args.get("source"):
            raise refuse()
        if matched and isinstance(then, exp.Var) and then.name == "DELETE" and condition is not None and not updates:
            delete = condition
        elif matched and isinstance(then, exp.Update) and _is_all(then.expressions) and condition is None:
            updates += 1
        elif not matched and isinstance(then, exp.Insert) and _is_all([then.this]) and _is_not(condition, delete):
            inserts += 1
        else:
            raise refuse()
    if (updates, inserts) != (1, 1):
        raise _unsupported(statement, _MERGE)
    return _text(delete, source, refused=target)


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
        f"{brief(part.sql(dialect=_DIALECT))} is not supported here",
        advice=f"write {instead}; or use the methods of tidelog.streaming.table(spark, path)",
    )
