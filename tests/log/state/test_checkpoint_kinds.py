"""Checkpoints of other writers: in parts, and of version 2 with sidecars, as parquet or as JSON."""

from __future__ import annotations

import datetime as dt
import io
import json
import uuid
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from tests.log.support import (
    PROTOCOL,
    START_MS,
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
from tidelog.log.state import checkpoint, files
from tidelog.log.state.loader import load
from tidelog.log.storage import Store

LAST = 6
AT = 4  # the version of the checkpoint


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


def classic_rows(store: Store) -> pa.Table:
    """The rows of our own checkpoint, which is taken away again."""
    state = load(store, AT)
    checkpoint.write_checkpoint(store, state.head, state.files())
    content = store.read(filenames.checkpoint_path(AT))
    store.delete(filenames.checkpoint_path(AT))
    store.delete(filenames.LAST_CHECKPOINT)
    return pq.read_table(io.BytesIO(content))


def parquet(rows: pa.Table) -> bytes:
    buffer = io.BytesIO()
    pq.write_table(rows, buffer)
    return buffer.getvalue()


def put_parts(store: Store, parts: int, *, without: set[int] = frozenset()) -> None:  # type: ignore[assignment]
    rows = classic_rows(store)
    for part in range(1, parts + 1):
        chosen = rows.take([number for number in range(rows.num_rows) if number % parts == part - 1])
        if part not in without:
            store.put_if_absent(f"_delta_log/{AT:020d}.checkpoint.{part:010d}.{parts:010d}.parquet", parquet(chosen))


def json_lines(rows: pa.Table) -> list[dict[str, Any]]:
    """Each row as the JSON action that it is."""
    lines = []
    for row in rows.to_pylist():
        ((name, action),) = ((name, action) for name, action in row.items() if action is not None)
        lines.append({name: _plain(action)})
    return lines


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain_key(key, inner) for key, inner in value.items() if inner is not None}
    return value


def _plain_key(key: str, value: Any) -> Any:
    """Arrow gives a map as a list of pairs."""
    is_map = key in ("partitionValues", "tags", "configuration", "options") and isinstance(value, list)
    return dict(value) if is_map else _plain(value)


def put_sidecars(store: Store, rows: pa.Table) -> list[dict[str, Any]]:
    """The file actions in two sidecars; returns what names them."""
    named = []
    for half in range(2):
        chosen = rows.take([number for number in range(rows.num_rows) if number % 2 == half])
        name, content = f"{uuid.uuid4()}.parquet", parquet(chosen.select(["add", "remove"]))
        store.put_if_absent(f"_delta_log/_sidecars/{name}", content)
        named.append({"path": name, "sizeInBytes": len(content), "modificationTime": START_MS})
    return named


def split(rows: pa.Table) -> tuple[pa.Table, pa.Table]:
    """The file actions, and the others."""
    pairs = rows.select(["add", "remove"]).to_pylist()
    is_file = pa.array([row["add"] is not None or row["remove"] is not None for row in pairs])
    return rows.filter(is_file), rows.filter(pc.invert(is_file)).drop_columns(["add", "remove"])


def v2_parquet(store: Store, name: str) -> None:
    file_rows, others = split(classic_rows(store))
    named = put_sidecars(store, file_rows)
    extra = pa.Table.from_pylist([{"sidecar": each} for each in named] + [{"checkpointMetadata": {"version": AT}}])
    store.put_if_absent(f"_delta_log/{name}", parquet(pa.concat_tables([others, extra], promote_options="default")))


def v2_json(store: Store, name: str) -> None:
    file_rows, others = split(classic_rows(store))
    lines = json_lines(others)
    lines += [{"sidecar": each} for each in put_sidecars(store, file_rows)]
    lines.append({"checkpointMetadata": {"version": AT}})
    store.put_if_absent(f"_delta_log/{name}", b"\n".join(json.dumps(line).encode() for line in lines))


def v2_json_without_sidecars(store: Store, name: str) -> None:
    store.put_if_absent(
        f"_delta_log/{name}", b"\n".join(json.dumps(line).encode() for line in json_lines(classic_rows(store)))
    )


UUID_NAME = f"{AT:020d}.checkpoint.80a083e8-7026-4e79-81be-64bd76c43a11"
KINDS: dict[str, Callable[[Store], None]] = {
    "one part": lambda store: put_parts(store, 1),
    "three parts": lambda store: put_parts(store, 3),
    "v2 parquet": lambda store: v2_parquet(store, f"{UUID_NAME}.parquet"),
    "v2 parquet of the classic name": lambda store: v2_parquet(store, f"{AT:020d}.checkpoint.parquet"),
    "v2 json": lambda store: v2_json(store, f"{UUID_NAME}.json"),
    "v2 json without sidecars": lambda store: v2_json_without_sidecars(store, f"{UUID_NAME}.json"),
}


def everything(store: Store, version: int | None = None) -> tuple[Any, ...]:
    """All that a version holds, in no particular order of files (a checkpoint has its own)."""
    state = load(store, version)
    found = state.files()
    head = state.head
    adds = {action.key: action for action in files.to_adds(found.adds)}
    removes = {action.key: action for action in files.to_removes(found.removes)}
    return head.version, head.metadata, head.protocol, head.transactions, head.domains, adds, removes


def drop_commits(store: Store) -> None:
    """So that only the checkpoint can tell."""
    for version in range(AT):
        store.delete(filenames.commit_path(version))


@pytest.mark.parametrize("kind", list(KINDS))
def test_a_checkpoint_of_any_kind_holds_the_same(store: Store, kind: str) -> None:
    expected, expected_there = everything(store), everything(store, AT)
    KINDS[kind](store)
    assert everything(store) == expected, "beside the commits"
    drop_commits(store)
    assert everything(store) == expected, "instead of them"
    assert everything(store, AT) == expected_there
    with pytest.raises(HistoryExpiredError, match=f"{AT} to {LAST}"):
        load(store, AT - 1)


@pytest.mark.parametrize("missing", [{1}, {2}, {3}, {1, 3}])
def test_a_checkpoint_that_lacks_a_part_is_none(store: Store, missing: set[int]) -> None:
    expected = everything(store)
    put_parts(store, 3, without=missing)
    assert everything(store) == expected
    drop_commits(store)
    with pytest.raises((CorruptLogError, HistoryExpiredError)):
        load(store)


def test_a_complete_set_of_parts_beside_an_incomplete_one(store: Store) -> None:
    expected = everything(store)
    put_parts(store, 3, without={2})
    put_parts(store, 2)
    drop_commits(store)
    assert everything(store) == expected


@pytest.mark.parametrize("kind", list(KINDS))
@pytest.mark.parametrize("victim", ["manifest", "sidecar"])
def test_a_damaged_one_is_passed_over(store: Store, kind: str, victim: str) -> None:
    expected = everything(store)
    KINDS[kind](store)
    folder = "_delta_log/_sidecars" if victim == "sidecar" else "_delta_log"
    names = [status.name for status in store.list(folder) if victim == "sidecar" or ".checkpoint." in status.name]
    for name in names[:1]:
        store.replace(f"{folder}/{name}", b"PAR1 or what")
    assert everything(store) == expected


@pytest.mark.parametrize("kind", ["v2 parquet", "v2 json"])
def test_a_missing_sidecar_is_not_an_empty_one(store: Store, kind: str) -> None:
    expected = everything(store)
    KINDS[kind](store)
    store.delete(f"_delta_log/_sidecars/{store.list('_delta_log/_sidecars')[0].name}")
    assert everything(store) == expected
    drop_commits(store)
    with pytest.raises(CorruptLogError):
        load(store).files()


def test_statistics_that_are_only_there_as_a_struct_are_read(store: Store) -> None:
    """`delta.checkpoint.writeStatsAsJson=false`: without them row counts would be lost."""
    rows = classic_rows(store).to_pylist()
    for row in rows:
        if row["add"]:
            row["add"]["stats"] = None
            row["add"]["stats_parsed"] = {"numRecords": 3, "minValues": {"n": 1}, "maxValues": {"n": None}}
    store.put_if_absent(filenames.checkpoint_path(AT), parquet(_with_maps(rows)))
    drop_commits(store)
    found = {file.path: file for file in files.to_adds(load(store, AT).files().adds)}
    assert {num_records(file.stats) for file in found.values()} == {3}
    assert json.loads(found["f3"].stats or "") == {"numRecords": 3, "minValues": {"n": 1}, "maxValues": {}}


def test_statistics_in_a_struct_keep_their_types(store: Store) -> None:
    at = dt.datetime(1900, 1, 1, 1, 1, 1, 123_456)  # noqa: DTZ001 - of a column without a zone
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
    # A date and times that Python's calendar does not have say nothing, and do not hide the rest.
    far = [pa.array([10**7], pa.int32()).view(pa.date32()), pa.array([-(2**62)]).view(pa.timestamp("us", "UTC"))]
    names = [*bounds.type.names, "far_date", "far_time"]
    bounds = pa.StructArray.from_arrays([*bounds.flatten(), *far], names=names)
    parsed = pa.StructArray.from_arrays([pa.array([3]), bounds], names=["numRecords", "minValues"])
    rows = classic_rows(store)
    chunk = rows["add"].combine_chunks()
    silent = pa.nulls(len(chunk), pa.string())
    children = [silent if name == "stats" else chunk.field(name) for name in chunk.type.names]
    children.append(parsed.take(pa.array([0] * len(chunk))))
    column = pa.StructArray.from_arrays(children, names=[*chunk.type.names, "stats_parsed"], mask=chunk.is_null())
    position = rows.column_names.index("add")
    store.put_if_absent(filenames.checkpoint_path(AT), parquet(rows.set_column(position, "add", column)))
    drop_commits(store)
    (text,) = set(load(store, AT).files().adds["stats"].to_pylist())
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
    """The rows as columns; only `add` matters beside the head, and pyarrow has to be told which lists are maps."""
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


def test_columns_that_we_do_not_know_and_columns_that_are_not_there(store: Store) -> None:
    expected = everything(store)
    rows = classic_rows(store)
    widened = rows.append_column("later", pa.nulls(rows.num_rows, pa.struct([("x", pa.int64())])))
    store.put_if_absent(filenames.checkpoint_path(AT), parquet(widened))
    drop_commits(store)
    assert everything(store) == expected
    only_head = rows.select(["protocol", "metaData"]).filter(pa.array([n < 2 for n in range(rows.num_rows)]))
    store.replace(filenames.checkpoint_path(AT), parquet(only_head))
    state = load(store, AT)
    assert (state.head.transactions, state.files().adds.num_rows) == ({}, 0)


def test_the_newest_complete_checkpoint_is_the_base(store: Store) -> None:
    put_parts(store, 2)
    state = load(store, 2)
    checkpoint.write_checkpoint(store, state.head, state.files())
    assert classic(2).version == 2
    drop_commits(store)
    assert isinstance(files.to_adds(load(store).files().adds)[0], AddFile)
    assert load(store).head.transactions["app"].version == 7
