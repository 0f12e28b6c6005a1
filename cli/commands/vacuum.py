"""`tidelog vacuum`."""

from __future__ import annotations

import typer

from tidelog.cli import output, parameters
from tidelog.cli.app import FAILED
from tidelog.cli.reports import print_cleanup
from tidelog.cli.spinner import Progress
from tidelog.compaction_daemon import retentions, vacuum


def vacuum_command(
    path: parameters.TablePath,
    older_than: parameters.OlderThan = None,
    dry_run: parameters.DryRun = False,
    no_listing: parameters.NoListing = False,
    storage_option: parameters.StorageOptions = None,
    as_json: parameters.AsJson = False,
) -> None:
    """Delete data files that no retained version needs.

    Time travel to versions whose files are gone, and streams that lag behind them, then fail with an error. Without
    --older-than the table's own retention applies, which --dry-run shows. Exit code 4 if there is nothing to do, and 1
    if a file could not be deleted.

    Example:
      tidelog vacuum /data/events --dry-run
      tidelog vacuum /data/events --older-than 14d
      tidelog vacuum s3://bucket/events --no-listing
    """
    cutoff = parameters.parse_older_than(older_than)
    with Progress(f"cleaning up the data files of {path}"):
        table = parameters.open_table(path, storage_option)
        report = vacuum(table, older_than=cutoff, dry_run=dry_run, listing=not no_listing)
    for file, error in report.failed:
        output.complain(f"{file}: {error}")
    counts = {
        "data file": report.data_files,
        "deletion vector": report.deletion_vectors,
        "change file": report.change_files,
        "row map": report.row_maps,
        "other file": report.others,
    }
    reason = "every file is young or needed by a retained version"
    shown = retentions(table.properties) if dry_run and cutoff is None else ()
    print_cleanup(report, counts, reason, as_json=as_json, retentions=shown)
    if report.failed:
        raise typer.Exit(FAILED)
