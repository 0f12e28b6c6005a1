"""How commands print what they did: a commit, a compaction, a clean-up, and how long ago."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
import typer

from tidelog.cli import output, parameters
from tidelog.cli.app import NOTHING_TO_DO
from tidelog.log import Committed, ExpiryReport, Table, VacuumReport
from tidelog.log.format import properties

if TYPE_CHECKING:
    from tidelog.compaction_daemon import CompactionReport, PurgeReport, Retention


_UNITS = (("d", 86_400), ("h", 3_600), ("min", 60))


def age(seconds: float) -> str:
    """A time in its largest unit, such as `3 h`."""
    for unit, length in _UNITS:
        if seconds >= length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.0f} s"


# --- a commit --------------------------------------------------------------------------------------------------------


def print_commit(path: str, committed: Committed, done: str, *, changed: bool, as_json: bool) -> None:
    """Print a commit as `done`; exit with NOTHING_TO_DO if nothing was `changed`, so that there is no commit."""
    if as_json:
        output.write_json(
            {
                "path": path,
                "changed": changed,
                "version": committed.version,
                "timestamp": output.timestamp_text(committed.timestamp),
                "rebased_over": list(committed.rebased_over),
                "metrics": dict(committed.metrics),
            }
        )
    elif changed:
        output.say(f"{path}: version {committed.version}: {done}")
    else:
        output.say(f"{path}: nothing to do: version {committed.version} already has this state")
    if not changed:
        raise typer.Exit(NOTHING_TO_DO)


# --- a compaction ----------------------------------------------------------------------------------------------------


def print_compaction(
    path: str, version: int | None, report: CompactionReport, *, checkpointed: bool, as_json: bool
) -> None:
    """Print one compaction of a table and whether a checkpoint was written."""
    if as_json:
        shown = report.version if report.did_anything else version
        fields = {"path": path, "checkpointed": checkpointed, **msgspec.to_builtins(report), "version": shown}
        output.write_json({**fields, "reason": _why_nothing(report)}, at_once=True)
        return
    parts = []
    if report.did_anything:
        parts.append(
            f"version {report.version}: {output.counted(report.files_removed, 'file')} became {report.files_added:,} "
            f"({report.bytes_read:,} to {report.bytes_written:,} bytes)"
        )
    if report.groups_left:
        parts.append(f"{output.counted(report.groups_left, 'group')} left for the next compaction")
    if report.stopped:
        parts.append(f"stopped early: {report.stopped}")
    if checkpointed:
        parts.append(f"checkpoint at version {version}")
    output.say(f"{path}: {', '.join(parts) or 'nothing to do: ' + _why_nothing(report)}")
    if report.purge:
        _print_purge(path, report.purge)


def _print_purge(path: str, purge: PurgeReport) -> None:
    """Print from when on nothing holds the rows that were deleted, and what to do for it."""
    if purge.stopped:
        output.complain(f"{path}: the purge could not be closed: {purge.stopped}; run it again")
        return
    if purge.files_left:
        output.say(
            f"{path}: {output.counted(purge.files_left, 'file')} of version {purge.version} still "
            f"{'has' if purge.files_left == 1 else 'have'} deleted rows; run it again"
        )
        return
    output.say(
        f"{path}: rows deleted up to version {purge.version} are in no file of the newest version; vacuum deletes "
        f"their old files from {output.timestamp_text(purge.files_expire)} on, and expire the history of them from "
        f"{output.timestamp_text(purge.history_expires)} on"
    )
    if purge.gone_by:
        output.say(f"{path}: a daemon that keeps running has done all of it by {output.timestamp_text(purge.gone_by)}")
    else:
        output.say(f"{path}: no daemon does either, because tidelog.cleanUp is off: run both then")
    if purge.held_by:
        output.say(f"{path}: both wait for these consumers: {', '.join(purge.held_by)}")


def _why_nothing(report: CompactionReport) -> str:
    """Why nothing was committed; empty if something was."""
    if report.did_anything:
        return ""
    if report.dropped:
        return "the files of the plan have changed since; make a new one"
    if report.wasted_bytes:
        return "other commits removed the files that were being rewritten; run it again"
    return "no file needs a rewrite; `tidelog plan` shows why"


# --- a clean-up ------------------------------------------------------------------------------------------------------


def log_cleanup(table: Table) -> dict[str, Any]:
    """Whether `expire` deletes anything by default, and if not, what to do about it."""
    configuration = {properties.ENABLE_EXPIRED_LOG_CLEANUP: "true", **table.properties}
    if properties.clean_up(configuration) or properties.flag(configuration, properties.ENABLE_EXPIRED_LOG_CLEANUP):
        return {"enabled": True, "advice": None}
    age = parameters.age_text(properties.duration_ms(table.properties, properties.LOG_RETENTION))
    advice = f"run `tidelog expire {shlex.quote(table.path)} --older-than {age}`, or set {properties.CLEAN_UP}=true"
    return {"enabled": False, "advice": advice}


def print_cleanup(
    report: ExpiryReport | VacuumReport,
    counts: Mapping[str, int],
    reason: str,
    *,
    as_json: bool,
    advice: str | None = None,
    retentions: Sequence[Retention] = (),
) -> None:
    """Print what a clean-up deleted, or would delete; exit with NOTHING_TO_DO if there was nothing to delete.

    `counts` are the numbers of files by kind, `reason` says why there were none, and `advice` what to do about it.
    `retentions` are those in force, if they are to be shown.
    """
    for retention in () if as_json else retentions:
        output.say(f"{retention.keeps}: {retention}")
    if as_json:
        extra: dict[str, Any] = {"retentions": [each.to_dict() for each in retentions]} if retentions else {}
        extra |= {"advice": advice} if isinstance(report, ExpiryReport) else {"reason": "" if report.files else reason}
        output.write_json({**report.to_dict(), **extra})
    elif not report.files:
        output.say(f"{report.path}: nothing to do: {reason}" + (f"; {advice}" if advice else ""))
    else:
        if report.dry_run:
            for file in report.files:
                output.say(file)
        doing = "would delete" if report.dry_run else "deleted"
        what = ", ".join(output.counted(number, kind) for kind, number in counts.items())
        output.say(
            f"{report.path}: {doing} {what} ({output.counted(report.bytes_deleted, 'byte')}); "
            f"versions from {report.earliest_version} on stay readable"
        )
        if advice:
            output.say(f"{report.path}: {reason}; {advice}")
    if not as_json:
        _print_consumers(report)
        for folder in report.checkpoints if isinstance(report, VacuumReport) else ():
            output.complain(
                f"{report.path}: kept {folder}, which looks like the checkpoint of a streaming query: stop the query, "
                "move the folder out of the table, and start the query with its new place as checkpointLocation"
            )
    if not report.files and not (isinstance(report, VacuumReport) and report.failed):
        raise typer.Exit(NOTHING_TO_DO)


def _print_consumers(report: ExpiryReport | VacuumReport) -> None:
    """Print which consumers a clean-up waited for, which it gave up, and which records it could not read."""
    unreadable = dict(report.unreadable)
    waits = ", ".join(name for name in report.held_by if name not in unreadable)
    if waits:
        output.say(f"{report.path}: kept what these consumers have yet to read: {waits}")
    if report.released:
        silent = ", ".join(report.released)
        output.say(f"{report.path}: did not wait for these consumers, which were silent for too long: {silent}")
    for name, error in unreadable.items():
        output.complain(
            f"{report.path}: kept everything, because a record of the consumer {name} cannot be read: {error}; "
            f"if nobody needs it, run `tidelog consumers remove {shlex.quote(report.path)} {shlex.quote(name)}`"
        )
