"""Tables that deltalake made with constraints and generated columns."""

from __future__ import annotations

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import DeltaError

from tests.log.support import read_numbers
from tidelog.log import Table
from tidelog.log.errors import ConstraintViolationError
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
