"""The answers behind the table of what runs where: none is missing, and what cannot run is known."""

from __future__ import annotations

import json
from typing import Any

import pytest

from scripts.where_it_runs import ANSWERS, RELEASES, cell
from tests.streaming.where_it_runs import CAPABILITIES


@pytest.fixture(scope="module")
def answers() -> list[dict[str, Any]]:
    return [json.loads(line) for line in ANSWERS.read_text().splitlines()]


def test_each_capability_was_tried_on_each_spark(answers: list[dict[str, Any]]) -> None:
    runs: dict[tuple[str, str, str], list[str]] = {}
    for answer in answers:
        release = answer["spark"].rpartition(".")[0]
        runs.setdefault((release, answer["session"], answer["master"]), []).append(answer["what"])
    local = {(release, session, "local[2]") for release in RELEASES for session in ("classic", "connect")}
    [cluster] = set(runs) - local
    assert cluster[1:] == ("classic", "spark")
    assert set(runs) >= local
    assert all(tried == list(CAPABILITIES) for tried in runs.values())


def test_what_cannot_run_is_a_feed_with_a_limit_before_spark_4_2(answers: list[dict[str, Any]]) -> None:
    """Both a plain error and half of an answer are a `no`; the pages say which is which."""
    unable = {(answer["what"], answer["outcome"]) for answer in answers if answer["outcome"] != "ok"}
    assert unable == {
        ("the same with `availableNow` and a limit", "failed"),  # it ends after a part
        ("`Feed` with `availableNow` and a limit", "refused"),
    }
    assert {answer["spark"][:3] for answer in answers if answer["outcome"] != "ok"} == {"4.0", "4.1"}


@pytest.mark.parametrize(
    ("outcomes", "text"),
    [
        ({"classic": "ok", "connect": "ok"}, "yes"),
        ({"classic": "ok"}, "yes"),
        ({"classic": "ok", "connect": "refused"}, "classic only"),
        ({"classic": "failed", "connect": "refused"}, "no"),
        ({}, "no"),
    ],
)
def test_a_cell(outcomes: dict[str, str], text: str) -> None:
    assert cell(outcomes) == text
