"""Protocol versions and table features: what a table requires of readers and writers, and what tidelog supports."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping

import msgspec
import pyarrow as pa

from tidelog.log.errors import ConfigurationError, UnsupportedFeatureError
from tidelog.log.format import properties, row_tracking
from tidelog.log.format.actions import Metadata, Protocol
from tidelog.log.format.schema import has_timestamp_ntz

# The features that tidelog can read.
READER_FEATURES = frozenset(
    {
        "columnMapping",
        "deletionVectors",
        "timestampNtz",
        "typeWidening",
        "typeWidening-preview",
        "v2Checkpoint",
        "vacuumProtocolCheck",
        "variantShredding",
        "variantShredding-preview",
        "variantType",
        "variantType-preview",
    }
)
# The features that tidelog can write. A table may list other features as long as it does not use them.
WRITER_FEATURES = frozenset(
    {
        "allowColumnDefaults",
        "appendOnly",
        "changeDataFeed",
        "checkConstraints",
        "clustering",
        "columnMapping",
        "deletionVectors",
        "domainMetadata",
        "generatedColumns",
        "identityColumns",
        "inCommitTimestamp",
        "invariants",
        "rowTracking",
        "timestampNtz",
        "typeWidening",
        "typeWidening-preview",
        "v2Checkpoint",
        "vacuumProtocolCheck",
        "variantShredding",
        "variantShredding-preview",
        "variantType",
        "variantType-preview",
    }
)

# Those that `delta.feature.*` adds. Row tracking and clustering need more than an entry in a list.
_ADDED_BY_NAME = frozenset(
    feature
    for feature in WRITER_FEATURES
    if feature not in ("rowTracking", "clustering") and not feature.endswith("-preview")
)

# The feature that each property requires when it is true, or v2.
FEATURES_BY_PROPERTY: Mapping[str, str] = {
    properties.APPEND_ONLY: "appendOnly",
    properties.ENABLE_CHANGE_DATA_FEED: "changeDataFeed",
    properties.ENABLE_DELETION_VECTORS: "deletionVectors",
    properties.ENABLE_IN_COMMIT_TIMESTAMPS: "inCommitTimestamp",
    properties.ENABLE_TYPE_WIDENING: "typeWidening",
    properties.CHECKPOINT_POLICY: "v2Checkpoint",
    properties.COLUMN_MAPPING_MODE: "columnMapping",
}

# The property that turns each of these features on. Without it, the feature asks nothing of a writer.
_ICEBERG = {f"icebergCompatV{number}": f"delta.enableIcebergCompatV{number}" for number in (1, 2, 3)}

# A writer feature that no engine has: the last commit of a dropped table requires it. Readers find an empty table.
DROPPED = "tidelog.dropped"

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
    """The lowest protocol that supports the properties and the schema of a new table."""
    both = set()
    if properties.flag(configuration, properties.ENABLE_DELETION_VECTORS):
        both.add("deletionVectors")
    if has_timestamp_ntz(schema):
        both.add("timestampNtz")
    if needs(configuration, properties.CHECKPOINT_POLICY):
        both.add("v2Checkpoint")
    if properties.flag(configuration, properties.ENABLE_TYPE_WIDENING):
        both.add("typeWidening")
    if needs(configuration, properties.COLUMN_MAPPING_MODE):
        both.add("columnMapping")
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


def needs(configuration: Mapping[str, str], key: str) -> bool:
    """Whether the property asks for its feature."""
    if key == properties.CHECKPOINT_POLICY:
        return configuration.get(key, "").lower() == properties.V2_CHECKPOINTS
    if key == properties.COLUMN_MAPPING_MODE:
        return configuration.get(key, "none").strip().lower() != "none"
    return properties.flag(configuration, key)


def requested(protocol: Protocol, texts: Mapping[str, str]) -> Protocol:
    """The protocol with what `texts` ask for: `delta.minReaderVersion`, `delta.minWriterVersion`, `delta.feature.*`.

    As in Delta, versions ask for the features that they imply, which for 3 and 7 are none, and what is there already
    changes nothing. Raises ConfigurationError, and UnsupportedFeatureError for a feature that tidelog cannot add.
    """
    reader = int(texts.get(properties.MIN_READER_VERSION, _MAPPING_READER_VERSION - 1))
    writer = int(texts.get(properties.MIN_WRITER_VERSION, 1))
    if reader >= _FEATURES_READER_VERSION and writer < _FEATURES_WRITER_VERSION:
        raise ConfigurationError(
            f"the table property {properties.MIN_READER_VERSION!r} cannot be {reader} without the writer version "
            f"{_FEATURES_WRITER_VERSION}",
            advice=f"set {properties.MIN_WRITER_VERSION} to {_FEATURES_WRITER_VERSION} as well",
        )
    wanted = {key.removeprefix(properties.FEATURE_PREFIX) for key in texts if key.startswith(properties.FEATURE_PREFIX)}
    if unknown := wanted - _ADDED_BY_NAME:
        names = ", ".join(sorted(unknown))
        reason, advice = refusal(unknown) or ("", f"add it with another engine; tidelog adds {_named(_ADDED_BY_NAME)}")
        raise UnsupportedFeatureError(
            f"tidelog cannot add the table feature {names}{reason and f': {reason}'}", advice=advice, features=names
        )
    if writer < _FEATURES_WRITER_VERSION:
        wanted |= _implied_features(Protocol(min_reader_version=reader, min_writer_version=writer))
    missing = {feature for feature in wanted if not allows(protocol, feature)}
    if not missing:
        return protocol
    by_versions = _by_versions(protocol, missing)
    return functools.reduce(with_feature, sorted(missing), protocol) if by_versions is None else by_versions


def _by_versions(protocol: Protocol, missing: set[str]) -> Protocol | None:
    """The lowest versions without lists that imply just these features as well; None if there are none."""
    if protocol.min_writer_version >= _FEATURES_WRITER_VERSION:
        return None
    wanted = _implied_features(protocol) | missing
    for reader in range(protocol.min_reader_version, _FEATURES_READER_VERSION):
        for writer in range(protocol.min_writer_version, _FEATURES_WRITER_VERSION):
            found = Protocol(min_reader_version=reader, min_writer_version=writer)
            if _implied_features(found) == wanted:
                return found
    return None


def _named(features: Iterable[str]) -> str:
    return ", ".join(sorted(features))


def require_readable(protocol: Protocol, path: str) -> None:
    """Raise UnsupportedFeatureError, naming the features, if tidelog cannot read this protocol."""
    missing: set[str] = set()
    if protocol.min_reader_version > _FEATURES_READER_VERSION:
        missing.add(f"reader version {protocol.min_reader_version}")
    if protocol.min_reader_version == _FEATURES_READER_VERSION:
        missing |= set(protocol.reader_features or ()) - READER_FEATURES
    _require(missing, "reading", path)


def require_writable(protocol: Protocol, metadata: Metadata, path: str) -> None:
    """Raise UnsupportedFeatureError, naming the features, if tidelog cannot write to this table."""
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
    _require(missing - _unused(missing, metadata), "writing", path)
    row_tracking.require_consistent(protocol, metadata, path)


def is_dropped(protocol: Protocol) -> bool:
    """Whether a table with this protocol has been dropped."""
    return DROPPED in (protocol.writer_features or ())


def may_have_sidecars(protocol: Protocol) -> bool:
    """Whether checkpoints of the table can have sidecars (V2)."""
    return "v2Checkpoint" in (protocol.writer_features or ())


def has_in_commit_timestamps(protocol: Protocol, metadata: Metadata) -> bool:
    """Whether the table's commits carry an in-commit timestamp."""
    listed = "inCommitTimestamp" in (protocol.writer_features or ())
    return listed and properties.flag(metadata.configuration, properties.ENABLE_IN_COMMIT_TIMESTAMPS)


def has_deletion_vectors(protocol: Protocol, metadata: Metadata) -> bool:
    """Whether a writer may create deletion vectors."""
    listed = "deletionVectors" in (protocol.writer_features or ())
    return listed and properties.flag(metadata.configuration, properties.ENABLE_DELETION_VECTORS)


def has_change_data_feed(protocol: Protocol, metadata: Metadata) -> bool:
    """Whether a writer has to write change rows."""
    listed = allows(protocol, "changeDataFeed")
    return listed and properties.flag(metadata.configuration, properties.ENABLE_CHANGE_DATA_FEED)


def allows(protocol: Protocol, feature: str) -> bool:
    """Whether a table with this protocol may use `feature`, which must be one that tidelog writes."""
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


def _unused(features: Iterable[str], metadata: Metadata) -> set[str]:
    """The features that the table lists but does not use, so that a writer can ignore them."""
    in_use = {name: properties.flag(metadata.configuration, key) for name, key in _ICEBERG.items()}
    return {feature for feature in features if not in_use.get(feature, True)}


def _require(missing: set[str], doing: str, path: str) -> None:
    if missing:
        names = ", ".join(sorted(missing))
        reason, advice = refusal(missing) or ("", GENERAL_ADVICE)
        raise UnsupportedFeatureError(
            f"{doing} this table requires {names}, which tidelog does not support{reason and f': {reason}'}",
            advice=advice,
            path=path,
            features=names,
        )


def same(left: Protocol | Metadata, right: Protocol | Metadata) -> bool:
    """Whether two protocol or metadata actions mean the same, so that rewriting one as the other changes nothing."""
    if isinstance(left, Metadata) and isinstance(right, Metadata):
        left, right = (msgspec.structs.replace(value, created_time=None) for value in (left, right))
    if isinstance(left, Protocol) and isinstance(right, Protocol):
        left, right = (_in_order(value) for value in (left, right))
    return left == right


def _in_order(protocol: Protocol) -> Protocol:
    """The protocol with sorted features: they are sets, and delta-rs writes them in any order."""
    lists = (protocol.reader_features, protocol.writer_features)
    reader, writer = (None if features is None else tuple(sorted(set(features))) for features in lists)
    return msgspec.structs.replace(protocol, reader_features=reader, writer_features=writer)


# --- features that are refused for good, and why ----------------------------------------------------------------------


_NO_ICEBERG = (
    "the table promises that each of its files can be read as Iceberg, with Iceberg's field ids and types and without "
    "deletion vectors, and tidelog's files do not keep that promise"
)
_NO_ICEBERG_ADVICE = "write the table with an engine that supports it, or turn its Iceberg metadata off"
_CATALOG = (
    "commits go through the table's catalog, which tidelog does not ask: the log alone does not show the newest "
    "version, and a commit put into it could be lost"
)
_CATALOG_ADVICE = "use the table through its catalog"
_REFUSED: Mapping[str, tuple[str, str]] = {
    "icebergCompatV1": (_NO_ICEBERG, _NO_ICEBERG_ADVICE),
    "icebergCompatV2": (_NO_ICEBERG, _NO_ICEBERG_ADVICE),
    "icebergCompatV3": (_NO_ICEBERG, _NO_ICEBERG_ADVICE),
    "icebergWriterCompatV1": (_NO_ICEBERG, _NO_ICEBERG_ADVICE),
    "icebergWriterCompatV3": (_NO_ICEBERG, _NO_ICEBERG_ADVICE),
    "catalogManaged": (_CATALOG, _CATALOG_ADVICE),
    "catalogOwned-preview": (_CATALOG, _CATALOG_ADVICE),
}

# What to do about any other feature.
GENERAL_ADVICE = "use an engine that supports it, or drop the feature from the table"


def refusal(features: Iterable[str]) -> tuple[str, str] | None:
    """Why the first of these features that is refused for good is refused, and what to do; None if none is."""
    return next((_REFUSED[name] for name in sorted(features) if name in _REFUSED), None)
