"""The rules of clean-up."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.log.support import START_MS
from tidelog.log.cleanup import retention
from tidelog.log.errors import ConfigurationError
from tidelog.log.storage import FileStatus
from tidelog.log.system import to_datetime

DAY = 86_400_000
MIDNIGHT = START_MS - START_MS % DAY


def status(name: str, modified_ms: int = 0) -> FileStatus:
    return FileStatus(name, 1, modified_ms)


@pytest.mark.parametrize(
    ("configuration", "cutoff"),
    [
        ({}, MIDNIGHT - 30 * DAY),
        ({"delta.logRetentionDuration": "interval 2 weeks"}, MIDNIGHT - 14 * DAY),
        ({"delta.logRetentionDuration": "0 days"}, MIDNIGHT - DAY),
        ({"delta.logRetentionDuration": "nonsense"}, MIDNIGHT - 30 * DAY),
    ],
)
def test_the_cutoff_of_the_log_is_a_midnight(configuration: dict[str, str], cutoff: int) -> None:
    for now in (MIDNIGHT, START_MS, MIDNIGHT + DAY - 1):
        assert retention.log_cutoff_ms(None, now, configuration) == cutoff


@pytest.mark.parametrize(("hours", "age_ms"), [(0, 0), (1, DAY // 24), (23, DAY // 24 * 23)])
def test_a_retention_of_less_than_a_day_is_exact(hours: int, age_ms: int) -> None:
    configuration = {"delta.logRetentionDuration": f"{hours} hours", "tidelog.maxTransactionTime": "0 days"}
    assert retention.log_cutoff_ms(None, START_MS, configuration) == START_MS - age_ms


@pytest.mark.parametrize(
    ("configuration", "cutoff"),
    [
        ({}, START_MS - 7 * DAY),
        ({"delta.deletedFileRetentionDuration": "interval 1 hours"}, START_MS - DAY),
        ({"delta.deletedFileRetentionDuration": "2 days", "tidelog.maxTransactionTime": "3 days"}, START_MS - 3 * DAY),
    ],
)
def test_the_cutoff_of_data_files_is_at_least_the_longest_transaction(
    configuration: dict[str, str], cutoff: int
) -> None:
    assert retention.data_cutoff_ms(None, START_MS, configuration) == cutoff


@pytest.mark.parametrize("cutoff_ms", [retention.log_cutoff_ms, retention.data_cutoff_ms])
def test_an_explicit_age_or_time_is_exact(cutoff_ms: Any) -> None:
    moment = START_MS - 2 * DAY - 1
    elsewhere = to_datetime(moment).astimezone(timezone(timedelta(hours=-7)))
    for older_than in (timedelta(days=2, milliseconds=1), to_datetime(moment), elsewhere):
        assert cutoff_ms(older_than, START_MS, {}) == moment


@pytest.mark.parametrize(
    "older_than",
    [
        timedelta(0),
        timedelta(days=-1),
        timedelta(hours=24) - timedelta(milliseconds=1),
        datetime(2050, 1, 1, tzinfo=UTC),
        datetime(2020, 1, 1),  # noqa: DTZ001 - a naive datetime must be refused
        7,
        "7 days",
    ],
)
def test_an_age_shorter_than_a_transaction_is_refused(older_than: Any) -> None:
    for cutoff_ms in (retention.log_cutoff_ms, retention.data_cutoff_ms):
        with pytest.raises(ConfigurationError):
            cutoff_ms(older_than, START_MS, {})


def test_the_minimum_age_is_the_property_max_transaction_time() -> None:
    shorter = {"tidelog.maxTransactionTime": "10 minutes"}
    assert retention.explicit_cutoff_ms(timedelta(minutes=10), START_MS, shorter) == START_MS - 600_000
    with pytest.raises(
        ConfigurationError, match=r"at least 10 minutes \(tidelog\.max.* it is 9 minutes; .* set tidelog\.max"
    ):
        retention.explicit_cutoff_ms(timedelta(minutes=9), START_MS, shorter)


@pytest.mark.parametrize(
    ("configuration", "enabled"),
    [
        ({}, True),
        ({"delta.enableExpiredLogCleanup": "TRUE"}, True),
        ({"delta.enableExpiredLogCleanup": "false"}, False),
        ({"delta.enableExpiredLogCleanup": "false", "tidelog.cleanUp": "true"}, True),
        ({"delta.enableExpiredLogCleanup": "true", "tidelog.cleanUp": "false"}, True),
        ({"tidelog.cleanUp": "false"}, True),
        ({"delta.enableExpiredLogCleanup": "false", "tidelog.cleanUp": "false"}, False),
        ({"delta.enableExpiredLogCleanup": "false", "tidelog.cleanUp": "perhaps"}, False),
    ],
)
def test_log_cleanup_can_be_disabled(configuration: dict[str, str], enabled: bool) -> None:
    assert retention.is_cleanup_enabled(configuration) is enabled


UUID = "80a083e8-7026-4e79-81be-64bd76c43a11"
EXPIRED = [
    f"{0:020d}.json",
    f"{1:020d}.checkpoint.parquet",
    f"{1:020d}.crc",
    f"{1:020d}.{9:020d}.compacted.json",
    f".{1:020d}.json.crc",
    f"{1:020d}.json",
    f"{2:020d}.checkpoint.{1:010d}.{2:010d}.parquet",
    f"{2:020d}.checkpoint.{UUID}.json",
    f"{2:020d}.json",
    f"{3:020d}.{9:020d}.compacted.json",
]

KEPT = [
    f"{3:020d}.json",
    f"{3:020d}.crc",
    f"{3:020d}.checkpoint.parquet",
    f".{3:020d}.json.crc",
    f"{4:020d}.json",
    f"{4:020d}.{9:020d}.compacted.json",
    f"{10:020d}.checkpoint.{UUID}.parquet",
    "_last_checkpoint",
    "._last_checkpoint.crc",
    f".{UUID}.tmp",
    f"{0:020d}.json.bak",
    f"{0:020d}.{UUID}.json",
    "notes.txt",
]


def test_files_that_a_checkpoint_replaces() -> None:
    found = [each.name for each in retention.expired_log_files(map(status, [*KEPT, *reversed(EXPIRED)]), 3)]
    assert sorted(found) == sorted(EXPIRED)


def test_oldest_files_are_deleted_first_and_a_checkpoint_before_its_commit() -> None:
    found = [each.name for each in retention.expired_log_files(map(status, reversed(EXPIRED)), 3)]
    versions = [int(name.lstrip(".")[:20]) for name in found]
    assert versions == sorted(versions)
    for version in (1, 2):
        own = [name for name in found if name.lstrip(".").startswith(f"{version:020d}")]
        assert own[-1] == f"{version:020d}.json"
    assert found.index(f".{1:020d}.json.crc") < found.index(f"{1:020d}.json")


def test_old_unreferenced_sidecars_are_deleted() -> None:
    old, young = MIDNIGHT - DAY - 1, MIDNIGHT - DAY
    listing = [status("named", old), status("by-path", old), status("old", old), status("young", young)]
    found = retention.unreferenced_sidecars(listing, {"named", "_delta_log/_sidecars/by-path"}, START_MS)
    assert [each.name for each in found] == ["old"]


def test_temporary_files_are_deleted_after_a_day() -> None:
    listing = [status(f".{UUID}.tmp", MIDNIGHT - DAY - 1), status(f".{UUID}.tmp", MIDNIGHT), status(".other.tmp", 0)]
    assert retention.left_over(listing, START_MS) == listing[:1]


@pytest.mark.parametrize(
    ("path", "may"),
    [
        ("part.parquet", True),
        ("ab/part.parquet", True),
        ("p=_x/part.parquet", True),
        ("deletion_vector_x.bin", True),
        ("_dv/deletion_vector_x.bin", True),
        ("_change_data/cdc-1.parquet", True),
        ("_change_data/p=1/cdc-1.parquet", True),
        ("_tidelog/rowmaps/1.arrow", True),
        ("_tidelog/leases/0.json", False),
        ("_tidelog/x", False),
        ("_delta_log/00000000000000000000.json", False),
        ("_SUCCESS", False),
        (".part.parquet.crc", False),
        ("ab/.part.parquet.crc", False),
        ("ab/_temporary/part.parquet", False),
        ("data/01234567-89ab-cdef-0123-456789abcdef/_temporary/0/_temporary/attempt_1/p=1/part.parquet", True),
        ("data/01234567-89ab-cdef-0123-456789abcdef/_other/part.parquet", False),
        ("data/ab/_temporary/part.parquet", False),
        ("_dv/.hidden", False),
        ("_dv/_x/y", False),
        ("_dvx/y", False),
        ("a/_dv/y", False),
        ("a/_change_data/y", False),
        (".git/objects/ab", False),
    ],
)
def test_paths_that_belong_to_the_table(path: str, may: bool) -> None:
    assert retention.may_vacuum(path) is may


@pytest.mark.parametrize(
    ("path", "may"),
    [
        ("_day=1/part.parquet", True),
        (".a%2Fb=x/_day=1/part.parquet", True),
        ("_change_data/_day=1/cdc-1.parquet", True),
        ("_other=1/part.parquet", False),
        ("_day=1/_part.parquet", False),
        ("_day=1", False),
        ("_day/part.parquet", False),
    ],
)
def test_a_partition_folder_is_not_hidden_whatever_the_name_of_its_column(path: str, may: bool) -> None:
    assert retention.may_vacuum(path, ["_day", ".a/b"]) is may
    assert not retention.may_vacuum(path)


def test_another_table_inside_this_one_is_found() -> None:
    assert retention.table_inside("_delta_log/0.json") is None
    assert retention.table_inside("a/b/_delta_log/0.json") == "a/b/"
    assert retention.table_inside("a/_delta_log") is None


@given(st.integers(0, 2**45))
def test_a_midnight_is_at_most_a_day_before(moment: int) -> None:
    found = to_datetime(retention.midnight_ms(moment))
    assert (found.hour, found.minute, found.second, found.microsecond) == (0, 0, 0, 0)
    assert 0 <= moment - retention.midnight_ms(moment) < DAY
