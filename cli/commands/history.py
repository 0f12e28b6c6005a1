"""`tidelog history`."""

from __future__ import annotations

from typing import Any

from tidelog.cli import output, parameters
from tidelog.cli.spinner import Progress
from tidelog.log import CommitRecord
from tidelog.log.commit_records import commit_records

_COLUMNS = ("version", "timestamp", "class", "operation", "rows", "files", "engine")


def history_command(
    path: parameters.TablePath,
    limit: parameters.Limit = None,
    storage_option: parameters.StorageOptions = None,
    as_json: parameters.AsJson = False,
) -> None:
    """List the commits of a table, newest first.

    A `*` marks the commits that changed rows, and so have a time version. Rows are `+` inserted, `~` updated and `-`
    deleted, as far as the writer says. `(checkpoint only)` is a version whose commit is missing from the log.

    Example:
      tidelog history /data/events --limit 20
    """
    with Progress(f"reading the log of {path}") as progress:
        table = parameters.open_table(path, storage_option)
        records = commit_records(table.timeline, limit)
        if as_json:
            for record in records:
                progress.stop_on_terminal()  # the records themselves show the progress
                output.write_json(_as_json(record))
            return
        rows = [_as_row(record) for record in records]
    output.write_grid(_COLUMNS, rows, numbers=[0, 4, 5], whole=[1], optional=[6])


def _as_json(record: CommitRecord) -> dict[str, Any]:
    return {
        "version": record.version,
        "timestamp": output.timestamp_text(record.timestamp),
        "time_version": output.timestamp_text(record.time_version),
        "class": str(record.operation_class),
        "operation": record.operation,
        "data_change": record.data_change,
        "rows": record.rows_added,
        "rows_updated": record.rows_updated,
        "rows_deleted": record.rows_deleted,
        "files_added": record.files_added,
        "files_removed": record.files_removed,
        "engine": record.engine,
        "user_metadata": record.user_metadata,
        "checkpoint_only": record.checkpoint_only,
        "metrics": record.metrics,
    }


def _as_row(record: CommitRecord) -> list[Any]:
    return [
        str(record.version),
        # The time version is the timestamp or nothing, so a mark is enough.
        f"{output.timestamp_text(record.timestamp, timespec='milliseconds')}{' *' if record.time_version else ''}",
        str(record.operation_class),
        "(checkpoint only)" if record.checkpoint_only else record.operation,
        _rows(record),
        f"+{record.files_added} -{record.files_removed}",
        record.engine,
    ]


def _rows(record: CommitRecord) -> str:
    """The rows that the commit changed, such as `+2 ~1`; empty if that is unknown, or if there are none."""
    counts = (("+", record.rows_added), ("~", record.rows_updated), ("-", record.rows_deleted))
    return " ".join(f"{sign}{count:,}" for sign, count in counts if count)
