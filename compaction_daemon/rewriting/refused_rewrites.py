"""Refused rewrites: the record that is written when an output does not hold the rows of its inputs.

Nothing is committed then. The written files stay where they are, and a record `_tidelog/refused/<uuid>.json` names
them, so that somebody can find out what happened. The files are deleted like other files that no commit names, by the
vacuum after `delta.deletedFileRetentionDuration`. Until then that much evidence is enough: beyond `MAX_EVIDENCE` the
evidence that is there stays, and the files of further refusals are deleted at once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from tidelog.compaction_daemon.planning.plan import PlannedGroup
from tidelog.compaction_daemon.rewriting.digests import Sums
from tidelog.compaction_daemon.rewriting.outputs import delete_files
from tidelog.compaction_daemon.rewriting.verification import Findings
from tidelog.log.data.writer import DataWriter
from tidelog.log.errors import CompactionVerificationError, TidelogError
from tidelog.log.format.actions import AddFile
from tidelog.log.format.text import MALFORMED_JSON
from tidelog.log.storage import Store
from tidelog.log.system import logger

REFUSED_FOLDER = "_tidelog/refused"
# The newest ones are of interest, and a page should not take long if something is refused again and again.
MAX_RECORDS = 100
# How many refusals of a table are kept with their files, and about how many bytes these files have.
MAX_EVIDENCE = 20
MAX_EVIDENCE_BYTES = 4 * 2**30
# A group has at most thousands of files, which fit easily. A larger record is not one of ours.
_MAX_RECORD_BYTES = 64 * 2**20
_LOGGER = logger(__name__)


class RefusedFile(msgspec.Struct, frozen=True, omit_defaults=True):
    """A file of a refused rewrite: its path as the log spells it, and the deletion vector that it was read with."""

    path: str
    size_bytes: int
    deletion_vector: str | None = None


class Refusal(msgspec.Struct, frozen=True):
    """A rewrite that was refused.

    Args:
        time_ms: When, in ms since the epoch.
        table_id: The table.
        version: The version that was planned for; None if the caller did not say.
        partition_values: The partition of the group, as the log spells its values.
        cluster_by: The columns that the rows were clustered by; empty if they should have kept their order.
        cluster_order: `hilbert` or `sort`, if there are such columns.
        inputs: The files that were read.
        outputs: The files that were written, which are kept.
        differences: What differed, in words for people.
        read: The rows as they were read. Sums of rows that change places begin with a random number, so those of
            different records cannot be compared.
        written: The rows as they were read back.
    """

    time_ms: int
    table_id: str
    version: int | None
    partition_values: Mapping[str, str | None]
    cluster_by: tuple[str, ...]
    cluster_order: str
    inputs: tuple[RefusedFile, ...]
    outputs: tuple[RefusedFile, ...]
    differences: tuple[str, ...]
    read: Sums
    written: Sums


def refuse(
    writer: DataWriter, group: PlannedGroup, version: int | None, written: Sequence[AddFile], found: Findings
) -> CompactionVerificationError:
    """Keep the outcome of a rewrite with a record, unless there is enough evidence. Returns the error to raise."""
    store = writer.store
    kept, evidence = "the written files are kept, but no record of them could be written", {}
    try:
        if _is_enough(refusals(store, writer.metadata.id, MAX_EVIDENCE)):
            delete_files(writer, written)
            kept = f"the written files were deleted, because {REFUSED_FOLDER} has enough others"
        else:
            path = _recorded(writer, group, version, written, found)
            kept, evidence = f"the written files are kept, and {path} names them", {"evidence": path}
    except (TidelogError, OSError) as error:
        _LOGGER.warning("cannot write the record of a refused rewrite of %s: %s", store.url, error)
    return CompactionVerificationError(
        f"a compaction of {len(group.inputs)} files of {store.url} was refused: {'; '.join(found.differences)}",
        advice=f"these files stay in the table and no row is lost; {kept}: report this as a bug",
        path=store.url,
        **evidence,
    )


def _is_enough(records: Sequence[Refusal]) -> bool:
    kept_bytes = sum(file.size_bytes for record in records for file in record.outputs)
    return len(records) >= MAX_EVIDENCE or kept_bytes >= MAX_EVIDENCE_BYTES


def _recorded(
    writer: DataWriter, group: PlannedGroup, version: int | None, written: Sequence[AddFile], found: Findings
) -> str:
    """Write the record of a refusal. Returns its path."""
    record = Refusal(
        time_ms=writer.system.now_ms(),
        table_id=writer.metadata.id,
        version=version,
        partition_values=dict(group.partition_values),
        cluster_by=group.cluster_by,
        cluster_order=group.cluster_order,
        inputs=tuple(map(_file, group.inputs)),
        outputs=tuple(map(_file, written)),
        differences=tuple(found.differences),
        read=found.read,
        written=found.written,
    )
    path = f"{REFUSED_FOLDER}/{writer.system.uuid()}.json"
    writer.store.put_if_absent(path, msgspec.json.encode(record))
    return path


def refusals(store: Store, table_id: str, limit: int = MAX_RECORDS) -> tuple[Refusal, ...]:
    """The newest refused rewrites of a table, newest first, at most `limit`. What is not such a record is left out."""
    entries = sorted(store.list(REFUSED_FOLDER), key=lambda entry: (entry.modified_ms, entry.name), reverse=True)
    found: list[Refusal] = []
    for entry in entries[:MAX_RECORDS]:
        if len(found) == limit:
            break
        record = _read(store, f"{REFUSED_FOLDER}/{entry.name}") if entry.size_bytes <= _MAX_RECORD_BYTES else None
        if record is not None and record.table_id == table_id:
            found.append(record)
    return tuple(found)


def _read(store: Store, path: str) -> Refusal | None:
    try:
        return msgspec.json.decode(store.read(path), type=Refusal)
    except (FileNotFoundError, *MALFORMED_JSON) as error:
        _LOGGER.warning("%s of %s is not the record of a refused rewrite: %s", path, store.url, error)
        return None


def _file(add: AddFile) -> RefusedFile:
    return RefusedFile(add.path, add.size, add.key[1])
