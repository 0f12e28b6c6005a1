"""Table functions for SQL: `tidelog_read`, `tidelog_changes` and `tidelog_history`, which `register` makes available.

    SELECT * FROM tidelog_changes('/data/events', 3, 7)
    SELECT * FROM tidelog_read('/data/events', version => 3, where => 'price > 100')
    SELECT * FROM tidelog_history('tidelog.sales.orders')

Spark asks `analyze` for the columns when it plans a query, and runs `eval` in one task. So a function is for a person's
question; a job reads a large table with `tidelog.streaming.read` and `changes`. The version is chosen while the query
is planned, so what is committed later does not show.

Python gets paths only. Where the format is a class of the JVM, `NamedFunctions.java` puts the path in the place of a
name.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType
from pyspark.sql.udtf import AnalyzeArgument, AnalyzeResult

from tidelog.log import Changes, CommitRecord, Scan, Table
from tidelog.log.errors import ConfigurationError, TableNotFoundError
from tidelog.log.presentable import brief
from tidelog.log.read.scan import RowReader
from tidelog.log.read.timeline import Point, Timeline
from tidelog.streaming import spark_versions
from tidelog.streaming.datasource.errors_first import error_first

_HISTORY = pa.schema(
    [
        ("version", pa.int64()),
        ("timestamp", pa.timestamp("us", tz="UTC")),
        ("time_version", pa.timestamp("us", tz="UTC")),
        ("operation_class", pa.string()),
        ("operation", pa.string()),
        ("engine", pa.string()),
        ("data_change", pa.bool_()),
        ("rows_added", pa.int64()),
        ("rows_updated", pa.int64()),
        ("rows_deleted", pa.int64()),
        ("metrics", pa.map_(pa.string(), pa.string())),
        ("user_metadata", pa.string()),
        ("checkpoint_only", pa.bool_()),
    ]
)


@dataclass
class Planned(AnalyzeResult):
    """What `analyze` found: the columns, and what `eval` reads."""

    schema: StructType
    path: str = ""
    storage_options: Mapping[str, str] | None = None
    after: int = 0
    until: int = 0
    given: Mapping[str, Any] = field(default_factory=dict)


class _Function:
    """What the table functions share: `analyze` plans, and `eval` reads what was planned."""

    def __init__(self, planned: Planned) -> None:
        self._planned = planned

    def _table(self) -> Table:
        return Table.open(self._planned.path, storage_options=self._planned.storage_options)

    def _rows(self, reader: RowReader) -> Iterator[tuple[Any, ...]]:
        for batch in reader.to_batches():
            columns = [_values(column) for column in batch.columns]
            yield from zip(*columns, strict=True)


class TidelogChanges(_Function):
    """`tidelog_changes(path, after, until, mode => 'cdc', where => ..., columns => ..., keys => ...)`.

    `starting_version => 3` includes version 3, as the first version of Delta's `table_changes` does.
    """

    @staticmethod
    @error_first
    def analyze(  # noqa: PLR0913, PLR0917 - the arguments of the SQL function
        path: AnalyzeArgument,
        after: AnalyzeArgument | None = None,
        until: AnalyzeArgument | None = None,
        mode: AnalyzeArgument | None = None,
        where: AnalyzeArgument | None = None,
        columns: AnalyzeArgument | None = None,
        keys: AnalyzeArgument | None = None,
        storage_options: AnalyzeArgument | None = None,
        starting_version: AnalyzeArgument | None = None,
    ) -> Planned:
        """The columns of the changes. The ends of the interval are versions or times; None for an open end."""
        table = _table(path, storage_options)
        interval = table.timeline.interval(_start(table.timeline, after, starting_version), _point("until", until))
        given: dict[str, Any] = {
            "mode": _text("mode", mode) or "cdc",
            "where": _text("where", where),
            "columns": _names("columns", columns),
            "keys": _names("keys", keys) or (),
        }
        changes = table.changes(after=interval.after, until=interval.until, **given)
        planned = _planned(table, storage_options, changes.schema, given)
        return replace(planned, after=interval.after, until=interval.until)

    def eval(self, *_: Any, **__: Any) -> Iterator[tuple[Any, ...]]:
        """The rows, in commit order."""
        planned = self._planned
        changes: Changes = self._table().changes(after=planned.after, until=planned.until, **planned.given)
        return self._rows(changes)


class TidelogRead(_Function):
    """`tidelog_read(path, version => ..., timestamp => ..., where => ..., columns => ...)`."""

    @staticmethod
    @error_first
    def analyze(
        path: AnalyzeArgument,
        version: AnalyzeArgument | None = None,
        timestamp: AnalyzeArgument | None = None,
        where: AnalyzeArgument | None = None,
        columns: AnalyzeArgument | None = None,
        storage_options: AnalyzeArgument | None = None,
    ) -> Planned:
        """The columns of the table at a version or a time, by default the newest."""
        table = _table(path, storage_options)
        snapshot = table.at(version=_value("version", version), timestamp=_moment("timestamp", timestamp))
        given: dict[str, Any] = {"where": _text("where", where), "columns": _names("columns", columns)}
        scan = snapshot.scan(**given)
        return replace(_planned(table, storage_options, scan.schema, given), until=snapshot.version)

    def eval(self, *_: Any, **__: Any) -> Iterator[tuple[Any, ...]]:
        """The rows."""
        planned = self._planned
        scan: Scan = self._table().at(version=planned.until).scan(**planned.given)
        return self._rows(scan)


class TidelogHistory(_Function):
    """`tidelog_history(path, limit => ...)`: the retained commits, newest first."""

    @staticmethod
    @error_first
    def analyze(
        path: AnalyzeArgument,
        limit: AnalyzeArgument | None = None,
        storage_options: AnalyzeArgument | None = None,
    ) -> Planned:
        """The columns of the history."""
        table = _table(path, storage_options)
        return _planned(table, storage_options, _HISTORY, {"limit": _value("limit", limit)})

    def eval(self, *_: Any, **__: Any) -> Iterator[tuple[Any, ...]]:
        """One row for each commit."""
        planned, table = self._planned, self._table()
        limit = planned.given["limit"]
        if isinstance(limit, int) and limit > 0:
            limit += table.version - planned.until
        for record in table.history(limit):
            if record.version <= planned.until:
                yield _row_of(record)


def history_rows(table: Table, limit: int | None) -> pa.Table:
    """The retained commits, newest first, with the columns of `tidelog_history`."""
    rows = [_row_of(record) for record in table.history(limit)]
    return pa.Table.from_pylist([dict(zip(_HISTORY.names, row, strict=True)) for row in rows], schema=_HISTORY)


def _row_of(record: CommitRecord) -> tuple[Any, ...]:
    return (
        record.version,
        record.timestamp,
        record.time_version,
        record.operation_class.value,  # plain text: Spark 4.1 and earlier take no enum
        record.operation,
        record.engine,
        record.data_change,
        record.rows_added,
        record.rows_updated,
        record.rows_deleted,
        {name: str(value) for name, value in record.metrics.items()},
        record.user_metadata,
        record.checkpoint_only,
    )


TABLE_FUNCTIONS = {"tidelog_changes": TidelogChanges, "tidelog_read": TidelogRead, "tidelog_history": TidelogHistory}


def register_functions(spark: SparkSession) -> None:
    """Make the functions available to the session's SQL."""
    from pyspark.sql.functions import udtf  # noqa: PLC0415 - Spark's Python processes import this module, too

    for name, function in TABLE_FUNCTIONS.items():
        handler: Any = udtf(function)
        spark.udtf.register(name, handler)


def _table(path: AnalyzeArgument, storage_options: AnalyzeArgument | None) -> Table:
    found = _text("path", path)
    if not found:
        raise ConfigurationError("the path is missing", advice="give the table's path as the first argument")
    try:
        return Table.open(found, storage_options=_value("storage_options", storage_options))
    except TableNotFoundError as error:
        if "/" in found:
            raise
        # Spark plans the function in a process without a session; NamedFunctions.java has looked for a name before.
        raise TableNotFoundError(
            f"there is no table at the path {found}, and none with that name",
            advice="give the path, or a name that this session knows, as in tidelog.sales.orders; on Spark Connect the "
            "functions take paths only: DESCRIBE EXTENDED shows that of a name as its Location",
            path=error.path,
        ) from None


def _planned(
    table: Table, storage_options: AnalyzeArgument | None, schema: pa.Schema, given: Mapping[str, Any]
) -> Planned:
    nullable = pa.schema([column.with_nullable(True) for column in schema])  # noqa: FBT003 - pyarrow's signature
    return Planned(
        schema=spark_versions.columns_from_arrow(nullable),
        path=table.path,
        storage_options=_value("storage_options", storage_options),
        until=table.version,
        given=given,
    )


def _start(timeline: Timeline, after: AnalyzeArgument | None, starting_version: AnalyzeArgument | None) -> Point | None:
    """The exclusive start of an interval. `starting_version` is inclusive, as in Delta."""
    first = _value("starting_version", starting_version)
    if first is None:
        return _point("after", after)
    if _point("after", after) is not None:
        raise ConfigurationError("both after and starting_version were given", advice="leave one out")
    if not isinstance(first, int) or isinstance(first, bool) or first < 0:
        raise ConfigurationError(
            f"starting_version is {brief(first)}", advice="give a version, a whole number from 0 on"
        )
    return timeline.start_before(first)


def _value(name: str, argument: AnalyzeArgument | None) -> Any:
    if argument is None:
        return None
    if argument.isTable or not argument.isConstantExpression:
        raise ConfigurationError(
            f"the argument {name!r} is not a constant", advice="write a literal, or an expression of literals"
        )
    return argument.value


def _text(name: str, argument: AnalyzeArgument | None) -> str | None:
    value = _value(name, argument)
    if value is not None and not isinstance(value, str):
        raise ConfigurationError(f"the argument {name!r} cannot be {value!r}", advice="write a string")
    return value


def _names(name: str, argument: AnalyzeArgument | None) -> list[str] | None:
    text = _text(name, argument)
    return None if text is None else [part.strip() for part in text.split(",")]


def _moment(name: str, argument: AnalyzeArgument | None) -> datetime | str | None:
    value = _value(name, argument)
    # Spark gives a TIMESTAMP as a local time without a zone.
    return value.astimezone(UTC) if isinstance(value, datetime) else value


def _point(name: str, argument: AnalyzeArgument | None) -> Point | None:
    return _moment(name, argument)


def _values(column: pa.Array) -> list[Any]:
    values: list[Any] = column.to_pylist(maps_as_pydicts="strict")
    return values
