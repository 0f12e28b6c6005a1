"""UPDATE, DELETE and MERGE that Spark's analyzer rewrites: whatever Spark can plan, in one commit."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.types import LongType

from tests.log.cleanup.support import AT_ONCE
from tests.log.row_tracking import TRACKING, ids, tracked_table
from tests.log.rules.support import default, ruled_table
from tests.randomness import seed
from tests.streaming.datasource.sql_tables import rows
from tests.streaming.support import JVM_SOURCE, rewrite_all, wait_until
from tidelog.log import Table, Transaction
from tidelog.log.errors import ConflictError
from tidelog.log.storage import open_store
from tidelog.streaming import changes, sql
from tidelog.streaming.datasource import rewritten, row_changes
from tidelog.streaming.executors import changed_rows
from tidelog.streaming.executors.spark_table import SparkTable

pytestmark = [pytest.mark.spark, JVM_SOURCE]

PLACE = pa.struct([("a", pa.int32()), ("b", pa.string())])
SCHEMA = pa.schema([("id", pa.int64()), ("k", pa.string()), ("v", pa.float64()), ("s", PLACE)])
KINDS: dict[str, dict[str, Any]] = {
    "feed": {"properties": {"delta.enableChangeDataFeed": "true"}},
    "copies": {"properties": {"delta.enableDeletionVectors": "false"}, "partition_by": ["k"]},
    "copies with a feed": {
        "properties": {"delta.enableDeletionVectors": "false", "delta.enableChangeDataFeed": "true"},
    },
}


def made(path: Path, **more: Any) -> Table:
    """A table with the rows 0 to 19 in two commits."""
    table = Table.create(str(path), SCHEMA, **more)
    for start in (0, 10):
        numbers = range(start, start + 10)
        table.insert([{"id": n, "k": f"k{n % 3}", "v": float(n), "s": {"a": n, "b": "x"}} for n in numbers])
    return table


@pytest.fixture
def other(spark: SparkSession) -> Iterator[None]:
    """The view `other`, with the ids 5, 10, 15 and 20, and the function `plus_one`."""
    spark.range(5, 25, 5).selectExpr("id", "id * 100.0D AS w").createOrReplaceTempView("other")
    spark.udf.register("plus_one", lambda n: None if n is None else n + 1, LongType())
    yield
    spark.catalog.dropTempView("other")
    spark.sql("DROP TEMPORARY FUNCTION plus_one")


def read(spark: SparkSession, table: Table) -> dict[int, tuple[Any, ...]]:
    return {row.id: (row.v, row.s and row.s.b) for row in spark.sql(f"SELECT * FROM tidelog.`{table.path}`").collect()}


def feed(spark: SparkSession, table: Table) -> Counter[str]:
    """What the newest commit did, by its change feed."""
    newest = table.refresh().version
    return Counter(row._change_type for row in changes(spark, table.path, after=newest - 1).collect())


@pytest.mark.oldest
@pytest.mark.usefixtures("other")
@pytest.mark.parametrize("kind", ["feed", *(pytest.param(k, marks=pytest.mark.full) for k in KINDS if k != "feed")])
def test_what_has_no_translation_is_computed_by_spark(spark: SparkSession, tmp_path: Path, kind: str) -> None:
    table = made(tmp_path / "table", **KINDS[kind])
    name, has_feed = f"tidelog.`{table.path}`", "feed" in kind
    expected: dict[int, tuple[Any, ...]] = {n: (float(n), "x") for n in range(20)}

    done = sql(spark, f"UPDATE {name} SET v = plus_one(id), s.b = trim(' y ') WHERE id IN (SELECT id FROM other)")
    assert done.collect()[0]["num_affected_rows"] == 3
    expected |= {n: (n + 1.0, "y") for n in (5, 10, 15)}
    assert read(spark, table) == expected
    assert not has_feed or feed(spark, table) == {"update_preimage": 3, "update_postimage": 3}

    spark.sql(f"DELETE FROM {name} t WHERE EXISTS (SELECT 1 FROM other o WHERE o.id = t.id AND o.w < 1400)")
    expected = {n: value for n, value in expected.items() if n not in {5, 10}}
    assert read(spark, table) == expected
    assert not has_feed or feed(spark, table) == {"delete": 2}

    spark.sql(
        f"""MERGE INTO {name} t USING (SELECT id AS lo, id + 2 AS hi, id * 10.0D AS w FROM range(0, 30, 6)) s
        ON t.id >= s.lo AND t.id < s.hi
        WHEN MATCHED AND t.id % 2 = 1 THEN DELETE
        WHEN MATCHED THEN UPDATE SET v = t.v + s.w, s = named_struct('b', 'm', 'a', 0)
        WHEN NOT MATCHED THEN INSERT (id, v) VALUES (s.lo, s.w)
        WHEN NOT MATCHED BY SOURCE AND t.id > 15 THEN UPDATE SET v = 0
        WHEN NOT MATCHED BY SOURCE AND t.id = 15 THEN DELETE"""
    )
    for n in list(expected):
        if n % 6 < 2:
            if n % 2:
                del expected[n]
            else:
                expected[n] = (n + n * 10.0, "m")
        elif n > 15:
            expected[n] = (0.0, expected[n][1])
        elif n == 15:
            del expected[n]
    expected[24] = (240.0, None)
    assert read(spark, table) == expected
    assert not has_feed or feed(spark, table) == {
        "delete": 5, "update_preimage": 6, "update_postimage": 6, "insert": 1,
    }  # fmt: skip
    assert [record.operation for record in table.refresh().history(3)] == ["MERGE", "DELETE", "UPDATE"]


@pytest.mark.full
@pytest.mark.parametrize("kind", ["feed", "copies"])
def test_a_merge_that_inserts_or_reads_itself(spark: SparkSession, tmp_path: Path, kind: str) -> None:
    table = made(tmp_path / "table", **KINDS[kind])
    name = f"tidelog.`{table.path}`"
    source = "(SELECT id, CAST(id AS DOUBLE) AS v FROM range(18, 22))"
    insert = "WHEN NOT MATCHED AND s.v > 20 THEN INSERT (id, v) VALUES (s.id, -s.v)"
    spark.sql(f"MERGE INTO {name} t USING {source} s ON t.id = s.id AND trim(t.k) <> '' {insert}")
    assert read(spark, table).keys() - range(20) == {21}
    before = read(spark, table)
    spark.sql(f"MERGE INTO {name} t USING {name} s ON t.id = s.id + 1 WHEN MATCHED THEN UPDATE SET v = s.v")
    assert read(spark, table) == {n: (before.get(n - 1, value)[0], value[1]) for n, value in before.items()}
    version = table.refresh().version
    twice = "(SELECT 2L AS id, 1.0D AS v UNION ALL SELECT 2, 2.0D)"
    with pytest.raises(PySparkException) as caught:
        spark.sql(f"MERGE INTO {name} t USING {twice} s ON t.id = s.id WHEN MATCHED THEN UPDATE SET v = s.v")
    assert caught.value.getCondition() == "MERGE_CARDINALITY_VIOLATION"
    spark.sql(f"MERGE INTO {name} t USING {twice} s ON t.id = s.id WHEN MATCHED THEN DELETE")
    assert 2 not in read(spark, table)
    assert table.refresh().version == version + 1


# --- other commits meanwhile ------------------------------------------------------------------------------------------


@pytest.fixture
def attempts(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], object]], list[object]]:
    """Let another commit come between the work and the commit of the first attempt. Gives one entry for each."""

    def race(winner: Callable[[], object], *, always: bool = False) -> list[object]:
        done: list[object] = []
        stage = changed_rows.stage_changes

        def racing(*arguments: Any) -> Any:
            staged = stage(*arguments)
            done.append(winner() if always or not done else None)
            return staged

        monkeypatch.setattr(rewritten, "stage_changes", racing)
        return done

    return race


def partitioned(path: Path) -> Table:
    schema = pa.schema([("p", pa.string()), ("id", pa.int64()), ("v", pa.float64())])
    table = Table.create(str(path), schema, partition_by=["p"])
    table.insert([{"p": "a", "id": 1, "v": 1.0}, {"p": "b", "id": 2, "v": 1.0}])
    return table


@pytest.mark.parametrize(
    ("where", "partition", "count"),
    [
        ("p = 'a' AND v IN (SELECT 1.0D)", "a", 2),
        pytest.param("v IN (SELECT 1.0D)", "b", 2, marks=pytest.mark.full),
        pytest.param("p = 'a' AND v IN (SELECT 1.0D)", "b", 1, marks=pytest.mark.full),
    ],
)
def test_an_append_to_what_was_read_runs_the_statement_again(
    spark: SparkSession, tmp_path: Path, attempts: Any, where: str, partition: str, count: int
) -> None:
    table = partitioned(tmp_path / "table")
    winner = Table.open(table.path)
    done = attempts(lambda: winner.insert([{"p": partition, "id": 9, "v": 1.0}]))
    spark.sql(f"UPDATE tidelog.`{table.path}` SET v = v + 10 WHERE {where}")
    assert len(done) == count
    chosen = {"a"} if "p = " in where else {"a", "b"}
    found = rows(spark, f"SELECT p, id, v FROM tidelog.`{table.path}`")
    assert found == sorted((p, n, 11.0 if p in chosen else 1.0) for p, n in (("a", 1), ("b", 2), (partition, 9)))


@pytest.mark.full
def test_a_statement_that_loses_each_race_is_a_conflict(spark: SparkSession, tmp_path: Path, attempts: Any) -> None:
    table = partitioned(tmp_path / "table")
    winner = Table.open(table.path)
    done = attempts(lambda: winner.insert([{"p": "a", "id": 9, "v": 1.0}]), always=True)
    with pytest.raises(ConflictError):
        sql(spark, f"UPDATE tidelog.`{table.path}` SET v = v + 10 WHERE v IN (SELECT 1.0D)")
    assert len(done) == 4
    assert {v for (v,) in rows(spark, f"SELECT v FROM tidelog.`{table.path}`")} == {1.0}


@pytest.mark.full
@pytest.mark.parametrize("on", ["t.id = s.id", "t.id = abs(s.id)"])
def test_a_merge_follows_an_append_under_each_policy(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, on: str
) -> None:
    """By keys, it has a translation; both find the row that came first."""
    schema, policy = (
        pa.schema([("id", pa.int64()), ("v", pa.int64())]),
        {"tidelog.conflictPolicy": "write-serializable"},
    )
    table = Table.create(str(tmp_path / "table"), schema, properties=policy)
    table.insert([{"id": 1, "v": 1}])
    commit = Transaction.commit
    done: list[None] = []

    def late(transaction: Transaction, **more: Any) -> Any:
        if not done:
            done.append(None)
            table.insert([{"id": 5, "v": 0}])
        return commit(transaction, **more)

    monkeypatch.setattr(Transaction, "commit", late)
    merge = f"MERGE INTO tidelog.`{table.path}` t USING (SELECT 5L AS id, 7L AS v) s ON {on}"
    spark.sql(f"{merge} WHEN MATCHED THEN UPDATE SET v = s.v WHEN NOT MATCHED THEN INSERT *")
    assert rows(spark, f"SELECT id, v FROM tidelog.`{table.path}`") == [(1, 1), (5, 7)]


@pytest.mark.full
@pytest.mark.parametrize(
    ("statement", "expected"),
    [
        # The row that was there kept the row of the source from being inserted.
        (
            """MERGE INTO {0} t USING (SELECT 1L AS id UNION ALL SELECT 5L) s
            ON t.id = s.id AND trim(t.p) = t.p
            WHEN NOT MATCHED THEN INSERT (p, id, v) VALUES ('n', s.id, 7.0)""",
            {("b", 2, 1.0), ("n", 1, 7.0), ("n", 5, 7.0)},
        ),
        (
            """MERGE INTO {0} t USING (SELECT max(id) AS id, count(*) AS n FROM {0}) s ON t.id = s.id
            WHEN MATCHED AND trim(t.p) = 'b' THEN UPDATE SET v = s.n""",
            {("b", 2, 1.0)},
        ),
        ("UPDATE {0} SET v = v + (SELECT count(*) FROM {0})", {("b", 2, 2.0)}),
    ],
)  # fmt: skip
def test_a_deletion_of_what_was_read_runs_the_statement_again(
    spark: SparkSession, tmp_path: Path, attempts: Any, statement: str, expected: set[tuple[Any, ...]]
) -> None:
    table = partitioned(tmp_path / "table")
    winner = Table.open(table.path)
    done = attempts(lambda: winner.delete("id = 1"))
    spark.sql(statement.format(f"tidelog.`{table.path}`"))
    assert len(done) == 2
    assert set(rows(spark, f"SELECT p, id, v FROM tidelog.`{table.path}`")) == expected


@pytest.mark.full
def test_a_compaction_meanwhile_moves_the_rows_that_change(spark: SparkSession, tmp_path: Path, attempts: Any) -> None:
    table = made(tmp_path / "table")
    winner = Table.open(table.path)
    done = attempts(winner.compact)
    spark.sql(f"UPDATE tidelog.`{table.path}` SET v = -v WHERE id IN (SELECT 3L UNION ALL SELECT 13L)")
    assert len(done) == 1
    assert {n: v for n, (v, _) in read(spark, table).items() if v < 0} == {3: -3.0, 13: -13.0}


@pytest.mark.full
@pytest.mark.parametrize("properties", [{}, TRACKING], ids=["by Spark's reader", "by tidelog's reader"])
def test_files_that_a_vacuum_deletes_meanwhile(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, properties: dict[str, str]
) -> None:
    table = tracked_table(open_store(str(tmp_path / "table")), properties={**AT_ONCE, **properties})
    for n in range(4):
        table.insert([{"n": n, "v": 0}])
    stage = changed_rows.stage_changes
    attempts: list[None] = []

    def late(*arguments: Any) -> Any:
        attempts.append(None)
        if len(attempts) == 1:
            rewrite_all(table.refresh())
            wait_until(lambda: bool(table.vacuum().files), "the old files are deleted")
        return stage(*arguments)

    monkeypatch.setattr(rewritten, "stage_changes", late)
    spark.sql(f"UPDATE tidelog.`{tmp_path}/table` SET v = v + 1 WHERE n IN (SELECT 2L)")
    assert len(attempts) == 2
    assert rows(spark, f"SELECT n, v FROM tidelog.`{tmp_path}/table`") == [(0, 0), (1, 0), (2, 1), (3, 0)]


@pytest.mark.full
def test_a_file_of_a_source_that_is_missing(spark: SparkSession, tmp_path: Path) -> None:
    table, source = made(tmp_path / "table"), tmp_path / "source"
    spark.range(3).write.parquet(str(source))
    frame = spark.read.parquet(str(source))
    frame.createOrReplaceTempView("source_of_files")
    for file in source.glob("*.parquet"):
        file.unlink()
    with pytest.raises(PySparkException, match=r"FAILED_READ_FILE\.FILE_NOT_EXIST"):
        spark.sql(f"DELETE FROM tidelog.`{table.path}` WHERE id IN (SELECT id FROM source_of_files)")
    assert table.refresh().version == 2


# --- what a table asks of its rows ------------------------------------------------------------------------------------


@pytest.mark.full
def test_row_ids_stay(spark: SparkSession, tmp_path: Path) -> None:
    made = tracked_table(open_store(str(tmp_path / "table")), properties=TRACKING)
    made.insert([{"n": n, "v": 0} for n in range(6)])
    before = ids(made)
    spark.sql(f"UPDATE tidelog.`{tmp_path}/table` SET v = v + 1 WHERE n IN (SELECT 2L)")
    spark.sql(f"UPDATE tidelog.`{tmp_path}/table` SET v = v + 1 WHERE n IN (SELECT 2L UNION ALL SELECT 4L)")
    after = ids(made)
    assert {n: row_id for n, (row_id, _) in after.items()} == {n: row_id for n, (row_id, _) in before.items()}
    assert {n for n in after if after[n][1] != before[n][1]} == {2, 4}


@pytest.mark.full
def test_a_row_that_spark_deletes_leaves_its_tombstone(spark: SparkSession, tmp_path: Path) -> None:
    schema = pa.schema([("k", pa.int64()), ("at", pa.int64())])
    order = {"tidelog.primaryKey": "k", "tidelog.orderBy": "at"}
    table = Table.create(str(tmp_path / "table"), schema, properties=order)
    table.insert([{"k": k, "at": 10} for k in range(6)])
    name = f"tidelog.`{table.path}`"
    spark.sql(f"DELETE FROM {name} WHERE k IN (SELECT 1L)")
    spark.sql(f"UPDATE {name} SET k = k + 100, at = at WHERE k IN (SELECT 2L)")
    table.refresh().upsert([{"k": k, "at": 9} for k in (1, 2, 3)])
    table.upsert([{"k": 1, "at": 11}])
    assert rows(spark, f"SELECT k, at FROM {name}") == [(0, 10), (1, 11), (3, 10), (4, 10), (5, 10), (102, 10)]


@pytest.mark.full
def test_rules_of_the_table(spark: SparkSession, tmp_path: Path) -> None:
    schema = pa.schema([("id", pa.int64()), ("v", pa.int64()), ("double", pa.int64()), ("note", pa.string())])
    fields = {"double": {"delta.generationExpression": "v * 2"}, "note": default("'none'")}
    store = open_store(str(tmp_path / "table"))
    table = ruled_table(schema, constraints={"positive": "v > 0"}, fields=fields, store=store)
    table.insert([{"id": n, "v": n} for n in (1, 2, 3)])
    name = f"tidelog.`{tmp_path}/table`"
    spark.sql(f"UPDATE {name} SET v = v + 10 WHERE id IN (SELECT 1L)")
    spark.sql(
        f"MERGE INTO {name} t USING (SELECT 7L AS id, 5L AS v) s ON t.id = s.id AND trim(t.note) <> '' "
        "WHEN NOT MATCHED THEN INSERT (id, v, note) VALUES (s.id, s.v, DEFAULT)"
    )
    spark.sql(
        f"MERGE INTO {name} t USING (SELECT 2L AS id, 9L AS v) s ON t.id = s.id AND trim(t.note) <> '' "
        "WHEN MATCHED THEN UPDATE SET v = s.v WHEN NOT MATCHED THEN INSERT (id, v, note) VALUES (s.id, s.v, NULL)"
    )
    found = rows(spark, f"SELECT * FROM {name}")
    assert found == [(1, 11, 22, "none"), (2, 9, 18, "none"), (3, 3, 6, "none"), (7, 5, 10, "none")]
    version = table.refresh().version
    for change in ("v = -v", "double = double + 1"):
        with pytest.raises(PySparkException, match="TIDELOG_CONSTRAINT_VIOLATION"):
            spark.sql(f"UPDATE {name} SET {change} WHERE id IN (SELECT 3L)")
    assert table.refresh().version == version


@pytest.mark.full
def test_columns_of_a_table_may_have_any_name(spark: SparkSession, tmp_path: Path) -> None:
    names = ["_tidelog_file", "__row_operation", "words", "block", "a.b`c", "operation"]
    table = Table.create(str(tmp_path / "table"), pa.schema([(name, pa.int64()) for name in names]))
    table.insert([dict.fromkeys(names, n) for n in range(4)])
    table.delete("words = 0")
    name = f"tidelog.`{table.path}`"
    spark.sql(f"UPDATE {name} SET `a.b``c` = 9, _tidelog_file = words + 1 WHERE words IN (SELECT 2L)")
    assert rows(spark, f"SELECT _tidelog_file, words, `a.b``c`, __row_operation FROM {name}") == [
        (1, 1, 1, 1), (3, 2, 9, 2), (3, 3, 3, 3),
    ]  # fmt: skip


@pytest.mark.full
def test_a_merge_adds_columns_in_its_commit(spark: SparkSession, tmp_path: Path) -> None:
    table = made(tmp_path / "table")
    source = "(SELECT id, 7.0D AS v, named_struct('a', 1, 'b', 'z', 'c', 2L) AS s, 'new' AS more FROM range(19, 21)) s"
    merge = (
        f"MERGE WITH SCHEMA EVOLUTION INTO tidelog.`{table.path}` t USING {source} ON t.id = s.id "
        "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
    )
    version = table.version
    if spark.version < "4.1":
        with pytest.raises(PySparkException, match="SCHEMA EVOLUTION is not supported with this Spark"):
            spark.sql(merge.replace("SET *", "SET v = s.v").replace("INSERT *", "INSERT (id) VALUES (s.id)"))
        return
    spark.sql(f"EXPLAIN {merge}").collect()
    assert table.refresh().version == version
    spark.sql(merge)
    found = table.refresh().scan(where="id > 17").to_arrow().sort_by("id").to_pylist()
    assert table.version == version + 1
    assert table.schema.names == [*SCHEMA.names, "more"]
    assert [(row["id"], row["k"], row["v"], row["s"]["c"], row["more"]) for row in found] == [
        (18, "k0", 18.0, None, None), (19, "k1", 7.0, 2, "new"), (20, None, 7.0, 2, "new"),
    ]  # fmt: skip


@pytest.mark.full
def test_a_column_that_is_added_meanwhile(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = made(tmp_path / "table")
    translated = rewritten._translated

    def late(*arguments: Any) -> Any:
        Table.open(table.path).add_columns(pa.schema([("late", pa.int64())]))
        return translated(*arguments)

    monkeypatch.setattr(rewritten, "_translated", late)
    with pytest.raises(PySparkException, match="when the statement was planned; run it again"):
        spark.sql(f"UPDATE tidelog.`{table.path}` SET v = 0 WHERE id IN (SELECT 3L)")


# --- both ways --------------------------------------------------------------------------------------------------------


def a_merge(draw: random.Random) -> str:
    """Clauses that a translation knows, over a source that can have a key twice, and none."""

    def condition(side: str) -> str:
        return draw.choice(["", f" AND {side}.v > 3", f" AND {side}.id % 2 = 0"])

    clauses = []
    if draw.random() < 0.4:
        clauses.append(f"WHEN MATCHED AND s.v {draw.choice('<>')} 4 THEN DELETE")
    if draw.random() < 0.8:
        values = draw.choice(["*", "v = s.v", "v = t.v + s.v", "v = 10 / (s.v - 4)", "k = s.k"])
        clauses.append(f"WHEN MATCHED{condition(draw.choice('st'))} THEN UPDATE SET {values}")
    if draw.random() < 0.8 or not clauses:
        clauses.append(f"WHEN NOT MATCHED{condition('s')} THEN INSERT *")
    if draw.random() < 0.3:
        clauses.append(f"WHEN NOT MATCHED BY SOURCE{condition('t')} THEN {draw.choice(['DELETE', 'UPDATE SET v = 0'])}")
    return " ".join(clauses)


@pytest.mark.parametrize(
    "rounds", [pytest.param(4, marks=pytest.mark.full), pytest.param(60, marks=pytest.mark.nightly)]
)
def test_a_translation_has_the_rows_of_spark(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rounds: int
) -> None:
    draw = random.Random(seed())
    schema = pa.schema([("id", pa.int64()), ("v", pa.float64()), ("k", pa.string())])

    def some(count: int, keys: range) -> list[dict[str, Any]]:
        return [
            {"id": draw.choice([*keys, None]), "v": float(draw.randint(0, 8)), "k": draw.choice("ab")}
            for _ in range(count)
        ]

    translated, used = rewritten._translated, []
    for number in range(rounds):
        rows_of_table = some(draw.randint(0, 8), range(12))
        source = some(draw.randint(0, 4), range(12))
        spark.createDataFrame(pa.Table.from_pylist(source, schema)).createOrReplaceTempView("some_rows")
        statement = draw.choice(
            [
                f"MERGE INTO {{}} t USING some_rows s ON t.id = s.id {a_merge(draw)}",
                "UPDATE {} SET v = v + 1, k = upper(k) WHERE id % 3 = 1",
                "DELETE FROM {} WHERE v > 4 OR id IS NULL",
            ]
        )
        found: list[object] = []
        for way in (translated, lambda *_: None):
            monkeypatch.setattr(rewritten, "_translated", way)
            table = Table.create(str(tmp_path / f"{number} {len(found)}"), schema)
            table.insert(rows_of_table)
            try:
                spark.sql(statement.format(f"tidelog.`{table.path}`"))
            except PySparkException as error:
                found.append(error.getCondition())
                assert table.refresh().version == 1
                continue
            kept = table.refresh().scan().to_arrow().to_pylist()
            found.append(Counter(tuple(row.values()) for row in kept))
        used.append(found[0])
        assert found[0] == found[1], (statement, rows_of_table, source)
    assert any(isinstance(outcome, Counter) for outcome in used)


@pytest.mark.full
def test_an_upsert_of_a_large_table_changes_each_row_of_a_key(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(row_changes, "_MOST_BYTES", 0)
    ways: list[str] = []
    upsert, stage = SparkTable.upsert_once, changed_rows.stage_changes

    def by(way: str, run: Callable[..., Any]) -> Callable[..., Any]:
        def noted(*given: Any) -> Any:
            ways.append(way)
            return run(*given)

        return noted

    monkeypatch.setattr(SparkTable, "upsert_once", by("upsert", upsert))
    monkeypatch.setattr(rewritten, "stage_changes", by("rows", stage))
    table = Table.create(str(tmp_path / "table"), pa.schema([("id", pa.int64()), ("v", pa.int64())]))
    table.insert([{"id": n, "v": 0} for n in (1, 1, 2, 3)])
    merge = (
        f"MERGE INTO tidelog.`{table.path}` t USING (SELECT {{}} AS id, 7L AS v) s ON t.id = s.id "
        "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
    )
    spark.sql(merge.format("2L"))
    assert ways == ["upsert"]
    spark.sql(merge.format("1L"))
    assert ways == ["upsert", "upsert", "rows"]
    spark.sql(merge.format("CAST(NULL AS BIGINT)"))
    assert rows(spark, f"SELECT coalesce(id, 0), v FROM tidelog.`{table.path}`") == [
        (0, 7),
        (1, 7),
        (1, 7),
        (2, 7),
        (3, 0),
    ]
