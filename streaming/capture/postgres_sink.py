"""A table's changes into a table of PostgreSQL, each micro-batch exactly once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - Spark's convention
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    DecimalType,
    MapType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
    VariantType,
)

from tidelog.log.errors import (
    CheckpointResetError,
    ConfigurationError,
    DataError,
    PrerequisiteError,
    SchemaMismatchError,
    StoreUnavailableError,
    TidelogError,
)
from tidelog.log.presentable import did_you_mean
from tidelog.log.storage import open_store
from tidelog.log.system import REAL_SYSTEM, logger
from tidelog.streaming.capture.json_values import Writing, digits, instant_text
from tidelog.streaming.capture.values import AS_TEXT
from tidelog.streaming.executors.computed_once import computed_once
from tidelog.streaming.executors.plain_frame import quoted
from tidelog.streaming.executors.session import FITTED_SHUFFLES, session_settings, stopped_quietly
from tidelog.streaming.executors.spark_upsert import newest_rows_of_frame
from tidelog.streaming.sink.batch_identity import Identifier, StreamingCheckpoint
from tidelog.streaming.sink.ledger import BatchStatus, Ledger
from tidelog.streaming.sink.micro_batch import MicroBatch
from tidelog.streaming.sink.settings import ADOPT, ERROR

if TYPE_CHECKING:
    import psycopg

    Connection = psycopg.Connection[Any]

_LOGGER = logger("tidelog.streaming")
_TYPE, _VERSION, _TIMESTAMP = _OWN = ("_change_type", "_commit_version", "_commit_timestamp")
_LINE = "_line"
_POSITIONS = """
CREATE TABLE IF NOT EXISTS {} (
    target text NOT NULL, application text NOT NULL, version bigint NOT NULL, PRIMARY KEY (target, application)
)"""
_COLUMNS = """
SELECT a.attname, t.typcategory FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid
WHERE a.attrelid = %s::regclass AND a.attnum > 0 AND NOT a.attisdropped"""
_PUT = """
INSERT INTO {} VALUES (%s, %s, %s) ON CONFLICT (target, application) DO UPDATE SET version = EXCLUDED.version"""
# Lines are sent in pieces of about this many characters.
_PIECE = 256 * 1024


@dataclass(frozen=True, slots=True)
class PostgresReport:
    """What a PostgresSink did with one micro-batch; see `PostgresSink.last`. Immutable.

    Attributes:
        batch_id: Spark's number of the batch.
        upserted: Rows that were inserted or updated.
        deleted: Rows that were deleted.
        skipped: The batch was already in the table, so Spark replayed it.
    """

    batch_id: int
    upserted: int = 0
    deleted: int = 0
    skipped: bool = False


class PostgresSink:
    """A `foreachBatch` function that brings a table's changes into a table of PostgreSQL, each batch exactly once.

    The net effect of a batch, one row for each key, is written by `INSERT ... ON CONFLICT DO UPDATE` and `DELETE`. The
    number of the batch goes into the table `positions` in the same transaction. So a batch that Spark replays is
    skipped, wherever the query was killed, and readers of the database see a batch as a whole or not at all. The rules
    for a checkpoint that was deleted, restored or copied are those of a Sink.

    Rows come to the driver as text in bounded pieces, and go on by `COPY` into a temporary table. All types are exact,
    if those of PostgreSQL's columns are no smaller: it rounds what a `numeric(10, 2)`, a `timestamp(3)` or a `real`
    does not hold. Spark's arrays become arrays, or JSON if that is the type of the column; structs, maps and variants
    become JSON.

    Args:
        connect: What `psycopg.connect` takes, such as `"host=db dbname=shop user=etl"`, or a function that returns a
            connection. One is opened for each batch. What the function began is committed. It is never logged.
        table: The table, with its schema if that is not on the search path: `shop.orders`. It must exist, with a
            primary key or a unique index of exactly the columns `keys`, and have all columns of the rows.
        keys: The key columns.
        name: Distinguishes several sinks of one query, or several queries into one table.
        positions: The table of positions, which the first batch creates.
        on_reset: `error`, or `adopt`: commit a batch as a new one although the checkpoint is another one, as for a
            Sink.
        checkpoint: The query's `checkpointLocation`, which Spark Connect needs, as for a Sink.
        storage_options: Credentials and endpoint of the store of `checkpoint`. They are never logged.

    Attributes:
        last: The PostgresReport of the newest batch that succeeded; None before the first.

    Raises:
        PrerequisiteError: psycopg is missing.
        ConfigurationError: An argument is invalid.

    Example:
        sink = capture.PostgresSink("dbname=shop", "orders", keys=["id"])
        feed = Feed(spark, path, changes="cdc", initial_snapshot=True)
        query = feed.foreachBatch(sink).option("checkpointLocation", c).start()
    """

    def __init__(
        self,
        connect: str | Callable[[], Connection],
        table: str,
        *,
        keys: Sequence[str],
        name: str = "default",
        positions: str = "tidelog_positions",
        on_reset: str = ERROR,
        checkpoint: str | None = None,
        storage_options: Mapping[str, str] | None = None,
    ) -> None:
        _require_psycopg()
        if isinstance(keys, str) or not keys:
            raise ConfigurationError(f"keys must be a list of columns, not {keys!r}", advice="pass keys=['id']")
        if on_reset not in (ERROR, ADOPT):
            raise ConfigurationError(
                f"on_reset={on_reset!r} is not supported",
                advice=f"{did_you_mean(on_reset, (ERROR, ADOPT))}use {ERROR!r} or {ADOPT!r}",
            )
        self.last: PostgresReport | None = None
        self._given: dict[str, Any] = {
            "connect": connect,
            "table": table,
            "keys": tuple(keys),
            "name": name,
            "positions": positions,
            "on_reset": on_reset,
            "checkpoint": checkpoint,
            "storage_options": storage_options,
        }
        self._connect, self._table, self._keys, self._name = connect, table, tuple(keys), name
        self._positions, self._adopts = positions, on_reset == ADOPT
        found = None if checkpoint is None else StreamingCheckpoint.of_store(open_store(checkpoint, storage_options))
        self._identifier = Identifier(found)

    def __repr__(self) -> str:
        return f"PostgresSink(..., {self._table!r}, keys={list(self._keys)!r})"

    def __getstate__(self) -> dict[str, Any]:
        """The arguments alone: Spark Connect calls a copy, in a process beside the server."""
        return self._given

    def __setstate__(self, given: dict[str, Any]) -> None:
        PostgresSink.__init__(self, **given)

    def __call__(self, batch_df: DataFrame, batch_id: int) -> None:
        """Apply the changes of one micro-batch. Spark calls this, in the query's own thread.

        Args:
            batch_df: Changes of a Feed or a stream in mode `cdc` or `append`: the table's columns, `_commit_version`,
                and `_change_type` if there are other changes than insertions.
            batch_id: Its number, as Spark gives it.

        Raises:
            CheckpointResetError: The checkpoint was deleted, restored or copied, or the positions are lost.
            FencedError: Another query has taken over the sink's name.
            SchemaMismatchError: The table lacks a column, or the frame does.
            StoreUnavailableError: The database is away. Run the batch again: it is skipped if it was committed.
            DataError: PostgreSQL refuses the rows. Nothing was committed.
        """
        try:
            with stopped_quietly(batch_df.sparkSession), _typed_errors(self._table, batch_id):
                batch = self._identifier.identify(batch_df, batch_id)
                with self._opened() as connection:
                    done = self._apply(connection, batch_df, batch)
                if done.skipped:
                    self._identifier.compute_skipped(batch_df)
                self.last = done
        except TidelogError as error:
            # Spark shows the traceback, not the exception, and a traceback starts with the cause.
            raise error.with_traceback(None) from Exception(f"batch {batch_id} for {self._table} failed\n{error}")
        _LOGGER.info("batch %d of PostgreSQL's table %s: %s", batch_id, self._table, self.last)

    @contextmanager
    def _opened(self) -> Iterator[Connection]:
        import psycopg  # noqa: PLC0415 - an extra

        connect = self._connect
        connection = psycopg.connect(connect) if isinstance(connect, str) else connect()
        try:
            # A function that has run a statement, such as SET, leaves a transaction open: ours would be a part of it.
            connection.commit()
            yield connection
        finally:
            connection.close()

    def _apply(self, connection: Connection, frame: DataFrame, batch: MicroBatch) -> PostgresReport:
        positions = _identifier(self._positions)
        with connection.transaction():
            # Two that create a table at once can fail, although it says IF NOT EXISTS.
            connection.execute("SELECT pg_advisory_xact_lock(hashtext(%s))", [self._positions])
            connection.execute(_sql(_POSITIONS).format(positions))
        with connection.transaction(), connection.cursor() as cursor:
            # Until this transaction ends, another copy of the query waits here.
            cursor.execute("SELECT pg_advisory_xact_lock(hashtext(%s))", [f"{self._table}/{self._name}"])
            known = _sql("SELECT application, version FROM {} WHERE target = %s").format(positions)
            entries = dict(cursor.execute(known, [self._table]).fetchall())
            ledger = Ledger(self._name, batch, path=f"PostgreSQL's table {self._table}")
            if self._is_committed(ledger, entries):
                return PostgresReport(batch.batch_id, skipped=True)
            upserted, deleted = self._write(cursor, frame)
            put = _sql(_PUT).format(positions)
            new = ledger.entries(entries, REAL_SYSTEM.now_ms())
            cursor.executemany(put, [(self._table, entry.app_id, entry.version) for entry in new])
        return PostgresReport(batch.batch_id, upserted, deleted)

    def _is_committed(self, ledger: Ledger, entries: Mapping[str, int]) -> bool:
        status = ledger.judge(entries)
        refusal = ledger.refusal(status, entries)
        if refusal is not None:
            if not self._adopts or not isinstance(refusal, CheckpointResetError):
                raise refusal
            _LOGGER.warning("on_reset='adopt': committing the batch as new, although %s", refusal.message)
        return status is BatchStatus.SKIP

    def _write(self, cursor: psycopg.Cursor[Any], frame: DataFrame) -> tuple[int, int]:
        """Write the net effect of the changes; how many rows were upserted and deleted."""
        quoted_name = _identifier(self._table).as_string(cursor.connection)
        kinds = dict(cursor.execute(_COLUMNS, [quoted_name]).fetchall())
        fields = [field for field in frame.schema if field.name not in _OWN]
        names = [_spelled(field.name, kinds, self._table) for field in fields]
        keys = [_spelled(name, dict.fromkeys(names, ""), "the frame") for name in self._keys]
        target, batch = _identifier(self._table), _identifier("tidelog_batch")
        gone_name = _free("_gone", names)
        columns, gone = _listed(names), _identifier_of_one(gone_name)
        cursor.execute(
            _sql("CREATE TEMP TABLE {} ON COMMIT DROP AS SELECT {}, false AS {} FROM {} WITH NO DATA").format(
                batch, columns, gone, target
            )
        )
        written = [
            _text(F.col(quoted(field.name)), field, kinds[name]) for field, name in zip(fields, names, strict=True)
        ]
        session = frame.sparkSession
        with session_settings(session, FITTED_SHUFFLES):
            lines = self._net(frame, gone_name).select(
                _line([*written, F.col(quoted(gone_name)).cast("string")]).alias(_LINE)
            )
            # The driver fetches each partition with a separate job.
            copy_in = _sql("COPY {} ({}, {}) FROM STDIN").format(batch, columns, gone)
            with computed_once(lines) as kept, cursor.copy(copy_in) as copy:
                for piece in _pieces(row[0] for row in kept.toLocalIterator(prefetchPartitions=True)):
                    copy.write(piece)
        same = _sql(" AND ").join(_sql("t.{0} = b.{0}").format(_identifier_of_one(name)) for name in keys)
        cursor.execute(_sql("DELETE FROM {} t USING {} b WHERE b.{} AND {}").format(target, batch, gone, same))
        deleted = cursor.rowcount
        others = [name for name in names if name not in keys]
        sets = _sql(", ").join(_sql("{0} = EXCLUDED.{0}").format(_identifier_of_one(name)) for name in others)
        action = _sql("DO UPDATE SET {}").format(sets) if others else _sql("DO NOTHING")
        cursor.execute(
            _sql("INSERT INTO {} ({}) SELECT {} FROM {} WHERE NOT {} ON CONFLICT ({}) {}").format(
                target, columns, columns, batch, gone, _listed(keys), action
            )
        )
        return cursor.rowcount, deleted

    def _net(self, frame: DataFrame, gone: str) -> DataFrame:
        """The newest state of each key, and in the column `gone` whether there is none."""
        known = {name.lower() for name in frame.columns}
        if _VERSION not in known:
            raise SchemaMismatchError(
                f"the frame lacks the column {_VERSION!r}",
                advice="pass the batches of a Feed, or of a stream of format('tidelog')",
                column=_VERSION,
            )
        kind = F.col(_TYPE) if _TYPE in known else F.lit("insert")
        is_new = _free("_is_new", [*frame.columns, gone])
        held = frame.withColumn(is_new, (~kind.isin("delete", "update_preimage")).cast("int"))
        newest = newest_rows_of_frame(held.drop(_TYPE, _TIMESTAMP), self._keys, [_VERSION, is_new])
        return newest.withColumn(gone, F.col(quoted(is_new)) == 0)


def _free(name: str, columns: Sequence[str]) -> str:
    """A name that no column has, in any case of letters."""
    known = {column.lower() for column in columns}
    while name in known:
        name += "_"
    return name


def _spelled(name: str, known: Mapping[str, str], where: str) -> str:
    """A column as the target spells it: the same, or the only one that differs in case."""
    found = [name] if name in known else [other for other in known if other.lower() == name.lower()]
    if len(found) != 1:
        raise SchemaMismatchError(
            f"{where} lacks the column {name!r}",
            advice="add it, or leave it out of the rows: lambda rows, number: sink(rows.drop(...), number)",
            column=name,
        )
    return found[0]


def _text(value: Column, field: StructField, category: str) -> Column:
    """A column's values as PostgreSQL reads them; `category` is that of the target's type, `A` for arrays."""
    kind = field.dataType
    if isinstance(kind, ArrayType) and category == "A":
        return _array(value, kind, field)
    if isinstance(kind, ArrayType | MapType | StructType):
        return F.to_json(Writing(AS_TEXT).value(value, field), {"ignoreNullFields": "false"})
    return _scalar(value, kind)


def _scalar(value: Column, kind: DataType) -> Column:
    match kind:
        case BinaryType():
            return F.concat(F.lit("\\x"), F.hex(value))
        case DecimalType():
            return digits(value, kind.scale)
        case TimestampType():
            return instant_text(value)
        case TimestampNTZType():
            return value.cast("string")
        case VariantType():
            return F.to_json(value)
        case _:
            return value.cast("string")


def _array(value: Column, kind: ArrayType, field: StructField) -> Column:
    def item(found: Column) -> Column:
        if isinstance(kind.elementType, ArrayType):
            text = _array(found, kind.elementType, field)
        else:
            inner = StructField(field.name, kind.elementType)
            escaped = F.replace(
                F.replace(_text(found, inner, ""), F.lit("\\"), F.lit("\\\\")), F.lit('"'), F.lit('\\"')
            )
            text = F.concat(F.lit('"'), escaped, F.lit('"'))
        return F.coalesce(text, F.lit("NULL"))

    return F.concat(F.lit("{"), F.array_join(F.transform(value, item), ","), F.lit("}"))


def _line(texts: Sequence[Column]) -> Column:
    """A row in the text format of COPY."""
    escapes = (("\\", "\\\\"), ("\n", "\\n"), ("\r", "\\r"), ("\t", "\\t"))
    columns = []
    for text in texts:
        escaped = text
        for sign, written in escapes:
            escaped = F.replace(escaped, F.lit(sign), F.lit(written))
        columns.append(F.coalesce(escaped, F.lit("\\N")))
    return F.concat_ws("\t", *columns)


def _pieces(lines: Iterator[str]) -> Iterator[str]:
    held: list[str] = []
    size = 0
    for line in lines:
        held.append(line)
        size += len(line) + 1
        if size >= _PIECE:
            yield "\n".join(held) + "\n"
            held, size = [], 0
    if held:
        yield "\n".join(held) + "\n"


def _sql(text: str) -> Any:
    from psycopg import sql  # noqa: PLC0415 - an extra

    return sql.SQL(text)


def _identifier(name: str) -> Any:
    """The name of a table, perhaps with its schema."""
    from psycopg import sql  # noqa: PLC0415

    return sql.Identifier(*name.split("."))


def _identifier_of_one(name: str) -> Any:
    from psycopg import sql  # noqa: PLC0415

    return sql.Identifier(name)


def _listed(names: Sequence[str]) -> Any:
    return _sql(", ").join(map(_identifier_of_one, names))


def _require_psycopg() -> None:
    try:
        import psycopg  # noqa: F401, PLC0415 - an extra
    except ImportError as error:
        raise PrerequisiteError(
            f"a PostgresSink needs psycopg: {error}", advice="pip install 'tidelog[postgres]'"
        ) from error


@contextmanager
def _typed_errors(table: str, batch_id: int) -> Iterator[None]:
    """Raise tidelog's errors for those of psycopg."""
    import psycopg  # noqa: PLC0415

    try:
        yield
    except psycopg.errors.UndefinedTable as error:
        raise ConfigurationError(
            f"PostgreSQL has no table {table}: {error}", advice="create it, with a primary key"
        ) from error
    except psycopg.OperationalError as error:
        raise StoreUnavailableError(
            f"PostgreSQL did not answer for batch {batch_id} of {table}: {error}",
            advice="run the batch again: it is skipped if it was committed",
        ) from error
    except psycopg.Error as error:
        raise DataError(
            f"PostgreSQL refused batch {batch_id} of {table}: {error}",
            advice="correct the table or the rows, and run the batch again; nothing was committed",
        ) from error
