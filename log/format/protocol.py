"""What a table's protocol asks of a reader and a writer, and whether tidelog has it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec
import pyarrow as pa

from tidelog.log.errors import UnsupportedFeatureError
from tidelog.log.format import properties
from tidelog.log.format.actions import Metadata, Protocol
from tidelog.log.format.schema import has_timestamp_ntz

# What tidelog reads; `variantShredding` is refused file by file.
READER_FEATURES = frozenset(
    {
        "columnMapping",
        "deletionVectors",
        "timestampNtz",
        "typeWidening",
        "typeWidening-preview",
        "v2Checkpoint",
        "vacuumProtocolCheck",
        "variantType",
        "variantType-preview",
    }
)
# What tidelog writes; a table may list other features as long as it makes no use of them.
WRITER_FEATURES = frozenset(
    {
        "appendOnly",
        "changeDataFeed",
        "columnMapping",
        "deletionVectors",
        "inCommitTimestamp",
        "invariants",
        "timestampNtz",
        "typeWidening",
        "typeWidening-preview",
        "v2Checkpoint",
        "vacuumProtocolCheck",
    }
)

# The feature that a true property rests on.
FEATURES_BY_PROPERTY: Mapping[str, str] = {
    properties.APPEND_ONLY: "appendOnly",
    properties.ENABLE_CHANGE_DATA_FEED: "changeDataFeed",
    properties.ENABLE_DELETION_VECTORS: "deletionVectors",
    properties.ENABLE_IN_COMMIT_TIMESTAMPS: "inCommitTimestamp",
}

_FEATURES_READER_VERSION = 3
_FEATURES_WRITER_VERSION = 7
_MAPPING_READER_VERSION = 2
# What each writer version before feature lists implies (Delta protocol, "Writer Version Requirements").
_LEGACY_WRITER = {
    2: {"appendOnly", "invariants"},
    3: {"checkConstraints"},
    4: {"changeDataFeed", "generatedColumns"},
    5: {"columnMapping"},
    6: {"identityColumns"},
}


def for_new_table(schema: pa.Schema, configuration: dict[str, str]) -> Protocol:
    """The lowest protocol that has what the properties and the schema of a new table ask for."""
    both = set()
    if properties.flag(configuration, properties.ENABLE_DELETION_VECTORS):
        both.add("deletionVectors")
    if has_timestamp_ntz(schema):
        both.add("timestampNtz")
    writer_only = set()
    if properties.flag(configuration, properties.ENABLE_IN_COMMIT_TIMESTAMPS):
        writer_only.add("inCommitTimestamp")
    if properties.flag(configuration, properties.ENABLE_CHANGE_DATA_FEED):
        writer_only.add("changeDataFeed")
    if not both and not writer_only:
        return Protocol(min_reader_version=1, min_writer_version=2)
    writer_features = tuple(sorted(both | writer_only | {"appendOnly", "invariants"}))
    if not both:
        return Protocol(
            min_reader_version=1, min_writer_version=_FEATURES_WRITER_VERSION, writer_features=writer_features
        )
    return Protocol(
        min_reader_version=_FEATURES_READER_VERSION,
        min_writer_version=_FEATURES_WRITER_VERSION,
        reader_features=tuple(sorted(both)),
        writer_features=writer_features,
    )


def require_readable(protocol: Protocol, path: str) -> None:
    """Raise UnsupportedFeatureError naming each reader feature in use that tidelog does not have."""
    missing: set[str] = set()
    if protocol.min_reader_version > _FEATURES_READER_VERSION:
        missing.add(f"reader version {protocol.min_reader_version}")
    if protocol.min_reader_version == _FEATURES_READER_VERSION:
        missing |= set(protocol.reader_features or ()) - READER_FEATURES
    _require(missing, "reading", path)


def require_writable(protocol: Protocol, metadata: Metadata, path: str) -> None:
    """Raise UnsupportedFeatureError naming each writer feature in use that tidelog does not have."""
    require_readable(protocol, path)
    missing: set[str] = set()
    if protocol.min_writer_version > _FEATURES_WRITER_VERSION:
        missing.add(f"writer version {protocol.min_writer_version}")
    elif protocol.min_writer_version == _FEATURES_WRITER_VERSION:
        missing |= set(protocol.writer_features or ()) - WRITER_FEATURES
    else:
        for version, features in _LEGACY_WRITER.items():
            if version <= protocol.min_writer_version:
                missing |= features - WRITER_FEATURES
    _require(missing - _unused(missing, metadata) | _used_invariants(metadata), "writing", path)


def has_in_commit_timestamps(protocol: Protocol, metadata: Metadata) -> bool:
    """Whether commits of the table carry an in-commit timestamp."""
    listed = "inCommitTimestamp" in (protocol.writer_features or ())
    return listed and properties.flag(metadata.configuration, properties.ENABLE_IN_COMMIT_TIMESTAMPS)


def has_deletion_vectors(protocol: Protocol, metadata: Metadata) -> bool:
    """Whether a writer may put rows into deletion vectors."""
    listed = "deletionVectors" in (protocol.writer_features or ())
    return listed and properties.flag(metadata.configuration, properties.ENABLE_DELETION_VECTORS)


def has_change_data_feed(protocol: Protocol, metadata: Metadata) -> bool:
    """Whether a writer has to leave change rows."""
    listed = allows(protocol, "changeDataFeed")
    return listed and properties.flag(metadata.configuration, properties.ENABLE_CHANGE_DATA_FEED)


def allows(protocol: Protocol, feature: str) -> bool:
    """Whether a table of this protocol may make use of a feature that tidelog writes."""
    if protocol.min_writer_version < _FEATURES_WRITER_VERSION:
        return feature in _implied_features(protocol)
    in_reader = feature not in READER_FEATURES or feature in (protocol.reader_features or ())
    return in_reader and feature in (protocol.writer_features or ())


def with_feature(protocol: Protocol, feature: str) -> Protocol:
    """The protocol that also allows `feature`: feature lists contain it, and versions without such lists are raised.

    Lists that are new contain every feature that the old versions imply, since older versions of the table may use it
    (Delta protocol, "Table Features for New and Existing Tables"). Versions are never lowered.
    """
    reader_version, readers = protocol.min_reader_version, protocol.reader_features
    if protocol.min_writer_version < _FEATURES_WRITER_VERSION:
        writers = _implied_features(protocol)
    else:
        writers = set(protocol.writer_features or ())
    if feature in READER_FEATURES:
        if reader_version < _FEATURES_READER_VERSION:
            reader_version, readers = _FEATURES_READER_VERSION, tuple(writers & READER_FEATURES)
        readers = tuple(sorted({*(readers or ()), feature}))
    return Protocol(
        min_reader_version=reader_version,
        min_writer_version=max(protocol.min_writer_version, _FEATURES_WRITER_VERSION),
        reader_features=readers,
        writer_features=tuple(sorted({*writers, feature})),
    )


def _implied_features(protocol: Protocol) -> set[str]:
    """The features that a writer version without a feature list implies; column mapping needs a reader version, too."""
    features: set[str] = set()
    for version, implied in _LEGACY_WRITER.items():
        if version <= protocol.min_writer_version:
            features |= implied
    return features if protocol.min_reader_version >= _MAPPING_READER_VERSION else features - {"columnMapping"}


def _used_invariants(metadata: Metadata) -> set[str]:
    return {"invariants"} if "delta.invariants" in metadata.schema_string else set()


def _unused(features: Iterable[str], metadata: Metadata) -> set[str]:
    """Those of `features` that the table allows but has no use of, so that a writer need not know them."""
    fields = metadata.schema_string
    in_use = {
        "checkConstraints": any(key.startswith("delta.constraints.") for key in metadata.configuration),
        "generatedColumns": "delta.generationExpression" in fields,
        "identityColumns": "delta.identity." in fields,
    }
    return {feature for feature in features if not in_use.get(feature, True)}


def _require(missing: set[str], doing: str, path: str) -> None:
    if missing:
        names = ", ".join(sorted(missing))
        raise UnsupportedFeatureError(
            f"{doing} this table needs {names}, which tidelog does not have",
            advice="use an engine that has it, or drop the feature from the table",
            path=path,
            features=names,
        )


def same(left: Protocol | Metadata, right: Protocol | Metadata) -> bool:
    """Whether two protocol or metadata actions say the same, so that a re-written copy is no change."""
    if isinstance(left, Metadata) and isinstance(right, Metadata):
        left, right = (msgspec.structs.replace(value, created_time=None) for value in (left, right))
    if isinstance(left, Protocol) and isinstance(right, Protocol):
        left, right = (_in_order(value) for value in (left, right))
    return left == right


def _in_order(protocol: Protocol) -> Protocol:
    """With its features in order: they are sets, and delta-rs writes them in any order."""
    lists = (protocol.reader_features, protocol.writer_features)
    reader, writer = (None if features is None else tuple(sorted(set(features))) for features in lists)
    return msgspec.structs.replace(protocol, reader_features=reader, writer_features=writer)
