"""What others commit first, and what becomes of an insert that was staged before."""

from __future__ import annotations

import uuid
from typing import Any

import msgspec
import pyarrow as pa
import pytest

from tests.log.support import (
    NUMBERS,
    add,
    live_files,
    memory_store,
    new_table,
    numbers,
    put_foreign,
    put_vector,
    read_numbers,
    remove,
    reopen,
)
from tidelog.log import Committed, OperationClass, Table
from tidelog.log.commit.rebase_reads import StoreBlobs
from tidelog.log.conflict.operation_class import classify
from tidelog.log.conflict.outcome import Conflict, Rebased, RebaseOutcome
from tidelog.log.conflict.rebase import Rebase
from tidelog.log.conflict.staged import Staged
from tidelog.log.errors import (
    ConcurrentTransactionException,
    ConflictError,
    MetadataChangedException,
    ProtocolChangedException,
    TableReplacedError,
    UnsupportedFeatureError,
)
from tidelog.log.format.actions import (
    AddCDCFile,
    Commit,
    Metadata,
    Protocol,
    SetTransaction,
)
from tidelog.log.format.schema import to_schema_string
from tidelog.log.state.loader import load


@pytest.fixture
def table() -> Table:
    table = new_table(memory_store(), NUMBERS)
    table.insert(numbers([0]))
    return table


def head_metadata(table: Table) -> Metadata:
    return load(table.store).head.metadata


def head_protocol(table: Table) -> Protocol:
    return load(table.store).head.protocol


def with_schema(table: Table, schema: pa.Schema) -> Metadata:
    return msgspec.structs.replace(head_metadata(table), schema_string=to_schema_string(schema))


def with_properties(table: Table, **properties: str) -> Metadata:
    old = head_metadata(table)
    changed = {name.replace("__", "."): value for name, value in properties.items()}
    return msgspec.structs.replace(old, configuration={**old.configuration, **changed})


# --- what an insert is rebased over ----------------------------------------------------------------------------------


def winners(table: Table) -> dict[str, list[Any]]:
    (file,) = live_files(table)
    vector = put_vector(table.store, [0], f"{uuid.uuid4()}.bin")
    return {
        "an insert": [add("foreign.parquet", stats='{"numRecords":0}')],
        "a delete": [remove(file)],
        "a deletion vector": [remove(file), msgspec.structs.replace(file, deletion_vector=vector)],
        "an overwrite": [remove(file), add("foreign.parquet")],
        "a compaction": [remove(file, data_change=False), msgspec.structs.replace(file, path="o", data_change=False)],
        "another stream": [SetTransaction(app_id="other", version=9)],
        "nothing": [],
        "change files": [AddCDCFile(path="c", partition_values={}, size=1)],
        "the same metadata again": [msgspec.structs.replace(head_metadata(table), created_time=1)],
        "the same protocol again": [head_protocol(table)],
        "a new nullable column": [with_schema(table, pa.schema([*NUMBERS, ("s", pa.string())]))],
        "a harmless property": [with_properties(table, delta__checkpointInterval="7")],
        "a property of the user's": [with_properties(table, owner="me")],
    }


WINNERS = [
    "an insert",
    "a delete",
    "a deletion vector",
    "an overwrite",
    "a compaction",
    "another stream",
    "nothing",
    "change files",
    "the same metadata again",
    "the same protocol again",
    "a new nullable column",
    "a harmless property",
    "a property of the user's",
]


@pytest.mark.parametrize("winner", WINNERS)
def test_an_insert_is_rebased_over(table: Table, winner: str) -> None:
    assert list(winners(table)) == WINNERS
    transaction = table.begin().insert(numbers([1]), idempotency_key=("mine", 1))
    version = put_foreign(table, *winners(table)[winner])
    result = transaction.commit()
    assert isinstance(result, Committed)
    assert (result.version, result.rebased_over, result.retried) == (version + 1, (version,), True)
    assert load(table.store).head.transactions["mine"].version == 1
    commit = reopen(table).history(1)[0]
    assert commit.operation_class == OperationClass.INSERT
    assert result.timestamp == commit.timestamp > reopen(table).history(2)[1].timestamp


# --- what ends it ----------------------------------------------------------------------------------------------------

REQUIRED = pa.schema([pa.field("n", pa.int64(), nullable=False)])
RENAMED = pa.schema([("m", pa.int64())])
RETYPED = pa.schema([("n", pa.string())])
REQUIRED_TOO = pa.schema([*NUMBERS, pa.field("s", pa.string(), nullable=False)])
FIRST = pa.schema([("s", pa.string()), *NUMBERS])


def expect(error: type[ConflictError], transaction: Any, table: Table, version: int) -> ConflictError:
    with pytest.raises(error) as raised:
        transaction.commit()
    assert raised.value.fields["winning_version"] == version
    assert raised.value.fields["base_version"] == 1
    assert raised.value.fields["path"] == table.path
    assert raised.value.fields["later"] == "INSERT"
    assert raised.value.fields["evidence"]
    assert load(table.store).head.version == version, "nothing was committed"
    return raised.value


@pytest.mark.parametrize("schema", [REQUIRED, RENAMED, RETYPED, REQUIRED_TOO, FIRST, pa.schema([])], ids=str)
def test_a_change_of_the_schema_is_a_conflict(table: Table, schema: pa.Schema) -> None:
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


def test_a_change_of_the_partitioning_is_a_conflict(table: Table) -> None:
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
def test_a_property_that_may_matter_is_a_conflict_that_names_it(table: Table, key: str, value: str) -> None:
    transaction = table.begin().insert(numbers([1]))
    version = put_foreign(table, with_properties(table, **{key: value}))
    error = expect(MetadataChangedException, transaction, table, version)
    assert key.replace("__", ".") in error.fields["evidence"]


def test_another_table_in_its_place_takes_no_rows(table: Table) -> None:
    """A RESTORE or CREATE OR REPLACE gives the table another id; rows for the old one do not belong there."""
    transaction = table.begin().insert(numbers([1]))
    put_foreign(table, msgspec.structs.replace(head_metadata(table), id="another"))
    with pytest.raises((ConflictError, TableReplacedError)):
        transaction.commit()


def test_a_change_of_the_protocol_is_a_conflict(table: Table) -> None:
    transaction = table.begin().insert(numbers([1]))
    old = head_protocol(table)
    version = put_foreign(
        table, msgspec.structs.replace(old, writer_features=(*(old.writer_features or ()), "changeDataFeed"))
    )
    expect(ProtocolChangedException, transaction, table, version)
    assert table.insert(numbers([2])).version == version + 1, "a new attempt knows the new protocol"


def test_a_protocol_that_says_the_same_in_another_order_is_no_change(table: Table) -> None:
    """Features are sets; delta-rs writes them anew in any order with a new column or a restore."""
    transaction = table.begin().insert(numbers([1]))
    old = head_protocol(table)
    version = put_foreign(table, msgspec.structs.replace(old, writer_features=(old.writer_features or ())[::-1]))
    outcome = transaction.commit()
    assert isinstance(outcome, Committed)
    assert outcome.rebased_over == (version,)


def test_a_protocol_that_tidelog_cannot_write_is_a_conflict_first_and_then_refused(table: Table) -> None:
    transaction = table.begin().insert(numbers([1]))
    old = head_protocol(table)
    version = put_foreign(
        table, msgspec.structs.replace(old, writer_features=(*(old.writer_features or ()), "rowTracking"))
    )
    expect(ProtocolChangedException, transaction, table, version)
    with pytest.raises(UnsupportedFeatureError):
        table.insert(numbers([2]))


@pytest.mark.parametrize("theirs", [4, 5, 6])
def test_a_second_copy_of_a_stream_is_a_conflict_whatever_it_wrote(table: Table, theirs: int) -> None:
    transaction = table.begin().insert(numbers([1]), idempotency_key=("stream", 5))
    version = put_foreign(table, SetTransaction(app_id="stream", version=theirs))
    error = expect(ConcurrentTransactionException, transaction, table, version)
    assert "stream" in error.fields["evidence"]
    assert read_numbers(reopen(table)) == [0]


def test_the_conflict_is_found_behind_harmless_winners(table: Table) -> None:
    transaction = table.begin().insert(numbers([1]), idempotency_key=("stream", 5))
    reopen(table).insert(numbers([2]))
    version = put_foreign(table, SetTransaction(app_id="stream", version=6))
    reopen(table).insert(numbers([3]))
    with pytest.raises(ConcurrentTransactionException) as raised:
        transaction.commit()
    assert raised.value.fields["winning_version"] == version
    assert read_numbers(reopen(table)) == [0, 2, 3]


def test_the_error_names_the_class_of_what_won(table: Table) -> None:
    transaction = table.begin().insert(numbers([1]), idempotency_key=("stream", 5))
    (file,) = live_files(table)
    put_foreign(table, remove(file), SetTransaction(app_id="stream", version=6))
    with pytest.raises(ConflictError) as raised:
        transaction.commit()
    assert raised.value.fields["earlier"] == "UPDATE_DELETE"


# --- pure ------------------------------------------------------------------------------------------------------------


def rebase(table: Table, staged: Staged, winners: list[Commit]) -> RebaseOutcome:
    found = Rebase(staged, head_protocol(table), head_metadata(table), StoreBlobs(table.store))
    for winner in winners:
        found.fold(winner, classify(winner))
    return found.judge()


def test_nothing_won_nothing_changes(table: Table) -> None:
    staged = Staged("WRITE", OperationClass.INSERT, adds=(add("a"),))
    assert rebase(table, staged, []) == Rebased(staged)


def test_two_changes_of_the_metadata_conflict_even_if_harmless(table: Table) -> None:
    staged = Staged("SET", OperationClass.NONE, metadata=with_properties(table, owner="me"))
    theirs = Commit(version=2, info={}, actions=(with_properties(table, delta__checkpointInterval="7"),))
    outcome = rebase(table, staged, [theirs])
    assert isinstance(outcome, Conflict)
    assert outcome.error is MetadataChangedException
