"""Values that go to a browser."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest

from tidelog.compaction_daemon.observing.safe_json import MAX_SHOWN_TEXT, json_bytes, safe_builtins


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("s3://key:secret@bucket/x", "s3://***@bucket/x"),
        ("https://b/x?X-Amz-Signature=abc&y=1", "https://b/x?X-Amz-Signature=***&y=1"),
        ("a\x1b[31m\n\u202eb", r"a\x1b[31m\n\u202eb"),
        ("<script>'\"&", "<script>'\"&"),
    ],
)
def test_every_text_is_presentable(text: str, shown: str) -> None:
    assert safe_builtins({text: [text, (text, {"deep": text})]}) == {shown: [shown, [shown, {"deep": shown}]]}


def test_texts_are_cut() -> None:
    found = safe_builtins(["x" * 10_000_000, "\x1b" * 10_000, "short"])
    assert [len(text) for text in found] == [MAX_SHOWN_TEXT, MAX_SHOWN_TEXT, 5]
    assert found[0].endswith("…")


def test_numbers_that_json_does_not_have_are_none() -> None:
    assert safe_builtins([float("nan"), float("inf"), float("-inf"), 1.5]) == [None, None, None, 1.5]


def test_times_are_text() -> None:
    assert safe_builtins(datetime(2026, 1, 31, 12, tzinfo=UTC)) == "2026-01-31T12:00:00Z"


def test_the_bytes_cannot_end_a_script_element() -> None:
    value = {"</script><!--": "<script>&\u2028\u2029"}
    content = json_bytes(value)
    assert not set("<>&\u2028\u2029") & set(content.decode())
    assert json.loads(content) == value
