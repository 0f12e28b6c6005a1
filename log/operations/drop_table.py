"""Dropping a table.

One commit is the end of it: a protocol that demands a feature that nobody has, so that from this moment on every
engine, whatever it knew of the table, refuses to read and to write it. Only then are the files deleted, the last
commit at the very end, so that a drop that was interrupted can be told from a damaged table, and finished.
"""

from __future__ import annotations

import logging
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
from tidelog.log.system import System

_LOGGER = logging.getLogger(__name__)

_FEATURE = "tidelog.dropped"
_NOBODYS = Protocol(
    min_reader_version=3, min_writer_version=7, reader_features=(_FEATURE,), writer_features=(_FEATURE,)
)
# What belongs to a table besides its data files.
_OWN_FOLDERS = (f"{filenames.LOG_FOLDER}/", "_tidelog/", "_dv/", "_change_data/")
# Data files and vectors that no version names (a writer died), by the names that tidelog, Spark and delta-rs give them.
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
        ending = Staged(operation="DROP TABLE", operation_class=OperationClass.NONE, protocol=_NOBODYS)
        outcome = loop.commit(store, state, ending, system).outcome
        if not isinstance(outcome, Committed):
            raise AssertionError(outcome)
        last = outcome.version
    _delete_files(store, last)


def require_not_dropped(store: Store, error: CorruptLogError | UnsupportedFeatureError | None = None) -> None:
    """Raise TableNotFoundError where a drop of the table has begun, which `error` comes from; else return."""
    if _dropped_at(store) is None:
        return
    raise TableNotFoundError(
        f"the table at {store.url} was dropped, and not all of its files are deleted yet",
        advice="wait for the drop, or call Table.drop(path) to finish it",
        path=store.url,
    ) from error


def _dropped_at(store: Store) -> int | None:
    """The version that ended the table, or None where the newest one did not."""
    found = [file for status in store.list(filenames.LOG_FOLDER) if (file := filenames.parse_log_file(status.name))]
    newest = max((file.version for file in found if file.kind is LogFileKind.COMMIT), default=None)
    if newest is None:
        return None
    try:
        actions = read_commit(store, newest).others
    except (CorruptLogError, FileNotFoundError):
        return None
    return newest if _NOBODYS in actions else None


def _delete_files(store: Store, version: int) -> None:
    last = filenames.commit_path(version)
    everything = [path for path, _ in store.walk()]
    others = {other for path in everything if (other := retention.table_inside(path))}
    named = dict(zip(everything, _named(store).named(everything), strict=True))
    left = 0
    for path in sorted(everything, key=_turn):
        own = path.startswith(_OWN_FOLDERS) or named[path] or _DATA_FILE.search(path)
        if path == last:
            continue
        if not own or path.startswith(tuple(others)):
            left += 1
            continue
        if path == _FIRST and not is_there(store, version):
            return  # another drop has finished meanwhile, and what lies here may be a new table
        store.delete(path)
    store.delete(last)
    store.remove_empty_folders()
    if left:
        _LOGGER.info("%d files below %s are not the dropped table's and stay", left, store.url)


def _turn(path: str) -> tuple[int, str]:
    """The log goes after what it names; its first version, which keeps a new table out, at the end."""
    in_log = path.startswith(_OWN_FOLDERS[0])
    return in_log + (path == _FIRST), path


def _named(store: Store) -> References:
    """What the log names, as far as it is still there."""
    found = References()
    try:
        state = load(store).files()
    except TidelogError:
        return found
    found.add_files(state.adds)
    found.add_files(state.removes)
    return found
