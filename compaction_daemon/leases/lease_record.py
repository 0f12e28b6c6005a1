"""The record of a lease: one small JSON file that people can read, in the row of its table and shard."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from functools import partial
from typing import Annotated

import msgspec

from tidelog.log.conflict.fences import LEASE_PREFIX
from tidelog.log.errors import ConfigurationError, CorruptLogError
from tidelog.log.numbered_files import (
    LatestRecord,
    NumberedFiles,
    UnreadableRecordError,
    record_from_json,
    record_to_json,
)
from tidelog.log.storage import Store

LEASES_FOLDER = "_tidelog/leases"
# A reader refuses records of a later format: they may mean something else.
LEASE_FORMAT = 1
# The names of shards. Each one that was ever used is a `txn` in the log for ever, and in every checkpoint.
SHARDS = tuple(str(number) for number in range(16))
# A daemon that dies keeps others away for so long, so that a longer time would be a mistake.
MAX_TTL_S = 3600.0
# Below it the signs of life would be most of what a daemon does.
MIN_TTL_S = 0.05
# Owners are host names, process ids and UUIDs. In characters.
_MAX_OWNER_LENGTH = 300


class LeaseState(StrEnum):
    """Whether the owner of an epoch may still be at work."""

    HELD = "held"
    RELEASED = "released"


class LeaseRequest(msgspec.Struct, frozen=True, kw_only=True):
    """That another daemon would like to have the lease.

    Attributes:
        owner: Who asks.
        leases: How many leases it keeps now. A daemon that keeps more shares them with it.
    """

    owner: Annotated[str, msgspec.Meta(min_length=1, max_length=_MAX_OWNER_LENGTH)]
    leases: Annotated[int, msgspec.Meta(ge=0)]


class LeaseRecord(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """What is stored about a lease. The newest record counts.

    Attributes:
        format: The version of this format.
        id: The id of this record.
        table: The id of the table; the record means nothing to another table at the path.
        shard: The shard of the table.
        state: Whether the lease is held.
        epoch: Grows by at least one with each owner.
        beat: The number of the sign of life within the epoch, from 0.
        owner: Who has it: host, process id and an id of its own.
        ttl_ms: The time without a heartbeat after which another daemon may take over.
        time: When the record was written, by its writer's clock, for people.
        request: Who else would like to have the lease. It writes a record with it in the place of the owner, which
            finds that when it writes its next one.
    """

    format: Annotated[int, msgspec.Meta(ge=LEASE_FORMAT, le=LEASE_FORMAT)] = LEASE_FORMAT
    id: str
    table: str
    shard: str
    state: LeaseState
    epoch: Annotated[int, msgspec.Meta(ge=1, le=2**63 - 1)]
    beat: Annotated[int, msgspec.Meta(ge=0)]
    owner: Annotated[str, msgspec.Meta(min_length=1, max_length=_MAX_OWNER_LENGTH)]
    ttl_ms: Annotated[int, msgspec.Meta(ge=1, le=int(MAX_TTL_S * 1000))]
    time: datetime
    request: LeaseRequest | None = None


class _Format(msgspec.Struct):
    format: int


_DECODER = msgspec.json.Decoder(LeaseRecord)


def row_of(table_id: str, shard: str) -> NumberedFiles[LeaseRecord]:
    """The row of the records of a shard's lease."""
    decode = partial(_decode, table_id=table_id, shard=shard)
    return NumberedFiles(f"{LEASES_FOLDER}/{shard}", f"the lease of shard {shard}", record_to_json, decode, _is_damaged)


def latest_lease(store: Store, row: NumberedFiles[LeaseRecord]) -> LatestRecord[LeaseRecord]:
    """The newest record of the table; its `damage` says that the newest file is none.

    Raises CorruptLogError for a file that a newer version of tidelog may have written, StoreUnavailableError.
    """
    try:
        return row.latest(store)
    except UnreadableRecordError as error:
        raise CorruptLogError(
            f"the newest record of {row.what} of {store.url} cannot be read: {error}",
            advice="if no newer version of tidelog works on this table, delete that file",
            path=store.url,
        ) from error


def app_id(shard: str) -> str:
    """The application id of a shard's epochs in the log."""
    return f"{LEASE_PREFIX}{shard}"


def require_shard(shard: object) -> str:
    """Return `shard`. Raises ConfigurationError unless it is one of SHARDS."""
    if shard not in SHARDS:
        raise ConfigurationError(
            f"{shard!r} is not a shard of a lease", advice=f"use one of the texts {SHARDS[0]!r} to {SHARDS[-1]!r}"
        )
    return str(shard)


def require_holder(owner: object) -> str:
    """Return `owner`. Raises ConfigurationError unless it is a text of a reasonable length."""
    if not isinstance(owner, str) or not 0 < len(owner) <= _MAX_OWNER_LENGTH or not owner.isprintable():
        raise ConfigurationError(
            f"{owner!r} cannot be the owner of a lease", advice=f"use a text of 1 to {_MAX_OWNER_LENGTH} characters"
        )
    return owner


def require_ttl_ms(ttl_s: object) -> int:
    """A time to live in ms. Raises ConfigurationError unless it is in range."""
    is_number = isinstance(ttl_s, int | float) and not isinstance(ttl_s, bool)
    if not is_number or not MIN_TTL_S <= float(str(ttl_s)) <= MAX_TTL_S:
        raise ConfigurationError(
            f"the time to live of a lease is {ttl_s!r}",
            advice=f"give a number of seconds from {MIN_TTL_S:g} to {MAX_TTL_S:g}",
        )
    return round(float(str(ttl_s)) * 1000)


def _is_damaged(content: bytes) -> bool:
    """Whether it cannot be a record of a later format."""
    try:
        later = msgspec.json.decode(content, type=_Format).format > LEASE_FORMAT
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return True
    return not later


def _decode(content: bytes, *, table_id: str, shard: str) -> LeaseRecord | None:
    """The record in a file; None if it belongs to another table. Raises UnreadableRecordError."""
    record = record_from_json(content, table_id, _DECODER)
    if record is not None and record.shard != shard:
        raise UnreadableRecordError(f"it is the record of shard {record.shard!r}")
    return record
