"""The statements of a table: each stages one operation on the newest version and commits it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, TypeVar

import pyarrow as pa

from tidelog.log.commit.result import Committed, committed
from tidelog.log.data import conform
from tidelog.log.errors import (
    ConcurrentTransactionException,
    ConfigurationError,
    ConflictError,
    HistoryExpiredError,
    TidelogError,
)
from tidelog.log.operations.alter_table import DropColumn, RenameColumn
from tidelog.log.operations.merge_rules import ALL, Rule, merge_rules, require_one_way
from tidelog.log.predicate import at_time, update_at_time
from tidelog.log.read.keys import keys_of_upsert
from tidelog.log.read.snapshot import Snapshot
from tidelog.log.read.table_reader import TableReader
from tidelog.log.system import logger
from tidelog.log.transaction import Transaction

_LOGGER = logger(__name__)

_T = TypeVar("_T")

# More conflicts in a row are contention, which the caller should know about.
STATEMENT_RETRIES = 3


def _no_rows(_: str) -> bool:
    """For changes that ask nothing of the rows that are there."""
    return False


def run_statement(attempt: Callable[[], _T], path: str) -> _T:
    """Return the result of `attempt`, which stages and commits an operation on the newest version of a table.

    Runs it again after a ConflictError, at most STATEMENT_RETRIES times. Does not retry a
    ConcurrentTransactionException: another copy of the same application has done the work. `path` names the table.
    """
    for left in reversed(range(STATEMENT_RETRIES + 1)):
        try:
            return attempt()
        except ConcurrentTransactionException:
            raise
        except ConflictError:
            if not left:
                raise
            _LOGGER.info("another writer committed to %s first: running the statement again", path)
    raise AssertionError(path)  # the last conflict was raised


class Statements(TableReader):
    """The writing methods of a Table."""

    # Whether nobody else seems to write to the table: the last insert met no new version. Then the next one does not
    # refresh first, where that is a request that costs money and time.
    _is_alone = True

    def begin(self) -> Transaction:
        """Refresh the table, and begin a transaction on the newest version."""
        self.refresh()
        return Transaction(self._store, self._state, self._system, self._move_to_committed)

    def _begin(self) -> Transaction:
        """Like `begin`, for a statement that commits as soon as it is staged."""
        return self.begin().commits_at_once()

    def begin_at(self, snapshot: Snapshot, *, began_s: float | None = None) -> Transaction:
        """Begin a transaction on a version of this table that was loaded before; for work that was done on it since.

        Args:
            snapshot: The version.
            began_s: When the work began, by the monotonic clock; for the conflict ledger.
        """
        return Transaction(self._store, snapshot.state, self._system, self._move_to_maintained, began_s=began_s)

    def insert(self, data: Any, *, idempotency_key: tuple[str, int] | None = None) -> Committed:
        """Add rows.

        Args:
            data: Anything with an Arrow stream (pyarrow, pandas, Polars, DuckDB), a LazyFrame of Polars, or a list of
                dicts, in which a date or time can be ISO-8601 text. Columns are matched by name, ignoring case, and
                cast if no value is lost. Missing columns get their default or what generates them, and else null.
            idempotency_key: (application id, version). If the table has this version of the application or a newer
                one, nothing is written. Versions of an application must increase.

        Returns:
            The commit. Inserting no rows without a key makes none: the result then has the current version.
            On an object store it can be rebased over versions that were there before the call, since the insert does
            not always refresh first.

        Raises:
            SchemaMismatchError: The data does not fit the table's schema. It is a ConstraintViolationError if a row
                breaks a constraint of the table.
            UnsupportedFeatureError: The rows need an expression that tidelog cannot evaluate, or a generated identity.
            ConflictError: Another commit came first, and the insert is not run again by itself. It is a
                ConcurrentTransactionException if that commit has the same application id, a MetadataChangedException
                or ProtocolChangedException if it changed the schema or the protocol, and a TransactionExpiredError if
                a vacuum passed the version that the insert began on.
            RetryableError: The store or other writers prevented the commit. A key makes it safe to repeat the insert.
            CommitStateUnknownError: The commit may or may not be durable.
            TableReplacedError, TableNotFoundError: The path now holds a different table, or the table was dropped.
        """
        held = conform.hold(data)
        if not self._store.trusted_s:
            return committed(self._begin().insert(held, idempotency_key=idempotency_key).commit())
        made = self._insert_without_refresh(held, idempotency_key) if self._is_alone else None
        if made is not None:
            return made
        before = self.version
        transaction = self._begin()
        self._is_alone = self.version == before
        return committed(transaction.insert(held, idempotency_key=idempotency_key).commit())

    def _insert_without_refresh(self, held: pa.Table | Sequence[Any], key: tuple[str, int] | None) -> Committed | None:
        """Insert on the loaded version. None if nothing was committed, for a reason that may be gone after a refresh.

        If the version after the loaded one is free, that was the newest; so asking first would have been a request in
        vain. Otherwise the commit is rebased, as after any lost race.
        """
        try:
            transaction = Transaction(self._store, self._state, self._system, self._move_to_committed)
            transaction.commits_at_once().insert(held, idempotency_key=key)
        except TidelogError as error:
            # The schema may have changed, for example.
            _LOGGER.debug("an insert into version %d of %s failed: %s", self.version, self.path, error)
            return None
        try:
            made = committed(transaction.commit())
        except (ConflictError, HistoryExpiredError) as error:
            _LOGGER.debug("an insert into version %d of %s lost: %s", transaction.base_version, self.path, error)
            return None
        self._is_alone = not made.rebased_over
        # Whether there is nothing to commit is decided on the newest version.
        return made if made.version > transaction.base_version else None

    def delete(self, where: str) -> Committed:
        """Delete the rows that match a predicate.

        With `delta.enableDeletionVectors` the rows are marked in deletion vectors; without it their files are
        rewritten. If another commit could have changed which rows match, the statement runs again, up to 3 times.

        Args:
            where: SQL text; rows for which it is true are deleted.

        Raises:
            PredicateError: `where` contains something that tidelog does not evaluate.
            AppendOnlyError: The table forbids changing rows.
            ConflictError: Other commits won every attempt.
        """
        where = at_time(where, self._now_ms)
        return self.statement(lambda transaction: transaction.delete(where))

    def update(self, where: str, set: Mapping[str, str]) -> Committed:  # noqa: A002 - SQL's own word
        """Give new values to the rows that match a predicate.

        Holds the changed rows in memory. Runs again after a conflict, as `delete` does.

        Args:
            where: SQL text; rows for which it is true are updated.
            set: Columns mapped to SQL expressions over the old row. Text needs SQL quotes.

        Raises:
            PredicateError: `where` or an expression contains something that tidelog does not evaluate.
            SchemaMismatchError: A new value does not fit its column, or a row breaks a constraint
                (ConstraintViolationError).
            UnsupportedFeatureError: A constraint over a changed column needs what tidelog cannot evaluate.
            AppendOnlyError: The table forbids changing rows.
            ConflictError: Other commits won every attempt.

        Example:
            >>> table.update("id = 7", {"state": "'done'", "tries": "tries + 1"})
        """
        where, fixed = update_at_time(where, set, self._now_ms)
        return self.statement(lambda transaction: transaction.update(where, fixed))

    def upsert(  # noqa: PLR0913 - the public signature
        self,
        data: Any,
        *,
        keys: Sequence[str] = (),
        delete_where: str | None = None,
        other_keys: bool = False,
        order_by: str | Sequence[str] | None = None,
        columns: str = ALL,
        when_matched: Sequence[Rule] = (),
        when_not_matched: Sequence[Rule] = (),
        when_not_matched_by_source: Sequence[Rule] = (),
    ) -> Committed:
        """Replace the table rows that have the data's keys, and insert the rows with new keys.

        If a key has several rows in the table, all of them are replaced. Holds the data in memory, and with
        `delta.enableChangeDataFeed` the old rows as well. Runs again after a conflict, as `delete` does.

        With rules it is SQL's MERGE by keys, and does what the rules say instead. A rule is a pair of a condition, SQL
        text over `source.column` and `target.column` or None for all rows, and an action. The first rule of a kind
        whose condition is true for a row is applied; a row without one stays as it is, or is not inserted. With rules
        or `columns="partial"` each row of a key in the table is changed by itself, and the rows to change are held in
        memory.

        Args:
            data: As for `insert`; at most one row per key.
            keys: The key columns; by default those of `tidelog.primaryKey`.
            delete_where: SQL text over the data's columns. A row of the data for which it is true deletes its key and
                is not inserted. Columns that only this text reads need not be in the table.
            other_keys: Whether `keys` may differ from `tidelog.primaryKey`. Then all rows that are equal in `keys` are
                replaced, even if they have different primary keys.
            order_by: Columns of the table that say which of two rows of a key is newer; by default those of
                `tidelog.orderBy`, none for `()`. Null is less than every value. Of the data's rows of a key the newest
                counts. It has no effect if the table has a newer one, or deleted a newer one by `delete_where` within
                `tidelog.tombstoneRetention`; the metric `numSourceRowsOutdated` counts such rows.
            columns: `all`, or `partial`: rows of the table keep their values in columns that the data does not have. In
                a list of dicts each row has columns of its own; a value of None sets null. New rows get the defaults of
                the columns that are missing, or null.
            when_matched: Rules for rows of the table with a key of the data. An action is `"update"`, which takes all
                columns from the data, `"delete"`, or a dict of columns and SQL expressions.
            when_not_matched: Rules for rows of the data with a new key, or with a null in it: `"insert"`, or a dict.
                Columns that it does not have get their defaults, or null.
            when_not_matched_by_source: Rules for rows of the table whose key the data does not have: `"delete"`, or a
                dict. All rows of the table are read, one file at a time.

        Raises:
            SchemaMismatchError, UnsupportedFeatureError: As for `insert`, or a key is null without rules.
            DuplicateKeyError: The data has several rows for one key, and none or several that are equally new.
            ConfigurationError: There are no key columns, they are not in the table, or they are not its primary key; or
                a rule is wrong, or arguments do not go together.
            PredicateError: `delete_where`, a condition or an expression has something that tidelog does not evaluate.
            AppendOnlyError: The table forbids changing rows.
            ConflictError: Other commits won every attempt.
        """
        held, delete_where = conform.hold(data), at_time(delete_where, self._now_ms)
        by_kind = (when_matched, when_not_matched, when_not_matched_by_source)
        # At one time, however often the statement runs.
        rules = merge_rules(*by_kind, self._now_ms) if any(by_kind) else None
        if rules is not None or columns != ALL:
            require_one_way(rules, columns, delete_where, order_by)

        def staged(transaction: Transaction) -> Transaction:
            if rules:
                names = keys_of_upsert(keys, transaction.schema, transaction.properties, other_keys=other_keys)
                return transaction.merge(held, rules, names)
            return transaction.upsert(
                held, keys=keys, delete_where=delete_where, other_keys=other_keys, order_by=order_by, columns=columns
            )

        return self.statement(staged)

    def overwrite(self, data: Any, *, where: str | None = None, dynamic: bool = False) -> Committed:
        """Replace the table, some of its partitions, or the rows that match a predicate, with `data`.

        Also replaces what other writers committed to the same scope meanwhile. Whole partitions are replaced without
        reading them. With a predicate over other columns it deletes the matching rows as `delete` does, and adds the
        new ones in the same commit. With `where` it runs again after a conflict, as `delete` does. Replacing the whole
        table also forgets which rows were deleted, as `truncate` does.

        Args:
            data: As for `insert`. All of its rows must match `where`.
            where: SQL text; replace only the rows for which it is true.
            dynamic: Replace only the partitions that `data` has rows in. Cannot be combined with `where`.

        Raises:
            SchemaMismatchError, UnsupportedFeatureError: As for `insert`.
            PredicateError: `where` uses something that tidelog does not evaluate.
            ConfigurationError: `data` has rows outside of `where`, or the arguments do not fit.
            AppendOnlyError: The table forbids changing rows.
            ConflictError: Another commit came first, for example one that changed the schema; a TransactionExpiredError
                if a vacuum passed the version that this began on. Without `where` it is not run again by itself.
            RetryableError: The store or other writers prevented the commit.
            CommitStateUnknownError: The commit may or may not be durable.
        """
        if where is None:
            return committed(self._begin().overwrite(data, where=where, dynamic=dynamic).commit())
        held, where = conform.hold(data), at_time(where, self._now_ms)
        return self.statement(lambda transaction: transaction.overwrite(held, where=where, dynamic=dynamic))

    def truncate(self, *, where: str | None = None) -> Committed:
        """Delete all rows of the table, or of some of its partitions, without reading them.

        A TRUNCATE of the whole table also forgets which rows were deleted, so that an UPSERT with an order can load the
        records of deleted rows again; on an empty table, too.

        Args:
            where: SQL text over partition columns; delete only the partitions that it describes.

        Raises:
            PredicateError: `where` uses another column, or something that tidelog does not evaluate.
            AppendOnlyError: The table forbids changing rows.
            ConflictError: Another commit came first, for example one that changed the schema; a TransactionExpiredError
                if a vacuum passed the version that this began on. It is not run again by itself.
            RetryableError: The store or other writers prevented the commit.
            CommitStateUnknownError: The commit may or may not be durable.
        """
        return committed(self._begin().truncate(where=where).commit())

    def restore(self, *, version: int | None = None, timestamp: datetime | str | None = None) -> Committed:
        """Restore rows, schema and properties of an older version, with a new commit.

        The history stays, and so do the applications' progress, the protocol, in-commit timestamps, column mapping and
        the highest values of identity columns. The rows are not checked against constraints again.

        Args:
            version: The ID version to restore.
            timestamp: The time to restore, as for `Table.at`. Give either a version or a timestamp.

        Raises:
            HistoryExpiredError: Commits or files of that version no longer exist.
            ConfigurationError: Not exactly one argument was given, or the version has other partition columns or
                another column mapping.
            AppendOnlyError: The table forbids changing rows.
            ConflictError: Another commit came first, for example one that changed the schema; a TransactionExpiredError
                if a vacuum passed the version that this began on. It is not run again by itself.
            RetryableError: The store or other writers prevented the commit.
            CommitStateUnknownError: The commit may or may not be durable.
        """
        return committed(self._begin().restore(version=version, timestamp=timestamp).commit())

    def set_properties(self, properties: Mapping[str, object], *, allow_protocol_upgrade: bool = False) -> Committed:
        """Set table properties, and remove those whose value is None. If nothing changes, there is no commit.

        A property that needs a table feature, such as `delta.enableChangeDataFeed`, adds the feature to the protocol's
        feature lists. Protocol versions below (3, 7) lack one list or both.

        Args:
            properties: Values by property name: strings, numbers, booleans, or None to remove the property.
            allow_protocol_upgrade: Raise the protocol's versions if a property needs it: to (1, 7) or (2, 7), for
                deletion vectors to (3, 7). All features that the old versions imply stay. Readers and writers without
                support for the new versions can then no longer use the table. Versions are never lowered.

        Returns:
            The commit, or the newest version if nothing changed.

        Raises:
            ConfigurationError: If a property is unknown, has an invalid value or cannot be changed.
            UnsupportedFeatureError: If the protocol's versions would have to be raised, and that is not allowed.
            ConflictError: If other writers changed the table's metadata or protocol at the same time, repeatedly.

        Example:
            >>> table.set_properties({"delta.enableChangeDataFeed": True}, allow_protocol_upgrade=True)

        """
        return self.statement(
            lambda transaction: transaction.set_properties(properties, allow_protocol_upgrade=allow_protocol_upgrade)
        )

    def add_columns(self, fields: pa.Schema | Iterable[pa.Field], *, allow_protocol_upgrade: bool = False) -> Committed:
        """Add nullable columns after the existing ones. They are null in old rows; no data file is read or written.

        Args:
            fields: An Arrow schema or Arrow fields. Their metadata, such as `comment`, is kept.
            allow_protocol_upgrade: Add the table feature that the type of a column needs (`timestampNtz` for a
                timestamp without a time zone). Clients that do not support it can then no longer use the table.

        Raises:
            ConfigurationError: A name exists already (ignoring case), or a column is not nullable.
            SchemaMismatchError: Delta does not have the type of a column.
            UnsupportedFeatureError: The table's protocol does not allow the type of a column.
        """
        held = tuple(fields) if isinstance(fields, Iterable) else fields
        return self.statement(
            lambda transaction: transaction.add_columns(held, allow_protocol_upgrade=allow_protocol_upgrade)
        )

    def rename_column(self, column: str | Sequence[str], name: str) -> Committed:
        """Give a column another name. No data file is read or written.

        The table must map its columns: set the property `delta.columnMapping.mode` to `name`. Partition columns, and
        the properties that name columns, such as `tidelog.primaryKey`, take the new name.

        Args:
            column: The name of the column, or the names down to a field of structs: `("place", "city")`.
            name: The new name of the column, or of the field.

        Raises:
            ConfigurationError: The column does not exist, the name is taken, or a constraint or a generated column
                reads the column.
            UnsupportedFeatureError: The table does not map its columns.
        """
        parts = (column,) if isinstance(column, str) else tuple(column)
        return self.statement(lambda transaction: transaction.alter([RenameColumn(parts, name)], _no_rows))

    def drop_columns(self, columns: Sequence[str | Sequence[str]]) -> Committed:
        """Take columns away. Their values stay in old files, which no version from now on shows.

        The table must map its columns: set the property `delta.columnMapping.mode` to `name`. A new column with a name
        from before is null in old rows.

        Args:
            columns: Each the name of a column, or the names down to a field of structs: `("place", "city")`.

        Raises:
            ConfigurationError: The column does not exist; it is a partition column, or the last one; or a constraint, a
                generated column or a property of the table names it.
            UnsupportedFeatureError: The table does not map its columns.
        """
        if isinstance(columns, str):
            raise ConfigurationError(
                "columns must be a list of column names, not a string", advice=f"pass [{columns!r}]"
            )
        changes = [DropColumn((column,) if isinstance(column, str) else tuple(column)) for column in columns]
        return self.statement(lambda transaction: transaction.alter(changes, _no_rows))

    def statement(self, stage: Callable[[Transaction], Transaction]) -> Committed:
        """Stage an operation on the newest version and commit it; see `run_statement` for conflicts."""
        return run_statement(lambda: committed(stage(self._begin()).commit()), self.path)
