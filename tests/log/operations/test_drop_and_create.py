"""A new table on the path of a dropped one: nothing and no one of the old table can act on it."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from tests.log.faults import Around
from tests.log.operations.dropping import old_table
from tests.log.storage.servers import Server
from tests.log.support import NUMBERS, Clock, memory_store, new_table, numbers, put_foreign, read_numbers, reopen
from tidelog.log import Table, Transaction
from tidelog.log.errors import (
    CommitStateUnknownError,
    ConfigurationError,
    HistoryExpiredError,
    StoreUnavailableError,
    TableExistsError,
    TableNotFoundError,
    TableReplacedError,
    TidelogError,
)
from tidelog.log.format import filenames
from tidelog.log.operations import create_table, drop_table
from tidelog.log.state import checkpoint_writer
from tidelog.log.state.loader import LogState, load
from tidelog.log.state.version_checksum import checksum_bytes, checksum_disagreements
from tidelog.log.storage import FileStatus, Store
from tidelog.log.system import REAL_SYSTEM

DAY_MS = 86_400_000
OTHER = pa.schema([("other", pa.string())])


def drop_and_create(store: Store, commits: int = 1) -> Table:
    drop_table.drop(store, Clock())
    table = new_table(store)
    for value in range(100, 100 + commits):
        table.insert(numbers([value]))
    return table


def staged(table: Table) -> list[Transaction]:
    return [
        table.begin().insert(numbers([5])),
        table.begin().delete("n = 0"),
        table.begin().overwrite(numbers([6])),
    ]


# --- what the new table is -------------------------------------------------------------------------------------------


def test_version_numbers_go_on(tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    old = Table.create(path, NUMBERS)
    old.insert(numbers([1]), idempotency_key=("app", 7))
    Table.drop(path)
    new = Table.create(path, OTHER)
    assert (new.version, new.schema, dict(new.transactions), new.time_version) == (3, OTHER, {}, None)
    assert new.id != old.id
    new.insert([{"other": "x"}], idempotency_key=("app", 1))
    for table in (new, Table.open(path)):
        assert [record.version for record in table.history()] == [4, 3]
        assert table.changes().to_arrow()["_commit_version"].to_pylist() == [4]
        assert table.changes(after=-1).to_arrow().num_rows == 1
        assert table.changes(after=2).to_arrow().num_rows == 1
        assert table.changes(after=table.at(version=3).timestamp).to_arrow().num_rows == 1
        assert (table.latest_version(2), table.at(version=3).num_rows) == (3, 0)
        assert table.scan().to_arrow().to_pylist() == [{"other": "x"}]
    assert DeltaTable(path).version() == 4


@pytest.mark.parametrize("version", [0, 1, 2])
def test_older_versions_belong_to_another_table(tmp_path: Path, version: int) -> None:
    path = str(tmp_path / "t")
    before = Table.create(path, NUMBERS)
    before.insert(numbers([1]))
    moment = before.at().timestamp
    Table.drop(path)
    table = Table.create(path, OTHER)
    for call in (
        lambda: table.at(version=version),
        lambda: table.at(timestamp=moment),
        lambda: table.restore(version=version),
        lambda: table.latest_version(2),
    ):
        with pytest.raises(HistoryExpiredError) as refused:
            call()
        assert (refused.value.earliest_version, refused.value.latest_version) == (3, 3)
    if version < 2:
        with pytest.raises(HistoryExpiredError, match=f"version {version + 1} belongs to an older table at"):
            table.changes(after=version)


def test_the_version_that_created_the_table_cannot_be_set(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="firstVersion"):
        Table.create(str(tmp_path / "t"), NUMBERS, properties={"tidelog.firstVersion": "7"})


@pytest.mark.parametrize("kept", ["all", "no checksums", "no checkpoints either"])
def test_nothing_of_the_old_state_is_left_however_it_is_loaded(kept: str) -> None:
    store = memory_store()
    old_table(store)
    new = drop_and_create(store)
    for name in store.names("_delta_log"):
        if (kept != "all" and name.endswith(".crc")) or (kept.startswith("no ch") and "checkpoint" in name):
            store.delete(f"_delta_log/{name}")
    head = load(store).head
    assert (dict(head.transactions), head.metadata.id, head.first_version) == ({}, new.id, 5)
    assert read_numbers(reopen(new)) == [100]
    new.checkpoint()
    assert checksum_disagreements(store, load(store).replayed()) == []


def test_of_two_creators_one_wins() -> None:
    inner = memory_store()
    old_table(inner)
    drop_table.drop(inner, Clock())

    class First(Around):
        raced = False

        def put_if_absent(self, path: str, content: bytes, *, durable: bool = True) -> None:
            if path.endswith(".json") and not self.raced:
                self.raced = True
                new_table(inner, OTHER)
            super().put_if_absent(path, content, durable=durable)

    assert not create_table.create(First(inner), NUMBERS, (), {}, Clock())
    with pytest.raises(TableExistsError):
        Table.create(inner.url, NUMBERS)
    assert Table.open(inner.url).schema == OTHER


def expire_all(store: Store) -> None:
    """Clean up the log as far as it goes, long after everything was written."""
    late = Clock(REAL_SYSTEM.now_ms() + 40 * DAY_MS)
    table = Table(store, load(store), late)
    table.insert(numbers([110]))
    table.checkpoint()
    late.ms += 40 * DAY_MS
    Table(store, load(store), late).expire(older_than=timedelta(days=2))


def test_a_drop_that_slept_through_a_create_and_an_expiry_deletes_nothing_of_the_new_table() -> None:
    inner = memory_store()
    version = old_table(inner).version
    news: list[Table] = []

    class Asleep(Around):
        def walk(self, folder: str = "") -> Iterator[tuple[str, FileStatus]]:
            news.append(new_table(inner))
            news[0].insert(numbers(range(100, 110)))
            return super().walk(folder)

        def modified_ms(self, path: str) -> int:
            if path == filenames.commit_path(version + 2):
                expire_all(inner)
            return super().modified_ms(path)

    drop_table.drop(Asleep(inner), REAL_SYSTEM)
    assert read_numbers(Table.open(inner.url)) == list(range(100, 111))


def test_a_create_that_slept_through_a_create_and_an_expiry_leaves_nothing() -> None:
    inner = memory_store()

    class Asleep(Around):
        asleep = True

        def put_if_absent(self, path: str, content: bytes, *, durable: bool = True) -> None:
            if path == filenames.commit_path(0) and self.asleep:
                self.asleep = False
                new_table(inner).insert(numbers([1]))
                expire_all(inner)
            super().put_if_absent(path, content, durable=durable)

    assert create_table.create(Asleep(inner), OTHER, (), {}, Clock()) is None
    assert filenames.commit_path(0) not in {path for path, _ in inner.walk()}
    assert read_numbers(Table.open(inner.url)) == [1, 110]


def test_a_create_that_slept_through_the_drop_of_its_table_does_not_say_that_nothing_was_committed() -> None:
    """Seed 1012830 of the simulation: another table began later, and its first versions were cleaned up."""
    inner = memory_store()

    class Asleep(Around):
        asleep = True

        def put_if_absent(self, path: str, content: bytes, *, durable: bool = True) -> None:
            super().put_if_absent(path, content, durable=durable)
            if path == filenames.commit_path(0) and self.asleep:
                self.asleep = False
                drop_table.drop(inner, REAL_SYSTEM)
                new_table(inner).insert(numbers([1]))
                expire_all(inner)

    with pytest.raises(CommitStateUnknownError, match="was created as version 0"):
        create_table.create(Asleep(inner), OTHER, (), {}, Clock())
    assert read_numbers(Table.open(inner.url)) == [1, 110]


class Unreachable(Around):
    """Does not answer once a table exists."""

    def read(self, path: str) -> bytes:
        raise StoreUnavailableError("no answer", path=path)


def test_a_create_whose_table_cannot_be_read_does_not_say_that_nothing_was_committed() -> None:
    inner = memory_store()
    with pytest.raises(CommitStateUnknownError, match="was created as version 0, but cannot be read: "):
        create_table.create(Unreachable(inner), NUMBERS, (), {}, Clock())
    assert Table.open(inner.url).version == 0


def test_a_handle_of_a_dropped_table_is_told_so() -> None:
    store = memory_store()
    version = old_table(store).version
    drop_table.drop(store, Clock())
    with pytest.raises(TableNotFoundError, match=f"was dropped at version {version + 1}"):
        Table(store, load(store), Clock()).insert(numbers([1]))


def test_dropping_and_creating_again_and_again() -> None:
    store = memory_store()
    old_table(store)
    for number in range(4):
        new = drop_and_create(store, commits=number)
        assert new.version == 5 + 2 * number + sum(range(number)) + number
        assert read_numbers(Table.open(store.url)) == list(range(100, 100 + number))


def test_a_table_whose_first_version_was_cleaned_up_cannot_be_created_again() -> None:
    table = old_table(memory_store())
    for version in (0, 1):
        table.store.delete(filenames.commit_path(version))
        table.store.delete(filenames.checksum_path(version))
    with pytest.raises(TableExistsError):
        Table.create(table.path, NUMBERS)
    assert read_numbers(Table.open(table.path)) == [0, 2, 3, 4, 9]


# --- late writers of the old table -----------------------------------------------------------------------------------


@pytest.mark.parametrize("commits", [0, 1, 5])
def test_a_transaction_of_the_old_table_is_refused(commits: int) -> None:
    """In one millisecond, by the store's clock: identity is not a file's time."""
    store = memory_store(Clock())
    table = old_table(store)
    late = staged(table)
    drop_table.drop(store, Clock())
    with pytest.raises(TableNotFoundError, match="was dropped at version 4"):
        table.begin()
    with pytest.raises(TableNotFoundError, match="was dropped at version 4"):
        late.pop().commit()
    new = new_table(store, OTHER)
    for _ in range(commits):
        new.insert([{"other": "x"}])
    for transaction in late:
        with pytest.raises(TableReplacedError, match="nothing was committed"):
            transaction.commit()
    with pytest.raises(TableReplacedError):
        table.refresh()
    assert (Table.open(store.url).version, Table.open(store.url).schema) == (5 + commits, OTHER)


@pytest.mark.parametrize("commits", [0, 1, 2, 3, 4, 9])
@pytest.mark.parametrize("foreign", [False, True])
def test_a_folder_that_was_deleted_and_filled_again_is_noticed(tmp_path: Path, commits: int, foreign: bool) -> None:
    """Without a drop the numbers start again, whoever writes them."""
    path = str(tmp_path / "t")
    table = Table.create(path, NUMBERS)
    for value in range(3):
        table.insert(numbers([value]))
    late = [table.begin().insert(numbers([5])), table.begin().delete("n = 0")]
    shutil.rmtree(path)
    new = Table.create(path, NUMBERS)
    for _ in range(commits):
        put_foreign(new) if foreign else new.insert(numbers([7]))
    for transaction in late:
        with pytest.raises(TableReplacedError):
            transaction.commit()
    if commits != 3:  # with as many versions as before, only a look at the commit itself shows it
        with pytest.raises(TableReplacedError):
            table.refresh()
    for upkeep in (table.checkpoint, table.expire, table.vacuum):
        with pytest.raises(TableReplacedError):
            upkeep()
    assert Table.open(path).version == commits


def test_object_stores_drop_and_create_within_one_second(server_of: Callable[[str], Server]) -> None:
    moto = server_of("moto")
    path = moto.store().url
    for value in range(4):
        old = Table.create(path, NUMBERS, storage_options=moto.options)
        old.insert(numbers([value]))
        late = old.begin().insert(numbers([5]))
        Table.drop(path, storage_options=moto.options)
        Table.create(path, NUMBERS, storage_options=moto.options).insert(numbers([7]))
        with pytest.raises(TableReplacedError):
            late.commit()
        with pytest.raises(TableReplacedError):
            old.insert(numbers([6]))
        assert read_numbers(Table.open(path, storage_options=moto.options)) == [7]
        Table.drop(path, storage_options=moto.options)
    left = [name for name, _ in moto.store(path).walk() if not name.startswith("_delta_log/")]
    assert left == []


# --- what the old table wrote beside its commits ---------------------------------------------------------------------


def write_checkpoint(table: Table, state: LogState) -> None:
    checkpoint_writer.write_checkpoint(table.store, state.replayed(), state.files())


def write_checksum(table: Table, state: LogState) -> None:
    content = checksum_bytes(state.head, txn_id="late", in_commit_timestamp_ms=state.head.timestamp_ms)
    path = filenames.checksum_path(state.head.version)
    table.store.delete(path)
    table.store.put_if_absent(path, content or b"")


@pytest.mark.parametrize("write", [write_checkpoint, write_checksum, lambda table, _: table.checkpoint()])
@pytest.mark.parametrize("expired", [False, True])
def test_late_checkpoints_and_checksums_of_the_old_table_are_harmless(
    write: Callable[[Table, LogState], None], expired: bool
) -> None:
    clock = Clock(REAL_SYSTEM.now_ms())
    store = memory_store(clock)
    table = Table(store, old_table(store)._state, clock)
    state = load(store)
    state.replayed()
    table.refresh()
    drop_table.drop(store, clock)
    new = new_table(store, system=clock)
    pointer = store.read(filenames.LAST_CHECKPOINT)
    new.insert(numbers([100]))
    if expired:
        clock.ms += 40 * DAY_MS
        new.insert(numbers([101]))
        new.expire(older_than=timedelta(days=2))
    try:
        write(table, state)
    except TidelogError as error:
        assert isinstance(error, TableReplacedError)  # noqa: PT017 - only some of them can notice
    assert store.read(filenames.LAST_CHECKPOINT) == pointer
    assert read_numbers(Table.open(store.url)) == [100, 101][: 1 + expired]
    new.insert(numbers([102]))
    new.checkpoint()
    assert read_numbers(Table.open(store.url)) == [100, *[101][:expired], 102]


@pytest.mark.parametrize("upkeep", [Table.expire, Table.vacuum])
def test_clean_up_with_an_old_handle_is_refused(upkeep: Callable[[Table], object]) -> None:
    store = memory_store()
    table = old_table(store)
    drop_table.drop(store, Clock())
    with pytest.raises(TableNotFoundError, match="was dropped"):
        upkeep(table)
    new = new_table(store)
    new.insert(numbers([100]))
    with pytest.raises(TableReplacedError):
        upkeep(table)
    assert read_numbers(reopen(new)) == [100]
