"""The writer of `df.write`, called as Spark calls it: one copy for each task, and others for commit and abort."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import LongType, StringType, StructType

from tidelog.log import Table
from tidelog.log.errors import (
    CommitStateUnknownError,
    ConcurrentTransactionException,
    ConfigurationError,
    SchemaMismatchError,
    StoreUnavailableError,
    TableReplacedError,
)
from tidelog.log.storage.local import LocalStore
from tidelog.streaming.datasource import batch_writer
from tidelog.streaming.datasource.batch_writer import BatchWriter, TaskResult
from tidelog.streaming.datasource.write_options import parse_write

SPARK_SCHEMA = StructType().add("n", LongType()).add("part", StringType())
SCHEMA = pa.schema([("n", pa.int64()), ("part", pa.string())])


@pytest.fixture
def table(tmp_path: Path) -> Table:
    return Table.create(str(tmp_path / "table"), SCHEMA, partition_by=["part"])


def planned(table: Table, *, overwrite: bool = False, **options: str) -> bytes:
    writer = BatchWriter(parse_write({"path": table.path, **options}, overwrite=overwrite), SPARK_SCHEMA)
    return pickle.dumps(writer)


def rows(*numbers: int, part: str = "a") -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([{"n": number, "part": part} for number in numbers], SCHEMA)


def task(plan: bytes, *batches: pa.RecordBatch) -> TaskResult:
    result = pickle.loads(pickle.dumps(pickle.loads(plan).write(iter(batches))))
    assert isinstance(result, TaskResult)
    return result


def commit(plan: bytes, *results: TaskResult) -> None:
    pickle.loads(plan).commit(list(results))


def abort(plan: bytes, *results: TaskResult | None) -> None:
    pickle.loads(plan).abort(list(results))


def numbers(table: Table) -> list[int]:
    return sorted(table.refresh().scan().to_arrow()["n"].to_pylist())


def num_data_files(table: Table) -> int:
    return len([file for file in Path(table.path).rglob("*.parquet") if "_delta_log" not in file.parts])


def test_tasks_and_commit_run_in_separate_processes(table: Table) -> None:
    plan = planned(table)
    results = [task(plan, rows(1, 2), rows(3, part="b")), task(plan, rows(4)), task(plan)]
    assert numbers(table) == []
    commit(plan, *results)
    assert numbers(table) == [1, 2, 3, 4]
    assert table.version == 1
    assert num_data_files(table) == 3


def test_an_abort_deletes_the_files_of_finished_tasks(table: Table) -> None:
    plan = planned(table)
    results = [task(plan, rows(1)), None, task(plan, rows(2, part="b"))]
    assert num_data_files(table) == 2
    abort(plan, *results)
    assert num_data_files(table) == 0
    assert table.refresh().version == 0


def test_an_abort_after_a_commit_deletes_nothing(table: Table) -> None:
    """Spark also aborts after `commit` raised, and then the outcome can be unknown."""
    plan = planned(table)
    result = task(plan, rows(1))
    commit(plan, result)
    abort(plan, result)
    assert num_data_files(table) == 1
    assert numbers(table) == [1]


def test_files_stay_if_the_outcome_of_the_commit_is_unknown(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = planned(table)
    result = task(plan, rows(1))

    def no_answer(*_: object) -> None:
        raise StoreUnavailableError("no answer", advice="wait", path=table.path)

    monkeypatch.setattr(LocalStore, "put_if_absent", no_answer)
    monkeypatch.setattr("tidelog.log.commit.version_put.read_info", no_answer)
    with pytest.raises(CommitStateUnknownError):
        commit(plan, result)
    abort(plan, result)
    assert num_data_files(table) == 1


def failing(batch: pa.RecordBatch, error: Exception) -> Iterator[pa.RecordBatch]:
    yield batch
    raise error


@pytest.mark.parametrize("error", [StoreUnavailableError("no answer", path=""), OSError("the disk is full")])
def test_a_task_fails_with_an_error_that_another_attempt_may_not_have(
    table: Table, error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch_writer, "file_size", lambda _: 1)
    with pytest.raises(type(error)):
        pickle.loads(planned(table)).write(failing(rows(1), error))
    assert num_data_files(table) == 0


def test_a_tidelog_error_of_a_task_is_raised_by_the_commit(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise Spark would run the task again, with the same error."""
    monkeypatch.setattr(batch_writer, "file_size", lambda _: 1)
    plan = planned(table)
    other = pa.RecordBatch.from_pydict({"n": ["x"], "part": ["a"]})
    results = [task(plan, rows(1)), task(plan, rows(2), other)]
    assert num_data_files(table) == 1
    with pytest.raises(SchemaMismatchError, match="column 'n' is int64"):
        commit(plan, *results)
    assert num_data_files(table) == 0
    assert table.refresh().version == 0


def test_rows_outside_where_leave_no_files(table: Table) -> None:
    plan = planned(table, overwrite=True, where="part = 'a'")
    results = [task(plan, rows(1)), task(plan, rows(2, part="b"))]
    with pytest.raises(ConfigurationError, match="1 of 2 rows are outside"):
        commit(plan, *results)
    assert num_data_files(table) == 0


def test_of_two_writes_with_the_same_key_one_is_committed(table: Table) -> None:
    first, second = (planned(table, txnAppId="job", txnVersion="1") for _ in range(2))
    commit(first, task(first, rows(1)))
    result = task(second, rows(1))
    with pytest.raises(ConcurrentTransactionException, match="version 1 of the application id job"):
        commit(second, result)
    assert numbers(table) == [1]
    assert num_data_files(table) == 1
    third = planned(table, txnAppId="job", txnVersion="1")
    assert task(third, rows(1)) == TaskResult()
    commit(third, TaskResult())
    assert table.refresh().version == 1


def test_a_table_replaced_before_the_commit_is_an_error(table: Table) -> None:
    plan = planned(table)
    result = task(plan, rows(1))
    Table.drop(table.path)
    Table.create(table.path, SCHEMA).insert([{"n": 7}])
    with pytest.raises(TableReplacedError, match="has been replaced by another one"):
        commit(plan, result)
    assert numbers(Table.open(table.path)) == [7]


def test_an_overwrite_also_replaces_concurrent_inserts(table: Table) -> None:
    table.insert([{"n": 1, "part": "a"}, {"n": 2, "part": "b"}])
    plan = planned(table, overwrite=True, partitionOverwriteMode="dynamic")
    results = [task(plan, rows(10)), task(plan, rows(11))]
    table.insert([{"n": 3, "part": "a"}, {"n": 4, "part": "b"}])
    commit(plan, *results)
    assert numbers(table) == [2, 4, 10, 11]


def test_a_null_in_a_required_column_is_an_error(tmp_path: Path) -> None:
    schema = pa.schema([pa.field("n", pa.int64(), nullable=False), ("part", pa.string())])
    table = Table.create(str(tmp_path / "table"), schema)
    plan = planned(table)
    commit(plan, task(plan, rows(1)))
    values: Any = {"n": [None], "part": ["a"]}
    with pytest.raises(SchemaMismatchError, match="'n'"):
        commit(plan, task(plan, pa.RecordBatch.from_pydict(values, SCHEMA)))
    assert numbers(table) == [1]
