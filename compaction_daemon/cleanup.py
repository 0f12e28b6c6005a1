"""Clean-up by a table's path, for programs that have not opened it; `Table.expire` and `Table.vacuum` do the work."""

from __future__ import annotations

from datetime import datetime, timedelta

from tidelog.log import ExpiryReport, Table, VacuumReport


def expire(
    table: Table | str, *, older_than: timedelta | datetime | None = None, dry_run: bool = False
) -> ExpiryReport:
    """Delete old commits, checkpoints and checksums of the log of a table or of the one at a path; see Table.expire."""
    return _opened(table).expire(older_than=older_than, dry_run=dry_run)


def vacuum(
    table: Table | str, *, older_than: timedelta | datetime | None = None, dry_run: bool = False
) -> VacuumReport:
    """Delete data files that no retained version of a table, or of the one at a path, needs; see Table.vacuum."""
    return _opened(table).vacuum(older_than=older_than, dry_run=dry_run)


def _opened(table: Table | str) -> Table:
    return Table.open(table) if isinstance(table, str) else table
