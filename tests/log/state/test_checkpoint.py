"""Checkpoints that tidelog writes: their shape, and that they preserve the state."""

from __future__ import annotations

import io
import json
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.log import strategies
from tests.log.state.histories import removes_of
from tests.log.support import (
    NUMBERS,
    PROTOCOL,
    START_MS,
    Clock,
    add,
    classic,
    memory_store,
    metadata,
    new_table,
    numbers,
    put_commit,
    put_vector,
    read_numbers,
    remove,
    reopen,
    stage_compaction,
)
from tidelog.log import Table
from tidelog.log.format import filenames
from tidelog.log.format.actions import DomainMetadata, Metadata, Protocol, SetTransaction
from tidelog.log.state import checkpoint_reader, checkpoint_writer, files
from tidelog.log.state.files import FileState
from tidelog.log.state.head import Head, Totals
from tidelog.log.state.loader import load
from tidelog.log.storage import Store

DAY_MS = 24 * 60 * 60 * 1000


def read_checkpoint(store: Store, version: int) -> pa.Table:
    return pq.read_table(io.BytesIO(store.read(filenames.checkpoint_path(version))))


def full_log() -> Store:
    """Version 1 has one of everything that a checkpoint can contain."""
    store = memory_store()
    domain = DomainMetadata(domain="d", configuration="c", removed=False)
    put_commit(store, 0, metadata(name="n"), PROTOCOL, add("gone", partition_values={"p": "1"}))
    put_commit(
        store,
        1,
        add("a", stats="{}", tags={"t": "v"}, partition_values={"p": None}),
        add("b", deletion_vector=put_vector(store, [1, 2], "dv.bin")),
        remove(add("gone", partition_values={"p": "1"})),
        SetTransaction(app_id="app", version=3, last_updated=4),
        domain,
        DomainMetadata(domain="removed", configuration="", removed=True),
    )
    state = load(store)
    checkpoint_writer.write_checkpoint(store, state.head, state.files())
    return store


def test_it_has_one_row_per_action_and_one_column_per_kind() -> None:
    table = read_checkpoint(full_log(), 1)
    assert set(table.column_names) == {"protocol", "metaData", "txn", "domainMetadata", "add", "remove"}
    rows = [{key: value for key, value in row.items() if value is not None} for row in table.to_pylist()]
    assert all(len(row) == 1 for row in rows)
    kinds = sorted(next(iter(row)) for row in rows)
    assert kinds == ["add", "add", "domainMetadata", "metaData", "protocol", "remove", "txn"]


def test_its_types_are_those_that_every_reader_accepts() -> None:
    schema = read_checkpoint(full_log(), 1).schema
    kinds = {name: {field.name: field.type for field in schema.field(name).type} for name in schema.names}
    assert kinds["protocol"]["minReaderVersion"] == kinds["protocol"]["minWriterVersion"] == pa.int32()
    vector = {field.name: field.type for field in kinds["add"]["deletionVector"]}
    assert vector["offset"] == vector["sizeInBytes"] == pa.int32()
    assert vector["cardinality"] == pa.int64()
    assert pa.types.is_map(kinds["add"]["partitionValues"])
    assert "stats" in kinds["add"]
    assert not {"stats", "tags"} & kinds["remove"].keys()
    for field in schema:
        assert field.nullable
        assert all(child.nullable for child in field.type)


def test_it_has_no_empty_structs_and_no_columns_for_absent_kinds() -> None:
    store = memory_store()
    protocol = Protocol(min_reader_version=1, min_writer_version=2)
    put_commit(store, 0, metadata(configuration={}), protocol, info={"inCommitTimestamp": None})
    state = load(store)
    checkpoint_writer.write_checkpoint(store, state.head, state.files())
    schema = read_checkpoint(store, 0).schema
    assert "domainMetadata" not in schema.names
    assert [field.name for field in schema.field("protocol").type] == ["minReaderVersion", "minWriterVersion"]
    assert load(store).head.protocol == protocol


def test_it_is_plain_parquet_with_snappy() -> None:
    store = full_log()
    parquet = pq.ParquetFile(io.BytesIO(store.read(filenames.checkpoint_path(1))))
    group = parquet.metadata.row_group(0)
    assert {group.column(index).compression for index in range(group.num_columns)} == {"SNAPPY"}


def test_the_pointer_never_has_parts() -> None:
    store = full_log()
    pointer = json.loads(store.read(filenames.LAST_CHECKPOINT))
    size = len(store.read(filenames.checkpoint_path(1)))
    assert pointer == {"version": 1, "size": 7, "sizeInBytes": size, "numOfAddFiles": 2}


def test_an_existing_checkpoint_is_left_alone() -> None:
    store = full_log()
    before = store.read(filenames.checkpoint_path(1))
    state = load(store)
    assert checkpoint_writer.write_checkpoint(store, state.head, FileState(files.EMPTY.adds, files.EMPTY.removes)) >= 0
    assert store.read(filenames.checkpoint_path(1)) == before


_UNIQUE_ADDS = st.lists(strategies.ADDS, max_size=3, unique_by=lambda action: action.key)


@settings(deadline=None, max_examples=60)
@given(
    table_metadata=strategies.METADATA,
    protocol=strategies.PROTOCOLS,
    adds=_UNIQUE_ADDS,
    removes=st.lists(strategies.REMOVES, max_size=2, unique_by=lambda action: action.key),
    transactions=st.lists(strategies.TRANSACTIONS, max_size=2, unique_by=lambda action: action.app_id),
)
def test_any_state_survives_a_round_trip(
    table_metadata: Metadata, protocol: Protocol, adds: Any, removes: Any, transactions: list[SetTransaction]
) -> None:
    store = memory_store()
    head = Head(
        3, 0, None, protocol, table_metadata, {txn.app_id: txn for txn in transactions}, {}, Totals(len(adds), 0)
    )
    checkpoint_writer.write_checkpoint(store, head, FileState(files.add_table(adds), files.remove_table(removes)))
    partial = checkpoint_reader.read_partial_head(store, classic(3))
    assert (partial.protocol, partial.metadata) == (protocol, table_metadata)
    assert partial.transactions == head.transactions
    found = checkpoint_reader.read_files(store, classic(3))
    assert files.to_adds(found.adds) == adds
    plain = [remove_without_statistics(action) for action in removes]
    assert removes_of(found.removes) == plain


def remove_without_statistics(action: Any) -> Any:
    """The remove as in a checkpoint, without stats and tags."""
    return type(action)(
        **{name: getattr(action, name) for name in action.__struct_fields__ if name not in ("stats", "tags")}
    )


# --- through the table -----------------------------------------------------------------------------------------------


def test_a_table_reads_the_same_after_a_checkpoint() -> None:
    table = new_table(memory_store(), NUMBERS)
    for number in range(5):
        table.insert(numbers([number]))
    assert table.commits_since_checkpoint() == 6
    table.checkpoint()
    assert table.commits_since_checkpoint() == 0
    table.insert(numbers([5]))
    assert table.commits_since_checkpoint() == 1
    for version in range(5):
        table.store.delete(filenames.commit_path(version))
        table.store.delete(filenames.checksum_path(version))
    again = reopen(table)
    assert read_numbers(again) == [0, 1, 2, 3, 4, 5]
    assert read_numbers(again.at(version=5)) == [0, 1, 2, 3, 4]
    again.insert(numbers([6]))
    assert read_numbers(reopen(table)) == [0, 1, 2, 3, 4, 5, 6]


def test_tombstones_are_kept_until_their_retention_ends() -> None:
    clock = Clock()
    store = memory_store()
    table = new_table(store, properties={"delta.deletedFileRetentionDuration": "2 days"}, system=clock)
    table.insert(numbers([1]))
    table.insert(numbers([2]))
    stage_compaction(table).commit()  # the helper uses START_MS as the deletion time
    clock.ms = START_MS + 2 * DAY_MS
    table.refresh().checkpoint()
    assert checkpoint_reader.read_files(store, classic(3)).removes.num_rows == 2
    table.insert(numbers([3]))
    clock.ms += 1
    table.checkpoint()
    assert checkpoint_reader.read_files(store, classic(4)).removes.num_rows == 0
    assert read_numbers(Table(store, load(store))) == [1, 2, 3]
