"""How many requests each operation sends to an S3 server. docs/reference/stores.md has the table."""

from __future__ import annotations

import io
import math
import threading
from collections import Counter
from collections.abc import Callable, Iterator

import pyarrow.parquet as pq
import pytest

from tests.log.storage.faulty import Faulty, behind_a_proxy
from tests.log.storage.request_counts import COUNTS, OWN_VERSION, OWN_VERSION_EVERY_S
from tests.log.storage.servers import Server
from tests.log.support import NUMBERS, numbers, read_numbers
from tidelog.log import Table
from tidelog.log.commit.loop import BUSY_MS
from tidelog.log.state import table_identity
from tidelog.log.state.commit_times import CommitTimes
from tidelog.log.state.loader import load
from tidelog.log.storage import object_store
from tidelog.log.storage.object_store import ObjectStore
from tidelog.log.storage.s3 import S3
from tidelog.log.system import System, to_datetime


class Slow(System):
    """The time between two statements is longer than a table is busy after a commit."""

    def __init__(self) -> None:
        self._more_ms = 0

    def now_ms(self) -> int:
        self._more_ms += 2 * BUSY_MS
        return super().now_ms() + self._more_ms


@pytest.fixture(autouse=True)
def _however_slow_this_machine_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """An insert looks at its base once more if writing took longer than a second."""
    monkeypatch.setattr(table_identity, "LOOK_AGE_S", math.inf)


@pytest.fixture
def real(s3: Server) -> Iterator[Faulty]:
    with behind_a_proxy(s3) as real:
        yield real


@pytest.fixture
def table(real: Faulty) -> Table:
    """A table with a row in each of three files. Nobody has committed for a second."""
    table = Table.create(real.store.url, NUMBERS, storage_options=real.options)
    for number in range(3):
        table.insert(numbers([number]))
    return opened(real)


def opened(real: Faulty) -> Table:
    """The table, opened some time after its newest commit."""
    table = Table(real.store, load(real.store), Slow())
    table.refresh()
    real.proxy.seen.clear()
    return table


def requests(real: Faulty) -> Counter[str]:
    """The requests since the last call, by method."""
    found = Counter(request.split()[0] for request in real.proxy.seen)
    real.proxy.seen.clear()
    return found


def test_opening_a_table_takes_three(real: Faulty, table: Table) -> None:
    assert Table.open(real.store.url, storage_options=real.options).version == 3
    assert requests(real) == COUNTS["open"], "a listing, the checksum, and the next version"
    table.scan().to_arrow()
    requests(real)
    table.checkpoint()
    assert requests(real) == COUNTS["checkpoint, file list in memory"]
    assert Table.open(real.store.url, storage_options=real.options).version == 3
    assert requests(real) == COUNTS["open"]


def test_a_refresh_without_news_takes_one(real: Faulty, table: Table) -> None:
    for _ in range(3):
        assert table.refresh().version == 3
        assert requests(real) == COUNTS["refresh without news"], "of the next version"


@pytest.mark.full
def test_a_table_that_finds_no_news_looks_at_its_own_version_now_and_then(
    real: Faulty, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert table.store.trusted_s == OWN_VERSION_EVERY_S
    monkeypatch.setattr(ObjectStore, "trusted_s", 0)
    table.refresh()
    assert requests(real) == COUNTS["refresh without news"] + OWN_VERSION


def test_a_refresh_with_one_new_version_takes_four(real: Faulty, table: Table) -> None:
    opened(real).insert(numbers([3]))
    requests(real)
    assert table.refresh().version == 4
    assert requests(real) == COUNTS["refresh with one new version"]


def test_an_insert_takes_five(real: Faulty, table: Table) -> None:
    for number in range(3):
        table.insert(numbers([number]))
        assert requests(real) == COUNTS["insert of one file"]


def test_an_insert_into_partition_folders_takes_five_too(real: Faulty) -> None:
    """Also the first one after the table was opened: its checksum says where files go."""
    content = io.BytesIO()
    pq.write_table(numbers([1]), content)
    real.store.put_if_absent("day=a/f.parquet", content.getvalue())
    Table.convert(real.store.url, partition_by=["day"], storage_options=real.options)
    table = opened(real)
    for number in range(2):
        table.insert([{"n": number, "day": "b"}])
        assert requests(real) == COUNTS["insert of one file"]
        assert sum(path.startswith("day=b/") for path, _ in real.store.walk()) == number + 1
        requests(real)


def test_three_requests_of_an_insert_follow_each_other(
    real: Faulty, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The data file goes with the look at the base version, and the checksum with the look at the version before."""
    first, last = threading.Barrier(2), threading.Barrier(2)
    together = {"put_file": [first], "read": [first, last]}

    def meeting(name: str, method: Callable[..., object]) -> Callable[..., object]:
        def call(cloud: S3, bucket: str, key: str, *rest: object, **named: object) -> object:
            barriers = [last] if key.endswith(".crc") else together.get(name)
            if barriers:
                barriers.pop(0).wait(30)
            return method(cloud, bucket, key, *rest, **named)

        return call

    for name in ("put_file", "read", "put"):
        monkeypatch.setattr(S3, name, meeting(name, getattr(S3, name)))
    table.insert(numbers([3]))
    assert len(real.proxy.seen) == 5


@pytest.mark.usefixtures("table")
def test_on_a_busy_table_an_insert_looks_for_others_that_wait_once_a_second(real: Faulty) -> None:
    busy = Table.open(real.store.url, storage_options=real.options)
    requests(real)
    for number in range(3):
        busy.insert(numbers([number]))
        assert requests(real) in (COUNTS["insert of one file"], COUNTS["insert of one file"] + Counter(GET=1))


def test_an_insert_on_a_stale_table_takes_ten_and_the_next_one_six(real: Faulty, table: Table) -> None:
    """It pays for the put that failed. After that it expects others, and refreshes first."""
    opened(real).insert(numbers([3]))
    requests(real)
    table.insert(numbers([4]))
    assert requests(real) == {"GET": 6, "PUT": 4}
    table.insert(numbers([5]))
    assert requests(real) == COUNTS["insert of one file"] + COUNTS["refresh without news"]
    table.insert(numbers([6]))
    assert requests(real) == COUNTS["insert of one file"]


def test_a_delete_of_one_row_takes_seven(real: Faulty, table: Table) -> None:
    table.scan().to_arrow()
    requests(real)
    table.insert(numbers([7, 8]))
    requests(real)
    table.delete("n = 7")
    assert requests(real) == COUNTS["delete of one row, file list in memory"]
    assert read_numbers(table) == [0, 1, 2, 8]


def test_an_update_of_one_row_takes_eight(real: Faulty, table: Table) -> None:
    table.insert(numbers([7, 8]))
    table.scan().to_arrow()
    requests(real)
    table.update("n = 7", {"n": "9"})
    assert requests(real) == COUNTS["update of one row, file list in memory"]


def test_a_scan_takes_one_for_each_small_file(real: Faulty, table: Table) -> None:
    table.scan().to_arrow()
    requests(real)
    assert table.scan().to_arrow().num_rows == 3
    assert requests(real) == {"GET": 3}


@pytest.mark.full
def test_a_lookup_by_time_takes_eight_without_in_commit_timestamps(real: Faulty) -> None:
    """If the newest checkpoint is tidelog's, and however long the log is. With what is remembered it takes four."""
    table = Table.create(
        real.store.url, NUMBERS, properties={"delta.enableInCommitTimestamps": False}, storage_options=real.options
    )
    for number in range(6):
        table.insert(numbers([number]))
    table.checkpoint()
    table.insert(numbers([6]))
    moment = to_datetime(CommitTimes(real.store).at(4))
    fresh = Table.open(real.store.url, storage_options=real.options)
    requests(real)
    for expected in ({"GET": 6, "HEAD": 2}, {"GET": 3, "HEAD": 1}):
        assert fresh.timeline.snapshot_version(moment) == 4
        assert requests(real) == expected


@pytest.mark.full
def test_the_anchors_of_a_checkpoint_take_five(real: Faulty) -> None:
    """The pointer, the checkpoint before, whether its first anchor is there, and one listing of the commits since."""
    table = Table.create(
        real.store.url, NUMBERS, properties={"delta.enableInCommitTimestamps": False}, storage_options=real.options
    )
    table.checkpoint()
    for number in range(6):
        table.insert(numbers([number]))
    requests(real)
    assert CommitTimes(real.store).anchors(6)[0].version == 0
    listings = [request for request in real.proxy.seen if "list-type" in request]
    assert len(listings) == 1
    assert "start-after" in listings[0]
    assert requests(real).total() <= 5


@pytest.mark.full
def test_a_long_log_is_listed_from_its_checkpoint_on(
    real: Faulty, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A page has 1,000 names (here 20). The first one, the pointer to the checkpoint, and a page from there on."""
    table.checkpoint()
    monkeypatch.setattr(object_store, "_PAGE", 20)
    for number in range(20):  # these sort before the log's own files
        real.store.replace(f"_delta_log/.{number}", b"")
    requests(real)
    assert Table.open(real.store.url, storage_options=real.options).version == 3
    assert requests(real) == COUNTS["open"] + Counter(GET=2)
    assert table.commits_since_checkpoint() == 0
    assert requests(real) == {"GET": 3}
    behind = opened(real)
    for number in range(40):
        table.insert(numbers([number]))
    requests(real)
    assert behind.refresh().version == 43
    assert requests(real) == {"GET": 32 + 2 + 8 + 1, "HEAD": 1}
