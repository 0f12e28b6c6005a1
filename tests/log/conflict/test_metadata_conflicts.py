"""Rules 6 and 7: winners that change the schema or protocol, or record progress of the same stream."""

from __future__ import annotations

from typing import Any

import msgspec
import pyarrow as pa
import pytest

from tests.log.conflict.tables import filled
from tests.log.conflict.winners import head_metadata, head_protocol, rebase, with_properties, with_schema
from tests.log.support import (
    NUMBERS,
    live_files,
    memory_store,
    new_table,
    numbers,
    put_foreign,
    read_numbers,
    remove,
    reopen,
)
from tidelog.log import Committed, OperationClass, Table
from tidelog.log.conflict.outcome import Conflict
from tidelog.log.conflict.staged import Staged
from tidelog.log.errors import (
    ConcurrentTransactionException,
    ConflictError,
    FencedError,
    MetadataChangedException,
    ProtocolChangedException,
    TableReplacedError,
    UnsupportedFeatureError,
)
from tidelog.log.format.actions import Commit, SetTransaction
from tidelog.log.state.loader import load


@pytest.fixture
def table() -> Table:
    table = new_table(memory_store(), NUMBERS)
    table.insert(numbers([0]))
    return table


def expect(error: type[ConflictError], transaction: Any, table: Table, version: int) -> ConflictError:
    with pytest.raises(error) as raised:
        transaction.commit()
    assert raised.value.fields["winning_version"] == version
    assert raised.value.fields["base_version"] == 1
    assert raised.value.fields["path"] == table.path
    assert raised.value.fields["later"] == "INSERT"
    assert raised.value.fields["evidence"]
    assert raised.value.scope is None
    assert load(table.store).head.version == version, "nothing was committed"
    return raised.value


# --- schema and properties --------------------------------------------------------------------------------------------


REQUIRED = pa.schema([pa.field("n", pa.int64(), nullable=False)])
RENAMED = pa.schema([("m", pa.int64())])
RETYPED = pa.schema([("n", pa.string())])
REQUIRED_TOO = pa.schema([*NUMBERS, pa.field("s", pa.string(), nullable=False)])
FIRST = pa.schema([("s", pa.string()), *NUMBERS])


@pytest.mark.parametrize("schema", [REQUIRED, RENAMED, RETYPED, REQUIRED_TOO, FIRST, pa.schema([])], ids=str)
def test_a_schema_change_is_a_conflict(table: Table, schema: pa.Schema) -> None:
    transaction = table.begin().insert(numbers([1]))
    version = put_foreign(table, with_schema(table, schema))
    error = expect(MetadataChangedException, transaction, table, version)
    assert "schema" in error.fields["evidence"]


def test_a_new_column_with_a_default_is_a_conflict(table: Table) -> None:
    transaction = table.begin().insert(numbers([1]))
    changed = with_schema(table, pa.schema([*NUMBERS, ("s", pa.string())]))
    schema = changed.schema_string.replace('"metadata":{}}]', '"metadata":{"CURRENT_DEFAULT":"1"}}]')
    version = put_foreign(table, msgspec.structs.replace(changed, schema_string=schema))
    expect(MetadataChangedException, transaction, table, version)


def test_a_change_of_partition_columns_is_a_conflict(table: Table) -> None:
    transaction = table.begin().insert(numbers([1]))
    version = put_foreign(table, msgspec.structs.replace(head_metadata(table), partition_columns=("n",)))
    expect(MetadataChangedException, transaction, table, version)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("delta__enableDeletionVectors", "false"),
        ("delta__enableChangeDataFeed", "true"),
        ("delta__enableInCommitTimestamps", "false"),
        ("delta__appendOnly", "true"),
        ("delta__constraints.positive", "n > 0"),
        ("delta__columnMapping.mode", "name"),
        ("tidelog__somethingLater", "1"),
    ],
)
def test_a_property_that_can_matter_is_a_conflict_that_names_it(table: Table, key: str, value: str) -> None:
    transaction = table.begin().insert(numbers([1]))
    version = put_foreign(table, with_properties(table, **{key: value}))
    error = expect(MetadataChangedException, transaction, table, version)
    assert key.replace("__", ".") in error.fields["evidence"]


def test_a_table_that_was_replaced_gets_no_rows_of_the_old_one(table: Table) -> None:
    """A RESTORE or CREATE OR REPLACE gives the table another id; rows for the old one do not belong there."""
    transaction = table.begin().insert(numbers([1]))
    put_foreign(table, msgspec.structs.replace(head_metadata(table), id="another"))
    with pytest.raises((ConflictError, TableReplacedError)):
        transaction.commit()


def test_two_metadata_changes_conflict_even_if_harmless(table: Table) -> None:
    staged = Staged("SET", OperationClass.NONE, metadata=with_properties(table, owner="me"))
    theirs = Commit(version=2, info={}, actions=(with_properties(table, delta__checkpointInterval="7"),))
    outcome = rebase(table, staged, [theirs])
    assert isinstance(outcome, Conflict)
    assert outcome.error is MetadataChangedException


# --- protocol ---------------------------------------------------------------------------------------------------------


def test_a_protocol_change_is_a_conflict(table: Table) -> None:
    transaction = table.begin().insert(numbers([1]))
    old = head_protocol(table)
    version = put_foreign(
        table, msgspec.structs.replace(old, writer_features=(*(old.writer_features or ()), "changeDataFeed"))
    )
    expect(ProtocolChangedException, transaction, table, version)
    assert table.insert(numbers([2])).version == version + 1, "a new attempt knows the new protocol"


def test_the_same_protocol_in_another_order_is_not_a_change(table: Table) -> None:
    """Features are sets. delta-rs writes them again in any order, with a new column or a restore."""
    transaction = table.begin().insert(numbers([1]))
    old = head_protocol(table)
    version = put_foreign(table, msgspec.structs.replace(old, writer_features=(old.writer_features or ())[::-1]))
    outcome = transaction.commit()
    assert isinstance(outcome, Committed)
    assert outcome.rebased_over == (version,)


def test_a_protocol_that_tidelog_cannot_write_is_a_conflict_and_then_an_error(table: Table) -> None:
    transaction = table.begin().insert(numbers([1]))
    old = head_protocol(table)
    version = put_foreign(
        table, msgspec.structs.replace(old, writer_features=(*(old.writer_features or ()), "somethingNew"))
    )
    expect(ProtocolChangedException, transaction, table, version)
    with pytest.raises(UnsupportedFeatureError):
        table.insert(numbers([2]))


# --- streams and fences -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("theirs", [4, 5, 6])
def test_a_second_copy_of_a_stream_is_a_conflict_for_any_version_that_it_wrote(table: Table, theirs: int) -> None:
    transaction = table.begin().insert(numbers([1]), idempotency_key=("stream", 5))
    version = put_foreign(table, SetTransaction(app_id="stream", version=theirs))
    error = expect(ConcurrentTransactionException, transaction, table, version)
    assert "stream" in error.fields["evidence"]
    assert read_numbers(reopen(table)) == [0]


def test_a_conflict_is_found_among_harmless_winners(table: Table) -> None:
    transaction = table.begin().insert(numbers([1]), idempotency_key=("stream", 5))
    reopen(table).insert(numbers([2]))
    version = put_foreign(table, SetTransaction(app_id="stream", version=6))
    reopen(table).insert(numbers([3]))
    with pytest.raises(ConcurrentTransactionException) as raised:
        transaction.commit()
    assert raised.value.fields["winning_version"] == version
    assert read_numbers(reopen(table)) == [0, 2, 3]


def test_the_error_names_the_class_of_the_winner(table: Table) -> None:
    transaction = table.begin().insert(numbers([1]), idempotency_key=("stream", 5))
    (file,) = live_files(table)
    put_foreign(table, remove(file), SetTransaction(app_id="stream", version=6))
    with pytest.raises(ConflictError) as raised:
        transaction.commit()
    assert raised.value.fields["earlier"] == "UPDATE_DELETE"


@pytest.mark.parametrize("epoch", [1, 2, 3])
def test_a_fence_loses_only_to_a_higher_epoch(epoch: int) -> None:
    table = filled((1, 1))
    fence = SetTransaction(app_id="daemon", version=2)
    transaction = reopen(table).begin()
    transaction._staged = Staged("OPTIMIZE", OperationClass.NONE, fence=fence)
    put_foreign(table, SetTransaction(app_id="daemon", version=epoch))
    if epoch > fence.version:
        with pytest.raises(FencedError, match="the winner began epoch 3 of daemon"):
            transaction.commit()
    else:
        assert isinstance(transaction.commit(), Committed)
        assert reopen(table).transactions["daemon"] == fence.version
