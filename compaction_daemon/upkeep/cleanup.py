"""Clean-up of a table that is given by its path; `Table.expire` and `Table.vacuum` do the work."""

from __future__ import annotations

from datetime import datetime, timedelta

from tidelog.log import ExpiryReport, Table, VacuumReport


def expire(
    table: Table | str, *, older_than: timedelta | datetime | None = None, dry_run: bool = False
) -> ExpiryReport:
    """Delete the commits, checkpoints and checksums that no version since the cut-off needs; see `Table.expire`.

    Args:
        table: A table, or its path.
        older_than: The cut-off, an age or an aware datetime. By default it is `delta.logRetentionDuration` ago, and
            nothing is deleted if both `tidelog.cleanUp` and `delta.enableExpiredLogCleanup` are off.
        dry_run: Report what would be deleted, and delete nothing.

    Returns:
        What was deleted; if nothing was, its `reason` says why.

    Raises:
        TableNotFoundError: There is no table at the path.
        ConfigurationError: `older_than` is closer than `tidelog.maxTransactionTime`.
        StoreUnavailableError: A file could not be deleted, like PathNotWritableError. The next call continues.
    """
    return _open(table).expire(older_than=older_than, dry_run=dry_run)


def vacuum(
    table: Table | str,
    *,
    older_than: timedelta | datetime | None = None,
    dry_run: bool = False,
    listing: bool = True,
) -> VacuumReport:
    """Delete the data files that no version since the cut-off needs; see `Table.vacuum`.

    Args:
        table: A table, or its path.
        older_than: The cut-off, an age or an aware datetime. By default it is `delta.deletedFileRetentionDuration` ago.
        dry_run: Report what would be deleted, and delete nothing.
        listing: Whether to list the folder of the table; without, the log alone says which files left the table.

    Returns:
        What was deleted, and in `failed` the files that could not be.

    Raises:
        TableNotFoundError: There is no table at the path.
        ConfigurationError: `older_than` is closer than `tidelog.maxTransactionTime`.
    """
    return _open(table).vacuum(older_than=older_than, dry_run=dry_run, listing=listing)


def _open(table: Table | str) -> Table:
    return Table.open(table) if isinstance(table, str) else table
