"""Reading commitInfo and lineage."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tidelog.log.format import commit_info, lineage
from tidelog.log.format.lineage import Lineage, LineageGroup, LineageInput, LineageOutput


def test_known_keys_are_read() -> None:
    info = {
        "inCommitTimestamp": 5,
        "timestamp": 4,
        "txnId": "t",
        "operation": "WRITE",
        "userMetadata": "u",
        "operationMetrics": {"numFiles": "1", "n": 2},
        "tidelog": {"class": "INSERT"},
    }
    assert commit_info.in_commit_timestamp_ms(info) == 5
    assert commit_info.written_timestamp_ms(info) == 4
    assert commit_info.txn_id(info) == "t"
    assert commit_info.operation_name(info) == "WRITE"
    assert commit_info.user_metadata(info) == "u"
    assert commit_info.metrics(info) == {"numFiles": "1", "n": "2"}
    assert commit_info.tidelog(info) == {"class": "INSERT"}


@pytest.mark.parametrize("odd", [None, True, [], {"a": 1}, "text", 1.5, 7])
def test_a_key_of_an_unexpected_type_counts_as_absent(odd: Any) -> None:
    info = dict.fromkeys(
        ["inCommitTimestamp", "timestamp", "txnId", "operation", "userMetadata", "operationMetrics", "tidelog"], odd
    )
    assert commit_info.in_commit_timestamp_ms(info) == (7 if odd == 7 else None)
    assert commit_info.written_timestamp_ms(info) == (7 if odd == 7 else None)
    assert commit_info.txn_id(info) == ("text" if odd == "text" else None)
    assert commit_info.operation_name(info) == ("text" if odd == "text" else "")
    assert commit_info.user_metadata(info) == ("text" if odd == "text" else None)
    assert commit_info.metrics(info) == ({"a": "1"} if odd == {"a": 1} else {})
    assert commit_info.tidelog(info) == ({"a": 1} if odd == {"a": 1} else {})


def test_an_empty_commit_info() -> None:
    assert commit_info.in_commit_timestamp_ms({}) is None
    assert commit_info.metrics({}) == {}


LINEAGE = Lineage(
    (
        LineageGroup(
            (LineageInput("a", "uX@1", 5), LineageInput("b", None, 3)), (LineageOutput("o", 7), LineageOutput("p", 0))
        ),
    )
)


def test_lineage_survives_a_round_trip_through_json() -> None:
    plain = msgspec.json.decode(msgspec.json.encode(LINEAGE.to_builtins()))
    assert plain == {
        "groups": [
            {
                "inputs": [{"path": "a", "dvId": "uX@1", "rows": 5}, {"path": "b", "dvId": None, "rows": 3}],
                "outputs": [{"path": "o", "rows": 7}, {"path": "p", "rows": 0}],
            }
        ]
    }
    assert lineage.from_builtins(plain) == LINEAGE


@pytest.mark.parametrize("raw", [None, 1, "x", [], {}, {"groups": [{"inputs": []}]}, {"groups": [{"inputs": 1}]}])
def test_unreadable_lineage_is_none(raw: Any) -> None:
    assert lineage.from_builtins(raw) is None
