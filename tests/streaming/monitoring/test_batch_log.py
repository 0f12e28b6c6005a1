"""Reports as JSON, log records of batches, and subscribers. No Spark."""

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
def log_everything(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "tidelog.streaming")


@pytest.fixture
def received() -> Iterator[list[BatchReport]]:
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


def test_a_report_has_the_outcome_of_the_batch() -> None:
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


def test_a_skipped_batch_is_info_and_an_empty_one_is_debug(caplog: pytest.LogCaptureFixture) -> None:
    publish(SKIPPED)
    publish(EMPTY)
    assert [(record.levelname, record.message.partition(" sink")[0]) for record in caplog.records] == [
        ("INFO", "batch skipped"),
        ("DEBUG", "batch empty"),
    ]


@pytest.mark.parametrize("path", ["/a b", '/a"b', "/a=b", "/a\nb"])
def test_a_path_with_special_characters_is_quoted(path: str, caplog: pytest.LogCaptureFixture) -> None:
    publish(BatchReport(1, 2, 3, 1, 1, skipped=False, path=path))
    assert "\n" not in caplog.records[0].message
    assert f" path={json.dumps(path)} " in caplog.records[0].message


def test_a_failure_is_logged_once_and_passes(caplog: pytest.LogCaptureFixture) -> None:
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
    fields = record.__dict__["tidelog"]
    assert fields["code"] == "TIDELOG_STORE_UNAVAILABLE"
    assert [frame.rsplit(" in ")[-1] for frame in fields["traceback"]] == [
        "failures_logged",
        "test_a_failure_is_logged_once_and_passes",
    ]


def test_a_failure_is_logged_with_its_causes_but_not_their_texts(caplog: pytest.LogCaptureFixture) -> None:
    def unreachable() -> None:
        raise OSError("password=secret")

    def read() -> None:
        try:
            unreachable()
        except OSError as error:
            raise StoreUnavailableError("the store did not answer", path="/data") from error

    with pytest.raises(StoreUnavailableError), failures_logged(sink="main", path="/data", batch_id=3):
        read()
    (record,) = caplog.records
    assert [frame.rsplit(" in ")[-1] for frame in record.__dict__["tidelog"]["traceback"]] == [
        "failures_logged",
        "test_a_failure_is_logged_with_its_causes_but_not_their_texts",
        "read",
        "caused by OSError",
        "read",
        "unreachable",
    ]
    assert "secret" not in JsonLines().format(record)


def test_the_text_of_a_foreign_error_is_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(ValueError, match="secret"), failures_logged(sink="main", path="/data", batch_id=3):
        raise ValueError("key=secret")
    (record,) = caplog.records
    assert "secret" not in JsonLines().format(record)
    assert record.message == "batch failed outcome=failed sink=main path=/data batch_id=3 error=ValueError"
    fields = record.__dict__["tidelog"]
    assert (fields["code"], fields["message"], fields["traceback"]) == (None, None, None)


def test_a_successful_batch_logs_no_failure(caplog: pytest.LogCaptureFixture) -> None:
    with failures_logged(sink="main", path="/data", batch_id=3):
        pass
    assert caplog.records == []


def test_a_record_is_one_line_of_json(caplog: pytest.LogCaptureFixture) -> None:
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


def test_other_records_are_lines_of_json_as_well(caplog: pytest.LogCaptureFixture) -> None:
    logger = logging.getLogger("tidelog.streaming.other")
    logger.error("went %s", "wrong", exc_info=ValueError("two\nlines"), extra={"tidelog": {"odd": object}})
    line = JsonLines().format(caplog.records[0])
    assert "\n" not in line
    found = json.loads(line)
    assert found["message"] == "went wrong"
    assert "ValueError: two\nlines" in found["exception"]
    assert found["tidelog"] == {"odd": "<class 'object'>"}


# --- subscribers -----------------------------------------------------------------------------------------------------


def test_a_subscriber_gets_each_report_once(received: list[BatchReport]) -> None:
    subscribe(received.append)
    for report in (COMMITTED, SKIPPED, EMPTY):
        publish(report)
    assert received == [COMMITTED, SKIPPED, EMPTY]


def test_unsubscribing_is_final_and_can_be_repeated(received: list[BatchReport]) -> None:
    other: list[BatchReport] = []
    unsubscribe = subscribe(other.append)
    unsubscribe()
    unsubscribe()
    publish(COMMITTED)
    assert (received, other) == ([COMMITTED], [])


def test_a_failing_subscriber_does_not_affect_the_rest(
    received: list[BatchReport], caplog: pytest.LogCaptureFixture
) -> None:
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
    assert received == later == [COMMITTED]
    assert "a subscriber to batch reports raised an error" in caplog.text


def test_nothing_is_formatted_if_the_level_is_disabled(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "tidelog.streaming")
    monkeypatch.setattr(BatchReport, "to_dict", None)
    publish(COMMITTED)
    assert caplog.records == []


def test_importing_streaming_does_not_load_prometheus_client() -> None:
    program = "import sys, tidelog.streaming; sys.exit('prometheus_client' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
