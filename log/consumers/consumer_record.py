"""The record of a consumer: one small JSON file that people can read, and the rules for the names of consumers."""

from __future__ import annotations

import re
from datetime import datetime
from enum import StrEnum
from typing import Annotated

import msgspec

from tidelog.log.errors import ConfigurationError
from tidelog.log.format.filenames import MAX_VERSION
from tidelog.log.numbered_files import UnreadableRecordError, record_from_json, record_to_json

# A reader refuses records of a later format, and a clean-up then keeps everything: they may mean something else.
FORMAT = 1
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")
# Owners are host names, process ids and UUIDs. In characters.
_MAX_OWNER = 300


class State(StrEnum):
    """Whether a record holds back clean-ups; `withdrawn` means that a clean-up had passed the position."""

    REGISTERED = "registered"
    WITHDRAWN = "withdrawn"
    REMOVED = "removed"


class Record(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """What is stored about a consumer. The newest record of a consumer counts.

    Attributes:
        format: The version of this format.
        id: The id of this record, by which its writer finds it again after a lost answer.
        table: The id of the table; the record means nothing to another table at the path.
        name: The name of the consumer.
        state: Whether the consumer is registered.
        owner: Who may advance it; None if it was released.
        confirmed: Whether the owner has a durable identity, so that it can come back after a crash.
        started: Whether the position may be left out only by a reset, because processing has begun there.
        position: Every commit up to this version was processed; one less than the first version if none was.
        checkpoint: Of a stream whose position is further than its checkpoint: the version in the checkpoint. The
            commits between the two have nothing that the stream reads.
        position_time: The commit time of that version; None if it is unknown.
        heartbeat: When the record was written, by its writer's clock, for people. The age of a record is that of its
            file, by the store's clock.
        takeover_after_ms: How long the owner must have been silent before another one may take over; None means the
            table's time to live.
        kept: Whether its writer knew that clean-ups had kept what the record before needed. Only then does the record
            continue that one. Otherwise its writer looks at the log, and writes another record if nothing was passed.
    """

    format: Annotated[int, msgspec.Meta(ge=FORMAT, le=FORMAT)] = FORMAT
    id: str
    table: str
    name: str
    state: State
    owner: str | None
    confirmed: bool
    started: bool
    position: Annotated[int, msgspec.Meta(ge=-1, le=MAX_VERSION)]
    position_time: datetime | None
    checkpoint: int | None = None
    heartbeat: datetime
    takeover_after_ms: Annotated[int, msgspec.Meta(ge=0)] | None = None
    kept: bool = True


_DECODER = msgspec.json.Decoder(Record)


def encode_record(record: Record) -> bytes:
    """The content of a record's file."""
    return record_to_json(record)


def decode_record(content: bytes, table_id: str, name: str) -> Record | None:
    """The record in a file; None if it belongs to another table. Raises UnreadableRecordError."""
    record = record_from_json(content, table_id, _DECODER)
    if record is not None and record.name != name:
        raise UnreadableRecordError(f"it is the record of {record.name!r}")
    return record


def is_name(name: str) -> bool:
    """Whether it can be the name of a consumer."""
    return _NAME.fullmatch(name) is not None


def require_name(name: object) -> str:
    """Return `name`. Raises ConfigurationError unless it can be the name of a consumer."""
    if not isinstance(name, str) or not is_name(name):
        raise ConfigurationError(
            f"{name!r} cannot be the name of a consumer",
            advice="use 1 to 100 of the letters a to z and A to Z, digits, and - _ . ; begin with a letter or a digit",
        )
    return name


def require_owner(owner: object) -> str:
    """Return `owner`. Raises ConfigurationError unless it is a text of a reasonable length."""
    if not isinstance(owner, str) or not 0 < len(owner) <= _MAX_OWNER or not owner.isprintable():
        raise ConfigurationError(
            f"{owner!r} cannot be the owner of a consumer", advice=f"use a text of 1 to {_MAX_OWNER} characters"
        )
    return owner
