"""Of the folder of Spark's streaming file sink, only what the sink has committed becomes part of the table."""

from __future__ import annotations

import json

import pytest

from tests.log.operations.converting import ROWS, folder, parquet, refused
from tidelog.log import Table
from tidelog.log.errors import CorruptLogError, DataFileMissingError, TidelogError


def sink_log(*entries: tuple[str, int], action: str = "add") -> bytes:
    lines = [json.dumps({"path": uri, "size": size, "isDir": False, "action": action}) for uri, size in entries]
    return "\n".join(["v1", *lines]).encode()


SIZE = len(parquet(ROWS))


def test_only_what_the_file_sink_committed_is_taken(path: str) -> None:
    files = {f"p=a%2520b/{name}.parquet": ROWS for name in ("0", "1", "2", "3", "failed")}
    uris = {name: f"file:///moved/since/p=a%252520b/{name}.parquet" for name in "0123"}
    logs = {
        "_spark_metadata/0": sink_log(("file:///gone.parquet", 1)),
        "_spark_metadata/2.compact": sink_log((uris["0"], SIZE), (uris["1"], SIZE), (uris["2"], SIZE)),
        "_spark_metadata/2": b"v1",
        "_spark_metadata/3": sink_log((uris["3"], SIZE)),
        "_spark_metadata/4": sink_log((uris["0"], SIZE), action="delete"),
        "_spark_metadata/.4.crc": b"",
        "_spark_metadata/.5.tmp": b"",
    }
    folder(path, {**files, **logs})
    table = Table.convert(path, partition_by=["p"])
    found = sorted(path.rpartition("/")[2] for path in table.at().files()["path"].to_pylist())
    assert found == ["1.parquet", "2.parquet", "3.parquet"]
    assert table.transactions == {"_spark_metadata": 4}
    assert table.scan().to_arrow()["p"].to_pylist() == ["a%20b"] * 6


@pytest.mark.parametrize(
    ("logs", "kind", "words"),
    [
        ({"0": sink_log(("file:///x/f.parquet", SIZE)), "2": b"v1"}, CorruptLogError, "batch 1 is missing"),
        ({"1": b"v1"}, CorruptLogError, "batch 0 is missing"),
        ({"0": b"v2"}, CorruptLogError, "version 'v2'"),
        ({"0": b"v1\n{"}, CorruptLogError, "0 cannot be read"),
        ({"0": b""}, CorruptLogError, "0 "),
        ({"0": sink_log(("file:///x/other.parquet", SIZE))}, DataFileMissingError, "is missing"),
        ({"0": sink_log(("file:///x/f.parquet", 1))}, DataFileMissingError, "instead of 1"),
    ],
)
def test_a_damaged_log_of_the_file_sink_is_an_error(
    logs: dict[str, bytes], kind: type[TidelogError], words: str
) -> None:
    files = {f"_spark_metadata/{name}": content for name, content in logs.items()}
    assert words in refused(kind, {"f.parquet": ROWS, **files})
