"""The records that the demo produces: valid events, and poisoned records of every kind."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa

SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("account", pa.string()),
        ("quantity", pa.int32()),
        ("amount", pa.float64()),
        ("at", pa.timestamp("us", tz="UTC")),
        ("note", pa.string()),
    ]
)
REQUIRED = ("id", "account", "quantity", "amount", "at")
_FIRST = datetime(2026, 1, 1, tzinfo=UTC)

Event = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Poison:
    """A way for a record to be invalid: its payload, made from a valid event, and the start of the error about it."""

    payload: Callable[[Event], bytes | None]
    error: str


def event(producer: int, number: int) -> Event:
    """A valid event, always the same for the same arguments; its `id` is unique."""
    made: Event = {
        "id": f"p{producer}-{number:06d}",
        "account": f"account-{number % 100}",
        "quantity": number % 9 + 1,
        "amount": number % 1000 * 0.25,
        "at": (_FIRST + timedelta(seconds=number)).isoformat(),
    }
    # An optional field that most events lack.
    return {**made, "note": "Größe M, 30 €"} if number % 10 == 0 else made


def payload(made: Mapping[str, Any]) -> bytes:
    """The bytes of an event in the topic."""
    return json.dumps(made, ensure_ascii=False).encode()


def _with(**changes: object) -> Callable[[Event], bytes]:
    return lambda made: payload({**made, **changes})


def _without(name: str) -> Callable[[Event], bytes]:
    return lambda made: payload({key: value for key, value in made.items() if key != name})


POISONS: Mapping[str, Poison] = {
    "tombstone": Poison(lambda _: None, "the payload is null"),
    "empty": Poison(lambda _: b"", "the payload is not one JSON value"),
    "bad UTF-8": Poison(lambda made: payload(made).replace(b'"account-', b'"\xff\xfe-'), "the payload is not UTF-8"),
    "cut in half": Poison(lambda made: payload(made)[:40], "the payload is not one JSON value"),
    "two values": Poison(lambda made: payload(made) + payload(made), "the payload is not one JSON value"),
    "a list": Poison(lambda made: b"[" + payload(made) + b"]", "the payload is not a JSON object"),
    "a field twice": Poison(lambda made: payload(made)[:-1] + b', "quantity": 1}', "the payload is not one JSON value"),
    "missing field": Poison(_without("quantity"), "quantity is missing"),
    "null field": Poison(_with(account=None), "account is missing"),
    "text for a number": Poison(_with(quantity="seven"), "quantity is not integer: seven"),
    "number for a text": Poison(_with(account=5), "account is not string: 5"),
    "fraction": Poison(_with(quantity=1.5), "quantity is not integer: 1.5"),
    "too large a number": Poison(_with(quantity=3_000_000_000), "quantity is not integer: 3000000000"),
    "beyond a double": Poison(
        lambda made: payload({**made, "amount": 0}).replace(b'"amount": 0', b'"amount": 1e400'),
        "amount is not double: Infinity",
    ),
    "no moment": Poison(_with(at="yesterday"), "at is not timestamp: yesterday"),
    "year 65466": Poison(_with(at="+65466-01-01T00:00:00Z"), "at is not timestamp: +65466-01-01T00:00:00Z"),
}
