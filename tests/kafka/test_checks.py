"""The demo's own checks must be able to fail."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from typing import Any

import pytest

from examples.kafka.checks import Found, checks
from examples.kafka.events import POISONS, event, payload
from examples.kafka.producer import Sent
from examples.kafka.topics import EVENTS, Record

GOOD = [event(0, number) for number in range(3)]
POISONED = [event(0, number) for number in (3, 4)]
KIND = "missing field"


def found() -> Found:
    """All as it should be: one record written back twice, as an at-least-once writer may."""
    sent = [Sent(made, payload(made), None, 0, number) for number, made in enumerate(GOOD)]
    sent += [Sent(made, POISONS[KIND].payload(made), KIND, 1, number) for number, made in enumerate(POISONED)]
    letters: list[dict[str, Any]] = [
        {
            "topic": EVENTS,
            "partition": 1,
            "offset": number,
            "key": made["id"].encode(),
            "payload": POISONS[KIND].payload(made),
            "error": POISONS[KIND].error,
        }
        for number, made in enumerate(POISONED)
    ]
    rows = [{**made, "at": datetime.fromisoformat(made["at"])} for made in GOOD]
    back = [Record(0, number, made["id"].encode(), payload(made)) for number, made in enumerate([*GOOD, GOOD[0]])]
    return Found(sent, rows, letters, back)


def failed(given: Found, asked: int = 5) -> list[int]:
    """The numbers of the checks that do not hold."""
    return [number for number, check in enumerate(checks(given, asked)) if not check.holds]


def test_all_hold_where_each_record_came_once() -> None:
    assert failed(found()) == []
    assert "3 rows, 3 distinct keys on 4 records" in str(checks(found(), 5)[2])


def test_a_record_that_was_not_acknowledged_fails() -> None:
    assert failed(found(), asked=6) == [0]


@pytest.mark.parametrize(
    "change",
    [
        lambda rows: rows[1:],
        lambda rows: [*rows, rows[0]],
        lambda rows: [*rows[1:], {**rows[0], "quantity": 99}],
        lambda rows: [*rows[1:], rows[1]],
    ],
    ids=["lost", "doubled", "changed", "one for another"],
)
def test_a_table_with_other_rows_fails(change: Callable[[Any], Any]) -> None:
    assert failed(replace(found(), rows=change(found().rows))) == [1]


def test_a_row_that_did_not_come_back_or_came_back_changed_fails() -> None:
    assert failed(replace(found(), written_back=found().written_back[1:3])) == [2]
    other = Record(0, 9, b"p0-000001", payload({**GOOD[1], "amount": 9}))
    assert failed(replace(found(), written_back=[*found().written_back, other])) == [2]


def test_dead_letters_that_are_lost_doubled_or_elsewhere_fail() -> None:
    letters = found().dead_letters
    assert failed(replace(found(), dead_letters=letters[1:])) == [3, 4]
    assert failed(replace(found(), dead_letters=[*letters, letters[0]])) == [3]
    moved = [{**letters[0], "offset": 7}, letters[1]]
    assert failed(replace(found(), dead_letters=moved)) == [3, 4]


@pytest.mark.parametrize("wrong", [{"error": "something"}, {"payload": b"other"}, {"key": b"other"}])
def test_dead_letters_that_tell_something_else_fail(wrong: dict[str, object]) -> None:
    letters = found().dead_letters
    assert failed(replace(found(), dead_letters=[{**letters[0], **wrong}, letters[1]])) == [4]
