"""What a compaction asks of an object store: one GET for each small input, and several of them at once."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pytest

from tests.compaction_daemon.support import SCHEMA, live_files, numbers_of, put
from tests.log.storage.faulty import Faulty, behind_a_proxy
from tests.log.storage.servers import Server
from tidelog.compaction_daemon import compact
from tidelog.log import Table
from tidelog.log.storage.s3 import S3

FILES = 8
AT_ONCE = 4


@pytest.fixture
def faulty(server_of: Callable[[str], Server]) -> Iterator[Faulty]:
    with behind_a_proxy(server_of("moto")) as faulty:
        yield faulty


@pytest.fixture
def table(faulty: Faulty) -> Table:
    """A table of small files, opened anew."""
    table = Table.create(faulty.store.url, SCHEMA, partition_by=["part"], storage_options=faulty.options)
    for number in range(FILES):
        put(table, number)
    return Table.open(faulty.store.url, storage_options=faulty.options)


@pytest.mark.parametrize("cluster_by", [(), ("n",)])
def test_each_small_input_costs_one_get_and_no_head(faulty: Faulty, table: Table, cluster_by: tuple[str, ...]) -> None:
    paths = [add.path for add in live_files(table)]
    faulty.proxy.seen.clear()
    report = compact(table, "major", cluster_by=cluster_by)
    assert (report.files_removed, report.files_added) == (FILES, 1)
    asked = [[request.split()[0] for request in faulty.proxy.seen if path in request] for path in paths]
    assert asked == [["GET"]] * FILES
    assert sorted(numbers_of(table)) == list(range(FILES))


@pytest.mark.full
def test_small_inputs_are_read_several_at_a_time(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    inputs = {add.path.rpartition("/")[2] for add in live_files(table)}
    together = threading.Barrier(AT_ONCE)
    read = S3.read

    def read_together(cloud: S3, bucket: str, key: str, start: int | None = None, end: int | None = None) -> bytes:
        """Does not begin before so many inputs are being read."""
        if key.rpartition("/")[2] in inputs:
            together.wait(30)
        return read(cloud, bucket, key, start, end)

    monkeypatch.setattr(S3, "read", read_together)
    assert compact(table).files_removed == FILES
    assert numbers_of(table) == list(range(FILES))
