"""How many requests an idle feed, the daemon and a sink's batch send to S3. docs/reference/stores.md has the table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from tests.log.storage.faulty import Faulty, behind_a_proxy
from tests.log.storage.request_counts import COUNTS
from tests.log.storage.servers import Server
from tests.log.support import NUMBERS, Clock, numbers
from tests.streaming.feed_planning.support import planner_of
from tests.streaming.support import Input, drain
from tidelog.compaction_daemon import Daemon
from tidelog.log import Table
from tidelog.streaming import Sink


@pytest.fixture
def real(s3: Server) -> Iterator[Faulty]:
    with behind_a_proxy(s3) as real:
        yield real


def requests(real: Faulty) -> Counter[str]:
    """The requests since the last call, by method."""
    found = Counter(request.split()[0] for request in real.proxy.seen)
    real.proxy.seen.clear()
    return found


@pytest.fixture
def table(real: Faulty) -> Table:
    table = Table.create(real.store.url, NUMBERS, storage_options=real.options)
    table.insert(numbers([1]))
    return Table.open(real.store.url, storage_options=real.options)


class Hours(Clock):
    """A clock whose every look is an hour after the one before."""

    def monotonic_s(self) -> float:
        self.ms += 3_600_000
        return self.ms / 1000


def test_a_poll_of_an_idle_feed_takes_one(real: Faulty, table: Table) -> None:
    planner = planner_of(table, Hours())
    planner.refresh_if_due()
    requests(real)
    planner.refresh_if_due()
    assert requests(real) == COUNTS["poll of an idle feed"]


def test_a_look_of_an_idle_daemon_takes_one(real: Faulty, table: Table) -> None:
    daemon = Daemon([table])
    daemon.step()
    daemon.step()
    requests(real)
    daemon.step()
    assert requests(real) == COUNTS["look of an idle daemon, for each table"]


@pytest.mark.spark
def test_a_batch_of_a_sink_takes_six(spark: SparkSession, real: Faulty, tmp_path: Path) -> None:
    """On a busy table it looks once a second for writers that wait for their turn: one more."""
    sink = Sink(real.store.url, storage_options=real.options, writer="driver")
    counts = []

    def write(batch: DataFrame, number: int) -> None:
        requests(real)
        sink(batch, number)
        counts.append(requests(real))

    drain(Input(tmp_path / "in").put(4).stream(spark), write, tmp_path / "checkpoint")
    assert len(counts) == 4
    usual = COUNTS["batch of a sink, one file"]
    for count in counts[1:]:  # the first one creates the table
        assert count in (usual, usual + Counter(GET=1))
