"""The statements of a table: each stages one operation on the newest version and commits it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, TypeVar

import pyarrow as pa

from tidelog.log.commit.result import Committed, committed
from tidelog.log.data import conform
from tidelog.log.errors import ConcurrentTransactionException, ConflictError
from tidelog.log.transaction import Transaction

_LOGGER = logging.getLogger(__name__)

_T = TypeVar("_T")

# A statement whose predicate is known can run again on the table as it is; more losses in a row are contention that
# the caller should hear of.
STATEMENT_RETRIES = 3


def run_statement(attempt: Callable[[], _T], path: str) -> _T:
    """The result of `attempt`, which stages an operation on the newest version of the table at `path` and commits it.

    A ConflictError starts the attempt again, at most STATEMENT_RETRIES times. A ConcurrentTransactionException is
    raised at once: another copy of the same application has done the work.
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


class Statements:
    """The writing methods of a Table."""

    @property
    def path(self) -> str:
        """Where the table is."""
        raise NotImplementedError

    def begin(self) -> Transaction:
        """Begin a transaction on the newest version."""
        raise NotImplementedError

    def insert(self, data: Any, *, idempotency_key: tuple[str, int] | None = None) -> Committed:
        """Add rows: anything with an Arrow stream (pyarrow, pandas, Polars, DuckDB), or a list of dicts.

        `idempotency_key` is (application id, version); a call with a version that is in the table already, or an
        older one, does nothing. Raises SchemaMismatchError, and what a commit raises.
        """
        return committed(self.begin().insert(data, idempotency_key=idempotency_key).commit())

    def delete(self, where: str) -> Committed:
        """Delete the rows for which the SQL text `where` is true.

        Rows die by deletion vectors where the table has them on, else their files are written anew. Run again from the
        start, a few times, where another writer's commit could change which rows match. Raises PredicateError,
        AppendOnlyError, ConflictError.
        """
        return self.statement(lambda transaction: transaction.delete(where))

    def update(self, where: str, set: Mapping[str, str]) -> Committed:  # noqa: A002 - SQL's own word
        """Give the rows for which `where` is true new values: `set` maps columns to SQL expressions of the old row.

        A text is a literal in quotes of its own: `set={"state": "'done'", "tries": "tries + 1"}`. Holds the changed
        rows in memory. Run again as `delete` is. Raises also SchemaMismatchError for a value that does not fit.
        """
        return self.statement(lambda transaction: transaction.update(where, set))

    def upsert(self, data: Any, *, keys: Sequence[str] = (), delete_where: str | None = None) -> Committed:
        """Put the rows of `data` in the place of those with the same key, or add them where the key is new.

        `keys` are the key's columns, by default the table's `tidelog.primaryKey`. A row of the data for which the SQL
        text `delete_where` is true (over the data's columns, of which the table may lack those that only this text
        reads) deletes its key and adds nothing. Holds the data in memory, and where the table keeps a change feed the
        old rows as well. Run again as `delete` is.

        Raises SchemaMismatchError (also for a key that is null), DuplicateKeyError where the data has several rows of
        one key, PredicateError, AppendOnlyError, ConflictError.
        """
        held = conform.hold(data)
        return self.statement(lambda transaction: transaction.upsert(held, keys=keys, delete_where=delete_where))

    def overwrite(self, data: Any, *, where: str | None = None, dynamic: bool = False) -> Committed:
        """Replace the whole table by `data`; with `where` the partitions that it describes (partition columns only);
        with `dynamic` the partitions that the data has rows in.

        What others committed into that scope meanwhile is replaced, too. Raises PredicateError, AppendOnlyError,
        ConfigurationError for rows outside of `where`.
        """
        return committed(self.begin().overwrite(data, where=where, dynamic=dynamic).commit())

    def truncate(self, *, where: str | None = None) -> Committed:
        """Delete every row of the table, or of the partitions that `where` describes, without reading them."""
        return committed(self.begin().truncate(where=where).commit())

    def restore(self, *, version: int | None = None, timestamp: datetime | str | None = None) -> Committed:
        """Make the table what it was at an ID version or a time, schema and properties included, by a new commit.

        The history stays, and so do the applications' progress and the table's protocol. Raises HistoryExpiredError
        where commits or files of that version are gone.
        """
        return committed(self.begin().restore(version=version, timestamp=timestamp).commit())

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

    def add_columns(self, fields: pa.Schema | Iterable[pa.Field]) -> Committed:
        """Add columns behind the table's own: a schema or fields of Arrow, all nullable. Old rows have null in them.

        No file is read or written. Raises ConfigurationError for a name that is taken (case does not count),
        SchemaMismatchError for a type that Delta does not have, UnsupportedFeatureError for one that the table's
        protocol does not allow.
        """
        held = tuple(fields) if isinstance(fields, Iterable) else fields
        return self.statement(lambda transaction: transaction.add_columns(held))

    def statement(self, stage: Callable[[Transaction], Transaction]) -> Committed:
        """Stage an operation on the newest version and commit it; see `run_statement` for what a conflict does."""
        return run_statement(lambda: committed(stage(self.begin()).commit()), self.path)
