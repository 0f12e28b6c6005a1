"""The retentions in force, and where they come from."""

from __future__ import annotations

import pytest

from tidelog.compaction_daemon import retentions
from tidelog.log.format import properties


def shown(configuration: dict[str, str]) -> list[str]:
    return [str(each) for each in retentions(configuration)]


def test_defaults() -> None:
    assert shown({}) == [
        "30 days (delta.logRetentionDuration, the default)",
        "7 days (delta.deletedFileRetentionDuration, the default)",
        "1 day (tidelog.maxTransactionTime, the default)",
        "7 days (tidelog.consumerTimeToLive, the default)",
    ]


def test_what_the_table_says() -> None:
    assert shown(
        {
            "delta.logRetentionDuration": "interval 36 hours",
            "delta.deletedFileRetentionDuration": "2 weeks",
            "tidelog.maxTransactionTime": "90 minutes",
            "tidelog.consumerTimeToLive": "0 days",
        }
    ) == [
        "36 hours (delta.logRetentionDuration)",
        "14 days (delta.deletedFileRetentionDuration)",
        "90 minutes (tidelog.maxTransactionTime)",
        "0 days (tidelog.consumerTimeToLive)",
    ]


def test_the_longest_transaction_raises_a_shorter_retention() -> None:
    log, deleted, *_ = retentions(
        {"delta.logRetentionDuration": "1 hour", "delta.deletedFileRetentionDuration": "0 days"}
    )
    for each in (log, deleted):
        assert (each.duration, each.raised_by, each.from_table) == ("1 day", "tidelog.maxTransactionTime", True)
    assert str(log) == "1 day (delta.logRetentionDuration, raised by tidelog.maxTransactionTime)"
    assert deleted.to_dict()["duration_ms"] == 86_400_000


@pytest.mark.parametrize("text", ["", "for ever", "1 month"])
def test_a_value_that_cannot_be_read_is_not_in_force(text: str) -> None:
    (log, *_) = retentions({"delta.logRetentionDuration": text})
    assert (log.duration, log.from_table) == ("30 days", False)


def test_a_very_long_retention_is_shown() -> None:
    (log, *_) = retentions({"delta.logRetentionDuration": "999999999999 weeks"})
    assert log.duration == f"{10_000 * 365} days"
    assert log.duration_ms == properties.parse_duration_ms("999999999999 weeks")
