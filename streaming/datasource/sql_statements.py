"""UPDATE, DELETE and MERGE by keys, for `spark.sql` in a classic session and for `sql(spark, text)` in any.

Spark 4 has these statements for a table only through interfaces that rewrite rows one by one. Here they are the methods
of `table(spark, path)`, with their predicates, conflicts and errors.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.types as pt
import sqlglot
from pyspark.sql import DataFrame, SparkSession
from sqlglot import expressions as exp

from tidelog.log import Committed, Table
from tidelog.log.errors import PredicateError
from tidelog.log.presentable import brief
from tidelog.streaming import spark_versions
from tidelog.streaming.datasource.pushed_filters import exact_predicate
from tidelog.streaming.datasource.sql_catalog import changed_place, table_place
from tidelog.streaming.executors.plain_frame import quoted
from tidelog.streaming.executors.session import is_connect, prepare_session
from tidelog.streaming.executors.spark_table import SparkTable

_DIALECT = "spark"
_CATALOG = "tidelog"
_ZONE = "spark.sql.session.timeZone"
_UTC = {"UTC", "Etc/UTC", "GMT", "Z", "+00:00"}
_WORDS = {"UPDATE": exp.Update, "DELETE": exp.Delete, "MERGE": exp.Merge}
_UPDATE = "UPDATE tidelog.`/path` SET column = value WHERE predicate"
_MERGE = (
    "MERGE INTO tidelog.`/path` AS t USING source AS s ON t.key = s.key [WHEN MATCHED AND condition THEN DELETE] WHEN "
    "MATCHED THEN UPDATE SET * WHEN NOT MATCHED [AND NOT condition] THEN INSERT *"
)


def sql(spark: SparkSession, text: str) -> DataFrame:
    """Run a statement: UPDATE, DELETE and MERGE by keys on a table of the catalog `tidelog`, and all others by Spark.

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
    done, rows = _run(_Statement(spark, statement, *_place(spark, statement.this)))
    return spark.createDataFrame([(done.version, rows)], "version long, num_affected_rows long")


def change(spark: SparkSession, request: Mapping[str, Any], condition: Any) -> None:
    """Run a statement of `spark.sql` on the table of the request's options.

    `condition` is the statement's as Spark's filter, which means the same in any session; None if it has no filter.

    Raises the errors of `sql`, and PredicateError for a text with times in a session that is not in UTC.
    """
    path, storage_options = changed_place(request)
    try:
        parsed: Any = sqlglot.parse_one(request["text"] or "", dialect=_DIALECT)
    except sqlglot.ParseError:
        parsed = None
    if type(parsed) is not _WORDS[request["statement"]]:
        raise PredicateError(
            f"this {request['statement']} cannot be read from a text, as that of one statement in spark.sql can",
            advice="use the methods of tidelog.streaming.table(spark, path)",
        )
    _run(_Statement(spark, parsed, path, storage_options, condition, is_of_spark=True))


class _Statement:
    """A statement, and the table that it changes. `is_of_spark` says whether it should mean what Spark means by it."""

    def __init__(
        self,
        spark: SparkSession,
        parsed: exp.Expression,
        path: str,
        storage_options: Mapping[str, str],
        condition: Any = None,
        *,
        is_of_spark: bool = False,
    ) -> None:
        self.spark = spark
        self.parsed = parsed
        self._condition = condition
        self._is_of_spark = is_of_spark
        if isinstance(parsed, exp.Merge) and parsed.find(exp.With) is not None:
            raise _unsupported(parsed.find(exp.With), "the query into USING (...)")
        prepare_session(spark)
        opened = Table.open(path, storage_options=storage_options)
        self.schema = opened.schema
        self.table = SparkTable(spark, opened)

    def where(self) -> str:
        """The condition of UPDATE and DELETE."""
        where = self.parsed.args.get("where")
        if where is None:
            return "true"
        if self._condition is not None:
            try:
                return exact_predicate([self._condition], self.schema) or "true"
            except PredicateError:
                pass  # a condition that tidelog evaluates from its text
        self.require_one_meaning([where.this], self.schema)
        return _text(where.this, self.parsed.this.alias_or_name) or "true"

    def require_one_meaning(self, parts: Iterable[exp.Expression], schema: pa.Schema) -> None:
        """Raise PredicateError if Spark would take a time for one in the session's zone, and tidelog takes it for UTC.

        `schema` has the columns that the parts name.
        """
        if not self._is_of_spark or self.spark.conf.get(_ZONE) in _UTC:
            return
        with_zone = {field.name.lower() for field in schema if pt.is_timestamp(field.type) and field.type.tz}
        for part in parts:
            if part.find(exp.CurrentDate) is not None or _names_in(part) & with_zone:
                raise PredicateError(
                    f"{brief(part.sql(dialect=_DIALECT))} has a time, and the session is not in UTC",
                    advice=f"set {_ZONE} to UTC, or use tidelog.streaming.sql, where times without a zone are in UTC",
                )


def _run(statement: _Statement) -> tuple[Committed, int]:
    run = {exp.Update: _update, exp.Delete: _delete, exp.Merge: _merge}[type(statement.parsed)]
    return run(statement)


def _names(table: exp.Expression) -> list[str]:
    return [part.name for part in table.parts] if isinstance(table, exp.Table) else []


def _is_ours(spark: SparkSession, table: exp.Expression) -> bool:
    names = _names(table)
    current = "" if is_connect(spark) else spark.catalog.currentCatalog()
    return bool(names) and (names[0] == _CATALOG or current == _CATALOG)


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
    return str(plain.sql(dialect=_DIALECT))


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
        if not isinstance(assignment.expression, exp.Null):
            statement.require_one_meaning([assignment], statement.schema)
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
    _require_values(source)
    rows = statement.spark.sql(exp.select("*").from_(source).sql(dialect=_DIALECT))
    if delete is not None:
        statement.require_one_meaning([delete], spark_versions.columns_to_arrow(rows.schema))
    gone = _text(delete, source.alias_or_name, refused=target.alias_or_name)
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
    done = statement.table.upsert(rows, keys=keys, delete_where=gone)
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
        f"{brief(part.sql(dialect=_DIALECT))} is not supported here",
        advice=f"write {instead}; or use the methods of tidelog.streaming.table(spark, path)",
    )
