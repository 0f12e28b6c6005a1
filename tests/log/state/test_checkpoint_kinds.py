"""Checkpoints of other writers: multi-part, and V2 with or without sidecars, as parquet or JSON."""

from __future__ import annotations

import datetime as dt
import json
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from tests.log.state.foreign_checkpoints import KINDS, classic_rows, parquet, put_parts
from tests.log.state.histories import removes_of
from tests.log.support import (
    PROTOCOL,
    add,
    classic,
    memory_store,
    metadata,
    put_commit,
    put_vector,
    remove,
)
from tidelog.log.errors import CorruptLogError, HistoryExpiredError
from tidelog.log.format import filenames
from tidelog.log.format.actions import AddFile, DomainMetadata, SetTransaction
from tidelog.log.format.statistics import num_records
from tidelog.log.state import checkpoint_writer, files
from tidelog.log.state.loader import load
from tidelog.log.storage import Store

LAST = 6
CHECKPOINT = 4


@pytest.fixture
def store() -> Store:
    """A log of six versions with something of each kind, and no checkpoint yet."""
    store = memory_store()
    vector = put_vector(store, [1], "dv.bin")
    put_commit(store, 0, metadata(name="n", description="d"), PROTOCOL)
    put_commit(store, 1, *(add(f"f{number}", stats='{"numRecords":3}') for number in range(8)))
    put_commit(store, 2, remove(add("f0")), SetTransaction(app_id="app", version=7, last_updated=1))
    put_commit(store, 3, remove(add("f1")), add("f1", deletion_vector=vector, tags={"t": None}))
    put_commit(store, 4, DomainMetadata(domain="d", configuration="c", removed=False))
    put_commit(store, 5, add("after"))
    put_commit(store, 6, remove(add("f2")))
    return store


def everything(store: Store, version: int | None = None) -> tuple[Any, ...]:
    """Everything in a version. The files are in order: these checkpoints keep tidelog's."""
    state = load(store, version)
    found = state.files()
    head = state.head
    adds, removes = files.to_adds(found.adds), removes_of(found.removes)
    return head.version, head.metadata, head.protocol, head.transactions, head.domains, adds, removes


def drop_commits(store: Store) -> None:
    """Leave only the checkpoint and the commits after it."""
    for version in range(CHECKPOINT):
        store.delete(filenames.commit_path(version))


@pytest.mark.parametrize("kind", list(KINDS))
def test_every_kind_of_checkpoint_is_read(store: Store, kind: str) -> None:
    expected, expected_at_checkpoint = everything(store), everything(store, CHECKPOINT)
    KINDS[kind](store, CHECKPOINT)
    assert everything(store) == expected, "with all commits"
    drop_commits(store)
    assert everything(store) == expected, "without the earlier commits"
    assert everything(store, CHECKPOINT) == expected_at_checkpoint
    with pytest.raises(HistoryExpiredError, match=f"{CHECKPOINT} to {LAST}"):
        load(store, CHECKPOINT - 1)


@pytest.mark.parametrize("missing", [{1}, {2}, {3}, {1, 3}])
def test_an_incomplete_checkpoint_is_ignored(store: Store, missing: set[int]) -> None:
    expected = everything(store)
    put_parts(store, CHECKPOINT, 3, without=missing)
    assert everything(store) == expected
    drop_commits(store)
    with pytest.raises((CorruptLogError, HistoryExpiredError)):
        load(store)


def test_complete_parts_are_found_next_to_incomplete_ones(store: Store) -> None:
    expected = everything(store)
    put_parts(store, CHECKPOINT, 3, without={2})
    put_parts(store, CHECKPOINT, 2)
    drop_commits(store)
    assert everything(store) == expected


@pytest.mark.parametrize("kind", list(KINDS))
@pytest.mark.parametrize("victim", ["manifest", "sidecar"])
def test_a_damaged_checkpoint_is_skipped(store: Store, kind: str, victim: str) -> None:
    expected = everything(store)
    KINDS[kind](store, CHECKPOINT)
    folder = "_delta_log/_sidecars" if victim == "sidecar" else "_delta_log"
    names = [status.name for status in store.list(folder) if victim == "sidecar" or ".checkpoint." in status.name]
    for name in names[:1]:
        store.replace(f"{folder}/{name}", b"PAR1 or what")
    assert everything(store) == expected


@pytest.mark.parametrize("kind", ["v2 parquet", "v2 json"])
def test_a_missing_sidecar_is_not_treated_as_empty(store: Store, kind: str) -> None:
    expected = everything(store)
    KINDS[kind](store, CHECKPOINT)
    store.delete(f"_delta_log/_sidecars/{store.list('_delta_log/_sidecars')[0].name}")
    assert everything(store) == expected
    drop_commits(store)
    with pytest.raises(CorruptLogError):
        load(store).files()


def test_statistics_stored_only_as_a_struct_are_read(store: Store) -> None:
    """With `delta.checkpoint.writeStatsAsJson=false`, ignoring the struct would lose row counts."""
    rows = classic_rows(store, CHECKPOINT).to_pylist()
    for row in rows:
        if row["add"]:
            row["add"]["stats"] = None
            row["add"]["stats_parsed"] = {"numRecords": 3, "minValues": {"n": 1}, "maxValues": {"n": None}}
    store.put_if_absent(filenames.checkpoint_path(CHECKPOINT), parquet(_with_maps(rows)))
    drop_commits(store)
    found = {file.path: file for file in files.to_adds(load(store, CHECKPOINT).files().adds)}
    assert {num_records(file.stats) for file in found.values()} == {3}
    assert json.loads(found["f3"].stats or "") == {"numRecords": 3, "minValues": {"n": 1}, "maxValues": {}}


def test_statistics_stored_as_a_struct_keep_their_types(store: Store) -> None:
    at = dt.datetime(1900, 1, 1, 1, 1, 1, 123_456)  # noqa: DTZ001 - the column has no time zone
    values = {
        "long": 2**53 + 1,
        "decimal": Decimal("1.000000000000000001"),
        "float": pa.scalar(0.1, pa.float32()).as_py(),
        "zoned": at.replace(tzinfo=dt.UTC),
        "ntz": at,
        "date": dt.date(9999, 12, 31),
        "nested": {"text": "\U0010ffff"},
    }
    bounds = pa.array([values])
    # Dates and times outside Python's calendar are dropped, but not the other bounds.
    far = [pa.array([10**7], pa.int32()).view(pa.date32()), pa.array([-(2**62)]).view(pa.timestamp("us", "UTC"))]
    names = [*bounds.type.names, "far_date", "far_time"]
    bounds = pa.StructArray.from_arrays([*bounds.flatten(), *far], names=names)
    parsed = pa.StructArray.from_arrays([pa.array([3]), bounds], names=["numRecords", "minValues"])
    rows = classic_rows(store, CHECKPOINT)
    chunk = rows["add"].combine_chunks()
    silent = pa.nulls(len(chunk), pa.string())
    children = [silent if name == "stats" else chunk.field(name) for name in chunk.type.names]
    children.append(parsed.take(pa.array([0] * len(chunk))))
    column = pa.StructArray.from_arrays(children, names=[*chunk.type.names, "stats_parsed"], mask=chunk.is_null())
    position = rows.column_names.index("add")
    store.put_if_absent(filenames.checkpoint_path(CHECKPOINT), parquet(rows.set_column(position, "add", column)))
    drop_commits(store)
    (text,) = set(load(store, CHECKPOINT).files().adds["stats"].to_pylist())
    assert json.loads(text, parse_float=Decimal) == {
        "numRecords": 3,
        "minValues": {
            "long": 2**53 + 1,
            "decimal": Decimal("1.000000000000000001"),
            "float": Decimal("0.10000000149011612"),
            "zoned": "1900-01-01T01:01:01.123Z",
            "ntz": "1900-01-01T01:01:01.123",
            "date": "9999-12-31",
            "nested": {"text": "\U0010ffff"},
        },
    }


def _with_maps(rows: list[dict[str, Any]]) -> pa.Table:
    """The rows as columns. pyarrow cannot infer which lists are maps."""
    text_map = pa.map_(pa.string(), pa.string())
    kinds = {
        "partitionValues": text_map,
        "tags": text_map,
        "configuration": text_map,
        "format": pa.struct([("provider", pa.string()), ("options", text_map)]),
    }
    columns = {}
    for name in ("protocol", "metaData", "txn", "add", "remove"):
        values = [row[name] for row in rows]
        inferred = pa.array(values).type
        fields = [pa.field(field.name, kinds.get(field.name, field.type)) for field in inferred]
        columns[name] = pa.array(values, pa.struct(fields))
    return pa.table(columns)


def test_unknown_columns_are_ignored_and_columns_can_be_missing(store: Store) -> None:
    expected = everything(store)
    rows = classic_rows(store, CHECKPOINT)
    widened = rows.append_column("later", pa.nulls(rows.num_rows, pa.struct([("x", pa.int64())])))
    store.put_if_absent(filenames.checkpoint_path(CHECKPOINT), parquet(widened))
    drop_commits(store)
    assert everything(store) == expected
    only_head = rows.select(["protocol", "metaData"]).filter(pa.array([n < 2 for n in range(rows.num_rows)]))
    store.replace(filenames.checkpoint_path(CHECKPOINT), parquet(only_head))
    state = load(store, CHECKPOINT)
    assert (state.head.transactions, state.files().adds.num_rows) == ({}, 0)


def test_the_newest_complete_checkpoint_is_the_base(store: Store) -> None:
    put_parts(store, CHECKPOINT, 2)
    state = load(store, 2)
    checkpoint_writer.write_checkpoint(store, state.head, state.files())
    assert classic(2).version == 2
    drop_commits(store)
    assert isinstance(files.to_adds(load(store).files().adds)[0], AddFile)
    assert load(store).head.transactions["app"].version == 7
