"""Row changes, compactions and `SparkExecutor` on Spark Connect."""

from __future__ import annotations

import random
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from tests.log.cleanup.support import AT_ONCE
from tests.log.operations.changing_rows import SCHEMA, rows
from tests.streaming.executors.twins import Twins, filled, frame_of
from tidelog.compaction_daemon import compact
from tidelog.log import Table
from tidelog.log.errors import ConfigurationError, DuplicateKeyError, PredicateError, SchemaMismatchError
from tidelog.streaming import SparkExecutor, lookup, sql, table
from tidelog.streaming.executors import tasks
from tidelog.streaming.executors.session import is_connect, is_local, parallelism


@pytest.fixture
def twins(connect: SparkSession, tmp_path: Path) -> Twins:
    return Twins(connect, tmp_path, filled(tmp_path, "vectors, feed"))


def test_row_changes_are_those_of_the_table(connect: SparkSession, twins: Twins) -> None:
    twins.check(lambda table: table.delete("k < 5 AND part IS NOT NULL"))
    twins.check(lambda table: table.update("k > 15", {"v": "k + 1000"}))
    new = rows(range(6, 9))
    twins.check(
        lambda table: table.upsert(new, keys=["k"]),
        lambda table: table.upsert(frame_of(connect, new), keys=["k"]),
    )
    replaced = rows(range(8, 10))
    twins.check(
        lambda table: table.overwrite(replaced, dynamic=True),
        lambda table: table.overwrite(frame_of(connect, replaced), dynamic=True),
    )


@pytest.mark.full
def test_errors_keep_their_types(connect: SparkSession, twins: Twins) -> None:
    with pytest.raises(PredicateError):
        twins.spark.delete("nothing = 1")
    with pytest.raises(DuplicateKeyError):
        twins.spark.upsert(frame_of(connect, [*rows(range(1)), *rows(range(1))]), keys=["k"])
    with pytest.raises(SchemaMismatchError, match="a Spark DataFrame is needed, not list"):
        twins.spark.upsert(rows(range(1)), keys=["k"])  # type: ignore[arg-type]
    assert twins.other.refresh().version == twins.local.version


def test_statements_in_sql(connect: SparkSession, tmp_path: Path) -> None:
    made = Table.create(str(tmp_path / "made"), pa.schema([("n", pa.int64()), ("part", pa.string())]))
    made.insert([{"n": n, "part": "a"} for n in range(4)])
    name = f"tidelog.`{made.path}`"
    assert sql(connect, f"UPDATE {name} SET part = 'b' WHERE n % 2 = 1").collect() == [(2, 2)]
    assert sql(connect, f"DELETE FROM {name} WHERE length(part) = 1 AND n = 0").collect() == [(3, 1)]
    source = "(SELECT * FROM VALUES (1L, 'x'), (9L, 'y') AS v(n, part)) AS s"
    merge = f"MERGE INTO {name} AS t USING {source} ON t.n = s.n WHEN MATCHED THEN UPDATE SET * "
    sql(connect, f"{merge} WHEN NOT MATCHED THEN INSERT *")
    made.refresh()
    rows_now = sorted(tuple(row.values()) for row in made.at().scan().to_arrow().to_pylist())
    assert rows_now == [(1, "x"), (2, "a"), (3, "b"), (9, "y")]
    assert sql(connect, "SELECT 1 AS one").collect() == [(1,)]


def test_procedures_in_sql(connect: SparkSession, tmp_path: Path) -> None:
    """They run here: the server does not know them."""
    made = Table.create(str(tmp_path / "made"), pa.schema([("n", pa.int64()), ("part", pa.string())]))
    for n in range(3):
        made.insert([{"n": n, "part": "a"}])
    [done] = sql(connect, f"OPTIMIZE tidelog.`{made.path}`").collect()
    assert (done.version, done.files_removed, done.files_added) == (4, 3, 1)
    [last] = sql(connect, f"CALL tidelog.system.history('{made.path}', limit => 1)").collect()
    assert (last.version, last.operation, last.data_change) == (4, "OPTIMIZE", False)
    [restored] = sql(connect, f"RESTORE TABLE tidelog.`{made.path}` TO VERSION AS OF 1").collect()
    assert restored.version == 5
    assert made.refresh().scan().to_arrow().num_rows == 1
    with pytest.raises(ConfigurationError, match="a name of Spark's own catalog, which is not known on Spark Connect"):
        sql(connect, "CALL tidelog.system.compact('orders')").collect()
    with pytest.raises(ConfigurationError, match=r"OPTIMIZE is not a statement of Spark, and `orders` is not a table"):
        sql(connect, "OPTIMIZE orders")


def test_a_lookup(connect: SparkSession, tmp_path: Path) -> None:
    made = Table.create(str(tmp_path / "a table"), SCHEMA, properties={"tidelog.primaryKey": "k"})
    made.insert(rows(range(5)))
    batch = connect.createDataFrame([(3, "c"), (9, "i")], "k long, letter string")
    found = lookup(connect, batch, made.path, on=["k"], columns=["v"])
    assert sorted(tuple(row) for row in found.collect()) == [(3, "c", 30), (9, "i", None)]


@pytest.mark.full
def test_a_compaction_by_the_executors(connect: SparkSession, tmp_path: Path) -> None:
    schema = pa.schema([("part", pa.string()), ("x", pa.int64())])
    made = Table.create(str(tmp_path / "made"), schema, partition_by=["part"], properties=AT_ONCE)
    chance = random.Random(7)
    for _ in range(3):
        made.insert([{"part": part, "x": chance.randrange(100)} for part in "ab" for _ in range(20)])
    made.delete("x < 15")
    before = sorted(map(repr, made.scan().to_arrow().to_pylist()))
    with SparkExecutor(connect) as executor:
        report = compact(made, executor=executor)
    assert (report.groups, report.files_removed, report.files_added, report.stopped) == (2, 6, 2, None)
    report = table(connect, made.path).compact("major", cluster_by=["x"])
    assert report.files_added == 2
    assert sorted(map(repr, made.refresh().scan().to_arrow().to_pylist())) == before


def _task(part: int) -> tuple[int, int]:
    from pyspark import TaskContext  # noqa: PLC0415 - it runs in a task

    context = TaskContext.get()
    assert context
    return part, context.partitionId()


@pytest.mark.full
def test_each_part_has_a_task_of_its_own_and_values_come_in_order(connect: SparkSession) -> None:
    found = tasks.run(connect, _task, list(range(9)))
    assert [part for part, _ in found] == list(range(9))
    assert sorted(task for _, task in found) == list(range(9))
    assert tasks.run(connect, _task, []) == []
    assert tasks.run(connect, _task, [3]) == [(3, 0)]


def test_what_is_known_about_the_session(connect: SparkSession) -> None:
    assert is_connect(connect)
    assert is_local(connect)
    assert parallelism(connect) == 2
