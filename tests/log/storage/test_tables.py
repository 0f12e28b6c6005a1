"""Tables in object stores: concurrent writers, checkpoints, time travel, and reading with another engine."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from multiprocessing.pool import ThreadPool
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable, QueryBuilder

from tests.log.storage.servers import KEY, SECRET, Server
from tests.log.support import NUMBERS, numbers, read_numbers
from tidelog.log import Committed, Table

WRITERS, INSERTS = 4, 2


def insert(url: str, options: dict[str, Any], writer: int) -> list[int]:
    table = Table.open(url, storage_options=options)
    first = writer * INSERTS
    return [table.insert(numbers([number])).version for number in range(first, first + INSERTS)]


def read_with_deltalake(server: Server, url: str, version: int | None = None) -> list[int]:
    options = {
        "AWS_ENDPOINT_URL": server.endpoint,
        "AWS_ALLOW_HTTP": "true",
        "AWS_ACCESS_KEY_ID": KEY,
        "AWS_SECRET_ACCESS_KEY": SECRET,
        "AWS_REGION": "us-east-1",
    }
    table = DeltaTable(url, version=version, storage_options=options)
    rows = QueryBuilder().register("t", table).execute("select n from t order by n").read_all()
    values: list[int] = pa.table(rows)["n"].to_pylist()
    return values


@pytest.mark.interop
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")  # Spark's workers are forked too
@pytest.mark.parametrize(
    ("name", "pool_of"),
    [
        ("moto", ThreadPool),
        ("versitygw", multiprocessing.get_context("fork").Pool),
        ("minio", multiprocessing.get_context("fork").Pool),
    ],
)
def test_concurrent_writers_lose_nothing_and_deltalake_agrees(
    server_of: Callable[[str], Server], name: str, pool_of: Callable[[int], Any]
) -> None:
    server = server_of(name)
    url, options = server.store().url, server.options
    table = Table.create(url, NUMBERS, storage_options=options)
    with pool_of(WRITERS) as pool:
        jobs = [(url, options, writer) for writer in range(WRITERS)]
        versions = pool.starmap_async(insert, jobs).get(120)
        pool.close()
        pool.join()
    everything = list(range(WRITERS * INSERTS))
    assert sorted(version for each in versions for version in each) == [number + 1 for number in everything]
    assert read_numbers(table.refresh()) == everything
    assert [record.version for record in table.history()] == list(range(WRITERS * INSERTS, -1, -1))

    table.checkpoint()
    again = Table.open(url, storage_options=options)
    assert read_numbers(again) == everything
    half = len(everything) // 2
    assert len(read_numbers(again.at(version=half))) == half
    later = again.changes(after=half).to_arrow()
    assert later["_commit_version"].to_pylist() == list(range(half + 1, len(everything) + 1))
    assert sorted([*later["n"].to_pylist(), *read_numbers(again.at(version=half))]) == everything
    assert read_with_deltalake(server, url) == everything
    assert read_with_deltalake(server, url, half) == read_numbers(again.at(version=half))


@pytest.mark.parametrize("name", ["fake-gcs-server", "azurite"])
def test_tables_on_other_clouds(server_of: Callable[[str], Server], name: str) -> None:
    server = server_of(name)
    url, options = server.store().url, server.options
    table = Table.create(url, NUMBERS, storage_options=options)
    other = Table.open(url, storage_options=options)
    assert table.insert(numbers([1])).version == 1
    assert other.insert(numbers([2])).rebased_over == (1,), "it does not refresh first"
    transaction = table.begin().insert(numbers([3]))
    other.insert(numbers([4]))
    committed = transaction.commit()
    assert isinstance(committed, Committed)
    assert (committed.version, committed.retried) == (4, True)
    other.checkpoint()
    again = Table.open(url, storage_options=options)
    assert read_numbers(again) == [1, 2, 3, 4]
    assert read_numbers(again.at(version=1)) == [1]


def test_a_wide_file_is_read_in_parts(s3: Server) -> None:
    """A data file beyond a few MB is not fetched as a whole."""
    url, options = s3.store().url, s3.options
    rows = pa.table({"n": range(1_100_000), "noise": pc.random(1_100_000, initializer=1)})
    Table.create(url, rows.schema, storage_options=options).insert(rows)
    table = Table.open(url, storage_options=options)
    assert max(table.at().files()["size"].to_pylist()) > 2**23
    assert table.scan().to_arrow().sort_by("n").equals(rows)
    assert table.scan("n >= 1099990", ["n"]).to_arrow()["n"].to_pylist() == list(range(1_099_990, 1_100_000))
