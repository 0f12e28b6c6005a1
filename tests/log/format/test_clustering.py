"""The columns that rows can be clustered by, checked when the property is set."""

from __future__ import annotations

import uuid

import pyarrow as pa
import pytest

from tidelog.log import Table
from tidelog.log.errors import ConfigurationError

SCHEMA = pa.schema([("part", pa.string()), ("n", pa.int64()), ("inner", pa.struct([("x", pa.int64())]))])
FAULTS = [
    ("n, nothing", "there is no column 'nothing'"),
    ("part", "'part' is a partition column, which has one value per file"),
    ("inner", "column 'inner' has the type struct<x: int64>, which cannot be sorted"),
]


@pytest.mark.parametrize(("columns", "fault"), FAULTS)
def test_a_column_that_cannot_be_clustered_by_is_refused_when_it_is_set(columns: str, fault: str) -> None:
    with pytest.raises(ConfigurationError, match=fault):
        Table.create(
            f"memory://{uuid.uuid4()}", SCHEMA, partition_by=["part"], properties={"tidelog.clusterBy": columns}
        )
    table = Table.create(f"memory://{uuid.uuid4()}", SCHEMA, partition_by=["part"])
    with pytest.raises(ConfigurationError, match=fault):
        table.set_properties({"tidelog.clusterBy": columns})
    table.set_properties({"tidelog.clusterBy": "n", "tidelog.clusterOrder": "sort"})
    assert table.properties["tidelog.clusterBy"] == "n"
