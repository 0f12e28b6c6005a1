"""The upkeep of a table: checkpoints, compaction and clean-up, and how much of it is due."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Executor
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from tidelog.log.cleanup.expire import ExpiryReport, expire_log
from tidelog.log.cleanup.vacuum import VacuumReport, vacuum_files
from tidelog.log.read.debt import Debt, debt_of
from tidelog.log.state import checkpointing
from tidelog.log.state.loader import LogState
from tidelog.log.state.segment import list_segment
from tidelog.log.storage import Store
from tidelog.log.system import System

if TYPE_CHECKING:
    from tidelog.compaction_daemon.compaction import CompactionReport


class Upkeep:
    """The methods of a Table that keep it small and fast and change no row."""

    _store: Store
    _state: LogState
    _system: System

    def checkpoint(self) -> None:
        """Write a checkpoint of the loaded version, so that readers need not replay older commits.

        The version's checksum is compared with what the log itself says; one that is wrong (another writer's, or a
        fault) would keep other engines from writing checkpoints, so it is deleted and a warning logged.
        """
        checkpointing.checkpoint(self._store, self._state, self._system)

    def commits_since_checkpoint(self) -> int:
        """How many commits a reader has to replay on top of the newest checkpoint."""
        return len(list_segment(self._store, self._state.head.version).commit_versions)

    def debt(self) -> Debt:
        """Small files, dead rows and log tail of the loaded version: how much compaction and checkpoint would help.

        Lists the version's files when it is first asked, then costs some milliseconds for a million of them.
        """
        return debt_of(self._store, self._state)

    def compact(
        self,
        level: str = "minor",
        *,
        where: str | None = None,
        cluster_by: Sequence[str] = (),
        purge: bool = False,
        executor: Executor | None = None,
    ) -> CompactionReport:
        """Rewrite small files (`minor`) or a whole scope (`major`) in one commit that no read by time shows.

        See `tidelog.compaction_daemon.compact` for the arguments, the bounds and the errors.
        """
        from tidelog.compaction_daemon.compaction import compact  # noqa: PLC0415 - the log does not need the daemon

        table: Any = self  # a Table, which this class is a part of
        return compact(table, level, where=where, cluster_by=cluster_by, purge=purge, executor=executor)

    def expire(self, *, older_than: timedelta | datetime | None = None, dry_run: bool = False) -> ExpiryReport:
        """Delete the commits, checkpoints and checksums that no version since the cut-off needs.

        The cut-off is `delta.logRetentionDuration` ago, at midnight UTC. Without `older_than` nothing is deleted where
        the table has `delta.enableExpiredLogCleanup` off, as tables that tidelog creates do. `older_than`, an age or an
        aware datetime, is the exact cut-off and is always applied. A reader that needs an older version, such as a
        stream that lags behind further, gets a HistoryExpiredError from then on. A crash in the middle leaves a
        readable table, and the next call continues. Entries of the conflict ledger from before the cut-off are deleted
        in any case.

        Raises ConfigurationError for an `older_than` closer than `tidelog.maxTransactionTime`, UnsupportedFeatureError
        for a table that tidelog cannot write, TableReplacedError if another table is at the path now,
        StoreUnavailableError or PathNotWritableError if a file cannot be deleted.
        """
        return expire_log(
            self._store, self._state.head.metadata.id, self._system, older_than=older_than, dry_run=dry_run
        )

    def vacuum(self, *, older_than: timedelta | datetime | None = None, dry_run: bool = False) -> VacuumReport:
        """Delete the files below the table that no version since the cut-off needs and that were written before it.

        The cut-off is `delta.deletedFileRetentionDuration` ago, and at least `tidelog.maxTransactionTime`;
        `older_than`, an age or an aware datetime, replaces it. Versions before the cut-off may lose files: time travel
        to them, and a stream that lags behind further, then fail with an error that names the file. Files and folders
        whose names begin with `_` or `.` stay, except the table's own deletion vectors, change data and row maps. Other
        tables inside this one and links stay as well. A file that cannot be deleted is reported, and deletion continues
        with the rest.

        Raises ConfigurationError for an `older_than` closer than `tidelog.maxTransactionTime`, UnsupportedFeatureError
        for a table that tidelog cannot write, TableReplacedError if another table is at the path now.
        """
        return vacuum_files(
            self._store, self._state.head.metadata.id, self._system, older_than=older_than, dry_run=dry_run
        )
