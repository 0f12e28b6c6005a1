"""Raising the protocol with `allow_protocol_upgrade`: versions, features, concurrent writers and other readers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pytest

from tests.log import naive_reader
from tests.log.operations.changing_rows import SCHEMA, keys, lose_once, protocol_of, rows, table_of
from tests.log.support import live_files, memory_store, new_table, put_foreign, reopen
from tidelog.log import Table
from tidelog.log.errors import ConfigurationError, ProtocolChangedException, UnsupportedFeatureError
from tidelog.log.format.actions import Protocol

VECTORS = "delta.enableDeletionVectors"
FEED = "delta.enableChangeDataFeed"
COMMIT_TIMES = "delta.enableInCommitTimestamps"
# What each writer version implies, and delta-spark 4.4.0 lists when it raises a table.
TWO = ("appendOnly", "invariants")
FOUR = ("appendOnly", "changeDataFeed", "checkConstraints", "generatedColumns", "invariants")
FIVE = ("appendOnly", "changeDataFeed", "checkConstraints", "columnMapping", "generatedColumns", "invariants")
SIX = (*FIVE, "identityColumns")


def upgraded(table: Table, *properties: str) -> Protocol:
    table.set_properties(dict.fromkeys(properties, True), allow_protocol_upgrade=True)
    return protocol_of(table)


@pytest.mark.parametrize(
    ("reader", "writer", "name", "versions", "implied", "feature"),
    [
        (1, 1, "delta.appendOnly", (1, 7), (), "appendOnly"),
        (1, 2, FEED, (1, 7), TWO, "changeDataFeed"),
        (1, 2, VECTORS, (3, 7), TWO, "deletionVectors"),
        (1, 3, COMMIT_TIMES, (1, 7), (*TWO, "checkConstraints"), "inCommitTimestamp"),
        (1, 4, COMMIT_TIMES, (1, 7), FOUR, "inCommitTimestamp"),
        (2, 5, COMMIT_TIMES, (2, 7), FIVE, "inCommitTimestamp"),
        (2, 5, VECTORS, (3, 7), FIVE, "deletionVectors"),
        (2, 6, VECTORS, (3, 7), SIX, "deletionVectors"),
        # Without reader version 2 there is no column mapping.
        (1, 6, COMMIT_TIMES, (1, 7), (*FOUR, "identityColumns"), "inCommitTimestamp"),
    ],
)
def test_versions_are_raised_and_implied_features_kept(
    reader: int, writer: int, name: str, versions: tuple[int, int], implied: tuple[str, ...], feature: str
) -> None:
    table = table_of(reader, writer)
    protocol = upgraded(table, name)
    assert (protocol.min_reader_version, protocol.min_writer_version) == versions
    assert protocol.writer_features == tuple(sorted([*implied, feature]))
    readers = {"columnMapping", "deletionVectors"} & {*implied, feature}
    assert protocol.reader_features == (tuple(sorted(readers)) if versions[0] == 3 else None)
    assert table.properties[name] == "true"
    table.insert(rows(range(3)))
    assert keys(reopen(table)) == [0, 1, 2], "the upgraded table can still be written and read"


def test_a_list_of_writer_features_is_kept_when_reader_features_are_added() -> None:
    table = table_of(1, 7, "appendOnly", "checkConstraints")
    assert upgraded(table, VECTORS) == Protocol(
        min_reader_version=3,
        min_writer_version=7,
        reader_features=("deletionVectors",),
        writer_features=("appendOnly", "checkConstraints", "deletionVectors"),
    )


def test_column_mapping_by_reader_version_becomes_a_listed_feature() -> None:
    table = table_of(2, 7, "columnMapping")
    assert upgraded(table, VECTORS).reader_features == ("columnMapping", "deletionVectors")


def test_versions_are_never_lowered() -> None:
    table = table_of(3, 7, "appendOnly", "deletionVectors")
    protocol = upgraded(table, FEED, COMMIT_TIMES)
    assert (protocol.min_reader_version, protocol.min_writer_version) == (3, 7)
    assert protocol.reader_features == ("deletionVectors",)
    assert protocol.writer_features == ("appendOnly", "changeDataFeed", "deletionVectors", "inCommitTimestamp")


@pytest.mark.parametrize(("reader", "writer", "name"), [(1, 4, FEED), (2, 5, FEED), (1, 2, "delta.appendOnly")])
def test_a_feature_that_the_versions_imply_needs_no_upgrade(reader: int, writer: int, name: str) -> None:
    table = table_of(reader, writer)
    assert upgraded(table, name) == Protocol(min_reader_version=reader, min_writer_version=writer)


def test_properties_without_a_feature_raise_nothing() -> None:
    table = table_of(1, 2)
    table.set_properties({"mine": "x", FEED: False}, allow_protocol_upgrade=True)
    assert protocol_of(table) == Protocol(min_reader_version=1, min_writer_version=2)
    assert table.set_properties({"mine": "x"}, allow_protocol_upgrade=True).version == 1, "no change, no commit"


def test_several_features_in_one_commit_work_at_once() -> None:
    table = table_of(1, 2)
    table.insert(rows(range(4)))
    protocol = upgraded(table, VECTORS, FEED, COMMIT_TIMES)
    assert protocol.writer_features == (*TWO[:1], "changeDataFeed", "deletionVectors", "inCommitTimestamp", *TWO[1:])
    assert table.version == 2
    table.delete("k = 1")
    assert live_files(table)[0].deletion_vector is not None
    table.update("k = 2", {"v": "0"})
    kinds = table.changes(after=2).to_arrow()["_change_type"].to_pylist()
    assert sorted(kinds) == ["delete", "update_postimage", "update_preimage"]
    stamps = [record.timestamp for record in table.history()]
    assert stamps == sorted(stamps, reverse=True)
    assert table.at(timestamp=stamps[1]).version == 3
    assert keys(table.at(version=1)) == [0, 1, 2, 3]


def test_a_transaction_takes_the_argument_as_well() -> None:
    table = table_of(1, 2)
    with pytest.raises(UnsupportedFeatureError, match="allow_protocol_upgrade=True"):
        table.begin().set_properties({FEED: True})
    table.begin().set_properties({FEED: True}, allow_protocol_upgrade=True).commit()
    assert protocol_of(table).min_writer_version == 7


# --- concurrent writers ----------------------------------------------------------------------------------------------


def test_a_transaction_that_began_before_the_upgrade_is_a_conflict() -> None:
    table = table_of(1, 2)
    inserting = table.begin().insert(rows(range(1)))
    upgraded(table, VECTORS)
    with pytest.raises(ProtocolChangedException):
        inserting.commit()


def test_the_statement_runs_again_after_another_upgrade(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second run starts from the protocol of the winner, whose features stay."""
    table = table_of(1, 2)
    lose_once(table, lambda other: upgraded(other, VECTORS), monkeypatch)
    protocol = upgraded(table, FEED)
    assert (protocol.min_reader_version, table.version) == (3, 2)
    assert protocol.writer_features == ("appendOnly", "changeDataFeed", "deletionVectors", "invariants")


# --- other readers ---------------------------------------------------------------------------------------------------


def files_of(table: Table) -> dict[str, bytes]:
    return {path: table.store.read(path) for path, _ in table.store.walk()}


@pytest.mark.interop
@pytest.mark.parametrize("versions", [(1, 2), (2, 5)])
@pytest.mark.parametrize("name", [VECTORS, FEED, COMMIT_TIMES])
def test_other_readers_still_read_the_table(versions: tuple[int, int], name: str, tmp_path: Path) -> None:
    table = Table.create(str(tmp_path), SCHEMA, properties={VECTORS: False, COMMIT_TIMES: False})
    if versions != (1, 2):
        put_foreign(table, Protocol(min_reader_version=versions[0], min_writer_version=versions[1]))
    table.refresh().insert(rows(range(4)))
    before = deltalake.DeltaTable(str(tmp_path)).protocol()
    assert (before.min_reader_version, before.min_writer_version) == versions
    protocol = upgraded(table, name)
    table.delete("k = 1")
    after = deltalake.DeltaTable(str(tmp_path)).protocol()
    assert (after.min_reader_version, after.min_writer_version) == (
        protocol.min_reader_version,
        protocol.min_writer_version,
    )
    assert sorted(after.writer_features or ()) == sorted(protocol.writer_features or ())
    assert sorted(after.reader_features or ()) == sorted(protocol.reader_features or ())
    assert deltalake_keys(tmp_path) == [0, 2, 3]
    assert naive_reader.rows(files_of(table)).total() == 3


def deltalake_keys(path: Path) -> list[int]:
    query: Any = deltalake.QueryBuilder().register("t", deltalake.DeltaTable(str(path)))
    return [int(row) for batch in query.execute("select k from t order by k") for row in batch["k"].to_pylist()]


def test_an_upgraded_table_has_the_protocol_of_a_new_table() -> None:
    table = new_table(memory_store(), SCHEMA, properties={VECTORS: False, COMMIT_TIMES: False})
    assert protocol_of(table) == Protocol(min_reader_version=1, min_writer_version=2)
    protocol = upgraded(table, VECTORS, COMMIT_TIMES)
    default = protocol_of(new_table(memory_store(), SCHEMA))
    assert protocol == default, "the same protocol as a table that has both from the start"


def test_a_protocol_is_asked_for_by_properties_which_the_log_does_not_keep() -> None:
    plain = {"delta.enableDeletionVectors": False, "delta.enableInCommitTimestamps": False}
    asked = {"delta.minReaderVersion": 2, "delta.minWriterVersion": "5"}
    table = new_table(memory_store(), SCHEMA, properties={**plain, **asked})
    assert (protocol_of(table).min_reader_version, protocol_of(table).min_writer_version) == (2, 5)
    assert not asked.keys() & table.properties.keys()
    version = table.version
    assert table.set_properties({"delta.minReaderVersion": "1", "delta.minWriterVersion": "2"}).version == version
    table.set_properties({"delta.feature.timestampNtz": "supported", "mine": "x"})
    assert "timestampNtz" in (protocol_of(table).reader_features or ())
    assert "columnMapping" in (protocol_of(table).writer_features or ())
    assert table.properties["mine"] == "x"
    assert not [key for key in table.properties if key.startswith("delta.feature.")]
    table.add_columns([pa.field("t", pa.timestamp("us"))])
    table.insert([{"k": 1}])
    assert reopen(table).scan().count() == 1


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("delta.minReaderVersion", 9, "cannot be '9'.* one of 1, 2, 3"),
        ("delta.minWriterVersion", "x", "cannot be 'x'.* 5, 6, 7"),
        ("delta.minReaderVersion", None, "cannot be removed"),
        ("delta.feature.timestampNtz", None, "cannot be removed"),
        ("delta.feature.timestampNtz", "off", "cannot be 'off'.* must be supported"),
    ],
)
def test_a_wrong_request_for_a_protocol(key: str, value: object, message: str) -> None:
    table = new_table(memory_store(), SCHEMA)
    with pytest.raises(ConfigurationError, match=message):
        table.set_properties({key: value})
