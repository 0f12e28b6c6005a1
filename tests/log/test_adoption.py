"""What adopting a table of another engine means."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pytest

from tests.log.rules.support import default, generated, identity, invariant, ruled_table
from tests.log.support import PROTOCOL, add, metadata
from tidelog.log.adoption import Adoption, Placement, adoption_of, placement_of
from tidelog.log.errors import TidelogError
from tidelog.log.format.actions import Metadata, Protocol
from tidelog.log.state.files import add_table

OLD = Protocol(min_reader_version=1, min_writer_version=2)
FULL = {"delta.enableDeletionVectors": "true", "delta.enableInCommitTimestamps": "true"}
OWN = {**FULL, "delta.enableExpiredLogCleanup": "false", "tidelog.cleanUp": "true"}


def adopted(
    protocol: Protocol,
    configuration: Mapping[str, str],
    *,
    transactions: Mapping[str, int] | None = None,
    engines: Sequence[tuple[int, str | None]] = (),
    **more: Any,
) -> Adoption:
    return adoption_of(protocol, of(configuration, **more), transactions or {}, engines, "memory://t")


def of(configuration: Mapping[str, str], **more: Any) -> Metadata:
    return metadata(configuration=dict(configuration), **more)


def test_a_plain_table_gets_five_properties_of_which_two_raise_its_protocol() -> None:
    changes = adopted(OLD, {}).changes
    assert [(change.key, change.present, change.value, change.upgrade) for change in changes if change.upgrade] == [
        (
            "delta.enableInCommitTimestamps",
            None,
            "true",
            "adds the feature inCommitTimestamp and raises the protocol from reader 1, writer 2 to 1, 7",
        ),
        (
            "delta.enableDeletionVectors",
            None,
            "true",
            "adds the feature deletionVectors and raises the protocol from reader 1, writer 2 to 3, 7",
        ),
    ]
    assert [(change.key, change.value) for change in changes if not change.upgrade] == [
        ("delta.enableExpiredLogCleanup", "false"),
        ("tidelog.cleanUp", "true"),
    ]
    assert all(change.reason and change.effect for change in changes)


def test_a_feature_that_is_listed_needs_no_upgrade_and_another_one_is_an_upgrade() -> None:
    changes = {change.key: change for change in adopted(PROTOCOL, {}).changes}
    assert changes["delta.enableDeletionVectors"].upgrade is None
    lists = Protocol(min_reader_version=3, min_writer_version=7, reader_features=(), writer_features=("appendOnly",))
    upgrades = {change.key: change.upgrade for change in adopted(lists, {}).changes}
    assert upgrades["delta.enableInCommitTimestamps"] == "adds the feature inCommitTimestamp"


def test_a_table_of_tidelog_needs_nothing() -> None:
    found = adopted(PROTOCOL, OWN)
    assert (found.obstacles, found.changes, found.streams, found.writers) == ((), (), (), ())


def test_what_the_owner_has_decided_stays() -> None:
    keys = [change.key for change in adopted(PROTOCOL, {**OWN, "tidelog.cleanUp": "false"}).changes]
    assert keys == []


def test_a_retention_of_transactions_is_removed() -> None:
    (change,) = adopted(PROTOCOL, {**OWN, "delta.setTransactionRetentionDuration": "30 days"}).changes
    assert (change.key, change.present, change.value) == ("delta.setTransactionRetentionDuration", "30 days", None)


@pytest.mark.parametrize(
    ("protocol", "doing", "what"),
    [
        (Protocol(min_reader_version=4, min_writer_version=7), "read", ["reader version 4"]),
        (
            Protocol(
                min_reader_version=3,
                min_writer_version=7,
                reader_features=("catalogManaged", "novelty"),
                writer_features=("catalogManaged", "novelty"),
            ),
            "read",
            ["catalogManaged", "novelty"],
        ),
        (
            Protocol(min_reader_version=1, min_writer_version=7, writer_features=("another",)),
            "write",
            ["another"],
        ),
    ],
)
def test_a_feature_that_is_missing_is_named_and_nothing_would_be_set(
    protocol: Protocol, doing: str, what: list[str]
) -> None:
    found = adopted(protocol, {})
    assert [(obstacle.doing, obstacle.what) for obstacle in found.obstacles] == [(doing, name) for name in what]
    assert all(obstacle.reason and obstacle.advice for obstacle in found.obstacles)
    assert found.changes == ()


@pytest.mark.parametrize(
    "schema",
    ['{"type":"struct","fields":[{"name":"c","type":"novelty","nullable":true,"metadata":{}}]}', "{"],
)
def test_a_schema_that_cannot_be_read_is_in_the_way(schema: str) -> None:
    (obstacle,) = adopted(OLD, {}, schema_string=schema).obstacles
    assert obstacle.doing == "read"


TEXTS = pa.schema([("k", pa.int64()), ("a", pa.string()), ("b", pa.string())])


def typed(kind: str) -> dict[str, str]:
    return {"__CHAR_VARCHAR_TYPE_STRING": kind}


@pytest.mark.parametrize(
    ("constraints", "fields", "what"),
    [
        ({"c": "\"a\" > 'x'"}, {}, ["\"a\" > 'x'"]),
        ({"c": '"a" > "b"', "d": "`a` > 'x'"}, {"b": generated('concat("a", k)')}, ['"a" > "b"', 'concat("a", k)']),
        ({}, {"a": invariant('"a" > 1')}, ['"a" > 1']),
        ({}, {"a": typed("char(5000)"), "b": typed("array<varchar(3)>")}, ["char(5000)", "array<varchar(3)>"]),
        (
            {"c": '"k" > 0'},
            {"a": typed("char(5000)"), "k": identity(explicit=False)},
            ["char(5000)", '"k" > 0', "identityColumns"],
        ),
        ({}, {"a": {"delta.invariants": "nonsense"}}, ["a rule"]),
        ({"c": "`a` > 'x'"}, {"a": typed("varchar(3)"), "k": identity(explicit=True), "b": default("'x'")}, []),
    ],
)
def test_rules_for_which_new_rows_are_refused_are_in_the_way(
    constraints: Mapping[str, str], fields: Mapping[str, Mapping[str, Any]], what: list[str]
) -> None:
    """Each of them, as the insert refuses the first; the rest of the work on the table goes on."""
    table = ruled_table(TEXTS, constraints=constraints, fields=fields)
    found = adoption_of(table.head.protocol, table.head.metadata, {}, (), table.path)
    assert [(obstacle.doing, obstacle.what) for obstacle in found.obstacles] == [("insert", text) for text in what]
    assert "tidelog.cleanUp" in {change.key for change in found.changes}
    if not what:
        table.insert([{"k": 1, "a": "y"}])
        return
    with pytest.raises(TidelogError) as raised:
        table.insert([{"k": 1, "a": "y", "b": "y"}])
    assert (raised.value.message, raised.value.advice) == (found.obstacles[0].reason, found.obstacles[0].advice)
    table.delete("k = 1")


def test_rules_that_only_spark_can_evaluate_are_noted() -> None:
    fields = {"a": generated("soundex(b)"), "b": default("uuid()")}
    table = ruled_table(
        TEXTS, constraints={"c": "soundex(b) > 'x'", "d": "k < unix_seconds(current_timestamp())"}, fields=fields
    )
    found = adoption_of(table.head.protocol, table.head.metadata, {}, (), table.path)
    assert found.obstacles == ()
    noted = [note for note in found.notes if "cannot evaluate without Spark" in note]
    assert [note.split(" of memory")[0] for note in noted] == [
        "the constraint 'c'",
        "the generated column 'a'",
        "the default of the column 'b'",
    ]


@pytest.mark.parametrize(
    ("configuration", "words"),
    [
        ({}, "is missing"),
        (
            {f"delta.rowTracking.materializedRow{name}ColumnName": "k" for name in ("Id", "CommitVersion")},
            "not unique among its columns",
        ),
    ],
)
def test_row_tracking_that_is_inconsistent_is_in_the_way_with_its_fault(
    configuration: Mapping[str, str], words: str
) -> None:
    protocol = Protocol(min_reader_version=1, min_writer_version=7, writer_features=("rowTracking", "domainMetadata"))
    (obstacle,) = adopted(protocol, {"delta.enableRowTracking": "true", **configuration}).obstacles
    assert (obstacle.doing, obstacle.what) == ("write", "rowTracking")
    assert words in obstacle.reason
    assert "correct the table" in obstacle.advice


def test_streams_are_those_of_other_engines() -> None:
    found = adopted(OLD, {}, transactions={"b": 7, "a": 3, "tidelog/sink/default": 1})
    assert [(stream.app_id, stream.batch) for stream in found.streams] == [("a", 3), ("b", 7)]


def test_other_writers_are_listed_with_what_locks_them_out() -> None:
    both = ("delta.enableInCommitTimestamps", "delta.enableDeletionVectors")
    engines = [
        (9, "Apache-Spark/4.2.0 Delta-Lake/4.4.0"),
        (8, "delta-rs:py-1.6.6"),
        (7, "tidelog/0.1.0"),
        (6, "Apache-Spark/3.4.0 Delta-Lake/2.4.0"),
        (5, "Apache-Spark/3.1.0 Delta-Lake/1.0.0"),
        (4, None),
        (3, "delta-rs:py-1.6.6"),
        (2, "Trino-462"),
    ]
    found = [
        (writer.engine, writer.commits, writer.last_version, writer.locked_out_by)
        for writer in adopted(OLD, {}, engines=engines).writers
    ]
    assert found == [
        ("Apache-Spark/4.2.0 Delta-Lake/4.4.0", 1, 9, ()),
        ("delta-rs:py-1.6.6", 2, 8, both[:1]),
        ("Apache-Spark/3.4.0 Delta-Lake/2.4.0", 1, 6, both[:1]),
        ("Apache-Spark/3.1.0 Delta-Lake/1.0.0", 1, 5, both),
        ("an engine that gives no name", 1, 4, None),
        ("Trino-462", 1, 2, both[:1]),
    ]
    # Without an upgrade nobody is locked out.
    assert {writer.locked_out_by for writer in adopted(PROTOCOL, {}, engines=engines).writers} == {()}


@pytest.mark.parametrize(
    ("configuration", "words"),
    [
        ({"delta.logRetentionDuration": "interval 1 day"}, "delta.logRetentionDuration is interval 1 day"),
        ({"delta.deletedFileRetentionDuration": "1 hour"}, "delta.deletedFileRetentionDuration is 1 hour"),
        ({"delta.columnMapping.mode": "name"}, "columns are mapped by name"),
        ({"delta.enableChangeDataFeed": "true"}, "the change data feed is on"),
        ({"delta.appendOnly": "true"}, "append-only"),
        ({"delta.checkpointInterval": "7"}, "every 7 commits"),
        ({}, "Delta's default for other engines is 10"),
    ],
)
def test_notes(configuration: Mapping[str, str], words: str) -> None:
    schema = '{"type":"struct","fields":[]}'
    assert any(words in note for note in adopted(OLD, configuration, schema_string=schema).notes)


@pytest.mark.parametrize(
    ("configuration", "in_folders", "expected"),
    [
        ({}, True, Placement(True, "its files are in such folders", 4, 2)),
        ({}, False, Placement(False, "none of its files is in a partition folder", 4, 0)),
        (
            {"delta.columnMapping.mode": "name"},
            False,
            Placement(False, "its columns are mapped, and then other engines do so, too", 4, 0),
        ),
        (
            {"delta.randomizeFilePrefixes": "true"},
            False,
            Placement(False, "delta.randomizeFilePrefixes is set, and then other engines do so, too", 4, 0),
        ),
    ],
)
def test_where_new_files_go(configuration: Mapping[str, str], in_folders: bool, expected: Placement) -> None:
    """A file is outside of the folders only if it could be inside."""
    paths = {"day=1/a": "1", "ab/b": "1", "data/0/c": None, "ab/d": "x" * 300}
    files = add_table([add(path, partition_values={"day": value}) for path, value in paths.items()])
    assert placement_of(of(configuration, partition_columns=("day",)), files, in_folders=in_folders) == expected
    assert placement_of(of(configuration), files, in_folders=False) is None
