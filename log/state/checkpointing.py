"""Write a checkpoint of a state: verify the version's checksum, and drop expired tombstones."""

from __future__ import annotations

from dataclasses import replace

from tidelog.log.format import filenames, properties
from tidelog.log.format.protocol import may_have_sidecars, require_writable
from tidelog.log.state import checkpoint_sidecars, checkpoint_writer, files
from tidelog.log.state.commits import is_there
from tidelog.log.state.head import Head
from tidelog.log.state.loader import LogState, load
from tidelog.log.state.table_identity import is_same_commit, require_current
from tidelog.log.state.version_checksum import checksum_disagreements
from tidelog.log.storage import Store
from tidelog.log.system import System, logger

_LOGGER = logger(__name__)


def checkpoint(store: Store, state: LogState, system: System) -> None:
    """Write a checkpoint of the state; see `Table.checkpoint`."""
    head = state.head
    require_writable(head.protocol, head.metadata, store.url)
    if not is_same_commit(store, head):
        found = load(store).head
        require_current(store.url, head.metadata.id, found, advice="open it again if it is the table to checkpoint")
        if found.version == head.version or not is_there(store, head.version):
            _LOGGER.info("version %d of %s has been cleaned up and needs no checkpoint", head.version, store.url)
            return
    retention_ms = properties.duration_ms(head.metadata.configuration, properties.DELETED_FILE_RETENTION)
    before_ms = system.now_ms() - retention_ms
    if may_have_sidecars(head.protocol):
        written = checkpoint_sidecars.write_changes(store, head.version, before_ms, system)
        if written is not None:
            _delete_wrong_checksum(store, written)
            return
    counted = state.replayed()
    _delete_wrong_checksum(store, counted)
    retained = files.drop_expired_tombstones(state.files(), before_ms)
    state.uses_partition_folders()
    counted = replace(counted, partition_folders=state.head.partition_folders)
    if checkpoint_sidecars.suits(counted):
        checkpoint_sidecars.write_whole(store, counted, retained, system)
    else:
        checkpoint_writer.write_checkpoint(store, counted, retained)


def _delete_wrong_checksum(store: Store, counted: Head) -> None:
    wrong = checksum_disagreements(store, counted)
    if wrong:
        _LOGGER.warning(
            "deleting the wrong checksum of version %d of %s: %s", counted.version, store.url, "; ".join(wrong)
        )
        store.delete(filenames.checksum_path(counted.version))
