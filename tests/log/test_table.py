"""The table's life: create, open, refresh, insert, read."""

from __future__ import annotations

import datetime as dt
import pickle
import shutil
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest

from tests.log.faults import Counting
from tests.log.support import (
    NUMBERS,
    Clock,
    live_files,
    memory_store,
    memory_url,
    metadata,
    new_table,
    numbers,
    put_foreign,
    read_numbers,
    reopen,
)
from tidelog.log import Table
from tidelog.log.errors import (
    ConfigurationError,
    SchemaMismatchError,
    TableExistsError,
    TableNotFoundError,
    TableReplacedError,
    UnsupportedFeatureError,
)
from tidelog.log.format import filenames
from tidelog.log.format.actions import Protocol
from tidelog.log.state.commits import read_commit
from tidelog.log.state.loader import load
from tidelog.log.storage import open_store


@pytest.fixture(params=["memory", "local"])
def path(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return memory_url() if request.param == "memory" else str(tmp_path / "table")


# --- create and open -------------------------------------------------------------------------------------------------


def test_a_new_table_is_empty_and_opens_again(path: str) -> None:
    schema = pa.schema([pa.field("n", pa.int64(), nullable=False), ("p", pa.string())])
    created = Table.create(path, schema, partition_by=["p"], properties={"owner": "me", "delta.checkpointInterval": 7})
    for table in (created, Table.open(path)):
        assert table.path == path
        assert table.version == 0
        assert table.time_version is None
        assert table.schema.equals(schema)
        assert table.partition_by == ("p",)
        assert table.properties["owner"] == "me"
        assert table.properties["delta.checkpointInterval"] == "7"
        assert table.scan().to_arrow().equals(schema.empty_table())
        assert table.id == created.id


def test_deletion_vectors_and_in_commit_timestamps_are_on_unless_turned_off() -> None:
    on = Table.create(memory_url(), NUMBERS).properties
    assert on["delta.enableDeletionVectors"] == on["delta.enableInCommitTimestamps"] == "true"
    off = Table.create(
        memory_url(),
        NUMBERS,
        properties={"delta.enableDeletionVectors": False, "delta.enableInCommitTimestamps": "false"},
    )
    assert off.properties["delta.enableDeletionVectors"] == "false"
    commit = read_commit(off.store, 0)
    assert Protocol(min_reader_version=1, min_writer_version=2) in commit.actions
    assert "inCommitTimestamp" not in commit.info


def test_a_table_is_not_created_twice(path: str) -> None:
    first = Table.create(path, NUMBERS)
    with pytest.raises(TableExistsError) as raised:
        Table.create(path, NUMBERS)
    assert raised.value.fields == {"path": path}
    other = pa.schema([("x", pa.string())])
    again = Table.create(path, other, exist_ok=True)
    assert again.id == first.id
    assert again.schema.equals(NUMBERS)


def test_there_is_no_table_to_open(path: str) -> None:
    with pytest.raises(TableNotFoundError) as raised:
        Table.open(path)
    assert raised.value.fields == {"path": path}


@pytest.mark.parametrize(
    ("arguments", "error", "names"),
    [
        ({"partition_by": ["x"]}, SchemaMismatchError, "x"),
        ({"partition_by": ["n", "n"]}, SchemaMismatchError, "n"),
        ({"partition_by": ["n", "s", "l"]}, SchemaMismatchError, "l"),
        ({"partition_by": ["l"]}, SchemaMismatchError, "l"),
        ({"partition_by": "n"}, ConfigurationError, "n"),
        ({"properties": {"tidelog.unknown": "1"}}, ConfigurationError, "tidelog.unknown"),
        ({"properties": {"delta.checkpointInterval": "none"}}, ConfigurationError, "delta.checkpointInterval"),
    ],
)
def test_a_bad_definition_is_refused_and_leaves_no_table(
    path: str, arguments: dict[str, Any], error: type[Exception], names: str
) -> None:
    schema = pa.schema([("n", pa.int64()), ("s", pa.string()), ("l", pa.list_(pa.int64()))])
    with pytest.raises(error, match=names):
        Table.create(path, schema, **arguments)
    with pytest.raises(TableNotFoundError):
        Table.open(path)


@pytest.mark.parametrize(
    "schema",
    [
        pa.schema([]),
        pa.schema([("a", pa.int64()), ("A", pa.string())]),
        pa.schema([("a", pa.struct([("x", pa.int64()), ("X", pa.int64())]))]),
        pa.schema([("a", pa.duration("s"))]),
    ],
)
def test_a_schema_that_delta_cannot_hold_is_refused(schema: pa.Schema) -> None:
    with pytest.raises((ConfigurationError, SchemaMismatchError)):
        Table.create(memory_url(), schema)


def test_every_column_may_not_be_a_partition_column() -> None:
    with pytest.raises(SchemaMismatchError):
        Table.create(memory_url(), pa.schema([("a", pa.int64()), ("b", pa.int64())]), partition_by=["a", "b"])


# --- refresh ---------------------------------------------------------------------------------------------------------


def test_a_refresh_moves_to_the_newest_version_in_place(path: str) -> None:
    writer = Table.create(path, NUMBERS)
    reader = Table.open(path)
    writer.insert(numbers([1]))
    writer.insert(numbers([2]))
    assert (reader.version, read_numbers(reader)) == (0, [])
    assert reader.refresh() is reader
    assert (reader.version, read_numbers(reader)) == (2, [1, 2])
    assert reader.refresh().version == 2


def test_a_writing_method_refreshes_the_table_it_was_called_on() -> None:
    table = new_table(memory_store())
    other = reopen(table)
    other.insert(numbers([1]))
    assert table.insert(numbers([2])).version == 2
    assert read_numbers(table) == [1, 2]


def test_a_refresh_never_lists() -> None:
    store = Counting(memory_store())
    table = new_table(store)
    reader = reopen(table)
    for number in range(3):
        table.insert(numbers([number]))
    store.lists = 0
    reader.refresh()
    table.insert(numbers([3]))
    assert store.lists == 0


def test_a_refresh_after_a_clean_up_of_the_version_it_stood_on_finds_the_newest() -> None:
    table = new_table(memory_store())
    stale = reopen(table)
    for number in range(5):
        table.insert(numbers([number]))
    table.checkpoint()
    for version in range(5):
        table.store.delete(filenames.commit_path(version))
        table.store.delete(filenames.checksum_path(version))
    assert read_numbers(stale.refresh()) == [0, 1, 2, 3, 4]
    assert stale.version == 5


def test_an_insert_after_such_a_clean_up_goes_on_top_of_the_newest() -> None:
    """The version after the stale one is free again: putting a commit there would lose it where no reader looks."""
    table = new_table(memory_store())
    stale = reopen(table)
    for number in range(5):
        table.insert(numbers([number]))
    table.checkpoint()
    for version in range(5):
        table.store.delete(filenames.commit_path(version))
        table.store.delete(filenames.checksum_path(version))
    assert stale.insert(numbers([5])).version == 6
    assert read_numbers(reopen(table)) == [0, 1, 2, 3, 4, 5]


def drop(table: Table) -> None:
    """What a user does by hand: every file of the table goes."""
    if table.path.startswith("memory:"):
        for status in table.store.list(filenames.LOG_FOLDER):
            table.store.delete(f"{filenames.LOG_FOLDER}/{status.name}")
    else:
        shutil.rmtree(table.path)


def test_a_table_that_was_dropped_is_not_taken_for_a_quiet_one(path: str) -> None:
    table = Table.create(path, NUMBERS)
    table.insert(numbers([1]))
    drop(table)
    for use in (table.refresh, lambda: table.insert(numbers([2]))):
        with pytest.raises(TableNotFoundError):
            use()
    with pytest.raises(TableNotFoundError):
        Table.open(path)


@pytest.mark.parametrize("newer", [0, 1, 2, 4])
def test_another_table_at_the_path_is_noticed(path: str, newer: int) -> None:
    """Whether the new table has fewer versions than the one that was loaded, as many, or more."""
    table = Table.create(path, NUMBERS)
    table.insert(numbers([1]))
    table.insert(numbers([2]))
    drop(table)
    new = Table.create(path, NUMBERS)
    for number in range(newer):
        new.insert(numbers([100 + number]))
    for use in (table.refresh, lambda: table.insert(numbers([3]))):
        with pytest.raises(TableReplacedError) as raised:
            use()
        assert raised.value.fields == {"path": path, "expected_id": table.id, "found_id": new.id}
    assert len(read_numbers(Table.open(path))) == newer


def test_a_table_whose_protocol_grew_beyond_tidelog_is_refused_at_refresh() -> None:
    table = new_table(memory_store())
    put_foreign(
        table,
        Protocol(min_reader_version=3, min_writer_version=7, reader_features=("later",), writer_features=("later",)),
    )
    with pytest.raises(UnsupportedFeatureError, match="later"):
        table.refresh()
    with pytest.raises(UnsupportedFeatureError, match="later"):
        reopen(table)


def test_a_table_that_tidelog_may_only_read_is_read_and_not_written() -> None:
    table = new_table(memory_store())
    table.insert(numbers([1]))
    protocol = load(table.store).head.protocol
    writers = (*(protocol.writer_features or ()), "rowTracking", "domainMetadata")
    put_foreign(table, msgspec.structs.replace(protocol, writer_features=writers))
    assert read_numbers(table.refresh()) == [1]
    with pytest.raises(UnsupportedFeatureError, match="domainMetadata, rowTracking"):
        table.insert(numbers([2]))


def test_columns_that_another_writer_added_are_null_in_older_files() -> None:
    table = new_table(memory_store())
    table.insert(numbers([1]))
    wider = pa.schema([("n", pa.int64()), ("s", pa.string())])
    old = load(table.store).head.metadata
    put_foreign(table, metadata(wider, id=old.id, configuration=old.configuration))
    table.insert([{"n": 2, "s": "x"}])
    assert sorted(table.scan().to_arrow().to_pylist(), key=lambda row: row["n"]) == [
        {"n": 1, "s": None},
        {"n": 2, "s": "x"},
    ]
    assert table.at(version=1).schema.equals(NUMBERS)


# --- insert ----------------------------------------------------------------------------------------------------------


def test_an_insert_says_what_it_did(path: str) -> None:
    table = Table.create(path, NUMBERS)
    committed = table.insert(numbers(range(10)))
    (file,) = live_files(table)
    assert committed.version == table.version == 1
    assert committed.timestamp == table.time_version == table.at().timestamp
    assert not committed.retried
    assert committed.rebased_over == ()
    assert committed.metrics == {"numFiles": 1, "numOutputRows": 10, "numOutputBytes": file.size}
    assert read_numbers(Table.open(path)) == list(range(10))


def test_the_commit_says_what_other_engines_look_for() -> None:
    clock = Clock()
    table = new_table(memory_store(), system=clock)
    clock.ms += 5
    table.insert(numbers([1]), idempotency_key=("app", 3))
    commit = read_commit(table.store, 1)
    txn_id = commit.info["txnId"]
    assert commit.info == {
        "inCommitTimestamp": clock.ms,
        "timestamp": clock.ms,
        "operation": "WRITE",
        "operationParameters": {"mode": "Append"},
        "readVersion": 0,
        "isolationLevel": "WriteSerializable",
        "isBlindAppend": True,
        "operationMetrics": {
            "numFiles": "1",
            "numOutputRows": "1",
            "numOutputBytes": str(commit.adds[0].size),
        },
        "engineInfo": commit.info["engineInfo"],
        "txnId": txn_id,
        "tidelog": {"class": "INSERT"},
    }
    assert commit.info["engineInfo"].startswith("tidelog/")
    assert next(iter(commit.info)) == "inCommitTimestamp"
    (transaction,) = commit.transactions
    assert (transaction.app_id, transaction.version, transaction.last_updated) == ("app", 3, clock.ms)


@pytest.mark.parametrize("data", [[], numbers([]), NUMBERS.empty_table().to_reader()])
def test_an_insert_of_nothing_writes_no_commit(data: Any) -> None:
    table = new_table(memory_store())
    committed = table.insert(data)
    assert (committed.version, committed.metrics["numOutputRows"]) == (0, 0)
    assert reopen(table).version == 0


# --- idempotency -----------------------------------------------------------------------------------------------------


def test_a_repeated_key_is_skipped_and_so_is_an_older_one() -> None:
    table = new_table(memory_store())
    assert table.insert(numbers([1]), idempotency_key=("app", 5)).version == 1
    for version in (5, 4, 0):
        again = table.insert(numbers([2]), idempotency_key=("app", version))
        assert (again.version, again.metrics["numOutputRows"]) == (1, 0)
    assert reopen(table).insert(numbers([3]), idempotency_key=("app", 5)).version == 1
    assert table.insert(numbers([4]), idempotency_key=("app", 6)).version == 2
    assert table.insert(numbers([5]), idempotency_key=("other", 1)).version == 3
    assert read_numbers(table) == [1, 4, 5]
    assert table.transactions == {"app": 6, "other": 1}


def test_a_key_outlives_a_checkpoint_and_a_clean_up() -> None:
    table = new_table(memory_store())
    table.insert(numbers([1]), idempotency_key=("app", 5))
    table.insert(numbers([2]))
    table.checkpoint()
    for version in range(2):
        table.store.delete(filenames.commit_path(version))
    for version in range(3):
        table.store.delete(filenames.checksum_path(version))
    again = reopen(table)
    assert again.transactions == {"app": 5}
    assert again.insert(numbers([3]), idempotency_key=("app", 5)).metrics["numOutputRows"] == 0


def test_an_empty_batch_with_a_key_is_remembered() -> None:
    table = new_table(memory_store())
    assert table.insert([], idempotency_key=("app", 1)).version == 1
    assert table.insert(numbers([1]), idempotency_key=("app", 1)).version == 1
    assert read_numbers(table) == []
    (record, _) = table.history()
    assert (record.operation_class, record.data_change, record.time_version) == ("NONE", False, None)


# --- transactions ----------------------------------------------------------------------------------------------------


def test_a_transaction_is_seen_at_its_commit_and_not_before() -> None:
    table = new_table(memory_store())
    transaction = table.begin()
    assert transaction.insert(numbers([1])) is transaction
    assert transaction.base_version == 0
    assert read_numbers(reopen(table)) == []
    transaction.commit()
    assert read_numbers(reopen(table)) == [1]
    assert table.version == 1


def test_an_aborted_transaction_commits_nothing() -> None:
    table = new_table(memory_store())
    transaction = table.begin().insert(numbers([1]))
    transaction.abort()
    with pytest.raises(ConfigurationError):
        transaction.commit()
    assert reopen(table).version == 0


def test_a_transaction_holds_one_operation_and_ends_once() -> None:
    table = new_table(memory_store())
    transaction = table.begin()
    with pytest.raises(ConfigurationError):
        transaction.commit()
    transaction.insert(numbers([1]))
    with pytest.raises(ConfigurationError):
        transaction.insert(numbers([2]))
    transaction.commit()
    for use in (transaction.commit, lambda: transaction.insert(numbers([3]))):
        with pytest.raises(ConfigurationError):
            use()
    assert read_numbers(table) == [1]


# --- snapshots -------------------------------------------------------------------------------------------------------


def test_a_snapshot_does_not_move(path: str) -> None:
    table = Table.create(path, NUMBERS)
    table.insert(numbers([1, 2]))
    snapshot, scan = table.at(), table.scan()
    table.insert(numbers([3]))
    table.refresh()
    assert (snapshot.version, snapshot.num_files, snapshot.num_rows) == (1, 1, 2)
    assert read_numbers(snapshot) == read_numbers(scan) == [1, 2]
    assert (table.at().num_files, table.at().num_rows) == (2, 3)


def test_a_snapshot_lists_its_files() -> None:
    table = new_table(memory_store(), pa.schema([("n", pa.int64()), ("p", pa.string())]), partition_by=["p"])
    table.insert([{"n": 1, "p": "a"}, {"n": 2, "p": None}])
    files = table.at().files()
    assert {"path", "partitionValues", "size", "stats", "deletionVector"} <= set(files.column_names)
    assert sorted(map(str, files["partitionValues"].to_pylist())) == ["[('p', 'a')]", "[('p', None)]"]


def test_properties_of_a_snapshot_cannot_be_changed() -> None:
    table = new_table(memory_store(), properties={"owner": "me"})
    with pytest.raises(TypeError):
        table.at().properties["owner"] = "you"  # type: ignore[index]
    dict(table.properties)["owner"] = "you"
    assert table.properties["owner"] == "me"


def test_results_are_values_that_pickle() -> None:
    table = new_table(memory_store())
    committed = table.insert(numbers([1]))
    assert pickle.loads(pickle.dumps(committed)) == committed
    assert pickle.loads(pickle.dumps(table.history())) == table.history()
    assert committed.timestamp.tzinfo == dt.UTC


def test_a_table_in_memory_lives_as_long_as_the_process() -> None:
    url = memory_url()
    Table.create(url, NUMBERS).insert(numbers([1]))
    assert read_numbers(Table.open(url)) == [1]
    assert open_store(url).url == url


# --- what a person sees ----------------------------------------------------------------------------------------------


def test_what_is_printed_says_what_it_is(path: str) -> None:
    table = Table.create(path, pa.schema([("n", pa.int64()), ("p", pa.string())]), partition_by=["p"])
    where = table.path
    assert repr(table) == f"Table({where!r}, version=0, columns=[n: int64, p: string], partition_by=['p'])"
    assert repr(table.at()) == f"Snapshot({where!r}, version=0, columns=[n: int64, p: string])"
    assert repr(table.scan("n > 1", ["n"])) == f"Scan({where!r}, columns=[n: int64], where='n > 1')"
    columns = "[n: int64, _change_type: string, _commit_version: int64, _commit_timestamp: timestamp[us, tz=UTC]]"
    assert repr(table.changes(columns=["n", "_change_type", "_commit_version", "_commit_timestamp"])) == (
        f"Changes({where!r}, mode='cdc', columns={columns})"
    )


def test_the_history_says_who_did_what(path: str) -> None:
    table = Table.create(path, NUMBERS)
    table.insert(numbers([1, 2, 3]))
    table.delete("n = 1")
    deleted, inserted, created = table.history()
    assert (created.operation, created.rows_added, created.files_added, created.files_removed) == (
        "CREATE TABLE",
        None,
        0,
        0,
    )
    assert (inserted.operation, inserted.rows_added, inserted.files_added, inserted.files_removed) == ("WRITE", 3, 1, 0)
    assert (deleted.operation, deleted.rows_added, deleted.files_added, deleted.files_removed) == ("DELETE", None, 1, 1)
    assert {record.engine for record in (deleted, inserted, created)} == {"tidelog/0.1.0"}


def test_a_table_is_kept_small_by_its_own_methods(tmp_path: Path) -> None:
    clock = Clock()
    store = open_store(str(tmp_path / "table"))
    table = new_table(store, system=clock, properties={"delta.enableExpiredLogCleanup": True})
    for number in range(3):
        table.insert(numbers([number]))
    report = table.compact()
    assert (report.files_removed, report.files_added) == (3, 1)
    assert table.refresh().at().num_files == 1
    table.checkpoint()
    clock.ms += 60 * 86_400_000
    assert table.expire(dry_run=True).commits == 4
    assert table.expire().earliest_version == 4
    vacuumed = table.vacuum(older_than=dt.timedelta(days=2))
    assert (vacuumed.data_files, vacuumed.dry_run) == (0, False)  # by the store's clock the files are new
    assert read_numbers(reopen(table)) == [0, 1, 2]
