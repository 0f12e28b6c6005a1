"""Totals, and the version checksum (`.crc`) that contains them and the rest of the head."""

from __future__ import annotations

import json

import msgspec
import pytest

from tests.log.faults import Counting
from tests.log.support import NUMBERS, PROTOCOL, add, memory_store, metadata, new_table, numbers, put_commit
from tidelog.log import Table
from tidelog.log.format import filenames
from tidelog.log.format.actions import DomainMetadata, RemoveFile, SetTransaction
from tidelog.log.state import checkpoint_writer, files
from tidelog.log.state.commits import read_commit
from tidelog.log.state.loader import load
from tidelog.log.state.version_checksum import checksum_bytes, read_head
from tidelog.log.storage import Store


def put_checksum(store: Store, version: int) -> None:
    head = load(store, version).head
    content = checksum_bytes(head, txn_id="t", in_commit_timestamp_ms=head.timestamp_ms)
    assert content is not None
    store.put_if_absent(filenames.checksum_path(version), content)


def test_totals_follow_plain_commits() -> None:
    store = memory_store()
    put_commit(store, 0, metadata(), PROTOCOL)
    put_commit(store, 1, add("a", size=3), add("b", size=4))
    state = load(store)
    assert state.head.totals is not None
    assert (state.head.totals.num_files, state.head.totals.size_bytes) == (2, 7)


@pytest.mark.parametrize("then", ["add again", "add again with a compaction", "remove without a size"])
def test_totals_that_a_commit_does_not_determine_are_counted(then: str) -> None:
    """A wrong count in the `.crc` would silently stop delta-spark from ever writing a checkpoint again."""
    store = memory_store()
    put_commit(store, 0, metadata(), PROTOCOL)
    put_commit(store, 1, add("a", size=3), add("b", size=4))
    table = Table(store, load(store))
    again = add("a", size=3, stats="{}", data_change=False)
    match then:
        case "add again":
            put_commit(store, 2, again)
        case "add again with a compaction":
            gone = RemoveFile(path="b", data_change=False, deletion_timestamp=1, size=4)
            put_commit(store, 2, again, gone, add("c", size=4, data_change=False))
        case _:
            put_commit(store, 2, RemoveFile(path="b", data_change=True, deletion_timestamp=1))
    for seen in (table.refresh(), Table(store, load(store))):  # from the commit only, and by replay
        expected = checkpoint_writer.totals_of(seen.at()._state.files())
        assert seen.at().num_files == expected.num_files
        assert seen.at()._state.head.totals in (None, expected)


def test_a_checksum_makes_a_replay_unnecessary() -> None:
    store = memory_store()
    for version in range(20):
        put_commit(store, version, *([metadata(), PROTOCOL] if version == 0 else [add(f"f{version}")]))
    put_checksum(store, 18)
    counting = Counting(store)
    assert load(counting).head.version == 19
    commits = [path for path in counting.reads if path.endswith(".json")]
    assert commits == [filenames.commit_path(19), filenames.commit_path(20)], (
        "the commit after it, and a probe for the next"
    )


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"garbage",
        b"null",
        b"[]",
        b"{}",
        b'{"tableSizeBytes":0',
        b"\xff\xfe",
        b'{"tableSizeBytes":"1","numFiles":1,"numMetadata":1,"numProtocol":1}',
    ],
)
@pytest.mark.parametrize("with_older", [False, True])
def test_a_malformed_checksum_is_ignored(content: bytes, with_older: bool) -> None:
    store = memory_store()
    put_commit(store, 0, metadata(), PROTOCOL)
    put_commit(store, 1, add("a"), SetTransaction(app_id="x", version=7))
    if with_older:
        put_checksum(store, 0)
    store.put_if_absent(filenames.checksum_path(1), content)
    state = load(store)
    assert state.head.transactions["x"].version == 7
    assert [file.path for file in files.to_adds(state.files().adds)] == ["a"]


@pytest.mark.parametrize("absent", ["setTransactions", "inCommitTimestampOpt"])
def test_a_checksum_that_lacks_something_a_commit_needs_is_ignored(absent: str) -> None:
    store = memory_store()
    put_commit(store, 0, metadata(), PROTOCOL)
    put_commit(store, 1, SetTransaction(app_id="x", version=7))
    put_checksum(store, 1)
    content = json.loads(store.read(filenames.checksum_path(1)))
    del content[absent]
    store.replace(filenames.checksum_path(1), json.dumps(content).encode())
    head = load(store).head
    assert head.transactions["x"].version == 7
    assert head.timestamp_ms == read_commit(store, 1).info["inCommitTimestamp"]


def with_domains(store: Store) -> DomainMetadata:
    """Commit version 0 of a table with domains, and version 1 with one."""
    writers = (*(PROTOCOL.writer_features or ()), "domainMetadata")
    domain = DomainMetadata(domain="com.example", configuration="x", removed=False)
    put_commit(store, 0, metadata(), msgspec.structs.replace(PROTOCOL, writer_features=writers))
    put_commit(store, 1, add("a"), domain)
    return domain


def test_checksums_that_leave_domains_out_are_ignored_if_the_table_can_have_them() -> None:
    """Two that follow from each other would be trusted without a seal."""
    store = memory_store()
    domain = with_domains(store)
    put_commit(store, 2, add("b"))
    for version in (1, 2):
        put_checksum(store, version)
        content = json.loads(store.read(filenames.checksum_path(version)))
        del content["tidelog"]
        store.replace(filenames.checksum_path(version), json.dumps(content).encode())
    assert read_head(store, 2) == load(store).head
    for version in (1, 2):
        content = json.loads(store.read(filenames.checksum_path(version)))
        assert [entry["domain"] for entry in content.pop("domainMetadata")] == ["com.example"]
        store.replace(filenames.checksum_path(version), json.dumps(content).encode())
    assert read_head(store, 2) is None
    assert load(store).head.domains == {"com.example": domain}


@pytest.mark.parametrize("wrong", [[], [{"domain": "com.example", "configuration": "y", "removed": False}]])
def test_a_checkpoint_deletes_a_checksum_with_wrong_domains(wrong: object, caplog: pytest.LogCaptureFixture) -> None:
    store = memory_store()
    domain = with_domains(store)
    put_checksum(store, 1)
    path = filenames.checksum_path(1)
    content = json.loads(store.read(path)) | {"domainMetadata": wrong}
    store.replace(path, json.dumps(content).encode())
    Table(store, load(store)).checkpoint()
    assert "domainMetadata: " in caplog.text
    with pytest.raises(FileNotFoundError):
        store.read(path)
    assert load(store).head.domains == {"com.example": domain}


def test_a_checkpoint_leaves_a_checksum_without_domains_alone(caplog: pytest.LogCaptureFixture) -> None:
    """Other engines write it, and no reader trusts it."""
    store = memory_store()
    with_domains(store)
    put_checksum(store, 1)
    path = filenames.checksum_path(1)
    content = json.loads(store.read(path))
    del content["domainMetadata"]
    store.replace(path, json.dumps(content).encode())
    Table(store, load(store)).checkpoint()
    assert not caplog.text
    assert store.read(path)


def test_unknown_keys_in_a_checksum_are_ignored() -> None:
    store = memory_store()
    put_commit(store, 0, metadata(), PROTOCOL)
    put_checksum(store, 0)
    content = json.loads(store.read(filenames.checksum_path(0))) | {"fileSizeHistogram": {"x": []}, "later": 1}
    store.replace(filenames.checksum_path(0), json.dumps(content).encode())
    assert load(store).head.totals is not None


def test_every_commit_writes_a_checksum_that_agrees_with_the_log() -> None:
    store = memory_store()
    table = new_table(store, NUMBERS)
    table.insert(numbers(range(3)))
    table.insert(numbers(range(2)), idempotency_key=("app", 5))
    for version in range(3):
        content = json.loads(store.read(filenames.checksum_path(version)))
        commit = read_commit(store, version)
        state = load(store, version)
        live = state.files().adds
        assert content["numFiles"] == live.num_rows == version
        assert content["tableSizeBytes"] == sum(live["size"].to_pylist())
        assert content["numMetadata"] == content["numProtocol"] == 1
        assert content["domainMetadata"] == []
        assert content["inCommitTimestampOpt"] == commit.info["inCommitTimestamp"]
        assert content["txnId"] == commit.info["txnId"]
        assert [txn["appId"] for txn in content["setTransactions"]] == ["app"] * (version == 2)
        assert not {"allFiles", "fileSizeHistogram", "numDeletedRecordsOpt"} & content.keys()
    first = store.read(filenames.commit_path(0)).decode().splitlines()
    logged = {key: value for line in first for key, value in json.loads(line).items()}
    assert (content["metadata"], content["protocol"]) == (logged["metaData"], logged["protocol"]), "verbatim"


def test_set_transactions_are_left_out_if_a_retention_can_expire_them() -> None:
    """If a `.crc` has a transaction that delta-spark has dropped, delta-spark never writes a checkpoint again."""
    store = memory_store()
    table = new_table(store, NUMBERS, properties={"delta.setTransactionRetentionDuration": "1 day"})
    table.insert(numbers([1]), idempotency_key=("app", 5))
    assert "setTransactions" not in json.loads(store.read(filenames.checksum_path(1)))
    assert load(store).head.transactions["app"].version == 5, "found by replay"


@pytest.mark.parametrize(
    ("key", "value"),
    [("numFiles", 7), ("tableSizeBytes", 7), ("setTransactions", []), ("metadata", None), ("protocol", None)],
)
def test_a_checkpoint_deletes_a_wrong_checksum(key: str, value: object, caplog: pytest.LogCaptureFixture) -> None:
    """The next writer would trust it, and delta-spark would silently never write a checkpoint again."""
    table = new_table(memory_store())
    table.insert(numbers([1]), idempotency_key=("app", 3))
    path = filenames.checksum_path(1)
    right = json.loads(table.store.read(path))
    wrong = {
        "metadata": {**right["metadata"], "name": "other"},
        "protocol": {**right["protocol"], "writerFeatures": []},
    }
    table.store.replace(path, json.dumps({**right, key: value if value is not None else wrong[key]}).encode())
    misled = Table(table.store, load(table.store))
    misled.checkpoint()
    assert key in caplog.text
    with pytest.raises(FileNotFoundError):
        table.store.read(path)
    table.store.delete(filenames.checksum_path(0))
    seen = load(table.store)
    assert (seen.head.metadata, seen.head.protocol) == (table.head.metadata, table.head.protocol)
    assert {name: entry.version for name, entry in seen.head.transactions.items()} == {"app": 3}
    assert seen.replayed().totals == checkpoint_writer.totals_of(seen.files())


def test_a_checkpoint_leaves_a_right_checksum_alone(caplog: pytest.LogCaptureFixture) -> None:
    table = new_table(memory_store())
    for number in range(4):
        table.insert(numbers([number]), idempotency_key=("app", number))
        table.delete(f"n = {number - 1}")
    before = table.store.read(filenames.checksum_path(table.version))
    Table(table.store, load(table.store)).checkpoint()
    assert table.store.read(filenames.checksum_path(table.version)) == before
    assert not caplog.text
