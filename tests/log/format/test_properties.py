"""Validating, parsing and defaulting table properties."""

from __future__ import annotations

import pytest

from tidelog.log.errors import ConfigurationError
from tidelog.log.format import properties

DAY_MS = 24 * 60 * 60 * 1000


@pytest.mark.parametrize(
    ("key", "value", "text"),
    [
        ("delta.enableDeletionVectors", True, "true"),
        ("delta.enableDeletionVectors", "False", "False"),
        ("delta.enableInCommitTimestamps", False, "false"),
        ("delta.enableChangeDataFeed", "true", "true"),
        ("delta.appendOnly", "TRUE", "TRUE"),
        ("delta.enableExpiredLogCleanup", "true", "true"),
        ("delta.checkpointInterval", 10, "10"),
        ("delta.logRetentionDuration", "interval 30 days", "interval 30 days"),
        ("delta.deletedFileRetentionDuration", "1 week", "1 week"),
        ("delta.setTransactionRetentionDuration", "interval 1 hour", "interval 1 hour"),
        ("delta.dataSkippingNumIndexedCols", -1, "-1"),
        ("delta.dataSkippingNumIndexedCols", 0, "0"),
        ("delta.dataSkippingStatsColumns", "a, st.x,`odd.name`", "a, st.x,`odd.name`"),
        ("tidelog.targetFileSize", "128 MiB", "128 MiB"),
        ("tidelog.minorSpan", "12 hours", "12 hours"),
        ("tidelog.conflictPolicy", "write-serializable", "write-serializable"),
        ("tidelog.metadataRetry", False, "false"),
        ("tidelog.clusterBy", "state, id", "state, id"),
        ("tidelog.clusterOrder", "sort", "sort"),
        ("owner", "me", "me"),
        ("my.app.flag", True, "true"),
    ],
)
def test_a_valid_value_is_kept_as_text(key: str, value: object, text: str) -> None:
    assert properties.validate({key: value}) == {key: text}


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("delta.enableDeletionVectors", "yes"),
        ("delta.enableDeletionVectors", 1),
        ("delta.appendOnly", ""),
        ("delta.checkpointInterval", 0),
        ("delta.checkpointInterval", "-1"),
        ("delta.checkpointInterval", "ten"),
        ("delta.checkpointInterval", 1.5),
        ("delta.logRetentionDuration", "30"),
        ("delta.logRetentionDuration", "1 fortnight"),
        ("delta.logRetentionDuration", "-1 day"),
        ("delta.logRetentionDuration", "1 month"),
        ("delta.logRetentionDuration", "1 day 2"),
        ("delta.logRetentionDuration", "interval"),
        ("delta.checkpoint.writeStatsAsJson", "json"),
        ("delta.checkpointPolicy", "v3"),
        ("delta.randomPrefixLength", "0"),
        ("delta.dataSkippingStringPrefixLength", "-1"),
        ("delta.parquet.format.version", "3"),
        ("delta.dataSkippingNumIndexedCols", "-2"),
        ("delta.dataSkippingStatsColumns", ""),
        ("delta.dataSkippingStatsColumns", "a,"),
        ("delta.dataSkippingStatsColumns", "a,,b"),
        ("delta.dataSkippingStatsColumns", "a..b"),
        ("delta.dataSkippingStatsColumns", "`a"),
        ("delta.dataSkippingStatsColumns", "``"),
        ("delta.dataSkippingStatsColumns", "`a`b"),
        ("tidelog.conflictPolicy", "Delta-Table"),
        ("tidelog.conflictPolicy", ""),
        ("tidelog.metadataRetry", "yes"),
        ("tidelog.metadataRetry", 1),
        ("tidelog.clusterBy", "a,,b"),
        ("tidelog.clusterBy", "a, a"),
        ("tidelog.clusterOrder", "zorder"),
        ("tidelog.targetFileSize", "0"),
        ("tidelog.targetFileSize", "12 apples"),
        ("tidelog.targetFileSize", "-1"),
        ("tidelog.minorSpan", "day"),
    ],
)
def test_an_invalid_value_is_refused(key: str, value: object) -> None:
    with pytest.raises(ConfigurationError, match=key):
        properties.validate({key: value})


# All properties of delta-spark 4.4, Delta's kernel and deltalake, with a value that they take. An ellipsis: it is
# refused.
OF_DELTA = {
    "appendOnly": "true",
    "autoOptimize": "true",
    "autoOptimize.autoCompact": "auto",
    "autoOptimize.optimizeWrite": "true",
    "castIcebergTimeType": "true",
    "checkpoint.writeStatsAsJson": "false",
    "checkpoint.writeStatsAsStruct": "true",
    "checkpointInterval": "10",
    "checkpointPolicy": "v2",
    "checkpointRetentionDuration": "interval 2 days",
    "columnMapping.maxColumnId": ...,
    "columnMapping.mode": ...,
    "compatibility.symlinkFormatManifest.enabled": ...,
    "coordinatedCommits.commitCoordinator-preview": ...,
    "coordinatedCommits.commitCoordinatorConf-preview": ...,
    "coordinatedCommits.tableConf-preview": ...,
    "dataSkippingNumIndexedCols": "-1",
    "dataSkippingStatsColumns": "a, b",
    "dataSkippingStringPrefixLength": "0",
    "deletedFileRetentionDuration": "interval 1 week",
    "dropFeatureTruncateHistory.retentionDuration": "interval 24 hours",
    "enableChangeDataCapture": ...,
    "enableChangeDataFeed": "true",
    "enableDeletionVectors": "true",
    "enableExpiredLogCleanup": "true",
    "enableFullRetentionRollback": "false",
    "enableIcebergCompatV1": ...,
    "enableIcebergCompatV2": ...,
    "enableIcebergCompatV3": ...,
    "enableInCommitTimestamps": "true",
    "enableMaterializePartitionColumnsFeature": ...,
    "enableRowTracking": ...,
    "enableTypeWidening": "true",
    "enableVariantShredding": ...,
    "ignoreIcebergBucketPartition": "true",
    "ignoreProtocolDefaults": "true",
    "inCommitTimestampEnablementTimestamp": ...,
    "inCommitTimestampEnablementVersion": ...,
    "isolationLevel": ...,
    "logRetentionDuration": "1 day 12 hours",
    "minReaderVersion": "1",
    "minWriterVersion": "2",
    "parquet.compression.codec": "zstd",
    "parquet.format.version": "2.12.0",
    "randomPrefixLength": "2",
    "randomizeFilePrefixes": "true",
    "redirectReaderWriter-preview": ...,
    "redirectWriterOnly-preview": ...,
    "requireCheckpointProtectionBeforeVersion": ...,
    "rowTracking.materializedRowCommitVersionColumnName": ...,
    "rowTracking.materializedRowIdColumnName": ...,
    "rowTrackingSuspended": ...,
    "sampleRetentionDuration": "interval 7 days",
    "setTransactionRetentionDuration": "interval 1 hour",
    "targetFileSize": "104857600",
    "tuneFileSizesForRewrites": "true",
    "universalFormat.enabledFormats": ...,
    "universalFormat.iceberg.atomicConversion.supported": "true",
    "universalformat.config.iceberg.any": "thing",
    "writePartitionColumnsToParquet": ...,
}


@pytest.mark.parametrize("name", OF_DELTA)
def test_a_property_of_delta_is_kept_or_refused_with_a_reason(name: str) -> None:
    key, value = f"delta.{name}", OF_DELTA[name]
    if isinstance(value, str):
        assert properties.validate({key: value}) == {key: value}
    else:
        given = "id" if name.endswith("mode") else "iceberg" if name.endswith("Formats") else "true"
        with pytest.raises(ConfigurationError, match=f"the table property '{key}' cannot be '{given}': ") as raised:
            properties.validate({key: given})
        assert raised.value.advice


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("delta.enableIcebergCompatV2", False),
        ("delta.columnMapping.mode", "none"),
        ("delta.universalFormat.enabledFormats", ""),
        ("delta.requireCheckpointProtectionBeforeVersion", 0),
    ],
)
def test_a_value_that_asks_for_nothing_is_kept(key: str, value: object) -> None:
    assert list(properties.validate({key: value})) == [key]


def test_the_error_says_which_values_are_allowed() -> None:
    with pytest.raises(ConfigurationError) as raised:
        properties.validate({"tidelog.minorSpan": "soon"})
    assert str(raised.value) == (
        "TIDELOG_CONFIGURATION: the table property 'tidelog.minorSpan' cannot be 'soon'; "
        "it must be a duration such as '1 day' or '12 hours'"
    )


@pytest.mark.parametrize("key", ["tidelog.targetFilesize", "tidelog.x", "delta.enableDeletionVector", "delta."])
def test_an_unknown_key_with_a_known_prefix_is_refused(key: str) -> None:
    with pytest.raises(ConfigurationError, match=key):
        properties.validate({key: "true"})


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("5 milliseconds", 5),
        ("1 second", 1000),
        ("2 minutes", 120_000),
        ("1 hour", 3_600_000),
        ("1 day", DAY_MS),
        ("  INTERVAL  2   Weeks ", 14 * DAY_MS),
        ("0 days", 0),
        ("1 day 12 hours", 36 * 3_600_000),
        ("interval 1 week 1 day 5000 microseconds", 8 * DAY_MS + 5),
    ],
)
def test_durations(text: str, expected: int) -> None:
    assert properties.parse_duration_ms(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1", 1),
        ("134217728", 2**27),
        ("128 MiB", 2**27),
        ("128mb", 2**27),
        ("3 kb", 3072),
        ("1GiB", 2**30),
        ("7 B", 7),
        ("2t", 2**41),
        ("1m", 2**20),
    ],
)
def test_sizes(text: str, expected: int) -> None:
    assert properties.parse_size_bytes(text) == expected


def test_defaults() -> None:
    assert not properties.flag({}, properties.APPEND_ONLY)
    assert properties.duration_ms({}, properties.DELETED_FILE_RETENTION) == 7 * DAY_MS
    assert properties.duration_ms({}, properties.LOG_RETENTION) == 30 * DAY_MS
    assert properties.duration_ms({}, properties.MINOR_SPAN) == DAY_MS
    assert properties.size_bytes({}, properties.TARGET_FILE_SIZE) == 2**27
    assert properties.count({}, properties.CHECKPOINT_INTERVAL) == 100
    assert properties.indexed_columns({}) == 32


def test_values_that_are_set() -> None:
    configuration = {
        properties.APPEND_ONLY: "TRUE",
        properties.DELETED_FILE_RETENTION: "interval 2 days",
        properties.TARGET_FILE_SIZE: "1 kb",
        properties.CHECKPOINT_INTERVAL: "7",
        properties.INDEXED_COLUMNS: "5",
    }
    assert properties.flag(configuration, properties.APPEND_ONLY)
    assert properties.duration_ms(configuration, properties.DELETED_FILE_RETENTION) == 2 * DAY_MS
    assert properties.size_bytes(configuration, properties.TARGET_FILE_SIZE) == 1024
    assert properties.count(configuration, properties.CHECKPOINT_INTERVAL) == 7
    assert properties.indexed_columns(configuration) == 5


def test_minus_one_means_all_columns() -> None:
    assert properties.indexed_columns({properties.INDEXED_COLUMNS: "-1"}) > 100_000


def test_another_writers_invalid_value_counts_as_the_default() -> None:
    configuration = {properties.LOG_RETENTION: "interval 1 month", properties.TARGET_FILE_SIZE: "big"}
    assert properties.duration_ms(configuration, properties.LOG_RETENTION) == 30 * DAY_MS
    assert properties.size_bytes(configuration, properties.TARGET_FILE_SIZE) == 2**27


def test_conflict_policy_and_metadata_retry() -> None:
    assert (properties.conflict_policy({}), properties.metadata_retry({})) == ("delta-table", True)
    configuration = {properties.CONFLICT_POLICY: "serializable", properties.METADATA_RETRY: "False"}
    assert properties.conflict_policy(configuration) == "serializable"
    assert not properties.metadata_retry(configuration)
    unreadable = {properties.CONFLICT_POLICY: "anarchy", properties.METADATA_RETRY: "perhaps"}
    assert (properties.conflict_policy(unreadable), properties.metadata_retry(unreadable)) == ("delta-table", True)


def test_the_defaults_of_new_tables_are_valid() -> None:
    assert properties.validate(dict(properties.NEW_TABLE_DEFAULTS)) == properties.NEW_TABLE_DEFAULTS


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a", (("a",),)),
        (" a , b ", (("a",), ("b",))),
        ("a.b.c,d", (("a", "b", "c"), ("d",))),
        ("`a.b`.c", (("a.b", "c"),)),
        ("`a,b`,`c``d`", (("a,b",), ("c`d",))),
        ("two words, ü", (("two words",), ("ü",))),
    ],
)
def test_column_names_are_split_at_commas_and_dots(text: str, expected: tuple[tuple[str, ...], ...]) -> None:
    assert properties.statistics_columns({"delta.dataSkippingStatsColumns": text}) == expected


def test_another_writers_invalid_column_names_are_ignored() -> None:
    assert properties.statistics_columns({"delta.dataSkippingStatsColumns": "a,,b"}) is None
    assert properties.statistics_columns({}) is None
