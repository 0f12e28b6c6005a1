"""The version checksum: the file `%020d.crc`, which has a version's head in one small file.

It is a hint: if it is missing or damaged, the log itself is read. Its content follows what delta-spark checks: protocol
and metadata must equal the log's, and `setTransactions` must be left out if a retention expires some of them.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec

from tidelog.log.errors import CorruptLogError, StoreAccessError, TidelogError
from tidelog.log.format import commit_info, filenames, properties, seal
from tidelog.log.format.actions import CommitInfo, DomainMetadata, Metadata, Protocol, SetTransaction, encode_action
from tidelog.log.format.text import MALFORMED_JSON
from tidelog.log.state.commits import read_commit
from tidelog.log.state.head import Head, Totals, advance
from tidelog.log.storage import Store
from tidelog.log.system import logger

_LOGGER = logger(__name__)


class _Checksum(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """The fields that tidelog reads; others are ignored."""

    table_size_bytes: int
    num_files: int
    metadata: Metadata
    protocol: Protocol
    in_commit_timestamp_opt: int | None = None
    set_transactions: tuple[SetTransaction, ...] | None = None
    domain_metadata: tuple[DomainMetadata, ...] | None = None
    tidelog: dict[str, Any] | None = None
    txn_id: str | None = None


_DECODER = msgspec.json.Decoder(_Checksum)
# Other engines read the totals as 64 bits.
_LARGEST = 2**63 - 1


def checksum_bytes(table_head: Head, *, txn_id: str, in_commit_timestamp_ms: int | None) -> bytes | None:
    """The checksum file of `table_head`'s version; None if its totals are unknown or too large."""
    if table_head.totals is None or table_head.totals.size_bytes > _LARGEST:
        return None
    content: dict[str, Any] = {
        "txnId": txn_id,
        "tableSizeBytes": table_head.totals.size_bytes,
        "numFiles": table_head.totals.num_files,
        "numMetadata": 1,
        "numProtocol": 1,
        "domainMetadata": list(table_head.domains.values()),
        "metadata": table_head.metadata,
        "protocol": table_head.protocol,
    }
    if in_commit_timestamp_ms is not None:
        content["inCommitTimestampOpt"] = in_commit_timestamp_ms
    if properties.TRANSACTION_RETENTION not in table_head.metadata.configuration:
        content["setTransactions"] = list(table_head.transactions.values())
    own: dict[str, Any] = {"timeVersion": table_head.time_version_ms}
    if table_head.metadata.partition_columns and table_head.partition_folders is not None:
        own["partitionFolders"] = table_head.partition_folders
    # Last, because readers look for the seal at the end.
    content["tidelog"] = {**own, "seal": seal.UNSEALED}
    return seal.seal_json(encode_action(content), table_head.version)


def write_checksum(store: Store, table_head: Head, info: CommitInfo, txn_id: str) -> None:
    """Write the checksum file of the version just committed, if its content is known. Never fails the commit."""
    stamp = commit_info.in_commit_timestamp_ms(info)
    content = checksum_bytes(table_head, txn_id=txn_id, in_commit_timestamp_ms=stamp)
    if content is None:
        return
    try:
        store.put_if_absent(filenames.checksum_path(table_head.version), content, durable=False)
    except FileExistsError:
        return
    except (TidelogError, OSError) as error:
        # The commit is durable, and the checksum only saves readers work.
        _LOGGER.warning("could not write the checksum of version %d of %s: %s", table_head.version, store.url, error)


def checksum_disagreements(store: Store, counted: Head) -> list[str]:
    """The differences between a version's checksum and `counted`, the head replayed from the log itself.

    Empty if there is no checksum or it cannot be read.
    """
    try:
        checksum = _DECODER.decode(store.read(filenames.checksum_path(counted.version)))
    except (OSError, *MALFORMED_JSON):
        return []
    found: dict[str, tuple[object, object]] = {
        "protocol": (checksum.protocol, counted.protocol),
        "metadata": (checksum.metadata, counted.metadata),
    }
    if counted.totals is not None:
        found["numFiles"] = (checksum.num_files, counted.totals.num_files)
        found["tableSizeBytes"] = (checksum.table_size_bytes, counted.totals.size_bytes)
    if checksum.set_transactions is not None and properties.TRANSACTION_RETENTION not in counted.metadata.configuration:
        known = {entry.app_id: entry.version for entry in counted.transactions.values()}
        found["setTransactions"] = ({entry.app_id: entry.version for entry in checksum.set_transactions}, known)
    # Other engines leave domains out if there are many. Readers do not trust such a checksum.
    if checksum.domain_metadata is not None:
        found["domainMetadata"] = ({entry.domain: entry for entry in checksum.domain_metadata}, dict(counted.domains))
    return [f"{name}: {claimed} instead of {actual}" for name, (claimed, actual) in found.items() if claimed != actual]


class _Id(msgspec.Struct, frozen=True, rename="camel"):
    """The one field that identifies the commit."""

    txn_id: str | None = None


_ID_DECODER = msgspec.json.Decoder(_Id)


def checksummed_commit_id(store: Store, version: int) -> str | None:
    """The transaction id of the version's commit, as its checksum names it; None if there is no checksum."""
    try:
        return _ID_DECODER.decode(store.read(filenames.checksum_path(version))).txn_id
    except (OSError, TidelogError, *MALFORMED_JSON):
        return None


def read_head(store: Store, version: int) -> Head | None:
    """The head in the checksum of `version`; None if the file is missing, damaged or lacks something a head needs.

    Other writers' checksums have no seal. Such a checksum counts only if the previous checksum and the commit lead to
    the same head.
    """
    try:
        content = store.read(filenames.checksum_path(version))
    except (OSError, StoreAccessError):
        return None
    found = _decode(content, version)
    if found is None or seal.is_intact_json(content, version):
        return found
    return _confirmed(store, found)


def _confirmed(store: Store, found: Head) -> Head | None:
    """The head, if the previous version's checksum and the commit lead to it."""
    try:
        before = _decode(store.read(filenames.checksum_path(found.version - 1)), found.version - 1)
        commit = read_commit(store, found.version)
    except (OSError, CorruptLogError):
        return None
    if before is None or commit_info.in_commit_timestamp_ms(commit.info) != found.timestamp_ms:
        return None
    after = advance(before, [commit], lambda _: found.timestamp_ms, store.url)
    is_same = (after.protocol, after.metadata, after.transactions, after.domains) == (
        found.protocol,
        found.metadata,
        found.transactions,
        found.domains,
    )
    return replace(found, partition_folders=after.partition_folders) if is_same else None


def _decode(content: bytes, version: int) -> Head | None:
    """The head in `content`; None if its seal is broken, or something is missing or malformed."""
    if seal.is_intact_json(content, version) is False:
        return None
    try:
        checksum = _DECODER.decode(content)
    except MALFORMED_JSON:
        return None
    stamp = checksum.in_commit_timestamp_opt
    if checksum.set_transactions is None or stamp is None or not 0 <= stamp <= commit_info.MAX_TIMESTAMP_MS:
        return None
    if checksum.domain_metadata is None and "domainMetadata" in (checksum.protocol.writer_features or ()):
        return None
    own = checksum.tidelog or {}
    time_version, folders = own.get("timeVersion"), own.get("partitionFolders")
    return Head(
        version,
        stamp,
        time_version if isinstance(time_version, int) else None,
        checksum.protocol,
        checksum.metadata,
        {transaction.app_id: transaction for transaction in checksum.set_transactions},
        {domain.domain: domain for domain in checksum.domain_metadata or ()},
        Totals(checksum.num_files, checksum.table_size_bytes),
        checksum.txn_id,
        folders if isinstance(folders, bool) else None,
    )
