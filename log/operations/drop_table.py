"""Drop a table.

A drop is one commit: it removes all files, and its protocol demands a writer feature that no engine has. So writers
that come later are refused, and readers find an empty table. The commit stays, and so does the log before it: a new
table at the path gets the next version number. If numbers started again, a writer or a clean-up that slept through the
drop could act on the new table as if it were the old one.

The data files are deleted after the commit. A drop that was interrupted is finished by the next one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from tidelog.log.cleanup import retention
from tidelog.log.cleanup.references import References
from tidelog.log.commit import loop
from tidelog.log.commit.result import Committed
from tidelog.log.conflict.operation_class import OperationClass
from tidelog.log.conflict.staged import Staged
from tidelog.log.errors import (
    ConflictError,
    PathNotWritableError,
    StoreAccessError,
    StoreUnavailableError,
    TidelogError,
)
from tidelog.log.format import filenames
from tidelog.log.format.protocol import DROPPED, is_dropped, require_writable, with_feature
from tidelog.log.pruning.partition_scope import Scope
from tidelog.log.state.commits import is_there, written_ms
from tidelog.log.state.loader import LogState, load
from tidelog.log.state.segment import list_segment
from tidelog.log.state.table_identity import require_not_dropped
from tidelog.log.storage import FileStatus, Store
from tidelog.log.system import System, logger

_LOGGER = logger(__name__)

# A drop conflicts only with a change of the protocol or the schema. Several in a row are another migration at work.
_MAX_TRIES = 5
# Folders in which every file belongs to the table.
_OWN_FOLDERS = ("_tidelog/", "_dv/", "_change_data/")
# Names that tidelog, Spark and delta-rs give to data files and vectors. A writer that died leaves some that no version
# names.
_DATA_FILE = re.compile(
    r"(^|/)(part-(\d{5}-)?[0-9a-f]{8}-[0-9a-f-]{27}[\w.-]*\.parquet|deletion_vector_[0-9a-f-]{36}\.bin)$"
)
# A name with a UUID is never used again.
_UNIQUE = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}[^/]*$")


def drop(store: Store, system: System) -> None:
    """End the table and delete its data files; see `Table.drop`."""
    state = load(store)
    was_dropped = is_dropped(state.head.protocol)
    if not was_dropped:
        state = _end(store, state, system)
    try:
        deleted = _delete_files(store, state)
    except (StoreUnavailableError, StoreAccessError, PathNotWritableError, OSError) as error:
        kind = type(error) if isinstance(error, TidelogError) else StoreUnavailableError
        raise kind(
            f"the table at {store.url} was dropped at version {state.head.version}, but not all of its files could be "
            f"deleted: {error.message if isinstance(error, TidelogError) else error}",
            advice="call drop again to delete the rest",
            path=store.url,
        ) from error
    if was_dropped and not deleted:
        require_not_dropped(store.url, state.head)


def _end(store: Store, state: LogState, system: System) -> LogState:
    """Commit the end of the table. Returns the state after it."""
    for left in reversed(range(_MAX_TRIES)):
        require_writable(state.head.protocol, state.head.metadata, store.url)
        ending = Staged(
            operation="DROP TABLE",
            operation_class=OperationClass.OVERWRITE,
            replaces=Scope(),
            protocol=with_feature(state.head.protocol, DROPPED),
            metrics={"numRemovedFiles": 0, "numRemovedBytes": 0},
        )
        try:
            result = loop.commit(store, state, ending, system, metadata_retry=True)
        except ConflictError:
            if not left:
                raise
            state = load(store)
            require_not_dropped(store.url, state.head)
            continue
        if not isinstance(result.outcome, Committed):
            raise AssertionError(result.outcome)  # noqa: TRY004 - only a compaction is ever superseded
        return result.state or load(store, result.outcome.version)
    raise AssertionError(_MAX_TRIES)


def _delete_files(store: Store, state: LogState) -> int:
    """Delete the files of the dropped table. Returns how many there were.

    A new table may be created meanwhile. Its files are newer than the drop's commit, by the store's clock, and none of
    them can be in a listing that ended before the new table existed.
    """
    version = state.head.version
    ended_ms = written_ms(store, version)
    if ended_ms is None:
        return 0  # a newer table has cleaned up its log
    found = list(store.walk())
    # A newer table may have cleaned up its first versions.
    was_alone = not is_there(store, version + 1) and list_segment(store).version == version
    own = list(_own(state, found))
    if len(own) < sum(not path.startswith(f"{filenames.LOG_FOLDER}/") for path, _ in found):
        _LOGGER.info("keeping the files below %s that do not belong to the dropped table", store.url)
    deleted = 0
    for path, status in own:
        if status.modified_ms < ended_ms or (was_alone and _UNIQUE.search(path)):
            store.delete(path)
            deleted += 1
    store.remove_empty_folders()
    return deleted


def _own(state: LogState, found: Sequence[tuple[str, FileStatus]]) -> Iterator[tuple[str, FileStatus]]:
    """The files that belong to the table, without its log."""
    references = References()
    references.add_files(state.files().adds)
    references.add_files(state.files().removes)
    paths = [path for path, _ in found]
    nested_tables = tuple({nested for path in paths if (nested := retention.table_inside(path))})
    for (path, status), named in zip(found, references.named(paths), strict=True):
        if path.startswith((f"{filenames.LOG_FOLDER}/", *nested_tables)):
            continue
        if named or path.startswith(_OWN_FOLDERS) or _DATA_FILE.search(path):
            yield path, status
