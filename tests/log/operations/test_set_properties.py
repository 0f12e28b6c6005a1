"""Setting table properties: validation, the features that they need, in-commit timestamps and concurrent writers."""

from __future__ import annotations

from typing import Any

import msgspec
import pyarrow as pa
import pytest

from tests.log.operations.changing_rows import SCHEMA, keys, lose_once, rows, table_of
from tests.log.support import (
    START_MS,
    Clock,
    live_files,
    memory_store,
    metadata,
    new_table,
    put_commit,
    put_foreign,
    reopen,
)
from tidelog.log import OperationClass, Table
from tidelog.log.errors import (
    AppendOnlyError,
    ConfigurationError,
    ConflictError,
    MetadataChangedException,
    ProtocolChangedException,
    TidelogError,
    UnsupportedFeatureError,
)
from tidelog.log.format import commit_info
from tidelog.log.format.actions import Metadata, Protocol
from tidelog.log.state.commits import read_commit
from tidelog.log.state.loader import load

PLAIN: dict[str, object] = {"delta.enableDeletionVectors": False, "delta.enableInCommitTimestamps": False}
SINCE_VERSION = "delta.inCommitTimestampEnablementVersion"
SINCE_TIME = "delta.inCommitTimestampEnablementTimestamp"


def actions(table: Table, kind: type) -> list[Any]:
    return [action for action in read_commit(table.store, table.version).actions if isinstance(action, kind)]


def test_properties_are_set_and_removed() -> None:
    table = new_table(memory_store(), SCHEMA, properties={"mine": "x"})
    table.insert(rows(range(3)))
    before = table.properties
    committed = table.set_properties(
        {"delta.checkpointInterval": 7, "tidelog.minorSpan": "2 hours", "mine": None, "delta.appendOnly": True}
    )
    expected = {**before, "delta.checkpointInterval": "7", "tidelog.minorSpan": "2 hours", "delta.appendOnly": "true"}
    del expected["mine"]
    assert table.properties == expected == reopen(table).properties
    assert (committed.version, table.version) == (2, 2)
    (record,) = table.history(1)
    assert (record.operation_class, record.time_version) == (OperationClass.NONE, None)
    assert actions(table, Protocol) == []
    with pytest.raises(AppendOnlyError):
        table.delete("k = 1")
    table.set_properties({"delta.appendOnly": None})
    table.delete("k = 1")
    assert keys(table) == [0, 2]


def test_without_a_change_there_is_no_commit() -> None:
    table = new_table(memory_store(), SCHEMA)
    for properties in ({}, {"delta.checkpointInterval": "100"}, {"tidelog.primaryKey": None}, {"mine": None}):
        assert table.set_properties(properties).version == 0
    assert table.set_properties({}).metrics == {}


@pytest.mark.parametrize(
    ("properties", "kind", "message"),
    [
        ({"tidelog.unknown": "1"}, ConfigurationError, "unknown table property 'tidelog.unknown'"),
        ({"delta.unknown": "1"}, ConfigurationError, "unknown table property"),
        ({"delta.checkpointInterval": "often"}, ConfigurationError, "cannot be 'often'"),
        ({"mine": "x", "delta.appendOnly": "maybe"}, ConfigurationError, "it must be true or false"),
        ({"delta.dataSkippingStatsColumns": "nothing"}, ConfigurationError, "which is not in the schema"),
        ({"delta.columnMapping.mode": "id"}, ConfigurationError, "tidelog maps columns by their names only"),
        ({"delta.columnMapping.maxColumnId": 9}, ConfigurationError, "cannot be changed"),
        ({SINCE_VERSION: "1"}, ConfigurationError, "cannot be changed: it records the first version"),
        (["delta.appendOnly"], ConfigurationError, "must be a dict"),
        ({1: "x"}, ConfigurationError, "must be a dict with strings as keys"),
    ],
)
def test_invalid_properties(properties: Any, kind: type[TidelogError], message: str) -> None:
    table = new_table(memory_store(), SCHEMA)
    with pytest.raises(kind, match=message):
        table.set_properties(properties)
    assert table.refresh().version == 0


def test_the_column_mapping_mode_cannot_be_changed() -> None:
    table = table_of(2, 5, **{"delta.columnMapping.mode": "none"})
    with pytest.raises(ConfigurationError, match="cannot be changed"):
        table.set_properties({"delta.columnMapping.mode": None})
    assert table.set_properties({"delta.columnMapping.mode": "none"}).version == 0


def test_the_feed_cannot_be_enabled_with_a_column_of_its_name() -> None:
    table = new_table(memory_store(), pa.schema([("_change_type", pa.string())]))
    with pytest.raises(ConfigurationError, match="a column '_change_type', a name that the change feed uses"):
        table.set_properties({"delta.enableChangeDataFeed": True})


# --- properties that need a table feature ----------------------------------------------------------------------------


def test_a_feature_is_added_to_the_lists() -> None:
    table = new_table(memory_store(), SCHEMA)
    table.insert(rows(range(3)))
    (before,) = [load(table.store).head.protocol]
    table.set_properties({"delta.enableChangeDataFeed": True})
    (protocol,) = actions(table, Protocol)
    features = tuple(sorted([*(before.writer_features or ()), "changeDataFeed"]))
    assert protocol == msgspec.structs.replace(before, writer_features=features)
    start = table.version
    table.update("k = 1", {"v": "0"})
    kinds = table.changes(after=start).to_arrow()["_change_type"].to_pylist()
    assert sorted(kinds) == ["update_postimage", "update_preimage"]
    table.set_properties({"delta.enableChangeDataFeed": False})
    assert actions(table, Protocol) == []
    table.set_properties({"delta.enableChangeDataFeed": True})
    assert actions(table, Protocol) == []


def test_deletion_vectors_can_be_turned_on_and_off() -> None:
    table = table_of(3, 7, "appendOnly")
    table.insert(rows(range(4)))
    table.delete("k = 0")
    assert live_files(table)[0].deletion_vector is None
    table.set_properties({"delta.enableDeletionVectors": True})
    (protocol,) = actions(table, Protocol)
    assert protocol.reader_features == ("deletionVectors",)
    assert protocol.writer_features == ("appendOnly", "deletionVectors")
    table.delete("k = 1")
    assert live_files(table)[0].deletion_vector is not None
    table.set_properties({"delta.enableDeletionVectors": None})
    table.delete("k = 2")
    assert live_files(table)[0].deletion_vector is None
    assert keys(table) == [3] == keys(reopen(table))


@pytest.mark.parametrize(
    ("reader", "writer", "name", "feature"),
    [
        (1, 2, "delta.enableChangeDataFeed", "changeDataFeed"),
        (1, 2, "delta.enableDeletionVectors", "deletionVectors"),
        (2, 5, "delta.enableInCommitTimestamps", "inCommitTimestamp"),
        (1, 1, "delta.appendOnly", "appendOnly"),
        (1, 7, "delta.enableDeletionVectors", "deletionVectors"),
    ],
)
def test_the_protocol_versions_are_not_raised_unasked(reader: int, writer: int, name: str, feature: str) -> None:
    table = table_of(reader, writer)
    versions = f"reader version {reader}, writer version {writer}"
    message = rf"{name}' needs the table feature {feature}.*\({versions}\).*pass allow_protocol_upgrade=True to raise"
    with pytest.raises(UnsupportedFeatureError, match=message) as raised:
        table.set_properties({name: True})
    assert raised.value.fields == {"path": table.path, "features": feature}
    assert table.refresh().version == 0
    assert table.set_properties({name: False}).version == 1


@pytest.mark.parametrize(
    ("reader", "writer", "name"),
    [(1, 2, "delta.appendOnly"), (1, 4, "delta.enableChangeDataFeed"), (2, 5, "delta.enableChangeDataFeed")],
)
def test_properties_that_an_old_protocol_allows(reader: int, writer: int, name: str) -> None:
    table = table_of(reader, writer)
    table.set_properties({name: True})
    assert (table.properties, actions(table, Protocol)) == ({name: "true"}, [])


def test_a_feature_that_another_writer_forgot_is_added() -> None:
    table = table_of(1, 7, "appendOnly", **{"delta.enableChangeDataFeed": "true"})
    table.set_properties({"delta.enableChangeDataFeed": True})
    assert actions(table, Protocol)[0].writer_features == ("appendOnly", "changeDataFeed")
    table = table_of(3, 7, "timestampNtz", "appendOnly")
    half = Protocol(
        min_reader_version=3, min_writer_version=7, reader_features=(), writer_features=("deletionVectors",)
    )
    put_foreign(table, half)
    table.set_properties({"delta.enableDeletionVectors": True})
    assert actions(table, Protocol)[0].reader_features == ("deletionVectors",)


# --- in-commit timestamps --------------------------------------------------------------------------------------------


def test_in_commit_timestamps_begin_with_the_enabling_commit() -> None:
    clock = Clock()
    table = new_table(memory_store(clock), SCHEMA, properties=PLAIN, system=clock)
    with pytest.raises(UnsupportedFeatureError):
        table.set_properties({"delta.enableInCommitTimestamps": True})
    table = new_table(
        memory_store(clock), SCHEMA, properties={**PLAIN, "delta.enableChangeDataFeed": True}, system=clock
    )
    table.insert(rows(range(2)))
    clock.ms = START_MS + 5000
    committed = table.set_properties({"delta.enableInCommitTimestamps": True})
    commit = read_commit(table.store, committed.version)
    assert commit_info.in_commit_timestamp_ms(commit.info) == START_MS + 5000
    assert (table.properties[SINCE_VERSION], table.properties[SINCE_TIME]) == ("2", str(START_MS + 5000))
    assert actions(table, Protocol)[0].writer_features == (
        "appendOnly",
        "changeDataFeed",
        "inCommitTimestamp",
        "invariants",
    )
    clock.ms += 1000
    table.insert(rows(range(2, 3)))
    stamps = [record.timestamp for record in table.history()]
    assert stamps == sorted(stamps, reverse=True)
    assert table.at(timestamp=stamps[1]).version == 2
    table.set_properties({"delta.enableInCommitTimestamps": False})
    assert not {SINCE_VERSION, SINCE_TIME} & set(table.properties)
    table.set_properties({"delta.enableInCommitTimestamps": True})
    assert table.properties[SINCE_VERSION] == str(table.version) == "5"
    table.set_properties({"delta.enableInCommitTimestamps": False})
    staged = table.begin().set_properties({"delta.enableInCommitTimestamps": True})
    clock.ms += 1000
    staged.commit()
    stamp = commit_info.in_commit_timestamp_ms(read_commit(table.store, 7).info)
    assert table.refresh().properties[SINCE_TIME] == str(stamp)


def test_a_concurrent_commit_is_a_conflict_when_timestamps_are_enabled() -> None:
    table = new_table(memory_store(), SCHEMA, properties={**PLAIN, "delta.enableChangeDataFeed": True})
    staged = table.begin().set_properties({"delta.enableInCommitTimestamps": True})
    reopen(table).insert(rows(range(1)))
    with pytest.raises(ConflictError, match="the winner took the version that this transaction's metadata names"):
        staged.commit()
    assert SINCE_VERSION not in table.refresh().properties


def test_the_statement_retries_when_timestamps_are_enabled(monkeypatch: pytest.MonkeyPatch) -> None:
    table = new_table(memory_store(), SCHEMA, properties={**PLAIN, "delta.enableChangeDataFeed": True})
    lose_once(table, lambda other: other.insert(rows(range(1))), monkeypatch)
    table.set_properties({"delta.enableInCommitTimestamps": True})
    assert (table.version, table.properties[SINCE_VERSION]) == (2, "2")
    stamp = commit_info.in_commit_timestamp_ms(read_commit(table.store, 2).info)
    assert table.properties[SINCE_TIME] == str(stamp)


# --- concurrent writers ----------------------------------------------------------------------------------------------


def test_concurrent_properties_are_a_conflict_and_the_statement_retries(monkeypatch: pytest.MonkeyPatch) -> None:
    table = new_table(memory_store(), SCHEMA)
    staged = table.begin().set_properties({"mine": "1"})
    reopen(table).set_properties({"yours": "2"})
    with pytest.raises(MetadataChangedException):
        staged.commit()
    lose_once(table, lambda other: other.set_properties({"theirs": "3"}), monkeypatch)
    table.set_properties({"mine": "1"})
    assert {"mine": "1", "yours": "2", "theirs": "3"}.items() <= table.properties.items()


def test_an_insert_commits_over_harmless_properties_but_not_over_a_new_feature() -> None:
    table = new_table(memory_store(), SCHEMA)
    inserting = table.begin().insert(rows(range(1)))
    table.set_properties({"delta.checkpointInterval": 5})
    inserting.commit()
    inserting = table.begin().insert(rows(range(1)))
    table.set_properties({"delta.enableChangeDataFeed": True})
    with pytest.raises(ProtocolChangedException):
        inserting.commit()


def test_properties_are_set_over_a_concurrent_insert() -> None:
    table = new_table(memory_store(), SCHEMA)
    staged = table.begin().set_properties({"mine": "1"})
    table.insert(rows(range(1)))
    outcome = staged.commit()
    assert (getattr(outcome, "rebased_over", None), table.refresh().properties["mine"]) == ((1,), "1")


def test_metadata_of_another_writer_is_kept() -> None:
    store = memory_store()
    foreign = metadata(SCHEMA, configuration={"delta.checkpoint.writeStatsAsJson": "true"}, name="n", description="d")
    put_commit(
        store, 0, Protocol(min_reader_version=1, min_writer_version=2), foreign, info={"inCommitTimestamp": None}
    )
    table = Table(store, load(store))
    table.set_properties({"mine": "1"})
    (found,) = actions(table, Metadata)
    assert found == msgspec.structs.replace(foreign, configuration={**foreign.configuration, "mine": "1"})
    table.set_properties({"delta.checkpoint.writeStatsAsJson": None})
    assert table.properties == {"mine": "1"}
    put_foreign(table, foreign)
    assert table.refresh().properties == foreign.configuration


def test_the_policy_of_checkpoints_brings_its_feature() -> None:
    made = new_table(memory_store(), SCHEMA, properties={**PLAIN, "delta.checkpointPolicy": "v2"})
    assert "v2Checkpoint" in (made.head.protocol.reader_features or ())
    classic = new_table(memory_store(), SCHEMA, properties={**PLAIN, "delta.checkpointPolicy": "classic"})
    assert (classic.head.protocol.min_reader_version, classic.head.protocol.min_writer_version) == (1, 2)
    with pytest.raises(UnsupportedFeatureError, match="v2Checkpoint"):
        classic.set_properties({"delta.checkpointPolicy": "v2"})
    classic.set_properties({"delta.checkpointPolicy": "v2"}, allow_protocol_upgrade=True)
    assert "v2Checkpoint" in (classic.head.protocol.writer_features or ())
    for table in (made, classic):
        table.insert(rows(range(3)))
        table.checkpoint()
        assert reopen(table).scan().count() == 3
