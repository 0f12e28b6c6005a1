"""Tables that deltalake made with constraints and generated columns."""

from __future__ import annotations

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import DeltaError

from tests.log.support import read_numbers
from tidelog.log import Table
from tidelog.log.errors import ConstraintViolationError, UnsupportedFeatureError
from tidelog.log.state.loader import load

pytestmark = pytest.mark.interop


def numbers(*values: int) -> pa.Table:
    return pa.table({"n": pa.array(values, pa.int64())})


def test_a_constraint_of_deltalake_holds_for_both(path: str) -> None:
    write_deltalake(path, numbers(1, 2))
    DeltaTable(path).alter.add_constraint({"small": "n < 100"})
    table = Table.open(path)
    protocol = load(table.store).head.protocol
    table.insert(numbers(3))
    with pytest.raises(ConstraintViolationError, match="1 of 2 rows violate the constraint 'small'") as raised:
        table.insert(numbers(4, 100))
    assert raised.value.row == "n=100"
    table.update("n = 3", {"n": "30"})
    table.compact("major")
    with pytest.raises(DeltaError, match="failed validation check"):
        write_deltalake(path, numbers(200), mode="append")
    write_deltalake(path, numbers(5), mode="append")
    assert read_numbers(table.refresh()) == [1, 2, 5, 30]
    assert load(table.store).head.protocol == protocol


def test_a_column_that_deltalake_quotes_is_not_taken_for_a_text(path: str) -> None:
    write_deltalake(path, pa.table({"Name": ["ok"]}))
    DeltaTable(path).alter.add_constraint({"good": "\"Name\" <> 'bad'"})
    bad = pa.table({"Name": ["bad"]})
    with pytest.raises(DeltaError, match="failed validation check"):
        write_deltalake(path, bad, mode="append")
    table = Table.open(path)
    for rows in (bad, pa.table({"Name": ["fine"]})):
        with pytest.raises(UnsupportedFeatureError, match="double quotation marks"):
            table.insert(rows)
    assert table.refresh().scan().to_arrow().to_pylist() == [{"Name": "ok"}]
