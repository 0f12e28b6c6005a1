"""Log records as lines, and what a program of tidelog logs."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator

import pytest

from tidelog.log.errors import ConfigurationError, TableNotFoundError
from tidelog.log.log_records import TextLines, configure_logging, event
from tidelog.log.system import logger


@pytest.fixture
def stream() -> Iterator[io.StringIO]:
    """Where `configure_logging` writes; the state of Python's logging is restored afterwards."""
    restore = configure_logging("text", "info")
    yield io.StringIO()
    restore()


def record(level: int, text: str, *, name: str = "tidelog.x", error: BaseException | None = None) -> None:
    logger(name).log(level, text, exc_info=error, extra=event("seen", table="/t", rows=7))


@pytest.mark.parametrize(("milliseconds", "shown"), [(0, "000"), (250, "250"), (999, "999")])
def test_a_line_of_text_has_the_time_in_utc(milliseconds: int, shown: str) -> None:
    facts = {"name": "tidelog.x", "levelname": "INFO", "msg": "/t: version %d", "args": (7,)}
    made = logging.makeLogRecord({**facts, "created": 1_700_000_000 + milliseconds / 1000})
    assert TextLines().format(made) == f"2023-11-14T22:13:20.{shown}Z INFO    /t: version 7"


def test_a_line_of_json_has_the_facts(stream: io.StringIO) -> None:
    configure_logging("json", "info", stream)
    record(logging.WARNING, "/t: \x1b[31mred")
    found = json.loads(stream.getvalue())
    assert found.pop("timestamp").endswith("+00:00")
    assert found == {
        "level": "WARNING",
        "logger": "tidelog.x",
        "message": "/t: \\x1b[31mred",
        "tidelog": {"event": "seen", "table": "/t", "rows": 7},
    }
    assert event("started") == {"tidelog": {"event": "started"}}


@pytest.mark.parametrize("line_format", ["text", "json"])
def test_nothing_in_a_line_moves_a_cursor(stream: io.StringIO, line_format: str) -> None:
    configure_logging(line_format, "info", stream)
    logging.getLogger("some.library").error("forged\n2026 \x1b[2K\u202e", exc_info=ValueError("\x1b[31m"))
    assert "\x1b" not in stream.getvalue()
    assert "\u202e" not in stream.getvalue()
    if line_format == "text":
        assert "ERROR   some.library: forged\n" in stream.getvalue()


def test_other_libraries_log_warnings_only(stream: io.StringIO) -> None:
    configure_logging("text", "debug", stream)
    logging.getLogger("botocore.auth").debug("secret=hunter22")
    logging.getLogger("botocore.auth").info("secret=hunter22")
    record(logging.DEBUG, "own")
    assert "hunter22" not in stream.getvalue()
    assert "DEBUG   own" in stream.getvalue()


@pytest.mark.parametrize(("level", "shown"), [("debug", 4), ("info", 3), ("warning", 2), ("error", 1)])
def test_levels(stream: io.StringIO, level: str, shown: int) -> None:
    configure_logging("text", level, stream)
    for each in (logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR):
        record(each, "x")
    assert len(stream.getvalue().splitlines()) == shown


@pytest.mark.parametrize("line_format", ["text", "json"])
def test_an_error_of_tidelog_has_a_traceback_only_at_debug(stream: io.StringIO, line_format: str) -> None:
    for level, expected in (("info", [False, True]), ("debug", [True, True])):
        configure_logging(line_format, level, stream)
        for error, is_shown in zip([TableNotFoundError("gone", path="/t"), ZeroDivisionError()], expected, strict=True):
            stream.truncate(0)
            try:
                raise error
            except type(error):
                record(logging.ERROR, "x", error=error)
            assert ("Traceback" in stream.getvalue()) is is_shown


def test_logging_can_be_configured_again(stream: io.StringIO) -> None:
    configure_logging("text", "info", stream)
    configure_logging("json", "info", stream)
    record(logging.INFO, "once")
    assert len(stream.getvalue().splitlines()) == 1
    assert json.loads(stream.getvalue())["message"] == "once"


def test_everything_can_be_made_as_it_was(stream: io.StringIO) -> None:
    root, own = logging.getLogger(), logging.getLogger("tidelog")
    before = (root.handlers[:], root.level, own.level)
    restore = configure_logging("json", "debug", stream)
    assert (root.handlers[:], root.level, own.level) != before
    restore()
    assert (root.handlers[:], root.level, own.level) == before


@pytest.mark.parametrize("wrong", [("xml", "info"), ("text", "INFO")])
def test_an_unknown_format_or_level_is_refused(stream: io.StringIO, wrong: tuple[str, str]) -> None:
    with pytest.raises(ConfigurationError, match="is not known; give one of"):
        configure_logging(*wrong, stream)


def test_the_facts_of_a_line_of_json_have_no_credentials(stream: io.StringIO) -> None:
    configure_logging("json", "info", stream)
    secret = "s3://AKIA:hunter22@bucket/lake/*"
    logger("tidelog.x").warning("it failed", extra=event("search_failed", source=secret, more=[{"of": (secret,)}]))
    line = stream.getvalue()
    assert "hunter22" not in line
    assert json.loads(line)["tidelog"]["more"] == [{"of": ["s3://***@bucket/lake/*"]}]
