"""Delete a transaction's files once it is proven that no commit names them, and notice that a drop did."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from tidelog.log.conflict.staged import Staged
from tidelog.log.data.writer import DataWriter
from tidelog.log.errors import PathNotWritableError, TidelogError
from tidelog.log.format import tombstone_list
from tidelog.log.format.actions import Commit
from tidelog.log.format.paths import to_storage_path
from tidelog.log.state.loader import load
from tidelog.log.state.table_identity import require_not_dropped
from tidelog.log.storage import Store
from tidelog.log.system import logger

_LOGGER = logger(__name__)


def files_written_for(staged: Staged) -> set[str]:
    """The paths of the files written for a staged transaction, as its actions name them."""
    written: list[Iterable[str]] = [
        (add.path for add in staged.adds),
        (cdc.path for cdc in staged.cdc),
        (add.path for group in staged.moves for add in group.outputs),
        (add.path for delete in staged.deletes for add in delete.survivors or ()),
        (file.path for file in (staged.tombstones.written if staged.tombstones else ())),
        staged.reads.key_files if staged.reads else (),
    ]
    return {path for paths in written for path in paths}


def discard(store: Store, staged: Staged, commit: Commit | None = None) -> None:
    """Delete the files of `staged`, except those that its own `commit` names."""
    adds, cdc = (commit.adds, commit.cdc) if commit is not None else ([], [])
    named = {add.path for add in adds} | {file.path for file in cdc}
    if commit is not None and staged.tombstones is not None:
        named |= {file.path for file in tombstone_list.listed_files(commit.info)}
    delete_unnamed(store, [to_storage_path(path) for path in sorted(files_written_for(staged) - named)])


def delete_unnamed(store: Store, written: Iterable[str]) -> None:
    """Delete files, given by their paths in the store, that are proven to be in no commit.

    Stops at a file that cannot be deleted and leaves the rest to the next vacuum: this does not affect the outcome of
    the transaction.
    """
    for path in written:
        try:
            store.delete(path)
        except (TidelogError, OSError) as error:
            _LOGGER.warning("could not delete the unused file %s of %s, left to vacuum: %s", path, store.url, error)
            return


@contextmanager
def deleting_on_error(writer: DataWriter) -> Iterator[None]:
    """Delete the files that `writer` writes within the block if the block fails. They have one run of the key index.

    Raises TableNotFoundError if it fails because the table was dropped meanwhile: a drop deletes such files as well.
    """
    before = len(writer.written)
    try:
        with writer.indexing():
            yield
    except BaseException as error:
        delete_unnamed(writer.store, writer.written[before:])
        if isinstance(error, PathNotWritableError):
            require_not_dropped(writer.store.url, load(writer.store).head)
        raise
