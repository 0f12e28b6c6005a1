"""Partition folders: which files count, their values, and the types of these."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from tidelog.log.format.hive_paths import is_left_out, partition_texts, type_of_texts


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
