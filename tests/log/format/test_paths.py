"""Converting between storage paths and the URIs in actions."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.log.strategies import TEXTS
from tidelog.log.format import paths

# Physical path and URI, from the samples in delta-kernel's partition module and the protocol.
SAMPLES = [
    ("part-00000.parquet", "part-00000.parquet"),
    ("c=US%2FEast/f.parquet", "c=US%252FEast/f.parquet"),
    ("_2=bar+%2521/f.parquet", "_2=bar+%252521/f.parquet"),
    ("t=11%3A11%3A11/f.parquet", "t=11%253A11%253A11/f.parquet"),
    ("a b/f.parquet", "a%20b/f.parquet"),
    ("ü/f.parquet", "%C3%BC/f.parquet"),
    ("a#b?c/f.parquet", "a%23b%3Fc/f.parquet"),
]


@pytest.mark.parametrize(("physical", "uri"), SAMPLES)
def test_samples_are_encoded(physical: str, uri: str) -> None:
    assert paths.to_uri(physical) == uri


@pytest.mark.parametrize(("physical", "uri"), SAMPLES)
def test_samples_are_decoded_once(physical: str, uri: str) -> None:
    assert paths.to_storage_path(uri) == physical


@given(TEXTS)
def test_any_path_survives_a_round_trip(path: str) -> None:
    uri = paths.to_uri(path)
    assert paths.to_storage_path(uri) == path
    assert uri.isascii()
    assert not set(uri) & set(' "<>\\^`{|}#?'), "RFC 2396 excludes or reserves them"


@given(st.lists(st.sampled_from("ab%20+/= ü"), max_size=12).map("".join))
def test_a_path_that_looks_encoded_is_encoded_again(path: str) -> None:
    assert paths.to_storage_path(paths.to_uri(path)) == path


@pytest.mark.parametrize(
    ("uri", "expected"),
    [
        ("part-1.parquet", False),
        ("dt=2020/part-1.parquet", False),
        ("a/b:c.parquet", False),
        ("/data/t/part-1.parquet", True),
        ("file:///data/t/part-1.parquet", True),
        ("s3://bucket/part-1.parquet", True),
        ("memory://x/y", True),
    ],
)
def test_absolute_means_not_below_the_table(uri: str, expected: bool) -> None:
    assert paths.is_absolute(uri) is expected
