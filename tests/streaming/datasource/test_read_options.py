from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from tidelog.log.errors import ConfigurationError
from tidelog.log.read.timeline import BEFORE_FIRST
from tidelog.streaming.datasource.read_options import begins_by_default, parse_read
from tidelog.streaming.feed_planning.limits import NO_LIMITS, ReadLimits

PATH = {"path": "/data/t"}


def test_a_path_alone_is_the_newest_snapshot() -> None:
    options = parse_read(PATH)
    assert options.path == "/data/t"
    assert not options.is_interval
    assert (options.snapshot, options.start, options.end, options.latest) == (None, None, None, False)
    assert (options.changes, options.limits, options.columns, options.where) == (None, NO_LIMITS, None, None)


def test_the_limits_of_a_stream() -> None:
    options = {"maxFilesPerTrigger": "3", "maxBytesPerTrigger": "10 MiB", "maxRowsPerTrigger": "1000"}
    assert parse_read(PATH | options).limits == ReadLimits(3, 10 * 2**20, 1000)


@pytest.mark.parametrize("streaming", [True, False, None])
@pytest.mark.parametrize("name", ["readChangeFeed", "readchangedata"])
def test_deltas_name_of_all_changes(name: str, streaming: bool | None) -> None:
    """As in Delta, a stream of it without a start begins with the table as it is."""
    own = {"initialSnapshot": "true"} if streaming else {}
    expected = parse_read(PATH | {"changes": "cdc"} | own, streaming=streaming)
    assert parse_read(PATH | {name: "true"}, streaming=streaming) == expected
    begun = {"startingVersion": "3"}
    assert parse_read(PATH | begun | {name: "true"}, streaming=streaming) == parse_read(
        PATH | begun | {"changes": "cdc"}, streaming=streaming
    )
    assert parse_read(PATH | {name: "false"}, streaming=streaming) == parse_read(PATH, streaming=streaming)


@pytest.mark.parametrize(
    ("text", "names"),
    [("a, b ,c", ("a", "b", "c")), ('["a,b", " c"]', ("a,b", " c")), ("[a]", ("[a]",)), ("1", ("1",))],
)
def test_column_names(text: str, names: tuple[str, ...]) -> None:
    assert parse_read(PATH | {"columns": text}).columns == names


def test_option_names_ignore_case() -> None:
    assert parse_read({"PATH": "/t", "VersionAsOf": "3", "COLUMNS": "a, b ,c", "Where": "a = 1"}).snapshot == 3
    assert parse_read({"path": "/t", "columns": "a, b ,c"}).columns == ("a", "b", "c")


@pytest.mark.parametrize(
    ("raw", "start", "latest"),
    [
        ({"after": "7"}, 7, False),
        ({"after": "earliest"}, BEFORE_FIRST, False),
        ({"after": "latest"}, None, True),
        ({"after": "2026-01-01T00:00:00Z"}, datetime(2026, 1, 1, tzinfo=UTC), False),
        ({"startingVersion": "7"}, 7, False),
        ({"startingVersion": "0"}, 0, False),
        ({"startingVersion": "earliest"}, BEFORE_FIRST, False),
        ({"startingVersion": "EARLIEST"}, BEFORE_FIRST, False),
        ({"startingVersion": "latest"}, None, True),
        ({"startingTimestamp": "2026-01-01T00:00:00Z"}, datetime(2026, 1, 1, tzinfo=UTC), False),
    ],
)
def test_the_start_of_an_interval(raw: dict[str, str], start: object, latest: bool) -> None:
    options = parse_read(PATH | raw)
    assert (options.start, options.latest) == (start, latest)
    assert options.is_interval
    assert options.is_start_included == ("after" not in raw and start not in (BEFORE_FIRST, None))


@pytest.mark.parametrize("raw", [{"endingVersion": "4"}, {"endingTimestamp": "2026-01-01T00Z"}, {"changes": "append"}])
def test_an_end_or_changes_make_an_interval(raw: dict[str, str]) -> None:
    assert parse_read(PATH | raw, streaming=False).is_interval


def test_storage_options_lose_the_prefix_and_keep_their_case() -> None:
    options = parse_read(PATH | {"storageOption.AccessKey": "a", "STORAGEOPTION.secretKey": "b"})
    assert options.storage_options == {"AccessKey": "a", "secretKey": "b"}


@pytest.mark.parametrize(
    ("raw", "streaming", "message"),
    [
        ({}, None, "Spark did not pass a table path; use .load"),
        ({"path": ""}, None, "Spark did not pass a table path"),
        (PATH | {"verssionAsOf": "1"}, None, "unknown option 'verssionasof'; did you mean 'versionAsOf'? use one"),
        (PATH | {"verssionAsOf": "1"}, None, "where, storageOption.<name>"),
        (PATH | {"consumers": "me"}, True, "unknown option 'consumers'"),
        (PATH | {"versionAsOf": "1"}, True, "'versionAsOf' is for batch reads only; leave it out"),
        (PATH | {"endingTimestamp": "1"}, True, "'endingTimestamp' is for batch reads only"),
        (PATH | {"maxFilesPerTrigger": "1"}, False, "'maxFilesPerTrigger' is for streams only; leave it out"),
        (PATH | {"versionAsOf": "one"}, None, "'versionAsOf' cannot be 'one'; give a whole number"),
        (PATH | {"endingVersion": "latest"}, None, "'endingVersion' cannot be 'latest'; give a whole number"),
        (PATH | {"startingVersion": "soon"}, None, "'soon'; give a whole number, 'earliest' or 'latest'"),
        (PATH | {"startingVersion": "-1"}, None, "'startingVersion' cannot be '-1'; the first version of a table is 0"),
        (PATH | {"after": "soon"}, None, "'soon'; give a version, a time, 'earliest' or 'latest'; write ISO-8601"),
        (PATH | {"after": "1", "startingVersion": "1"}, None, "'after' and 'startingVersion' exclude each other"),
        (PATH | {"timestampAsOf": "soon"}, None, "'timestampAsOf' cannot be 'soon'; write ISO-8601, such as"),
        (PATH | {"startingTimestamp": "soon"}, None, "'startingTimestamp' cannot be 'soon'; write ISO-8601"),
        (PATH | {"versionAsOf": "1", "timestampAsOf": "2026-01-01Z"}, None, "exclude each other; leave one out"),
        (PATH | {"startingVersion": "latest", "startingTimestamp": "2026-01-01Z"}, None, "exclude each other"),
        (PATH | {"startingVersion": "1", "startingTimestamp": "2026-01-01Z"}, None, "exclude each other"),
        (PATH | {"endingVersion": "1", "endingTimestamp": "2026-01-01Z"}, None, "exclude each other"),
        (PATH | {"maxFilesPerTrigger": "0"}, True, "cannot be '0'; give a whole number above zero"),
        (PATH | {"maxFilesPerTrigger": "-1"}, True, "cannot be '-1'"),
        (PATH | {"maxFilesPerTrigger": "many"}, True, "cannot be 'many'"),
        ({"owner": "me", "x": "1"}, None, "CREATE TABLE ... USING tidelog is not supported"),
        (PATH | {"owner": "me"}, None, "CREATE TEMPORARY VIEW name USING tidelog OPTIONS (path '/path/to/table')"),
    ],
)
def test_an_error_names_the_wrong_option_and_the_remedy(
    raw: dict[str, str], streaming: bool | None, message: str
) -> None:
    with pytest.raises(ConfigurationError) as caught:
        parse_read(raw, streaming=streaming)
    assert message in str(caught.value)


@pytest.mark.parametrize("name", ["timestampAsOf", "startingTimestamp", "endingTimestamp"])
@pytest.mark.parametrize(
    ("text", "completed"),
    [
        ("2026-01-31T12:00:00", "2026-01-31T12:00:00"),
        ("2026-01-31 12:00:00.5", "2026-01-31T12:00:00.500000"),
        ("2026-01-31", "2026-01-31T00:00:00"),
    ],
)
def test_a_timestamp_without_a_time_zone_needs_the_sessions(name: str, text: str, completed: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        parse_read(PATH | {name: text})
    message = f"the option {name!r} has no time zone: {text!r}; add one, such as {completed}Z, or call register(spark)"
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("zone", "text", "moment"),
    [
        ("UTC", "2026-01-31T12:00:00", "2026-01-31T12:00:00Z"),
        ("Z", "2026-01-31", "2026-01-31T00:00:00Z"),
        ("Europe/Berlin", "2026-07-01T12:00:00", "2026-07-01T10:00:00Z"),
        ("+05:30", "2026-01-31T12:00:00", "2026-01-31T06:30:00Z"),
        ("GMT-3", "2026-01-31T12:00:00", "2026-01-31T15:00:00Z"),
        ("UTC+01:00", "2026-01-31T12:00:00", "2026-01-31T11:00:00Z"),
        # Spark 4.2: timestamp'2026-03-29 02:30:00' and timestamp'2026-10-25 02:30:00' in Europe/Berlin
        ("Europe/Berlin", "2026-03-29T02:30:00", "2026-03-29T01:30:00Z"),
        ("Europe/Berlin", "2026-10-25T02:30:00", "2026-10-25T00:30:00Z"),
    ],
)
def test_a_timestamp_in_a_session_zone_is_the_moment_that_spark_takes(zone: str, text: str, moment: str) -> None:
    options = parse_read(PATH | {"timestampAsOf": text}, session_zone=zone)
    assert isinstance(options.snapshot, datetime)
    assert options.snapshot.astimezone(UTC) == datetime.fromisoformat(moment)
    assert options.zone == zone


def test_a_zone_that_is_not_needed_is_not_remembered() -> None:
    assert parse_read(PATH | {"timestampAsOf": "2026-01-31T12:00:00Z"}, session_zone="Europe/Berlin").zone is None


def test_a_zone_that_python_does_not_know_is_an_error() -> None:
    with pytest.raises(ConfigurationError, match="time zone 'Moon/Base' is not known to Python; add a zone"):
        parse_read(PATH | {"timestampAsOf": "2026-01-31"}, session_zone="Moon/Base")


@pytest.mark.parametrize("text", ["2026-01-31T12:00:00Z", "2026-01-31 13:00:00+01:00", " 2026-01-31T07:00:00-0500 "])
def test_a_timestamp_with_a_time_zone_is_that_moment(text: str) -> None:
    moment = parse_read(PATH | {"timestampAsOf": text}).snapshot
    assert isinstance(moment, datetime)
    assert moment - datetime(2026, 1, 31, 12, tzinfo=UTC) == timedelta(0)


def test_a_secret_is_in_no_message() -> None:
    with pytest.raises(ConfigurationError) as caught:
        parse_read({"storageOption.secret": "hunter2", "nonsense": "1"})
    assert "hunter2" not in str(caught.value)
    assert "secret" not in str(caught.value)


def test_where_a_stream_begins_may_be_left_open() -> None:
    assert begins_by_default({"path": "/t", "maxFilesPerTrigger": "1", "skipChangeCommits": "true"})
    for name in ("after", "startingVersion", "STARTINGTIMESTAMP", "initialSnapshot"):
        assert not begins_by_default({"path": "/t", name: "1"})
