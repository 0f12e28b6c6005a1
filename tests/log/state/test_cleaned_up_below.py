"""Handles and logs that lack files which others take for granted: what is left has the whole state."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pyarrow as pa
import pytest

from tests.log.support import Clock, memory_store, new_table
from tidelog.log import Table
from tidelog.log.format import filenames

SCHEMA = pa.schema([("k", pa.int64())])
DAY_MS = 86_400_000
READS: list[Callable[[Table], Any]] = [
    lambda table: table.scan().count(),
    lambda table: table.get([{"k": 10}]).num_rows,
    lambda table: table.delete("k = 10").version,
    lambda table: table.upsert([{"k": 11}]).version,
    lambda table: table.compact("major").version,
]


def followed(clock: Clock, follow: Callable[[Table], Any]) -> Table:
    """A handle that was opened by a checkpoint, followed without reading, and sees an expire delete that checkpoint."""
    properties = {"tidelog.maxTransactionTime": "0 seconds", "tidelog.primaryKey": "k"}
    owner = new_table(memory_store(clock), SCHEMA, properties=properties, system=clock)
    owner.insert([{"k": 1}])
    owner.checkpoint()
    owner.insert([{"k": 2}])
    handle = Table.open(owner.path, system=clock)
    clock.ms += DAY_MS
    owner.insert([{"k": 10}])
    clock.ms += DAY_MS
    follow(handle)
    owner.refresh()
    clock.ms += DAY_MS
    owner.checkpoint()
    clock.ms += DAY_MS
    owner.insert([{"k": 20}])
    clock.ms += DAY_MS
    report = owner.expire(older_than=timedelta(0))
    assert report.earliest_version > 2, report
    return handle


@pytest.mark.parametrize("read", READS)
@pytest.mark.parametrize("follow", [lambda table: table.refresh(), lambda table: table.insert([{"k": 3}])])
def test_a_handle_that_followed_reads_after_a_clean_up_below_it(follow: Any, read: Callable[[Table], Any]) -> None:
    handle = followed(Clock(), follow)
    assert read(handle)
    handle.refresh()
    assert handle.scan("k = 20").count() == 1


def test_a_checkpoint_needs_no_commit_beside_it() -> None:
    table = new_table(memory_store(), SCHEMA)
    for k in range(3):
        table.insert([{"k": k}])
    table.checkpoint()
    table.store.delete(filenames.commit_path(3))
    table.store.delete(filenames.checksum_path(3))
    opened = Table.open(table.path)
    assert sorted(opened.scan().to_arrow()["k"].to_pylist()) == [0, 1, 2]
    assert opened.refresh().version == 3


@pytest.mark.parametrize("name", ["K", "k"])
def test_the_case_of_columns_in_properties_and_keys_does_not_matter(name: str) -> None:
    schema = pa.schema([("k", pa.int64()), ("At", pa.int64())])
    properties = {"tidelog.primaryKey": name, "tidelog.orderBy": "AT", "tidelog.clusterBy": name}
    table = new_table(memory_store(), schema, properties=properties)
    table.upsert([{"k": 1, "At": 2}])
    table.upsert([{"k": 1, "At": 1}], keys=[name.upper()])
    table.upsert([{"k": 2, "At": 1}], keys=[name], order_by="at")
    table.delete("k = 2")
    table.upsert([{"k": 2, "At": 1}])
    assert table.scan().to_arrow().to_pylist() == [{"k": 1, "At": 2}]
    assert table.changes(mode="net").to_arrow()["k"].to_pylist() == [1]
    assert table.changes(mode="net", keys=["K"]).count() == 1
    assert table.compact("major").groups == 1
    assert table.scan().count() == 1
