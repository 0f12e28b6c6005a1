"""Wrong options of reads and streams, without Spark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.streaming.datasource.engine import Query
from tests.streaming.support import NUMBERS
from tidelog.log import Table
from tidelog.log.errors import (
    ConfigurationError,
    HistoryExpiredError,
    PredicateError,
    StoreNotSupportedError,
    TidelogError,
)
from tidelog.streaming import TidelogDataSource

PARTS = pa.schema([("part", pa.string()), ("n", pa.int64()), ("text", pa.string())])


@pytest.fixture
def table(tmp_path: Path) -> Table:
    return Table.create(str(tmp_path / "table"), NUMBERS)


@pytest.fixture
def parts(tmp_path: Path) -> Table:
    """Versions 1 to 4, each with the rows a, b and c in a file each."""
    made = Table.create(str(tmp_path / "parts"), PARTS, partition_by=["part"])
    for version in range(1, 5):
        made.insert([{"part": part, "n": version, "text": f"{part}{version}"} for part in "abc"])
    return made


def put(table: Table, *numbers: int) -> None:
    table.insert([{"n": number} for number in numbers])


def query(table: Table, **more: Any) -> Query:
    options = {name: value for name, value in more.items() if name not in {"schema", "offset"}}
    return Query({"path": table.path, **options}, **{name: more[name] for name in ("schema", "offset") if name in more})


def numbers(batches: list[list[dict[str, Any]]]) -> list[list[int]]:
    return [[row["n"] for row in batch] for batch in batches]


def read_batch(table: Table, **options: str) -> list[dict[str, Any]]:
    source = TidelogDataSource({"path": table.path} | options)
    reader = source.reader(source.schema())
    batches: list[Any] = [batch for partition in reader.partitions() for batch in reader.read(partition)]
    return pa.Table.from_batches(batches).to_pylist() if batches else []


@pytest.mark.parametrize(
    ("options", "kind", "message"),
    [
        ({"verson": "1"}, ConfigurationError, "unknown option 'verson'; did you mean 'versionAsOf'? use one of"),
        ({"startingVersions": "1"}, ConfigurationError, "did you mean 'startingVersion'? use one of"),
        ({"ignoreDeletes": "true"}, ConfigurationError, "'ignoreDeletes' of Delta is not supported; use skipChangeC"),
        ({"readChangeFeed": "true", "changes": "net"}, ConfigurationError, "'readChangeFeed' and 'changes' exclude"),
        ({"delta.appendOnly": "true"}, ConfigurationError, "the table property 'delta.appendonly' is no option"),
        ({"changes": "net"}, ConfigurationError, "a stream cannot have the change mode 'net'"),
        ({"changes": "all"}, ConfigurationError, "unknown change mode 'all'; use one of append, cdc, net"),
        ({"keys": "n"}, ConfigurationError, "the option 'keys' is for the change mode 'net'"),
        ({"initialSnapshot": "yes"}, ConfigurationError, "'initialSnapshot' cannot be 'yes'; give true or false"),
        ({"maxBytesPerTrigger": "big"}, ConfigurationError, "'maxBytesPerTrigger' cannot be 'big'; give bytes, or"),
        ({"maxRowsPerTrigger": "0"}, ConfigurationError, "give a whole number above zero"),
        (
            {"initialSnapshot": "true", "startingVersion": "1"},
            ConfigurationError,
            "the options 'initialSnapshot' and 'startingVersion' exclude each other",
        ),
        (
            {"skipChangeCommits": "true", "changes": "cdc"},
            ConfigurationError,
            "'skipChangeCommits' is for the change mode 'append'",
        ),
        ({"versionAsOf": "0"}, ConfigurationError, "'versionAsOf' is for batch reads only"),
        ({"endingVersion": "1"}, ConfigurationError, "'endingVersion' is for batch reads only"),
        ({"startingTimestamp": "yesterday"}, ConfigurationError, "cannot be 'yesterday'; write ISO-8601"),
        ({"startingTimestamp": "2026-01-01T00:00:00"}, ConfigurationError, "no time zone"),
        ({"columns": "nope"}, ConfigurationError, "there is no column 'nope'; the columns are n"),
        ({"where": "rand() > 1"}, PredicateError, "is not supported in a predicate"),
    ],
)
def test_a_wrong_option_of_a_stream(
    table: Table, options: dict[str, str], kind: type[TidelogError], message: str
) -> None:
    with pytest.raises(kind) as caught:
        query(table, **options).run()
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("options", "kind", "message"),
    [
        (
            {"versionAsOf": "1", "startingVersion": "0"},
            ConfigurationError,
            "a read cannot have both a version and an interval",
        ),
        ({"maxFilesPerTrigger": "1"}, ConfigurationError, "the option 'maxFilesPerTrigger' is for streams only"),
        ({"keys": "n"}, ConfigurationError, "the option 'keys' is for the change mode 'net'"),
        ({"changes": "net"}, ConfigurationError, "keys"),
        ({"initialSnapshot": "true"}, ConfigurationError, "the option 'initialSnapshot' is for streams only"),
        ({"mergeSchema": "true"}, ConfigurationError, "'mergeSchema' of Delta is not supported; leave"),
        (
            {"after": "3", "endingVersion": "1"},
            ConfigurationError,
            "the interval ends before it starts: after=3, until=1",
        ),
        ({"endingVersion": "99"}, HistoryExpiredError, "the available versions are 0 to 4"),
        ({"versionAsOf": "-1"}, HistoryExpiredError, "version -1 is not in the log; the available versions are 0 to 4"),
        ({"timestampAsOf": "2999-01-01T00:00:00Z"}, HistoryExpiredError, "is in the future; the available"),
        (
            {"timestampAsOf": "1999-01-01T00:00:00Z"},
            HistoryExpiredError,
            "is before the retained history; the available",
        ),
        ({"timestampAsOf": "2999-01-01"}, ConfigurationError, "has no time zone"),
        ({"where": "m = 1"}, PredicateError, "there is no column 'm'; the columns are part, n, text"),
        ({"path": "ftp://bucket/t"}, StoreNotSupportedError, "use a local path, file://, memory://, s3://"),
    ],
)
def test_a_wrong_batch_read(parts: Table, options: dict[str, str], kind: type[TidelogError], message: str) -> None:
    with pytest.raises(kind) as caught:
        read_batch(parts, **options)
    assert message in str(caught.value)
