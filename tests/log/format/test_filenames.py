from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.log.format import filenames
from tidelog.log.format.filenames import LogFile, LogFileKind

VERSIONS = st.integers(0, filenames.MAX_VERSION)


def test_names_are_those_of_the_protocol() -> None:
    assert filenames.commit_path(3) == "_delta_log/00000000000000000003.json"
    assert filenames.checksum_path(3) == "_delta_log/00000000000000000003.crc"
    assert filenames.checkpoint_path(3) == "_delta_log/00000000000000000003.checkpoint.parquet"
    assert filenames.LAST_CHECKPOINT == "_delta_log/_last_checkpoint"


@given(VERSIONS)
def test_names_are_recognised_again(version: int) -> None:
    for make, kind in (
        (filenames.commit_path, LogFileKind.COMMIT),
        (filenames.checksum_path, LogFileKind.CHECKSUM),
        (filenames.checkpoint_path, LogFileKind.CHECKPOINT),
    ):
        name = make(version).removeprefix("_delta_log/")
        assert filenames.parse(name) == LogFile(name, kind, version)


@given(VERSIONS, VERSIONS)
def test_names_sort_as_their_versions_do(left: int, right: int) -> None:
    assert (filenames.commit_path(left) < filenames.commit_path(right)) == (left < right)


@pytest.mark.parametrize(
    "name",
    [
        "_last_checkpoint",
        "0.json",
        "000000000000000000003.json",
        "00000000000000000003.json.tmp",
        ".00000000000000000003.json.crc",
        "00000000000000000003.JSON",
        "00000000000000000003.json\n",
        "00000000000000000003.checkpoint.1.2.parquet",
        "00000000000000000003.checkpoint.80a083e8.json",
        "00000000000000000001.00000000000000000003.compacted.json",
        "00000000000000000003.80a083e8-7026-4e79-81be-64bd76c43a11.json",
        "-0000000000000000003.json",
        "",
    ],
)
def test_other_names_are_not(name: str) -> None:
    assert filenames.parse(name) is None
