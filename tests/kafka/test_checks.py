"""The checks at the end of the demo fail when they should."""

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
    """A valid result. One record is written back twice, as an at-least-once writer can do."""
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
    """The indexes of the checks that fail."""
    return [number for number, check in enumerate(checks(given, asked)) if not check.holds]


def test_all_checks_hold_if_each_record_arrived_once() -> None:
    assert failed(found()) == []
    assert "3 rows, 3 distinct keys in 4 records" in str(checks(found(), 5)[2])


def test_an_unacknowledged_record_fails_a_check() -> None:
    assert failed(found(), asked=6) == [0]


@pytest.mark.parametrize(
    "change",
    [
        lambda rows: rows[1:],
        lambda rows: [*rows, rows[0]],
        lambda rows: [*rows[1:], {**rows[0], "quantity": 99}],
        lambda rows: [*rows[1:], rows[1]],
    ],
    ids=["lost", "doubled", "changed", "replaced"],
)
def test_a_table_with_wrong_rows_fails_a_check(change: Callable[[Any], Any]) -> None:
    assert failed(replace(found(), rows=change(found().rows))) == [1]


def test_a_row_that_is_not_written_back_or_changed_fails_a_check() -> None:
    assert failed(replace(found(), written_back=found().written_back[1:3])) == [2]
    other = Record(0, 9, b"p0-000001", payload({**GOOD[1], "amount": 9}))
    assert failed(replace(found(), written_back=[*found().written_back, other])) == [2]


def test_dead_letters_that_are_lost_doubled_or_misplaced_fail_a_check() -> None:
    letters = found().dead_letters
    assert failed(replace(found(), dead_letters=letters[1:])) == [3, 4]
    assert failed(replace(found(), dead_letters=[*letters, letters[0]])) == [3]
    moved = [{**letters[0], "offset": 7}, letters[1]]
    assert failed(replace(found(), dead_letters=moved)) == [3, 4]


@pytest.mark.parametrize("wrong", [{"error": "something"}, {"payload": b"other"}, {"key": b"other"}])
def test_dead_letters_with_wrong_contents_fail_a_check(wrong: dict[str, object]) -> None:
    letters = found().dead_letters
    assert failed(replace(found(), dead_letters=[{**letters[0], **wrong}, letters[1]])) == [4]
