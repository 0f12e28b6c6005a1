"""Text for people: what a terminal could act on is spelled out, and credentials are left out."""

from __future__ import annotations

import io
import logging
import pickle
import time
import traceback
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.cli.hostile import NAME, NASTY, PART, make_table
from tidelog.compaction_daemon import Daemon, plan
from tidelog.log import Table
from tidelog.log.errors import ConfigurationError, CorruptLogError, TidelogError
from tidelog.log.presentable import (
    address_without_credentials,
    did_you_mean,
    presentable,
    presentable_lines,
    printable,
    without_credentials,
)
from tidelog.log.storage import open_store
from tidelog.log.system import logger

SPELLED = r"\x1b[2J\x1b]0;owned\x07\x9b31m\u202e\u2066\x85\u2028\r."


@given(st.text())
def test_printable_text_can_be_printed(text: str) -> None:
    assert printable(text).isprintable()
    assert printable(text) == text or not text.isprintable()


def test_control_characters_are_spelled_out() -> None:
    assert printable(NASTY) == SPELLED
    assert presentable_lines(f"a\n{NASTY}\nb") == f"a\n{SPELLED}\nb"
    assert presentable("a\nb") == r"a\nb"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("s3://AKIA:abc/d+ef@bucket/x", "s3://***@bucket/x"),
        ("[path=s3://key:pass@bucket/a@b]", "[path=s3://***@bucket/a@b]"),
        ("s3://key:p@ss@bucket/x", "s3://***@bucket/x"),
        ("https://user:pass@host:9000/t and more", "https://***@host:9000/t and more"),
        ("https://token@host/t", "https://***@host/t"),
        ("abfss://container:pass@account.dfs.core.windows.net", "abfss://***@account.dfs.core.windows.net"),
        ("https://a:b@c://d:e@f", "https://***@c://***@f"),
        ("az://c/t?sv=1&sig=abc%2F&se=2", "az://c/t?sv=1&sig=***&se=2"),
        (
            "https://b/t?X-Amz-Signature=12&X-Amz-Security-Token=34",
            "https://b/t?X-Amz-Signature=***&X-Amz-Security-Token=***",
        ),
        ("https://b/t?access_token=12", "https://b/t?access_token=***"),
        ("AccountName=a;AccountKey=abc==;End", "AccountName=a;AccountKey=***;End"),
    ],
)
def test_credentials_are_left_out(text: str, shown: str) -> None:
    assert without_credentials(text) == shown
    assert without_credentials(shown) == shown


@pytest.mark.parametrize(
    "text",
    [
        "abfss://container@account.dfs.core.windows.net/t",
        "http://host:9000/a@b",
        "s3://bucket/at=10:20@x",
        "file:///x/user@host",
        "[token=%, key=7]",
        "mail me@example.com",
    ],
)
def test_other_text_stays(text: str) -> None:
    assert without_credentials(text) == text


LONG = ["://:" * 250_000, "://@" * 50_000, "a" * 10**6, "&token=" * 100_000, "s3://a:b/" * 50_000 + "@"]


@pytest.mark.parametrize("number", range(len(LONG)))
def test_long_texts_take_no_long_time(number: int) -> None:
    began = time.monotonic()
    without_credentials(LONG[number])
    assert time.monotonic() - began < 5


# --- errors ----------------------------------------------------------------------------------------------------------


def test_an_error_is_one_line_that_can_be_printed() -> None:
    error = CorruptLogError(f"column {NASTY}\n", advice=NASTY, path=f"/t{NASTY}", names=[NASTY])
    assert str(error).isprintable()
    assert str(error).count(SPELLED) == 4
    assert error.path == f"/t{NASTY}"
    assert str(pickle.loads(pickle.dumps(error))) == str(error)


def test_an_error_holds_no_credentials() -> None:
    secret = "s3://key:hunter2@bucket/t"
    error = TidelogError(f"cannot open {secret}", advice=f"look at {secret}", path=secret)
    for shown in (str(error), repr(error), repr(error.args), repr(vars(error)), repr(error.__reduce__())):
        assert "hunter2" not in shown
        assert "s3://***@bucket/t" in shown


@pytest.mark.parametrize(
    "url",
    [
        "s3://key:hunter2@bucket/t",
        "s3a://key:hunter2/x@bucket/t",
        "gs://hunter2@bucket/t",
        "abfss://container:hunter2@account.dfs.core.windows.net/t",
        "az://container/t?sv=1&sig=hunter2",
        "https://key:hunter2@host/t",
    ],
)
def test_a_url_with_credentials_is_refused_and_not_printed(url: str) -> None:
    for call in (open_store, Table.open, Table.drop):
        with pytest.raises(ConfigurationError) as raised:
            call(url)
        shown = "".join(traceback.format_exception(raised.value))
        assert "hunter2" not in shown.replace(repr(url), "")


# --- what a program prints -------------------------------------------------------------------------------------------


def test_what_a_program_prints_of_a_table_is_printable(tmp_path: Path) -> None:
    table = Table.open(str(make_table(tmp_path)))
    scan = table.scan(f"`{NAME}` = 'x'", columns=[NAME])
    shown = [repr(table), repr(table.at()), repr(scan), repr(table.changes()), *scan.explain().split("\n")]
    shown += [repr(plan(table)), repr(table.history()), repr(table.debt())]
    assert [text for text in shown if not text.isprintable()] == []
    assert any(SPELLED in text for text in shown)


def test_log_records_are_printable_whatever_prints_them() -> None:
    written = io.StringIO()
    handler = logging.StreamHandler(written)
    log = logger("tidelog.test")
    log.addHandler(handler)
    try:
        log.warning("could not read %s of %s", NASTY, "s3://key:hunter2@bucket/t")
        log.error("failed: %s", NASTY, exc_info=RuntimeError(NASTY))
    finally:
        log.removeHandler(handler)
    lines = written.getvalue().split("\n")
    assert lines[0] == f"could not read {SPELLED} of s3://***@bucket/t"
    assert lines[-2].endswith(f"RuntimeError: {SPELLED}")
    assert [line for line in lines if not line.isprintable()] == []


def test_a_log_record_that_cannot_be_formatted_stays_as_it_is_and_raises_nothing() -> None:
    log = logger("tidelog.test")
    record = log.makeRecord("tidelog.test", logging.INFO, __file__, 1, "%d rows of %s", ("many", "t"), None)
    assert log.filter(record)
    assert (record.msg, record.args) == ("%d rows of %s", ("many", "t"))


def test_the_daemon_logs_printable_lines(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    tables = [make_table(tmp_path / "good"), make_table(tmp_path / "bad", features=(f"feature{NASTY}",))]
    caplog.set_level(logging.DEBUG)
    worker = Daemon([str(path) for path in tables])
    errors: list[Any] = []
    for _ in range(3):
        errors += [step.error for step in worker.step().tables if step.error]
    records = [logging.Formatter().format(record) for record in caplog.records if record.name.startswith("tidelog")]
    assert errors
    assert any(SPELLED in text for text in records)
    assert [text for text in records for line in text.split("\n") if not line.isprintable()] == []


def test_a_hostile_partition_value_in_an_error_is_printable(tmp_path: Path) -> None:
    table = Table.create(str(tmp_path / "t"), pa.schema([("n", pa.int64()), (PART.rstrip(), pa.string())]))
    with pytest.raises(TidelogError) as raised:
        table.insert([{"n": 1, f"other{NASTY}": 2}])
    assert str(raised.value).isprintable()


@pytest.mark.parametrize(
    ("name", "question"),
    [
        ("ammount", "did you mean 'Amount'? "),
        ("AMOUNT", "did you mean 'Amount'? "),
        ("user_id", "did you mean 'userId'? "),
        ("day", ""),  # `date` is another word
        ("", ""),
        ("x" * 65, ""),
        (7, ""),
    ],
)
def test_an_unknown_name_is_compared_with_the_known_ones(name: object, question: str) -> None:
    assert did_you_mean(name, ["Amount", "date", "userId", "x" * 65]) == question


def test_a_bounded_number_of_names_is_compared() -> None:
    """Each comparison can take a millisecond, if the names of a hostile table are made for it."""
    assert did_you_mean("amount", [*map(str, range(999)), "amont"])
    assert not did_you_mean("amount", [*map(str, range(1000)), "amont"])


def test_a_property_with_the_wrong_prefix_is_asked_for_by_its_whole_name() -> None:
    with pytest.raises(ConfigurationError) as error:
        Table.create("memory://typo", pa.schema([("id", pa.int64())]), properties={"delta.primaryKey": "id"})
    assert error.value.advice.startswith("did you mean 'tidelog.primaryKey'? use one of ")


@pytest.mark.parametrize(
    "call",
    [
        lambda table: table.scan(columns=["ammount"]),
        lambda table: table.scan("ammount > 1"),
        lambda table: table.changes(columns=["ammount"]),
        lambda table: table.delete("ammount > 1"),
        lambda table: table.update("true", {"ammount": "1"}),
        lambda table: table.insert([{"id": 1, "ammount": 1}]),
        lambda table: table.insert(pa.table({"id": [1], "ammount": [1]})),
        lambda table: table.upsert([{"id": 1}], keys=["ammount"]),
        lambda table: table.compact("major", cluster_by=["ammount"]),
        lambda table: Table.create("memory://other", table.schema, partition_by=["ammount"]),
    ],
)
def test_an_unknown_column_is_compared_with_those_of_the_table(tmp_path: Path, call: Any) -> None:
    table = Table.create(str(tmp_path / "t"), pa.schema([("id", pa.int64()), ("amount", pa.int64())]))
    with pytest.raises(TidelogError) as error:
        call(table)
    assert error.value.advice.startswith("did you mean 'amount'? ")


def test_a_column_that_the_data_has_already_is_not_what_was_meant(tmp_path: Path) -> None:
    table = Table.create(str(tmp_path / "t"), pa.schema([("amount", pa.int64())]))
    with pytest.raises(TidelogError) as error:
        table.insert([{"amount": 1, "amount2": 1}])
    assert "did you mean" not in error.value.advice


@pytest.mark.parametrize("address", ["me:secret@h", "http://me:secret@h:1/", "//me:secret@h:1", "/me:secret@h"])
def test_an_address_is_shown_without_its_password(address: str) -> None:
    assert address_without_credentials(address) == address.replace("me:secret", "***")
