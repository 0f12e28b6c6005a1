"""Maintenance of a table: checkpoints, compaction and clean-up, and how much of it is due."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Executor
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from tidelog.log.cleanup.expire import ExpiryReport, expire_log
from tidelog.log.cleanup.pieces import finished
from tidelog.log.cleanup.vacuum import VacuumReport, vacuum_files
from tidelog.log.errors import TidelogError
from tidelog.log.operations.tend_index import tend_index
from tidelog.log.read.debt import Debt, debt_of
from tidelog.log.read.table_reader import TableReader
from tidelog.log.state import checkpointing
from tidelog.log.state.segment import find_segment
from tidelog.log.system import logger

if TYPE_CHECKING:
    from tidelog.compaction_daemon.compaction.compaction_report import CompactionReport
    from tidelog.compaction_daemon.planning.request import Budget


_LOGGER = logger(__name__)


class UpkeepMethods(TableReader):
    """The maintenance methods of a Table. None of them changes rows."""

    def checkpoint(self) -> None:
        """Write a checkpoint of the loaded version, so that readers need not replay older commits.

        First compares the version's checksum file with the log. A wrong one, which would keep other engines from
        writing checkpoints, is deleted and a warning is logged.

        Raises:
            UnsupportedFeatureError: Writing to the table requires a feature that tidelog lacks.
            StoreUnavailableError: The store does not answer.
        """
        checkpointing.checkpoint(self._store, self._state, self._system)

    def commits_since_checkpoint(self) -> int:
        """How many commits a reader of the loaded version replays on top of the newest checkpoint."""
        return len(find_segment(self._store, self._state.head.version).commit_versions)

    def debt(self) -> Debt:
        """Small files, dead rows and log tail of the loaded version: what compaction and a checkpoint would save.

        The first call lists the version's files; after that a call takes some milliseconds for a million files.
        """
        return debt_of(self._store, self._state)

    def compact(  # noqa: D417 - CompactionRequest describes the other arguments, which users know by name
        self,
        level: str = "minor",
        *,
        where: str | None = None,
        growth: float = 1.0,
        cluster_by: Sequence[str] = (),
        purge: bool = False,
        cluster_order: str | None = None,
        executor: Executor | None = None,
        budget: Budget | None = None,
    ) -> CompactionReport:
        """Rewrite groups of files in commits that change no rows and are invisible to time travel by timestamp.

        It is `tidelog.compaction_daemon.compact` for this table, where the bounds and the commits of a call are
        described. `level`, `where`, `growth`, `cluster_by`, `purge` and `cluster_order` are those of its
        `CompactionRequest`. Other writers are not disturbed: if one of them takes a file first, its group is left out.

        Args:
            executor: A `concurrent.futures` executor that rewrites groups in parallel; by default some threads do.
            budget: The most to take on; by default 512 MiB to read for `minor` and `auto`, 8 GiB for `major`.

        Raises:
            ConfigurationError: An argument is wrong.
            PredicateError: `where` uses another column, or something that tidelog does not evaluate.
            CompactionVerificationError: A rewrite does not hold the rows that it read. It was not committed.
        """
        # The log does not need the daemon.
        from tidelog.compaction_daemon.compaction.compaction import compact_opened  # noqa: PLC0415
        from tidelog.compaction_daemon.planning.request import CompactionRequest  # noqa: PLC0415

        table: Any = self  # a Table, which inherits from this class
        request = CompactionRequest(level, where, growth, cluster_by, purge, cluster_order)
        report = compact_opened(table, request, executor, budget)
        if report.did_anything:
            self._tend_index()
        return report

    def _tend_index(self) -> None:
        """Merge and delete runs of the key index. It is only a hint, so what fails is left to the next time."""
        try:
            finished(tend_index(self._store, self._state, self._system, reads=False))
        except (TidelogError, OSError) as error:
            _LOGGER.warning("the key index of %s was not tended: %s", self._store.url, error)

    def expire(self, *, older_than: timedelta | datetime | None = None, dry_run: bool = False) -> ExpiryReport:
        """Delete the commits, checkpoints and checksums that no version since the cut-off needs.

        A reader that needs an older version, such as a stream that lags behind further, then gets a
        HistoryExpiredError. A registered consumer is waited for: the versions that it has yet to read stay, unless it
        has given no sign of life for `tidelog.consumerTimeToLive`. Before a version is deleted, a commit without rows
        (`EXPIRE` in the history) announces it. After a crash the table is readable, and the next call continues.
        Entries of the conflict ledger from before the cut-off are always deleted.

        Args:
            older_than: The exact cut-off: an age or an aware datetime. Without it the cut-off is
                `delta.logRetentionDuration` ago, at midnight UTC if that is a day or more, and the log is only cleaned
                up if `tidelog.cleanUp` is on, as in tables created by tidelog, or
                `delta.enableExpiredLogCleanup`, as in most others.
            dry_run: Only report what would be deleted, and commit nothing.

        Raises:
            ConfigurationError: `older_than` is closer than `tidelog.maxTransactionTime`.
            UnsupportedFeatureError: Writing to the table requires a feature that tidelog lacks.
            TableReplacedError: The path now holds a different table.
            StoreUnavailableError, PathNotWritableError: A file cannot be deleted, or the commit failed.
            ConflictError, CommitContentionError, CommitStateUnknownError: The commit failed, as that of any transaction
                can. No version was deleted; run it again.
        """
        table_id = self._state.head.metadata.id
        return finished(
            expire_log(
                self._store, table_id, self._system, self._move_to_maintained, older_than=older_than, dry_run=dry_run
            )
        )

    def vacuum(
        self, *, older_than: timedelta | datetime | None = None, dry_run: bool = False, listing: bool = True
    ) -> VacuumReport:
        """Delete files below the table that were written before the cut-off and that no version since then needs.

        Versions before the cut-off can lose files. Time travel to them, and a stream that lags behind further, then
        fail with an error that names the file. A registered consumer is waited for: the files that it has yet to read
        stay, unless it has given no sign of life for `tidelog.consumerTimeToLive`.

        Before anything is deleted, a commit without rows (`VACUUM` in the history) announces it: then transactions that
        began before the cut-off are refused, and so is a restore of files that were removed before it. A call that has
        nothing to delete makes no commit, with one exception: if an unneeded file is newer than the newest version, it
        commits a version, so that a later call can delete the file.

        These stay: files and folders whose names begin with `_` or `.`, except the table's own deletion vectors, change
        data and row maps; other tables inside this one; links. A file that cannot be deleted is reported, and deletion
        continues with the rest.

        Args:
            older_than: The exact cut-off: an age or an aware datetime. Without it the cut-off is
                `delta.deletedFileRetentionDuration` ago, but at least `tidelog.maxTransactionTime`.
            dry_run: Only report what would be deleted, and commit nothing.
            listing: Whether to list the folder of the table. Without, only those files are found that left the table
                by commits that are still retained, since the last vacuum: nothing is listed, which is much faster for a
                table of millions of files. Files that no commit ever named, and what an interrupted vacuum left, need
                a listing. Spark calls this `VACUUM ... LITE`.

        Raises:
            ConfigurationError: `older_than` is closer than `tidelog.maxTransactionTime`.
            UnsupportedFeatureError: Writing to the table requires a feature that tidelog lacks.
            TableReplacedError: The path now holds a different table.
            ConflictError, CommitContentionError, CommitStateUnknownError, StoreUnavailableError: The commit failed, as
                that of any transaction can. Nothing was deleted; run the vacuum again.
        """
        report = finished(
            vacuum_files(
                self._store,
                self._state.head.metadata.id,
                self._system,
                self._move_to_maintained,
                older_than=older_than,
                dry_run=dry_run,
                listing=listing,
            )
        )
        if listing and not dry_run:
            self._tend_index()
        return report
