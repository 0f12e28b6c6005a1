"""What a compaction did."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from tidelog.compaction_daemon.compaction.purge import PurgeReport
from tidelog.compaction_daemon.planning.checking import DroppedGroup
from tidelog.compaction_daemon.planning.plan import NOTHING_PREDICTED, Prediction, total
from tidelog.log.errors import TidelogError

_NOTHING, _NOTHING_MORE = "nothing was committed", "nothing more was committed"


@dataclass(frozen=True, slots=True)
class CompactionReport:
    """What one compaction did, in one commit or in several.

    Args:
        version: The newest version that it committed; None if nothing was committed.
        groups: The groups that were committed.
        files_removed: The files that the commits removed from the table.
        files_added: The files that they added.
        bytes_read: The size of the input files of all groups that were rewritten, committed or not. Files whose rows
            are all dead are not read.
        bytes_written: The size of the files that were written, committed or not.
        wasted_bytes: The size of the files that were written in vain, because another commit took the inputs first, or
            because of a conflict or an error; these files are deleted again.
        rebased_over: The versions of other writers that the commits were rebased over.
        groups_left: The groups that are worth a rewrite but exceeded the bounds of one compaction; run another one.
        versions: All versions that it committed, oldest first. A long compaction commits what it has from time to time.
        dropped: The groups that were left alone because the table has changed since they were planned, and those that
            the table's conflict policy refused, with the reason.
        predicted: What the plan said about the groups that were rewritten.
        seconds: The time from the first rewrite to the last commit.
        stopped: Why it ended early, after something had been committed: the text of a conflict, or of an error of the
            store; None if it did not. The next compaction goes on.
        levels: The levels of the groups that were committed: `minor`, `major` or both.
        purge: What a purge achieved, and from when on nothing holds the deleted rows; None if none was asked for.
    """

    version: int | None
    groups: int
    files_removed: int
    files_added: int
    bytes_read: int
    bytes_written: int
    wasted_bytes: int
    rebased_over: tuple[int, ...]
    groups_left: int = 0
    versions: tuple[int, ...] = ()
    dropped: tuple[DroppedGroup, ...] = ()
    predicted: Prediction = field(default=NOTHING_PREDICTED, compare=False)
    seconds: float = field(default=0.0, compare=False)
    levels: tuple[str, ...] = ()
    stopped: str | None = None
    purge: PurgeReport | None = None

    @property
    def did_anything(self) -> bool:
        """Whether a version was committed."""
        return self.version is not None


NOTHING = CompactionReport(None, 0, 0, 0, 0, 0, 0, ())


def summed(
    reports: Sequence[CompactionReport], *, groups_left: int, dropped: Sequence[DroppedGroup], seconds: float
) -> CompactionReport:
    """One report of a compaction from those of its commits."""
    versions = tuple(version for report in reports for version in report.versions)
    rebased = {version for report in reports for version in report.rebased_over} - {*versions}
    return CompactionReport(
        version=versions[-1] if versions else None,
        groups=sum(report.groups for report in reports),
        files_removed=sum(report.files_removed for report in reports),
        files_added=sum(report.files_added for report in reports),
        bytes_read=sum(report.bytes_read for report in reports),
        bytes_written=sum(report.bytes_written for report in reports),
        wasted_bytes=sum(report.wasted_bytes for report in reports),
        rebased_over=tuple(sorted(rebased)),
        groups_left=groups_left,
        versions=versions,
        dropped=tuple(dropped),
        predicted=total([report.predicted for report in reports]),
        seconds=seconds,
        levels=tuple(sorted({level for report in reports for level in report.levels})),
    )


def say_what_was_committed(error: TidelogError, report: CompactionReport) -> None:
    """Make an error of a compaction true for all of it: the versions that were committed before stay."""
    if not report.did_anything or "report" in error.fields:
        return
    # A part of the log that raised this speaks of one commit.
    error.message = error.message.replace(_NOTHING, _NOTHING_MORE)
    stay = f"what this compaction committed before stays, up to version {report.version}"
    error.advice = "; ".join(filter(None, [error.advice.replace(_NOTHING, _NOTHING_MORE), stay]))
    error.fields = {**error.fields, "report": report}
    setattr(error, "report", report)  # noqa: B010 - every field of an error is an attribute
