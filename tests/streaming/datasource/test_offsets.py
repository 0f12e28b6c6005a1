from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.log.errors import TableReplacedError
from tidelog.streaming.datasource.offsets import COMPLETE, Offset


@given(st.text(), st.integers(-1, 2**53), st.integers(-1, 2**31))
def test_an_offset_survives_sparks_offset_log(table_id: str, version: int, files: int) -> None:
    offset = Offset(table_id, version, files)
    assert Offset.from_json(json.loads(json.dumps(offset.to_json()))) == offset


def test_the_stored_form_does_not_change() -> None:
    """Checkpoints contain it, so a renamed key would break every running stream on upgrade."""
    assert Offset("id", 7).to_json() == {"tableId": "id", "version": 7, "files": COMPLETE}
    assert Offset.from_json({"tableId": "id", "version": 7, "files": 3}) == Offset("id", 7, 3)


def test_an_offset_of_another_table_is_an_error_that_names_both() -> None:
    Offset("old", 3).require_table("old", "/data/t")
    with pytest.raises(TableReplacedError, match="start the stream with a new checkpoint") as caught:
        Offset("old", 3).require_table("new", "/data/t")
    assert (caught.value.expected_id, caught.value.found_id, caught.value.path) == ("old", "new", "/data/t")
