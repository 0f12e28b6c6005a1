"""Setting table properties: what may be set on which protocol, and what the commit then says."""

from __future__ import annotations

from typing import Any

import msgspec
import pyarrow as pa
import pytest

from tests.log.operations.changing_rows import SCHEMA, keys, rows
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


def table_of(reader: int, writer: int, *features: str, **configuration: str) -> Table:
    """A table as another writer made it, of that protocol."""
    store = memory_store()
    lists: dict[str, Any] = {}
    if writer == 7:
        lists["writer_features"] = features
    if reader == 3:
        lists["reader_features"] = tuple(name for name in features if name in {"deletionVectors", "timestampNtz"})
    protocol = Protocol(min_reader_version=reader, min_writer_version=writer, **lists)
    put_commit(store, 0, protocol, metadata(SCHEMA, configuration=configuration), info={"inCommitTimestamp": None})
    return Table(store, load(store))


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


def test_no_change_is_no_commit() -> None:
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
        ({"mine": "x", "delta.appendOnly": "maybe"}, ConfigurationError, "expected true or false"),
        ({"delta.dataSkippingStatsColumns": "nothing"}, ConfigurationError, "which is not in the schema"),
        ({"delta.columnMapping.mode": "name"}, ConfigurationError, "cannot be changed: files that are there"),
        ({"delta.columnMapping.maxColumnId": 9}, ConfigurationError, "cannot be changed"),
        ({SINCE_VERSION: "1"}, ConfigurationError, "cannot be changed: it tells since when"),
        (["delta.appendOnly"], ConfigurationError, "are no properties"),
        ({1: "x"}, ConfigurationError, "are no properties"),
    ],
)
def test_what_cannot_be_set(properties: Any, kind: type[TidelogError], message: str) -> None:
    table = new_table(memory_store(), SCHEMA)
    with pytest.raises(kind, match=message):
        table.set_properties(properties)
    assert table.refresh().version == 0


def test_a_mapped_table_keeps_its_mode() -> None:
    table = table_of(2, 5, **{"delta.columnMapping.mode": "none"})
    with pytest.raises(ConfigurationError, match="cannot be changed"):
        table.set_properties({"delta.columnMapping.mode": None})
    assert table.set_properties({"delta.columnMapping.mode": "none"}).version == 0


def test_a_column_that_the_feed_adds() -> None:
    table = new_table(memory_store(), pa.schema([("_change_type", pa.string())]))
    with pytest.raises(ConfigurationError, match="a column '_change_type' of its own"):
        table.set_properties({"delta.enableChangeDataFeed": True})


# --- properties that rest on a table feature -------------------------------------------------------------------------


def test_a_feature_joins_the_lists() -> None:
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


def test_vectors_can_be_turned_on_and_off() -> None:
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
def test_a_protocol_is_not_raised(reader: int, writer: int, name: str, feature: str) -> None:
    table = table_of(reader, writer)
    with pytest.raises(UnsupportedFeatureError, match=f"the table feature {feature}.*delta.feature.{feature}"):
        table.set_properties({name: True})
    assert table.refresh().version == 0
    assert table.set_properties({name: False}).version == 1


@pytest.mark.parametrize(
    ("reader", "writer", "name"),
    [(1, 2, "delta.appendOnly"), (1, 4, "delta.enableChangeDataFeed"), (2, 5, "delta.enableChangeDataFeed")],
)
def test_what_an_old_protocol_has_already(reader: int, writer: int, name: str) -> None:
    table = table_of(reader, writer)
    table.set_properties({name: True})
    assert (table.properties, actions(table, Protocol)) == ({name: "true"}, [])


def test_a_property_whose_feature_another_writer_forgot() -> None:
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


def test_commit_times_begin_with_the_commit_that_turns_them_on() -> None:
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


def test_whoever_comes_before_that_commit_is_a_conflict() -> None:
    table = new_table(memory_store(), SCHEMA, properties={**PLAIN, "delta.enableChangeDataFeed": True})
    staged = table.begin().set_properties({"delta.enableInCommitTimestamps": True})
    reopen(table).insert(rows(range(1)))
    with pytest.raises(ConflictError, match="the winner took the version that this transaction's metadata names"):
        staged.commit()
    assert SINCE_VERSION not in table.refresh().properties


def test_and_the_statement_runs_again(monkeypatch: pytest.MonkeyPatch) -> None:
    table = new_table(memory_store(), SCHEMA, properties={**PLAIN, "delta.enableChangeDataFeed": True})
    lose_once(table, lambda other: other.insert(rows(range(1))), monkeypatch)
    table.set_properties({"delta.enableInCommitTimestamps": True})
    assert (table.version, table.properties[SINCE_VERSION]) == (2, "2")
    stamp = commit_info.in_commit_timestamp_ms(read_commit(table.store, 2).info)
    assert table.properties[SINCE_TIME] == str(stamp)


# --- others at the same time -----------------------------------------------------------------------------------------


def lose_once(table: Table, act: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another writer acts after the table's next transaction has begun."""
    begin, raced = Table.begin, [False]

    def begin_and_lose(self: Table) -> Any:
        transaction = begin(self)
        if self is table and not raced[0]:
            raced[0] = True
            act(reopen(table))
        return transaction

    monkeypatch.setattr(Table, "begin", begin_and_lose)


def test_two_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    table = new_table(memory_store(), SCHEMA)
    staged = table.begin().set_properties({"mine": "1"})
    reopen(table).set_properties({"yours": "2"})
    with pytest.raises(MetadataChangedException):
        staged.commit()
    lose_once(table, lambda other: other.set_properties({"theirs": "3"}), monkeypatch)
    table.set_properties({"mine": "1"})
    assert {"mine": "1", "yours": "2", "theirs": "3"}.items() <= table.properties.items()


def test_an_insert_passes_harmless_properties_and_no_new_feature() -> None:
    table = new_table(memory_store(), SCHEMA)
    inserting = table.begin().insert(rows(range(1)))
    table.set_properties({"delta.checkpointInterval": 5})
    inserting.commit()
    inserting = table.begin().insert(rows(range(1)))
    table.set_properties({"delta.enableChangeDataFeed": True})
    with pytest.raises(ProtocolChangedException):
        inserting.commit()


def test_properties_are_set_beside_rows() -> None:
    table = new_table(memory_store(), SCHEMA)
    staged = table.begin().set_properties({"mine": "1"})
    table.insert(rows(range(1)))
    outcome = staged.commit()
    assert (getattr(outcome, "rebased_over", None), table.refresh().properties["mine"]) == ((1,), "1")


def test_another_writer_s_metadata_is_kept() -> None:
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
