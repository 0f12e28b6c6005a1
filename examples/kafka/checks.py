"""The end of the demo: check that each record is in the right place exactly once."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from examples.kafka.events import POISONS, Event
from examples.kafka.folder import Folder
from examples.kafka.producer import Sent
from examples.kafka.topics import EVENTS, Record
from examples.shared.check import Check
from tidelog.log import OperationClass, Table


@dataclass(frozen=True, slots=True)
class Found:
    """All records and rows at the end."""

    sent: Sequence[Sent]
    rows: Sequence[Event]
    dead_letters: Sequence[dict[str, Any]]
    written_back: Sequence[Record]


def look(folder: Folder, sent: Sequence[Sent], written_back: Sequence[Record]) -> Found:
    """Read both tables, without Spark."""
    rows, dead = (Table.open(str(path)).scan().to_arrow().to_pylist() for path in (folder.table, folder.dead_letters))
    return Found(sent, rows, dead, written_back)


def checks(found: Found, asked: int) -> list[Check]:
    """The conditions, described with their numbers."""
    good = [_values(sent.event) for sent in found.sent if sent.poison is None]
    poisoned = [sent for sent in found.sent if sent.poison is not None]
    back = _last_of_each_key(found.written_back)
    return [
        Check(f"each record was acknowledged: {asked:,} to send, {len(found.sent):,} sent", asked == len(found.sent)),
        Check(
            f"each good event is in the table once: {len(good):,} produced, {len(found.rows):,} rows",
            _sorted(good) == _sorted(map(_values, found.rows)),
        ),
        Check(
            f"each row was written back under its key: {len(found.rows):,} rows, {len(back):,} distinct keys "
            f"in {len(found.written_back):,} records",
            _sorted(good) == _sorted(back.values()),
        ),
        Check(
            f"each poisoned record is a dead letter once: {len(poisoned):,} produced, {len(found.dead_letters):,} rows",
            sorted((EVENTS, sent.partition, sent.offset) for sent in poisoned)
            == sorted((row["topic"], row["partition"], row["offset"]) for row in found.dead_letters),
        ),
        Check(
            f"dead letters have the key, the payload and the error: {_kinds(poisoned)}",
            _are_explained(poisoned, found.dead_letters),
        ),
    ]


def compactions(folder: Folder) -> int:
    """The number of compactions of the table."""
    records = Table.open(str(folder.table)).history()
    return sum(record.operation_class is OperationClass.MINOR for record in records)


def _kinds(poisoned: Sequence[Sent]) -> str:
    return f"{len({sent.poison for sent in poisoned})} of {len(POISONS)} kinds of error"


def _are_explained(poisoned: Sequence[Sent], dead_letters: Sequence[dict[str, Any]]) -> bool:
    """Whether each dead letter has the record that was sent and the error of its kind."""
    by_place = {(row["partition"], row["offset"]): row for row in dead_letters}
    for sent in poisoned:
        row = by_place.get((sent.partition, sent.offset))
        if row is None or sent.poison is None:
            return False
        held = row["key"], row["payload"]
        if held != (sent.event["id"].encode(), sent.value) or not row["error"].startswith(POISONS[sent.poison].error):
            return False
    return True


def _last_of_each_key(records: Iterable[Record]) -> dict[bytes, tuple[Any, ...]]:
    return {record.key: _values(json.loads(record.value or b"{}")) for record in records}


def _values(event: Event) -> tuple[Any, ...]:
    """An event's values, with its time as a number, since it can be text or a datetime."""
    at = event["at"]
    moment = datetime.fromisoformat(at) if isinstance(at, str) else at
    return event["id"], event["account"], event["quantity"], event["amount"], moment.timestamp(), event.get("note")


def _sorted(values: Iterable[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Sorted; compared as text, since values can be null."""
    return sorted(values, key=str)
