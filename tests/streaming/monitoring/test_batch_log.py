"""Reports as JSON, one log record a batch, and who else hears of it. No Spark."""

from __future__ import annotations

import json
import logging
import pickle
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tidelog.log.errors import StoreUnavailableError
from tidelog.streaming import BatchReport, JsonLines, subscribe
from tidelog.streaming.monitoring.batch_log import failures_logged, publish

COMMITTED = BatchReport(
    7,
    12,
    100,
    2,
    4096,
    skipped=False,
    rebased_over=(10, 11),
    seconds={"write": 0.3, "commit": 0.1},
    mode="upsert",
    writer="driver",
    metrics={"numTargetRowsInserted": 60, "numTargetRowsUpdated": 40},
    debt_files=1200,
    delayed_s=1.5,
    sink="main",
    path="/data/events",
    query_id="q-1",
    run_id="r-1",
)
SKIPPED = BatchReport(6, None, 0, 0, 0, skipped=True, seconds={"identify": 0.01}, path="/data/events")
EMPTY = BatchReport(8, None, 0, 0, 0, skipped=False, path="/data/events")


@pytest.fixture(autouse=True)
def everything_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "tidelog.streaming")


@pytest.fixture
def heard() -> Iterator[list[BatchReport]]:
    reports: list[BatchReport] = []
    unsubscribe = subscribe(reports.append)
    yield reports
    unsubscribe()


# --- the report ------------------------------------------------------------------------------------------------------


def test_a_report_is_plain_json() -> None:
    found = json.loads(COMMITTED.to_json())
    assert found == COMMITTED.to_dict()
    assert found == {
        "outcome": "committed",
        "sink": "main",
        "path": "/data/events",
        "query_id": "q-1",
        "run_id": "r-1",
        "batch_id": 7,
        "version": 12,
        "mode": "upsert",
        "writer": "driver",
        "rows": 100,
        "files": 2,
        "bytes": 4096,
        "skipped": False,
        "rebased_over": [10, 11],
        "metrics": {"numTargetRowsInserted": 60, "numTargetRowsUpdated": 40},
        "seconds": {"write": 0.3, "commit": 0.1},
        "rows_per_second": 250.0,
        "debt_files": 1200,
        "delayed_s": 1.5,
    }
    assert set(BatchReport.__dataclass_fields__) <= set(found)


def test_a_report_tells_what_became_of_the_batch() -> None:
    assert [report.outcome for report in (COMMITTED, SKIPPED, EMPTY)] == ["committed", "skipped", "empty"]
    assert (SKIPPED.rows_per_second, EMPTY.rows_per_second) == (0, 0)
    assert pickle.loads(pickle.dumps(COMMITTED)) == COMMITTED


# --- the log ---------------------------------------------------------------------------------------------------------


def test_a_commit_is_one_line_of_pairs(caplog: pytest.LogCaptureFixture) -> None:
    publish(COMMITTED)
    (record,) = caplog.records
    assert (record.name, record.levelname) == ("tidelog.streaming", "INFO")
    assert record.message == (
        "batch committed sink=main path=/data/events query_id=q-1 batch_id=7 version=12 mode=upsert writer=driver "
        "rows=100 files=2 bytes=4096 rebased_over=10,11 debt_files=1200 delayed_s=1.5 numTargetRowsInserted=60 "
        "numTargetRowsUpdated=40 write_s=0.3 commit_s=0.1"
    )
    assert record.__dict__["tidelog"] == COMMITTED.to_dict()


def test_a_skip_is_information_and_an_empty_batch_is_not(caplog: pytest.LogCaptureFixture) -> None:
    publish(SKIPPED)
    publish(EMPTY)
    assert [(record.levelname, record.message.partition(" sink")[0]) for record in caplog.records] == [
        ("INFO", "batch skipped"),
        ("DEBUG", "batch empty"),
    ]


@pytest.mark.parametrize("path", ["/a b", '/a"b', "/a=b", "/a\nb"])
def test_a_path_that_would_break_the_line_is_quoted(path: str, caplog: pytest.LogCaptureFixture) -> None:
    publish(BatchReport(1, 2, 3, 1, 1, skipped=False, path=path))
    assert "\n" not in caplog.records[0].message
    assert f" path={json.dumps(path)} " in caplog.records[0].message


def test_a_failure_is_logged_once_and_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    error = StoreUnavailableError("the store did not answer", advice="try again later", path="/data")
    with (
        pytest.raises(StoreUnavailableError) as raised,
        failures_logged(sink="main", path="/data", batch_id=3),
    ):
        raise error
    assert raised.value is error
    (record,) = caplog.records
    assert record.levelname == "ERROR"
    assert record.message.startswith(
        "batch failed outcome=failed sink=main path=/data batch_id=3 error=StoreUnavailableError "
        'code=TIDELOG_STORE_UNAVAILABLE message="TIDELOG_STORE_UNAVAILABLE: the store did not answer; try again later'
    )
    assert record.__dict__["tidelog"]["code"] == "TIDELOG_STORE_UNAVAILABLE"


def test_the_text_of_an_error_that_is_not_ours_is_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(ValueError, match="secret"), failures_logged(sink="main", path="/data", batch_id=3):
        raise ValueError("key=secret")
    (record,) = caplog.records
    assert "secret" not in JsonLines().format(record)
    assert record.message == "batch failed outcome=failed sink=main path=/data batch_id=3 error=ValueError"
    assert record.__dict__["tidelog"]["code"] is None


def test_a_batch_that_succeeds_logs_no_failure(caplog: pytest.LogCaptureFixture) -> None:
    with failures_logged(sink="main", path="/data", batch_id=3):
        pass
    assert caplog.records == []


def test_a_record_as_a_line_of_json(caplog: pytest.LogCaptureFixture) -> None:
    publish(COMMITTED)
    (record,) = caplog.records
    record.created = 1_700_000_000.25
    line = JsonLines().format(record)
    assert "\n" not in line
    found = json.loads(line)
    assert found == {
        "timestamp": "2023-11-14T22:13:20.250+00:00",
        "level": "INFO",
        "logger": "tidelog.streaming",
        "message": record.message,
        "tidelog": COMMITTED.to_dict(),
    }


def test_records_of_others_are_lines_of_json_too(caplog: pytest.LogCaptureFixture) -> None:
    logger = logging.getLogger("tidelog.streaming.other")
    logger.error("went %s", "wrong", exc_info=ValueError("two\nlines"), extra={"tidelog": {"odd": object}})
    line = JsonLines().format(caplog.records[0])
    assert "\n" not in line
    found = json.loads(line)
    assert found["message"] == "went wrong"
    assert "ValueError: two\nlines" in found["exception"]
    assert found["tidelog"] == {"odd": "<class 'object'>"}


# --- subscribers -----------------------------------------------------------------------------------------------------


def test_subscribers_hear_of_every_batch_once(heard: list[BatchReport]) -> None:
    subscribe(heard.append)
    for report in (COMMITTED, SKIPPED, EMPTY):
        publish(report)
    assert heard == [COMMITTED, SKIPPED, EMPTY]


def test_an_end_of_a_subscription_is_one_for_good(heard: list[BatchReport]) -> None:
    others: list[BatchReport] = []
    unsubscribe = subscribe(others.append)
    unsubscribe()
    unsubscribe()
    publish(COMMITTED)
    assert (heard, others) == ([COMMITTED], [])


def test_a_subscriber_that_fails_disturbs_nobody(heard: list[BatchReport], caplog: pytest.LogCaptureFixture) -> None:
    def failing(report: BatchReport) -> None:
        raise RuntimeError(report.path)

    unsubscribe = subscribe(failing)
    later: list[BatchReport] = []
    unsubscribe_later = subscribe(later.append)
    try:
        publish(COMMITTED)
    finally:
        unsubscribe()
        unsubscribe_later()
    assert heard == later == [COMMITTED]
    assert "a subscriber to the reports of batches failed" in caplog.text


def test_nothing_is_formatted_where_nobody_listens(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "tidelog.streaming")
    monkeypatch.setattr(BatchReport, "to_dict", None)
    publish(COMMITTED)
    assert caplog.records == []


def test_streaming_is_imported_without_the_client_of_prometheus() -> None:
    program = "import sys, tidelog.streaming; sys.exit('prometheus_client' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
