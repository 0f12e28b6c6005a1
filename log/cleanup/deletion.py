"""Delete the files that a vacuum has found, in batches, and leave those that are named meanwhile."""

from __future__ import annotations

from dataclasses import dataclass, field

from tidelog.log.cleanup.current_state import current_state, require_cleanable
from tidelog.log.cleanup.pieces import DELETIONS_AT_ONCE, Pieces
from tidelog.log.cleanup.references import References
from tidelog.log.cleanup.unneeded import Unneeded
from tidelog.log.state.commits import commits_until_now, read_commits
from tidelog.log.state.loader import LogState
from tidelog.log.state.table_identity import is_same_commit
from tidelog.log.storage import Store
from tidelog.log.system import logger

_LOGGER = logger(__name__)


@dataclass
class Deletion:
    """Deletes the files that were found, except those that later commits name.

    `state` is the newest state of the table whose commits have been looked at.
    """

    store: Store
    state: LogState
    found: Unneeded
    commit_version: int | None = None
    deleted: dict[str, int] = field(default_factory=dict)
    failed: list[tuple[str, str]] = field(default_factory=list)
    late: References = field(default_factory=References)

    def keep_after(self, version: int, horizon: int) -> None:
        """Leave the files that a consumer at `version` needs, though the horizon has passed it."""
        for commit in read_commits(self.store, range(version + 1, horizon + 1)):
            self.late.add_commit(commit)

    def run(self, *, dry_run: bool) -> Pieces[None]:
        """Delete in batches. A file that a commit has named in the meantime stays."""
        at_once = max(DELETIONS_AT_ONCE, self.store.deletes_at_once)
        for start in range(0, len(self.found.paths), at_once):
            batch = self.found.paths[start : start + at_once]
            self._catch_up()
            sizes = self.found.sizes[start : start + at_once]
            named = self.late.named(batch)
            free = {path: size for path, size, is_named in zip(batch, sizes, named, strict=True) if not is_named}
            failed = {} if dry_run else self._delete(list(free))
            self.deleted |= {path: size for path, size in free.items() if path not in failed}
            self.failed += failed.items()
            yield

    def _catch_up(self) -> None:
        """Add the files that were named by commits since the last look.

        The first look comes after the horizon's commit, so it sees everything that tidelog writers may still name.
        Another engine can name old files at any time, for example with its RESTORE.
        """
        before = self.state.head
        new = commits_until_now(self.store, before.version)
        if is_same_commit(self.store, before):
            self.state = self.state.advance(new) if new else self.state
            require_cleanable(self.store, before.metadata.id, self.state)
        else:
            # The commit was cleaned up meanwhile, or the path holds another table.
            self.state = current_state(self.store, before.metadata.id)
            new = list(read_commits(self.store, range(before.version + 1, self.state.head.version + 1)))
        for commit in new:
            self.late.add_commit(commit)

    def _delete(self, paths: list[str]) -> dict[str, str]:
        """Delete files and their hidden checksums. Returns the errors by path."""
        checksums = {_checksum(path): path for path in paths}
        known = self.found.hidden
        hidden = [checksum for checksum in checksums if known is None or checksum in known]
        # The checksums go first: no vacuum finds one whose file is gone.
        failed = {checksums[checksum]: error for checksum, error in self.store.delete_each(hidden).items()}
        failed |= self.store.delete_each([path for path in paths if path not in failed])
        for path, error in failed.items():
            _LOGGER.warning("could not delete %s of %s: %s", path, self.store.url, error)
        return {path: str(error) for path, error in failed.items()}


def _checksum(path: str) -> str:
    """Where Hadoop leaves the hidden checksum of a file."""
    folder, slash, name = path.rpartition("/")
    return f"{folder}{slash}.{name}.crc"
