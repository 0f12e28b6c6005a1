"""Values of a table as JSON, and as cells."""

from __future__ import annotations

import datetime as dt
import json
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.cli.support import run
from tests.log.strategies import PRIMITIVES
from tidelog.cli import output, row_formats
from tidelog.log import Table


@given(st.data())
def test_every_scalar_is_json_and_comes_back(data: st.DataObject) -> None:
    kind = data.draw(st.sampled_from(list(PRIMITIVES)))
    value = pa.array([data.draw(PRIMITIVES[kind])], kind).to_pylist()[0]
    found = json.loads(json.dumps(row_formats.to_json(value, kind), allow_nan=False))
    assert output.cell(found).isprintable()
    assert len(output.cell(found)) <= 60
    if isinstance(value, Decimal):
        assert Decimal(found) == value
    elif isinstance(value, dt.datetime):
        assert dt.datetime.fromisoformat(found) == value
    elif isinstance(value, (int, str)):
        assert found == value


DAYS = {
    -(2**31): "-5877641-06-23",
    -1_000_000: "-0768-02-04",
    -719_529: "-0001-12-31",
    -719_163: "0000-12-31",
    -719_162: "0001-01-01",
    0: "1970-01-01",
    2_932_896: "9999-12-31",
    2_932_897: "+10000-01-01",
    2**31 - 1: "+5881580-07-11",
}


def test_dates_and_times_in_all_years_are_shown() -> None:
    days = pa.array(list(DAYS), pa.int32()).cast(pa.date32())
    far = pa.array([2**63 - 1, -(2**63), 253_402_300_800_000_000, -62_135_596_800_000_001, None, 1], pa.int64())
    texts: list[str | None] = [
        "+294247-01-10T04:00:54.775807",
        "-290308-12-21T19:59:05.224192",
        "+10000-01-01T00:00:00",
    ]
    texts += ["0000-12-31T23:59:59.999999", None, "1970-01-01T00:00:00.000001"]
    for column, expected in [
        (days, list(DAYS.values())),
        (far.cast(pa.timestamp("us")), texts),
        (far.cast(pa.timestamp("us", tz="UTC")), [text and f"{text}Z" for text in texts]),
    ]:
        found = list(row_formats.rows_of(pa.record_batch([column], names=["c"])))
        assert [row["c"] for row in found] == expected


def test_dates_inside_of_nested_values_are_shown() -> None:
    entries = pa.MapArray.from_arrays([0, 2], ["a", "b"], pa.array([2_932_897, None], pa.int32()).cast(pa.date32()))
    struct = pa.StructArray.from_arrays([entries, pa.array([1])], names=["m", "n"])
    column = pa.ListArray.from_arrays([0, 1], struct)
    (row,) = row_formats.rows_of(pa.record_batch([column], names=["c"]))
    assert row == {"c": [{"m": {"a": "+10000-01-01", "b": None}, "n": 1}]}


@pytest.mark.parametrize("how", [["--json"], ["--format", "csv"], []])
@pytest.mark.parametrize("command", [["scan"], ["scan", "--where", "n = 1"], ["changes"]])
def test_commands_show_dates_in_all_years(command: list[str], how: list[str], tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    table = Table.create(path, pa.schema([("n", pa.int64()), ("d", pa.date32())]))
    table.insert(pa.table({"n": [1, 2], "d": pa.array([2_932_897, 0], pa.int32()).cast(pa.date32())}))
    found = run(command[0], path, *command[1:], *how)
    assert found.exit_code == 0
    assert "+10000-01-01" in found.stdout
