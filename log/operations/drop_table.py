"""Drop a table.

A last commit ends the table: its protocol demands a feature that no engine has, so from then on every engine refuses to
read or write it. Only then are the files deleted, the last commit at the very end. An interrupted drop can therefore be
recognised and finished, and is not mistaken for a damaged table.
"""

from __future__ import annotations

import re

from tidelog.log.cleanup import retention
from tidelog.log.cleanup.references import References
from tidelog.log.commit import loop
from tidelog.log.commit.result import Committed
from tidelog.log.conflict.operation_class import OperationClass
from tidelog.log.conflict.staged import Staged
from tidelog.log.errors import CorruptLogError, TableNotFoundError, TidelogError, UnsupportedFeatureError
from tidelog.log.format import filenames
from tidelog.log.format.actions import Protocol
from tidelog.log.format.filenames import LogFileKind
from tidelog.log.format.protocol import require_writable
from tidelog.log.state.commits import read_commit
from tidelog.log.state.loader import load
from tidelog.log.state.segment import is_there
from tidelog.log.storage import Store
from tidelog.log.system import System, logger

_LOGGER = logger(__name__)

_FEATURE = "tidelog.dropped"
_UNSUPPORTED = Protocol(
    min_reader_version=3, min_writer_version=7, reader_features=(_FEATURE,), writer_features=(_FEATURE,)
)
# Folders in which every file belongs to the table.
_OWN_FOLDERS = (f"{filenames.LOG_FOLDER}/", "_tidelog/", "_dv/", "_change_data/")
# Names that tidelog, Spark and delta-rs give to data files and vectors. A writer that died leaves some that no version
# names.
_DATA_FILE = re.compile(
    r"(^|/)(part-(\d{5}-)?[0-9a-f]{8}-[0-9a-f-]{27}[\w.-]*\.parquet|deletion_vector_[0-9a-f-]{36}\.bin)$"
)
_FIRST = filenames.commit_path(0)


def drop(store: Store, system: System) -> None:
    """End the table and delete its files; see `Table.drop`."""
    last = _dropped_at(store)
    if last is None:
        state = load(store)
        require_writable(state.head.protocol, state.head.metadata, store.url)
        ending = Staged(operation="DROP TABLE", operation_class=OperationClass.NONE, protocol=_UNSUPPORTED)
        outcome = loop.commit(store, state, ending, system).outcome
        if not isinstance(outcome, Committed):
            raise AssertionError(outcome)
        last = outcome.version
    _delete_files(store, last)


def require_not_dropped(store: Store, error: CorruptLogError | UnsupportedFeatureError | None = None) -> None:
    """Raise TableNotFoundError, caused by `error`, if a drop of the table has begun."""
    if _dropped_at(store) is None:
        return
    raise TableNotFoundError(
        f"the table at {store.url} was dropped, but some of its files are not deleted yet",
        advice="wait for the drop, or call Table.drop(path) to finish it",
        path=store.url,
    ) from error


def _dropped_at(store: Store) -> int | None:
    """The version that ended the table, or None if the newest version did not end it."""
    found = [file for status in store.list(filenames.LOG_FOLDER) if (file := filenames.parse_log_file(status.name))]
    newest = max((file.version for file in found if file.kind is LogFileKind.COMMIT), default=None)
    if newest is None:
        return None
    try:
        actions = read_commit(store, newest).others
    except (CorruptLogError, FileNotFoundError):
        return None
    return newest if _UNSUPPORTED in actions else None


def _delete_files(store: Store, version: int) -> None:
    last = filenames.commit_path(version)
    everything = [path for path, _ in store.walk()]
    nested_tables = tuple({nested for path in everything if (nested := retention.table_inside(path))})
    named = dict(zip(everything, _named(store).named(everything), strict=True))
    kept = 0
    for path in sorted(everything, key=_deletion_order):
        own = path.startswith(_OWN_FOLDERS) or named[path] or _DATA_FILE.search(path)
        if path == last:
            continue
        if not own or path.startswith(nested_tables):
            kept += 1
            continue
        if path == _FIRST and not is_there(store, version):
            return  # another drop has finished in the meantime, and this may be the commit of a new table
        store.delete(path)
    store.delete(last)
    store.remove_empty_folders()
    if kept:
        _LOGGER.info("kept %d files below %s that do not belong to the dropped table", kept, store.url)


def _deletion_order(path: str) -> tuple[int, str]:
    """Sort key: the files that the log names, then the log, then version 0, which prevents a new table until then."""
    in_log = path.startswith(_OWN_FOLDERS[0])
    return in_log + (path == _FIRST), path


def _named(store: Store) -> References:
    """The files that the log names, if the log can still be read."""
    found = References()
    try:
        state = load(store).files()
    except TidelogError:
        return found
    found.add_files(state.adds)
    found.add_files(state.removes)
    return found
