"""Building and parsing the names of log files."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.log.format import filenames
from tidelog.log.format.filenames import LogFile, LogFileKind

VERSIONS = st.integers(0, filenames.MAX_VERSION)


def test_names_follow_the_protocol() -> None:
    assert filenames.commit_path(3) == "_delta_log/00000000000000000003.json"
    assert filenames.checksum_path(3) == "_delta_log/00000000000000000003.crc"
    assert filenames.checkpoint_path(3) == "_delta_log/00000000000000000003.checkpoint.parquet"
    assert filenames.LAST_CHECKPOINT == "_delta_log/_last_checkpoint"


@given(VERSIONS)
def test_names_are_parsed_back(version: int) -> None:
    for make, kind in (
        (filenames.commit_path, LogFileKind.COMMIT),
        (filenames.checksum_path, LogFileKind.CHECKSUM),
        (filenames.checkpoint_path, LogFileKind.CHECKPOINT),
    ):
        name = make(version).removeprefix("_delta_log/")
        assert filenames.parse_log_file(name) == LogFile(name, kind, version)


@given(st.lists(VERSIONS), st.text("0123456789.jsoncr٣", max_size=30))
def test_versions_of_many_names_agree_with_parsing_each(found: list[int], other: str) -> None:
    names = [other, f"{found}", "_last_checkpoint"]
    paths = (filenames.commit_path, filenames.checksum_path, filenames.checkpoint_path)
    names += [path(version).removeprefix("_delta_log/") for version in found for path in paths]
    for kind in LogFileKind:
        parsed = [file.version for name in names if (file := filenames.parse_log_file(name)) and file.kind is kind]
        assert filenames.versions(names, kind) == parsed


@pytest.mark.parametrize(
    "digits", [f"{filenames.MAX_VERSION + 1:020d}", "0" * 19 + "٣", "0" * 19 + "²", " " * 19 + "1"]
)
def test_an_impossible_version_is_not_a_log_file(digits: str) -> None:
    name = f"{digits}.json"
    assert filenames.parse_log_file(name) is None
    assert filenames.versions([name], LogFileKind.COMMIT) == []


@given(VERSIONS, VERSIONS)
def test_names_sort_like_their_versions(left: int, right: int) -> None:
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
def test_other_names_are_not_log_files(name: str) -> None:
    assert filenames.parse_log_file(name) is None
