from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.log.errors import ConfigurationError, TableReplacedError
from tidelog.streaming.feed_planning.offsets import COMPLETE, Offset

OFFSETS = st.builds(
    Offset,
    table_id=st.text(),
    version=st.integers(-1, 2**53),
    files=st.integers(-1, 2**31),
    snapshot=st.booleans(),
    complete_until=st.text(),
    skipped=st.integers(0, 2**31),
    reader=st.text(),
    is_initial=st.booleans(),
    began=st.none() | st.builds(Offset, table_id=st.text(), version=st.integers(-1, 2**53)),
)


@given(OFFSETS)
def test_an_offset_survives_sparks_offset_log(offset: Offset) -> None:
    assert Offset.from_json(json.loads(json.dumps(offset.to_json()))) == offset


def test_the_stored_form_does_not_change() -> None:
    """Checkpoints contain it, so a renamed key would break every running stream on upgrade."""
    assert Offset("id", 7).to_json() == {"tableId": "id", "version": 7}
    assert Offset("id", 7, 0, snapshot=True).to_json() == {
        "tableId": "id",
        "version": 7,
        "files": 0,
        "snapshot": True,
    }
    first = Offset("id", 8, began=Offset("id", 7))
    assert first.to_json() == {"tableId": "id", "version": 8, "began": {"tableId": "id", "version": 7}}
    assert Offset("id", 7, is_initial=True).to_json() == {"tableId": "id", "version": 7, "initial": True}
    whole = Offset("id", 7, 3, complete_until="2026-01-01T00:00:00Z", skipped=2, reader="r")
    assert whole.to_json() == {
        "tableId": "id",
        "version": 7,
        "files": 3,
        "completeUntil": "2026-01-01T00:00:00Z",
        "skippedCommits": 2,
        "reader": "r",
    }


def test_the_form_of_the_first_releases_is_read() -> None:
    assert Offset.from_json({"tableId": "id", "version": 7, "files": -1}) == Offset("id", 7, COMPLETE)
    assert Offset.from_json({"tableId": "id", "version": 7, "files": 3}) == Offset("id", 7, 3)


@pytest.mark.parametrize("raw", [{}, {"tableId": "id"}, {"tableId": "id", "version": "x"}, []], ids=str)
def test_an_offset_that_tidelog_did_not_write_is_an_error(raw: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"an offset that tidelog did not write.*start the stream with a new"):
        Offset.from_json(raw)


def test_an_offset_of_another_table_is_an_error_that_names_both() -> None:
    Offset("old", 3).require_table("old", "/data/t")
    with pytest.raises(TableReplacedError, match="start the stream with a new checkpoint") as caught:
        Offset("old", 3).require_table("new", "/data/t")
    assert (caught.value.expected_id, caught.value.found_id, caught.value.path) == ("old", "new", "/data/t")


@pytest.mark.parametrize(
    ("offset", "version"),
    [(Offset("id", 7), 7), (Offset("id", 7, 2), 6), (Offset("id", 7, 2, snapshot=True), 7)],
    ids=["whole version", "part of a version", "part of a snapshot"],
)
def test_the_last_complete_version(offset: Offset, version: int) -> None:
    assert offset.last_complete == version
