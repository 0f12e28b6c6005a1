"""Whether the table at a path is still the one that was opened, and its newest commit the one that was read."""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import Future

from tidelog.log.errors import TableNotFoundError, TableReplacedError
from tidelog.log.format import commit_info, filenames, protocol
from tidelog.log.format.actions import Commit
from tidelog.log.state.commits import is_there, read_commit, read_info
from tidelog.log.state.head import Head
from tidelog.log.state.segment import complete_checkpoints
from tidelog.log.state.version_checksum import checksummed_commit_id
from tidelog.log.storage import Store
from tidelog.log.storage.store import begun
from tidelog.log.system import System

# The key of the table's id in `commitInfo.tidelog`.
TABLE_ID = "table"


def is_same_commit(store: Store, head: Head) -> bool:
    """Whether the commit of `head`'s version exists and is the one that the head was loaded from.

    Version numbers of a path never start again, so another commit under the same number means that the folder was
    deleted by other means than `Table.drop`, and a table was created there since. The checksum file names the commit as
    well, and stays small where the commit is large.

    Whoever adds a commit reads the whole one before it instead: `same_commit_reads`.
    """
    if head.commit_id is not None and checksummed_commit_id(store, head.version) == head.commit_id:
        return is_there(store, head.version)
    try:
        return commit_info.txn_id(read_info(store, head.version)) == head.commit_id
    except FileNotFoundError:
        return False


def has_commit(store: Store, version: int, commit_id: str | None) -> bool:
    """Whether the commit `version` is in the log, and is still the one with this id.

    That its file exists is not enough: after a clean-up another writer that slept can have put the version anew.
    Without an id any commit counts. Raises CorruptLogError.
    """
    if commit_id is None:
        return is_there(store, version)
    try:
        return commit_info.txn_id(read_info(store, version)) == commit_id
    except FileNotFoundError:
        return False


def has_checkpoint(store: Store, version: int) -> bool:
    """Whether the log has a complete checkpoint of `version`. Lists the log.

    Of a version without a commit this takes the place of `has_commit`: a clean-up deletes oldest first, and a
    checkpoint before the commits after it.
    """
    names = store.names(filenames.LOG_FOLDER)
    return any(found.version == version for found in complete_checkpoints(names))


def is_checkpoint_only(store: Store, version: int) -> bool:
    """Whether the log has a checkpoint of `version` without its commit, as a copy of a log can have."""
    return not is_there(store, version) and has_checkpoint(store, version)


def same_commit_reads(store: Store, head: Head) -> bool:
    """Like `is_same_commit`, and the commit can be read. Raises CorruptLogError if it cannot.

    A head can come from a checksum or from memory while the commit's file is damaged. A commit after a damaged one
    would be out of reach for every reader that needs both.
    """
    try:
        return commit_info.txn_id(read_commit(store, head.version).info) == head.commit_id
    except FileNotFoundError:
        return False


def require_same_table(path: str, expected_id: str, found_id: str, *, advice: str) -> None:
    """Raise TableReplacedError if the ids of the table that was opened and the one at `path` differ."""
    if found_id != expected_id:
        raise TableReplacedError(
            f"the table at {path} has been replaced by another one",
            advice=advice,
            path=path,
            expected_id=expected_id,
            found_id=found_id,
        )


def require_not_dropped(path: str, head: Head) -> None:
    """Raise TableNotFoundError if the table has been dropped."""
    if protocol.is_dropped(head.protocol):
        raise TableNotFoundError(
            f"the table at {path} was dropped at version {head.version}",
            advice="check the path, or create a new table there with Table.create or a Sink",
            path=path,
        )


def require_current(path: str, expected_id: str, found: Head, *, advice: str) -> None:
    """Raise TableReplacedError or TableNotFoundError if `found`, the head at `path`, is not the expected table's."""
    require_same_table(path, expected_id, found.metadata.id, advice=advice)
    require_not_dropped(path, found)


def foreign_table(commits: Iterable[Commit], table_id: str) -> str | None:
    """The id of another table to which one of these commits belongs, as tidelog recorded it; None if there is none."""
    recorded = (commit_info.tidelog(commit.info).get(TABLE_ID) for commit in commits)
    return next((found for found in recorded if isinstance(found, str) and found != table_id), None)


# An older look is not relied on. It proves nothing at any age, since the log can change right after it; but the longer
# ago it was, the more often it would be wrong. Another look takes less than a tenth of this. Both clocks count, as one
# stands still while a machine is suspended.
LOOK_AGE_S = 1.0


class BaseLook:
    """Whether the commit of `head` can be read, and is the one that the head was loaded from.

    The look comes before a commit, and can begin while its files are being written.
    """

    def __init__(self, store: Store, head: Head, system: System) -> None:
        self._store = store
        self._head = head
        self._system = system
        self._began_s, self._began_ms = 0.0, 0
        self._early: Future[bool] | None = None

    def begin(self) -> None:
        """Look in a thread, if a look takes long enough for that. Further calls do nothing."""
        if self._early is None and self._head.version >= 0 and self._store.small_reads_at_once > 1:
            self._began_s, self._began_ms = self._system.monotonic_s(), self._system.now_ms()
            self._early = begun(self._look, "tidelog-base-look")

    def is_same(self) -> bool:
        """The answer. Waits for a look that has begun lately, else looks now. Raises CorruptLogError."""
        if self._early is not None and self._age_s() <= LOOK_AGE_S:
            return self._early.result()
        return self._look()

    def _age_s(self) -> float:
        return max(self._system.monotonic_s() - self._began_s, (self._system.now_ms() - self._began_ms) / 1000)

    def _look(self) -> bool:
        return same_commit_reads(self._store, self._head)
