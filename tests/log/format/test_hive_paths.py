"""Partition folders: which files count, their values and the types of these, and the folders of new files."""

from __future__ import annotations

import re
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.log.support import metadata
from tidelog.log.format.hive_paths import (
    folder_of,
    is_any_inside,
    is_left_out,
    may_be_used,
    partition_texts,
    type_of_texts,
)
from tidelog.log.format.paths import to_storage_path, to_uri


@pytest.mark.parametrize(
    ("path", "hidden"),
    [
        ("part-0.parquet", False),
        ("a=1/part-0", False),
        ("_a=1/part-0.parquet", False),
        ("_SUCCESS", True),
        ("_temporary/0/part-0.parquet", True),
        ("_delta_log/0.json", True),
        ("a=1/.part-0.parquet.crc", True),
        ("a=1/_metadata", True),
        ("part-0.parquet._COPYING_", True),
    ],
)
def test_names_that_spark_leaves_out_are_hidden(path: str, hidden: bool) -> None:
    assert is_left_out(path) is hidden


def test_values_and_names_are_decoded_once_and_nulls_are_none() -> None:
    path = "a%20b=x%2Fy%253D/day=2026-01-31/n=__HIVE_DEFAULT_PARTITION__/e=/city=S%C3%A3o/t=1=2/f.parquet"
    assert partition_texts(path) == {
        "a b": "x/y%3D",
        "day": "2026-01-31",
        "n": None,
        "e": None,
        "city": "São",
        "t": "1=2",
    }
    assert partition_texts("f.parquet") == {}


@pytest.mark.parametrize(
    ("path", "fault"),
    [
        ("plain/f.parquet", "'plain' is not a partition folder"),
        ("a=1/plain/f.parquet", "'plain' is not a partition folder"),
        ("=1/f.parquet", "is not a partition folder"),
        ("a=1/a=2/f.parquet", "'a' twice"),
        ("a=%FF/f.parquet", "does not decode to UTF-8"),
    ],
)
def test_other_folders_are_refused(path: str, fault: str) -> None:
    with pytest.raises(ValueError, match=fault):
        partition_texts(path)


@pytest.mark.parametrize(
    ("texts", "kind"),
    [
        (["7", "-12", "0", None], pa.int64()),
        (["07"], pa.string()),
        (["+7"], pa.string()),
        (["-0"], pa.string()),
        (["9" * 18], pa.int64()),
        (["9" * 19], pa.string()),
        (["\u0667"], pa.string()),
        (["2026-02-28", None], pa.date32()),
        (["2026-02-30"], pa.string()),
        (["20260228"], pa.int64()),
        (["7", "2026-02-28"], pa.string()),
        (["1.5"], pa.string()),
        ([None], pa.string()),
        ([], pa.string()),
    ],
)
def test_a_type_is_chosen_only_if_it_gives_back_each_text(texts: list[Any], kind: pa.DataType) -> None:
    assert type_of_texts(texts) == kind


# --- the folders of new files ----------------------------------------------------------------------------------------


def test_a_folder_is_named_as_spark_names_it() -> None:
    """The value is one that delta-spark 4.4 wrote, with the name of the folder and the path that it gave it."""
    value = "x/y%z:=+é\x01\"'*?[]{}^~!@&,;()<>|#\\"
    folder = folder_of(["day", "c"], {"day": "2026-01-01", "c": value})
    assert folder == "day=2026-01-01/c=x%2Fy%25z%3A%3D+é%01%22%27%2A%3F%5B%5D%7B}%5E~!@&,;()<>|%23%5C"
    assert folder_of(["a/b", "n", "e"], {"a/b": "a b", "n": None, "e": ""}) == (
        "a%2Fb=a b/n=__HIVE_DEFAULT_PARTITION__/e=__HIVE_DEFAULT_PARTITION__"
    )
    assert folder_of(["c"], {"c": "..."}) == "c=..%2E"
    assert to_uri("c=a%2Fb d") == "c=a%252Fb%20d"


@given(st.dictionaries(st.text(min_size=1, max_size=9), st.none() | st.text(max_size=60), min_size=1, max_size=3))
def test_a_folder_gives_its_values_back_and_is_safe_everywhere(values: dict[str, str | None]) -> None:
    folder = folder_of(list(values), values)
    if folder is None:
        longest = max(len(f"{name}={value or ''}".encode()) for name, value in values.items())
        assert longest * 3 > 255
        return
    assert partition_texts(f"{folder}/f.parquet") == {name: value or None for name, value in values.items()}
    names = folder.split("/")
    assert len(names) == len(values)
    assert all(len(name.encode()) <= 255 and not name.endswith(".") for name in names)
    assert not re.search("[\x00-\x1f\x7f\ufffe\uffff]", folder)
    uri = to_uri(f"{folder}/f.parquet")
    assert to_storage_path(uri) == f"{folder}/f.parquet"
    assert is_any_inside([uri], list(values))


def test_a_value_that_no_folder_can_hold_has_none() -> None:
    assert folder_of(["c"], {"c": "x" * 253}) == "c=" + "x" * 253
    assert folder_of(["c"], {"c": "x" * 254}) is None
    assert folder_of(["c"], {"c": "é" * 127}) is None, "the limit is on bytes"
    assert folder_of(["c"], {"c": "/" * 90}) is None, "and on those of the escaped name"
    assert folder_of(["a", "c"], {"a": "1", "c": "__HIVE_DEFAULT_PARTITION__"}) is None, "it would mean null"


@pytest.mark.parametrize(
    ("uri", "inside"),
    [
        ("day=1/c=x/part-0.parquet", True),
        ("c=x/day=1/part-0.parquet", True),
        ("data/0/day=1/c=x/part-0.parquet", True),
        ("s3://bucket/other/day=1/c=a%2520b/part-0.parquet", True),
        ("day=1/part-0.parquet", False),
        ("day=1/c=x", False),
        ("ab/part-0.parquet", False),
        ("data/0/p=1/part-0.parquet", False),
        ("day=1/cc=x/part-0.parquet", False),
    ],
)
def test_a_file_is_in_folders_if_it_has_one_for_each_column(uri: str, inside: bool) -> None:
    assert is_any_inside(["ab/part-0.parquet", uri], ["day", "c"]) is inside
    assert not is_any_inside([uri], [])


@pytest.mark.parametrize(
    ("columns", "configuration", "may"),
    [
        (("day",), {}, True),
        ((), {}, False),
        (("day",), {"delta.columnMapping.mode": "name"}, False),
        (("day",), {"delta.columnMapping.mode": "id"}, False),
        (("day",), {"delta.columnMapping.mode": "none"}, True),
        (("day",), {"delta.randomizeFilePrefixes": "TRUE"}, False),
        (("day",), {"delta.randomizeFilePrefixes": "false"}, True),
    ],
)
def test_delta_spark_uses_random_names_instead_with_column_mapping_or_if_asked_to(
    columns: tuple[str, ...], configuration: dict[str, str], may: bool
) -> None:
    assert may_be_used(metadata(partition_columns=columns, configuration=configuration)) is may
