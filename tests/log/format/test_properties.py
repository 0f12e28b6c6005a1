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
    ],
)
def test_durations(text: str, expected: int) -> None:
    assert properties.parse_duration_ms(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [("1", 1), ("134217728", 2**27), ("128 MiB", 2**27), ("128mb", 2**27), ("3 kb", 3072), ("1GiB", 2**30), ("7 B", 7)],
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
