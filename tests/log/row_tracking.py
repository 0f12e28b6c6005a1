"""Tables with row tracking, as another engine makes them, and the ids of their rows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import pyarrow as pa

from tests.log.support import PROTOCOL, memory_store, metadata, put_commit
from tidelog.log import Table
from tidelog.log.data.reader import DataFile, read_batches
from tidelog.log.format.row_tracking import ENABLED, ID_COLUMN, VERSION_COLUMN, high_water_mark, tracked_fields
from tidelog.log.state import files
from tidelog.log.state.loader import load
from tidelog.log.storage import Store
from tidelog.log.system import System

SCHEMA = pa.schema([("n", pa.int64()), ("v", pa.int64())])
TRACKING = {ENABLED: "true", ID_COLUMN: "_row-id-col-x", VERSION_COLUMN: "_row-commit-version-col-y"}
_CONFIGURATION = {"delta.enableDeletionVectors": "true", "delta.enableInCommitTimestamps": "true"}


def tracked_table(
    store: Store | None = None,
    *,
    schema: pa.Schema = SCHEMA,
    properties: Mapping[str, str] = TRACKING,
    system: System | None = None,
    **more: Any,
) -> Table:
    """An empty table that supports row tracking, with these properties in addition to the usual ones."""
    store = store or memory_store()
    writers = (*(PROTOCOL.writer_features or ()), "changeDataFeed", "domainMetadata", "rowTracking")
    protocol = msgspec.structs.replace(PROTOCOL, writer_features=writers)
    put_commit(store, 0, metadata(schema, configuration={**_CONFIGURATION, **properties}, **more), protocol)
    return Table(store, load(store), system or System())


def rows_with_ids(table: Table) -> pa.Table:
    """All rows, with their row ids and commit versions as the columns `id` and `version`."""
    head = load(table.store).head
    schema = pa.schema([*table.schema, *tracked_fields(head.metadata)])
    live = files.to_adds(load(table.store).files().adds)
    batches = [batch for add in live for batch in read_batches(table.store, DataFile.of(add), schema)]
    return pa.Table.from_batches(batches, schema).rename_columns([*table.schema.names, "id", "version"])


def ids(table: Table) -> dict[int, tuple[int, int]]:
    """The id and the commit version of each row, by the column `n`, which must be unique, as the ids must be."""
    found = rows_with_ids(table).to_pylist()
    by_number = {row["n"]: (row["id"], row["version"]) for row in found}
    assert len(by_number) == len({row["id"] for row in found}) == len(found)
    highest = mark(table)
    assert all(0 <= row["id"] <= highest for row in found)
    return by_number


def mark(table: Table) -> int:
    """The high-water mark of row ids."""
    return high_water_mark(load(table.store).head.domains, "")
