"""Files with chosen statistics and partition values, and which of them a predicate keeps."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pyarrow as pa

from tests.log.support import add, metadata
from tidelog.log import predicate
from tidelog.log.format.actions import AddFile
from tidelog.log.format.schema import TIMESTAMP
from tidelog.log.pruning.file_pruning import prune
from tidelog.log.state import files

SCHEMA = pa.schema(
    [
        ("n", pa.int64()),
        ("m", pa.int64()),
        ("f", pa.float64()),
        ("s", pa.string()),
        ("b", pa.bool_()),
        ("t", TIMESTAMP),
        ("st", pa.struct([("x", pa.int64())])),
        ("l", pa.list_(pa.int64())),
        ("p", pa.int64()),
    ]
)
PARTITIONED = metadata(SCHEMA, partition_columns=("p",))


def file(
    low: Any = None,
    high: Any = None,
    *,
    nulls: int | None = None,
    rows: int | None = 4,
    column: str = "n",
    p: str = "1",
) -> AddFile:
    """A file with statistics for one column: bounds, null count and row count. None leaves a part out."""
    parts = {"minValues": low, "maxValues": high, "nullCount": nulls}
    tree = {key: {column: value} for key, value in parts.items() if value is not None}
    stats = json.dumps({**tree, **({} if rows is None else {"numRecords": rows})})
    return add(f"{low} {high}", partition_values={"p": p}, stats=stats)


def kept(where: str, *adds: AddFile, schema: pa.Schema = SCHEMA, **changes: Any) -> list[int]:
    """The positions of the files that `where` keeps."""
    numbered = [msgspec.structs.replace(each, path=str(position)) for position, each in enumerate(adds)]
    found = prune(
        files.add_table(numbered),
        predicate.parse(where, schema),
        schema,
        msgspec.structs.replace(PARTITIONED, **changes),
    )
    assert found.schema.equals(files.ADD)
    return [int(path) for path in found["path"].to_pylist()]
