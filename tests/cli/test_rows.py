"""Values of a table as JSON, and as cells."""

from __future__ import annotations

import datetime as dt
import json
from decimal import Decimal

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from tests.log.strategies import PRIMITIVES
from tidelog.cli import output, rows


@given(st.data())
def test_every_scalar_is_json_and_comes_back(data: st.DataObject) -> None:
    kind = data.draw(st.sampled_from(list(PRIMITIVES)))
    value = pa.array([data.draw(PRIMITIVES[kind])], kind).to_pylist()[0]
    found = json.loads(json.dumps(rows.to_json(value, kind), allow_nan=False))
    assert output.cell(found).isprintable()
    assert len(output.cell(found)) <= 60
    if isinstance(value, Decimal):
        assert Decimal(found) == value
    elif isinstance(value, dt.datetime):
        assert dt.datetime.fromisoformat(found) == value
    elif isinstance(value, (int, str)):
        assert found == value
