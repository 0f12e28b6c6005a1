"""Protocols of new tables, and which protocols tidelog reads and writes."""

from __future__ import annotations

from typing import Any

import msgspec
import pyarrow as pa
import pytest

from tests.log.support import NUMBERS, PROTOCOL, metadata
from tidelog.log.errors import ConfigurationError, UnsupportedFeatureError
from tidelog.log.format.actions import Metadata, Protocol
from tidelog.log.format.protocol import (
    for_new_table,
    has_in_commit_timestamps,
    requested,
    require_readable,
    require_writable,
    same,
)
from tidelog.log.format.row_tracking import ENABLED, ID_COLUMN, SUSPENDED, VERSION_COLUMN

DV = {"delta.enableDeletionVectors": "true"}
ICT = {"delta.enableInCommitTimestamps": "true"}
CDF = {"delta.enableChangeDataFeed": "true"}
WITH_NTZ = pa.schema([("n", pa.int64()), ("t", pa.list_(pa.timestamp("us")))])


def protocol(reader: int, writer: int, readers: Any = None, writers: Any = None) -> Protocol:
    return Protocol(
        min_reader_version=reader, min_writer_version=writer, reader_features=readers, writer_features=writers
    )


@pytest.mark.parametrize(
    ("schema", "configuration", "expected"),
    [
        (NUMBERS, {}, protocol(1, 2)),
        (NUMBERS, {"delta.enableDeletionVectors": "false", "delta.appendOnly": "true"}, protocol(1, 2)),
        (NUMBERS, CDF, protocol(1, 7, None, ("appendOnly", "changeDataFeed", "invariants"))),
        (NUMBERS, ICT, protocol(1, 7, None, ("appendOnly", "inCommitTimestamp", "invariants"))),
        (
            NUMBERS,
            DV,
            protocol(3, 7, ("deletionVectors",), ("appendOnly", "deletionVectors", "invariants")),
        ),
        (
            NUMBERS,
            DV | ICT | CDF,
            protocol(
                3,
                7,
                ("deletionVectors",),
                ("appendOnly", "changeDataFeed", "deletionVectors", "inCommitTimestamp", "invariants"),
            ),
        ),
        (WITH_NTZ, {}, protocol(3, 7, ("timestampNtz",), ("appendOnly", "invariants", "timestampNtz"))),
        (
            WITH_NTZ,
            DV,
            protocol(
                3,
                7,
                ("deletionVectors", "timestampNtz"),
                ("appendOnly", "deletionVectors", "invariants", "timestampNtz"),
            ),
        ),
    ],
)
def test_a_new_table_has_the_lowest_possible_protocol(
    schema: pa.Schema, configuration: dict[str, str], expected: Protocol
) -> None:
    found = for_new_table(schema, configuration)
    assert found == expected
    require_writable(found, metadata(schema, configuration=configuration), "x")


MAPPED = metadata(configuration={"delta.columnMapping.mode": "name"})
CONSTRAINED = metadata(configuration={"delta.constraints.positive": "n > 0"})


def with_field_metadata(text: str) -> Metadata:
    plain = metadata()
    return msgspec.structs.replace(plain, schema_string=plain.schema_string.replace('"metadata":{}', text))


INVARIANT = with_field_metadata('"metadata":{"delta.invariants":"{}"}')
GENERATED = with_field_metadata('"metadata":{"delta.generationExpression":"n + 1"}')
DEFAULT = with_field_metadata('"metadata":{"CURRENT_DEFAULT":"1"}')
ICEBERG = metadata(configuration={"delta.enableIcebergCompatV2": "true"})
IDENTITY = with_field_metadata('"metadata":{"delta.identity.start":1}')

TRACKED = ("domainMetadata", "rowTracking")
TRACKING = {ENABLED: "true", ID_COLUMN: "_row-id", VERSION_COLUMN: "_row-version"}

READABLE = [
    protocol(1, 1),
    protocol(1, 2),
    protocol(2, 5),
    PROTOCOL,
    protocol(3, 7, ("timestampNtz", "vacuumProtocolCheck"), ("rowTracking",)),
    protocol(3, 7, ("columnMapping", "deletionVectors"), ("columnMapping",)),
    protocol(3, 7, ("typeWidening", "v2Checkpoint", "variantType"), ("v2Checkpoint",)),
    protocol(1, 7, None, ("checkConstraints",)),
]


@pytest.mark.parametrize("found", READABLE)
def test_readable_protocols(found: Protocol) -> None:
    require_readable(found, "x")


@pytest.mark.parametrize(
    ("found", "missing"),
    [
        (protocol(4, 7), "reader version 4"),
        (protocol(3, 7, ("inventedLater",), ("inventedLater",)), "inventedLater"),
        (protocol(3, 7, ("deletionVectors", "z", "a"), ("z",)), "a, z"),
    ],
)
def test_unreadable_protocols_are_refused_and_named(found: Protocol, missing: str) -> None:
    with pytest.raises(UnsupportedFeatureError) as raised:
        require_readable(found, "/data/t")
    assert raised.value.fields == {"path": "/data/t", "features": missing}
    with pytest.raises(UnsupportedFeatureError) as raised:
        require_writable(found, metadata(), "/data/t")
    assert raised.value.fields == {"path": "/data/t", "features": missing}


WRITABLE = [
    (protocol(1, 1), metadata()),
    (protocol(1, 2), metadata()),
    (protocol(1, 3), metadata()),
    (protocol(1, 4), metadata(configuration=CDF)),
    (protocol(2, 5), metadata(configuration={"delta.columnMapping.mode": "none"})),
    (protocol(2, 6), metadata()),
    (PROTOCOL, metadata()),
    (protocol(1, 7, None, ("changeDataFeed", "checkConstraints", "generatedColumns", "identityColumns")), metadata()),
    (protocol(2, 5), MAPPED),
    (protocol(3, 7, ("columnMapping",), ("columnMapping",)), MAPPED),
    (protocol(2, 5), metadata(configuration={"delta.columnMapping.mode": "id"})),
    (protocol(1, 3), CONSTRAINED),
    (protocol(1, 7, None, ("checkConstraints",)), CONSTRAINED),
    (protocol(1, 2), INVARIANT),
    (protocol(1, 7, None, ("invariants",)), INVARIANT),
    (protocol(1, 4), GENERATED),
    (protocol(1, 7, None, ("generatedColumns",)), GENERATED),
    (protocol(1, 6), IDENTITY),
    (protocol(1, 7, None, ("identityColumns",)), IDENTITY),
    (protocol(1, 7, None, ("allowColumnDefaults",)), DEFAULT),
    (protocol(1, 7, None, ("clustering", "domainMetadata")), metadata()),
    (protocol(1, 7, None, TRACKED), metadata()),
    (protocol(1, 7, None, TRACKED), metadata(configuration=TRACKING)),
    (protocol(1, 7, None, TRACKED), metadata(configuration={SUSPENDED: "true"})),
    (protocol(1, 7, None, ("icebergCompatV2",)), metadata()),
    (protocol(3, 7, ("variantType",), ("variantType",)), metadata()),
]


@pytest.mark.parametrize(("found", "table_metadata"), WRITABLE)
def test_writable_protocols(found: Protocol, table_metadata: Metadata) -> None:
    require_writable(found, table_metadata, "x")


@pytest.mark.parametrize(
    ("found", "table_metadata", "missing"),
    [
        (protocol(1, 8), metadata(), "writer version 8"),
        (protocol(1, 7, None, ("another", "inventedLater")), metadata(), "another, inventedLater"),
        (protocol(1, 7, None, ("rowTracking",)), metadata(), "rowTracking"),
        (protocol(1, 7, None, TRACKED), metadata(configuration={**TRACKING, SUSPENDED: "true"}), "rowTracking"),
        (protocol(1, 7, None, TRACKED), metadata(configuration={ENABLED: "true"}), "rowTracking"),
        (protocol(1, 7, None, ("domainMetadata",)), metadata(configuration=TRACKING), "rowTracking"),
        (protocol(1, 7, None, ("inventedLater",)), metadata(), "inventedLater"),
        (protocol(1, 7, None, ("icebergCompatV2",)), ICEBERG, "icebergCompatV2"),
        (protocol(3, 7, ("variantType",), ("variantType", "geospatial")), metadata(), "geospatial"),
    ],
)
def test_unwritable_protocols_are_refused_and_named(found: Protocol, table_metadata: Metadata, missing: str) -> None:
    with pytest.raises(UnsupportedFeatureError) as raised:
        require_writable(found, table_metadata, "/data/t")
    assert raised.value.fields == {"path": "/data/t", "features": missing}
    require_readable(found, "/data/t")


@pytest.mark.parametrize(
    ("found", "configuration", "feature", "reason"),
    [
        *(
            (
                protocol(1, 7, None, (f"icebergCompatV{number}",)),
                {f"delta.enableIcebergCompatV{number}": "true"},
                f"icebergCompatV{number}",
                "read as Iceberg",
            )
            for number in (1, 2, 3)
        ),
        *(
            (protocol(3, 7, (name,), (name,)), {}, name, "through the table's catalog")
            for name in ("catalogManaged", "catalogOwned-preview")
        ),
    ],
)
def test_features_that_are_refused_for_good_are_refused_with_the_reason(
    found: Protocol, configuration: dict[str, str], feature: str, reason: str
) -> None:
    with pytest.raises(UnsupportedFeatureError, match=reason) as raised:
        require_writable(found, metadata(configuration=configuration), "/data/t")
    assert raised.value.fields == {"path": "/data/t", "features": feature}


@pytest.mark.parametrize(
    ("found", "configuration", "expected"),
    [
        (PROTOCOL, ICT, True),
        (PROTOCOL, {}, False),
        (PROTOCOL, {"delta.enableInCommitTimestamps": "false"}, False),
        (protocol(1, 2), ICT, False),
    ],
)
def test_in_commit_timestamps_require_feature_and_property(
    found: Protocol, configuration: dict[str, str], expected: bool
) -> None:
    assert has_in_commit_timestamps(found, metadata(configuration=configuration)) is expected


def test_a_rewritten_copy_is_not_a_change() -> None:
    assert same(metadata(created_time=1), metadata(created_time=2))
    assert not same(metadata(), metadata(name="x"))
    assert not same(metadata(), metadata(id="x"))
    assert same(PROTOCOL, msgspec.structs.replace(PROTOCOL))
    assert not same(PROTOCOL, protocol(1, 2))


def versions(reader: int, writer: int) -> Protocol:
    return Protocol(min_reader_version=reader, min_writer_version=writer)


def lists(reader: int, readers: tuple[str, ...] | None, *writers: str) -> Protocol:
    return Protocol(
        min_reader_version=reader, min_writer_version=7, reader_features=readers, writer_features=tuple(sorted(writers))
    )


READER, WRITER, NTZ = "delta.minReaderVersion", "delta.minWriterVersion", "delta.feature.timestampNtz"
VECTORS = lists(3, ("deletionVectors",), "appendOnly", "deletionVectors", "invariants")


@pytest.mark.parametrize(
    ("before", "asked", "after"),
    [  # as delta-spark 4.4.0 did
        (versions(1, 2), {READER: "2", WRITER: "5"}, versions(2, 5)),
        (versions(1, 2), {WRITER: "3"}, versions(1, 3)),
        (versions(1, 2), {READER: "3", WRITER: "7"}, versions(1, 2)),
        (versions(1, 4), {WRITER: "7"}, versions(1, 4)),
        (versions(1, 2), {WRITER: "5"}, versions(1, 4)),  # column mapping needs readers of version 2, too
        (versions(2, 5), {READER: "1", WRITER: "2"}, versions(2, 5)),
        (versions(1, 2), {NTZ: "supported"}, lists(3, ("timestampNtz",), "appendOnly", "invariants", "timestampNtz")),
        (
            VECTORS,
            {READER: "1", WRITER: "4"},
            lists(
                3,
                ("deletionVectors",),
                *("appendOnly", "changeDataFeed", "checkConstraints", "deletionVectors"),
                *("generatedColumns", "invariants"),
            ),
        ),
        (VECTORS, {"delta.feature.deletionVectors": "supported"}, VECTORS),
    ],
)
def test_properties_ask_for_a_protocol(before: Protocol, asked: dict[str, str], after: Protocol) -> None:
    assert same(requested(before, asked), after)
    require_writable(after, metadata(), "/t")


def test_what_cannot_be_asked_for() -> None:
    with pytest.raises(ConfigurationError, match="cannot be 3 without the writer version 7"):
        requested(versions(1, 2), {READER: "3"})
    for name, message in (("nope", "table feature nope"), ("rowTracking", "table feature rowTracking")):
        with pytest.raises(UnsupportedFeatureError, match=message):
            requested(versions(1, 2), {f"delta.feature.{name}": "supported"})
    with pytest.raises(UnsupportedFeatureError, match="icebergCompatV2: the table promises"):
        requested(versions(1, 2), {"delta.feature.icebergCompatV2": "supported"})
