"""How the texts of options are parsed."""

from __future__ import annotations

import datetime as dt

import pytest

from tidelog.cli import parameters
from tidelog.log.errors import ConfigurationError


def test_texts_of_options() -> None:
    assert parameters.parse_storage_options(None) is None
    assert parameters.split_columns(["a, b", "c"]) == ["a", "b", "c"]
    assert parameters.split_columns(None) is None
    assert [parameters.parse_point(text) for text in (None, "7", "-1", "2026-01-31T00:00:00Z")] == [
        None,
        7,
        -1,
        "2026-01-31T00:00:00Z",
    ]
    assert parameters.parse_older_than("2 weeks") == dt.timedelta(days=14)
    assert parameters.parse_older_than("2026-01-31T00:00:00Z") == dt.datetime(2026, 1, 31, tzinfo=dt.UTC)


@pytest.mark.parametrize(
    ("text", "age"),
    [
        ("30d", dt.timedelta(days=30)),
        (" 2 w ", dt.timedelta(days=14)),
        ("36h", dt.timedelta(hours=36)),
        ("90min", dt.timedelta(minutes=90)),
        ("1s", dt.timedelta(seconds=1)),
    ],
)
def test_short_ages(text: str, age: dt.timedelta) -> None:
    assert parameters.parse_older_than(text) == age


def test_an_age_survives_its_text() -> None:
    for age in (dt.timedelta(days=30), dt.timedelta(hours=36), dt.timedelta(minutes=1), dt.timedelta(seconds=90)):
        assert parameters.parse_older_than(parameters.age_text(age // dt.timedelta(milliseconds=1))) == age
    assert parameters.age_text(1500) == "2s", "rounded up: never less than the table's own retention"


def test_properties() -> None:
    assert parameters.parse_properties(None) == {}
    assert parameters.parse_properties(["a=1", " b = x=y "]) == {"a": "1", "b": "x=y"}
    with pytest.raises(ConfigurationError, match="given twice"):
        parameters.parse_properties(["a=1", "a=1"])
