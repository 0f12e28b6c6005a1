"""UPDATE, DELETE and MERGE of `spark.sql` whose functions, sources or tables fail, change or go away meanwhile."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark import InheritableThread
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tests.streaming.datasource.sql_tables import SCHEMA, rows, small_table
from tests.streaming.support import JVM_SOURCE, PATIENCE_S, rewrite_all, wait_until
from tidelog.log import Table

pytestmark = [pytest.mark.spark, JVM_SOURCE]


class Gate:
    """A function of SQL, `gate(x)`, that gives x once the test has let it through."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self._reached, self._open, self._calls = (folder / name for name in ("reached", "open", "calls"))
        reached, opened, calls = map(str, (self._reached, self._open, self._calls))

        def gate(value: int | None) -> int | None:
            with open(calls, "a") as file:  # noqa: PTH123 - a worker of Spark knows the standard library only
                file.write(f"{value}\n")
            with open(reached, "a"):  # noqa: PTH123
                pass
            deadline = time.monotonic() + PATIENCE_S
            while not os.path.exists(opened):  # noqa: PTH110
                assert time.monotonic() < deadline
                time.sleep(0.01)
            return value

        spark.udf.register("gate", gate, "long")

    def wait_until_reached(self) -> None:
        """Wait until a statement has read its first row."""
        wait_until(self._reached.exists, "the function is called")

    def open(self) -> None:
        """Let all rows through, from now on."""
        self._open.touch()

    def attempts(self, number: int) -> int:
        """How often a statement has looked at the row with this number."""
        return self._calls.read_text().splitlines().count(str(number))

    @contextmanager
    def meanwhile(self, action: Callable[[], object]) -> Iterator[None]:
        """Do something while the statement in the block has begun and waits."""
        failed: list[BaseException] = []

        def run() -> None:
            try:
                self.wait_until_reached()
                action()
            except BaseException as error:  # noqa: BLE001 - it is the test's
                failed.append(error)
            finally:
                self.open()

        thread = Thread(target=run)
        thread.start()
        try:
            yield
        finally:
            thread.join(PATIENCE_S)
        assert not failed, failed


@pytest.fixture
def table(tmp_path: Path) -> Table:
    return small_table(tmp_path)


@pytest.fixture
def gate(spark: SparkSession, tmp_path: Path) -> Gate:
    return Gate(spark, tmp_path)


def named(table: Table) -> str:
    return f"tidelog.`{table.path}`"


# --- functions --------------------------------------------------------------------------------------------------------

FAILING = [
    "UPDATE {t} SET part = 'x' WHERE fails(n) = 1",
    "UPDATE {t} SET n = fails(n)",
    "DELETE FROM {t} WHERE n > 0 AND fails(n) = 1",
    "MERGE INTO {t} t USING (SELECT fails(id) AS n FROM range(4)) s ON t.n = s.n WHEN MATCHED THEN DELETE",
]


@pytest.mark.full
@pytest.mark.parametrize("statement", FAILING)
def test_a_function_that_fails_changes_nothing(spark: SparkSession, table: Table, statement: str) -> None:
    def fails(number: int) -> int:
        if number == 3:
            raise ValueError("no threes here")
        return number

    spark.udf.register("fails", fails, "long")
    with pytest.raises(PySparkException, match="no threes here"):
        spark.sql(statement.format(t=named(table)))
    assert table.refresh().version == 1
    assert rows(spark, f"SELECT n FROM {named(table)}") == [(0,), (1,), (2,), (3,)]


# --- races ------------------------------------------------------------------------------------------------------------


MERGE = (
    "MERGE INTO {t} t USING (SELECT gate(id) AS lo FROM range(1, 9, 2)) s ON t.n >= s.lo AND t.n <= s.lo "
    "WHEN MATCHED THEN UPDATE SET part = 'x' WHEN NOT MATCHED THEN INSERT (n, part) VALUES (s.lo, 'new')"
)


@pytest.mark.full
@pytest.mark.parametrize(
    ("statement", "left"),
    [
        ("UPDATE {t} SET part = 'x' WHERE gate(n) % 2 = 1", [(0, "a"), (1, "x"), (2, "a"), (3, "x"), (5, "x")]),
        ("DELETE FROM {t} WHERE gate(n) % 2 = 1", [(0, "a"), (2, "a")]),
        (MERGE, [(0, "a"), (1, "x"), (2, "a"), (3, "x"), (5, "x"), (7, "new")]),
    ],
    ids=["update", "delete", "merge"],
)
def test_a_row_that_comes_meanwhile_is_not_missed(
    spark: SparkSession, table: Table, gate: Gate, statement: str, left: list[tuple[int, str]]
) -> None:
    """The predicate has no translation, so that the new row can be one of those that it selects."""
    with gate.meanwhile(lambda: Table.open(table.path).insert([{"n": 5, "part": "b"}])):
        spark.sql(statement.format(t=named(table)))
    assert rows(spark, f"SELECT * FROM {named(table)}") == left
    assert gate.attempts(1) >= 2


@pytest.mark.full
def test_a_row_in_a_partition_that_is_not_read_does_not_matter(spark: SparkSession, tmp_path: Path, gate: Gate) -> None:
    table = Table.create(str(tmp_path / "parts"), SCHEMA, partition_by=["part"])
    table.insert([{"n": n, "part": "ab"[n % 2]} for n in range(4)])
    with gate.meanwhile(lambda: Table.open(table.path).insert([{"n": 5, "part": "a"}])):
        spark.sql(f"UPDATE {named(table)} SET n = n + 10 WHERE part = 'b' AND gate(n) % 2 = 1")
    assert rows(spark, f"SELECT n FROM {named(table)}") == [(0,), (2,), (5,), (11,), (13,)]
    assert gate.attempts(1) == 1


@pytest.mark.full
def test_a_change_of_a_row_that_is_taken_is_not_lost(spark: SparkSession, table: Table, gate: Gate) -> None:
    with gate.meanwhile(lambda: Table.open(table.path).update("n = 1", {"part": "'late'"})):
        spark.sql(f"UPDATE {named(table)} SET part = concat(part, '!') WHERE gate(n) % 2 = 1")
    assert rows(spark, f"SELECT * FROM {named(table)}") == [(0, "a"), (1, "late!"), (2, "a"), (3, "b!")]


@pytest.mark.full
@pytest.mark.parametrize("is_copied", [False, True], ids=["vectors", "copies"])
def test_a_table_that_is_compacted_meanwhile(spark: SparkSession, tmp_path: Path, gate: Gate, is_copied: bool) -> None:
    table = Table.create(str(tmp_path / "table"), SCHEMA, properties={"delta.enableDeletionVectors": not is_copied})
    for n in range(4):
        table.insert([{"n": n, "part": "ab"[n % 2]}])
    with gate.meanwhile(lambda: rewrite_all(Table.open(table.path))):
        spark.sql(f"UPDATE {named(table)} SET n = n + 10 WHERE gate(n) % 2 = 1")
    assert rows(spark, f"SELECT * FROM {named(table)}") == [(0, "a"), (2, "a"), (11, "b"), (13, "b")]


@pytest.mark.full
def test_a_table_that_is_dropped_meanwhile_stays_away(spark: SparkSession, table: Table, gate: Gate) -> None:
    with (
        gate.meanwhile(lambda: shutil.rmtree(table.path)),
        pytest.raises(PySparkException, match="TIDELOG_"),
    ):
        spark.sql(f"UPDATE {named(table)} SET n = n + 10 WHERE gate(n) % 2 = 1")
    assert not list(Path(table.path).rglob("*.json"))


@pytest.mark.full
def test_a_table_that_another_one_replaces_meanwhile_is_not_changed(
    spark: SparkSession, table: Table, gate: Gate, tmp_path: Path
) -> None:
    def replace() -> None:
        shutil.rmtree(table.path)
        small_table(tmp_path).insert([{"n": 9, "part": "other"}])

    with (
        gate.meanwhile(replace),
        pytest.raises(PySparkException, match="TIDELOG_"),
    ):
        spark.sql(f"DELETE FROM {named(table)} WHERE gate(n) > 0")
    assert rows(spark, f"SELECT n FROM {named(table)}") == [(0,), (1,), (2,), (3,), (9,)]


@pytest.mark.full
def test_a_cancelled_statement_changes_nothing(spark: SparkSession, table: Table, gate: Gate) -> None:
    failed: list[PySparkException] = []

    def run() -> None:
        spark.sparkContext.setJobGroup("cancelled", "an UPDATE", interruptOnCancel=True)
        try:
            spark.sql(f"UPDATE {named(table)} SET n = n + 10 WHERE gate(n) % 2 = 1")
        except PySparkException as error:
            failed.append(error)

    thread = InheritableThread(run)
    thread.start()
    gate.wait_until_reached()
    spark.sparkContext.cancelJobGroup("cancelled")
    thread.join(PATIENCE_S)
    assert not thread.is_alive()
    gate.open()
    (error,) = failed
    assert "cancel" in str(error).lower()
    assert table.refresh().version == 1
    spark.sql(f"UPDATE {named(table)} SET n = n + 10 WHERE gate(n) % 2 = 1")
    assert rows(spark, f"SELECT n FROM {named(table)}") == [(0,), (2,), (11,), (13,)]


# --- sources ----------------------------------------------------------------------------------------------------------


@pytest.mark.full
def test_a_source_that_changes_between_attempts_is_that_of_one(
    spark: SparkSession, table: Table, gate: Gate, tmp_path: Path
) -> None:
    """The rows are those of one state of the source, whichever attempt has succeeded."""
    folder = tmp_path / "source"
    folder.mkdir()

    def put(part: str) -> None:
        pq.write_table(pa.table({"n": [1, 7], "part": [part, part]}, SCHEMA), folder / "rows.parquet")

    def race() -> None:
        Table.open(table.path).update("n = 1", {"part": "'late'"})
        put("other")

    put("first")
    spark.read.schema("n long, part string").parquet(str(folder)).createOrReplaceTempView("changing")
    with gate.meanwhile(race):
        spark.sql(
            f"MERGE INTO {named(table)} t USING (SELECT gate(n) AS n, part FROM changing) s ON t.n = s.n AND t.n < 99 "
            "WHEN MATCHED THEN UPDATE SET part = concat(t.part, s.part) WHEN NOT MATCHED THEN INSERT *"
        )
    found = {row[0]: row[1] for row in rows(spark, f"SELECT * FROM {named(table)}")}
    assert (found[1], found[7]) in [("latefirst", "first"), ("lateother", "other")]


@pytest.mark.parametrize(
    ("statement", "left"),
    [
        pytest.param(
            "MERGE INTO {t} t USING {t} s ON t.n = s.n + 1 WHEN MATCHED THEN UPDATE SET part = concat(s.part, s.n)",
            [(0, "a"), (1, "a0"), (2, "b1"), (3, "a2")],
            id="merge",
        ),
        pytest.param(
            "DELETE FROM {t} WHERE n > (SELECT avg(n) FROM {t})",
            [(0, "a"), (1, "b")],
            id="delete",
            marks=pytest.mark.full,
        ),
        pytest.param(
            "UPDATE {t} SET n = (SELECT max(n) FROM {t}) + n + 1 WHERE n IN (SELECT n + 1 FROM {t})",
            [(0, "a"), (5, "b"), (6, "a"), (7, "b")],
            id="update",
            marks=pytest.mark.full,
        ),
    ],
)
def test_a_statement_that_reads_the_table_that_it_changes(
    spark: SparkSession, table: Table, statement: str, left: list[tuple[int, str]]
) -> None:
    spark.sql(statement.format(t=named(table)))
    assert rows(spark, f"SELECT * FROM {named(table)}") == left


@pytest.mark.full
def test_what_a_statement_reads_of_its_own_table_is_of_the_version_that_it_changes(
    spark: SparkSession, table: Table, gate: Gate
) -> None:
    with gate.meanwhile(lambda: Table.open(table.path).insert([{"n": 9, "part": "b"}])):
        spark.sql(
            f"UPDATE {named(table)} SET part = 'last' WHERE n = (SELECT max(n) FROM {named(table)}) OR gate(n) < 0"
        )
    assert rows(spark, f"SELECT n FROM {named(table)} WHERE part = 'last'") == [(9,)]


@pytest.mark.full
def test_a_subquery_that_is_planned_again_reads_the_version_of_its_attempt(
    spark: SparkSession, tmp_path: Path, gate: Gate
) -> None:
    """Spark plans what follows a shuffle again, and a subquery does so in a thread of its own."""
    policy = {"tidelog.conflictPolicy": "write-serializable"}
    table = Table.create(str(tmp_path / "table"), SCHEMA, properties=policy)
    table.insert([{"n": n, "part": "a"} for n in range(4)])
    grouped = f"(SELECT gate(n) AS n, count(*) FROM {named(table)} GROUP BY gate(n))"
    counted = f"(SELECT /*+ BROADCAST(g) */ count(*) FROM {named(table)} r JOIN {grouped} g ON r.n = g.n)"
    # Of the rows that come meanwhile, such a join of two versions would have one more.
    with gate.meanwhile(lambda: Table.open(table.path).insert([{"n": n, "part": "b"} for n in (1, 9)])):
        spark.sql(f"UPDATE {named(table)} SET part = {counted} WHERE n IN (SELECT 0L)")
    [(part,)] = rows(spark, f"SELECT part FROM {named(table)} WHERE n = 0")
    assert part in {"4", "6"}


TWICE = "(SELECT * FROM VALUES (1L, 'x'), (1L, 'y'), (8L, 'z') AS v(n, part)) s"


@pytest.mark.parametrize(
    ("on", "clauses"),
    [
        ("t.n = s.n", "WHEN MATCHED THEN UPDATE SET part = s.part"),
        pytest.param(
            "t.n = s.n", "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *", marks=pytest.mark.full
        ),
        pytest.param("t.n = s.n", "WHEN MATCHED AND s.part = 'x' THEN DELETE", marks=pytest.mark.full),
        ("t.n >= s.n AND t.n < s.n + 1", "WHEN MATCHED THEN UPDATE SET part = s.part"),
    ],
)
def test_several_rows_of_the_source_for_one_of_the_table(
    spark: SparkSession, table: Table, on: str, clauses: str
) -> None:
    with pytest.raises(PySparkException, match="MERGE_CARDINALITY_VIOLATION"):
        spark.sql(f"MERGE INTO {named(table)} t USING {TWICE} ON {on} {clauses}")
    assert table.refresh().version == 1


@pytest.mark.parametrize("on", ["t.n = s.n", pytest.param("t.n + 0 = abs(s.n)", marks=pytest.mark.full)])
def test_several_rows_of_the_source_may_delete_one(spark: SparkSession, table: Table, on: str) -> None:
    insert = "WHEN NOT MATCHED THEN INSERT (n, part) VALUES (s.n, s.part)"
    spark.sql(f"MERGE INTO {named(table)} t USING {TWICE} ON {on} WHEN MATCHED THEN DELETE {insert}")
    assert rows(spark, f"SELECT * FROM {named(table)}") == [(0, "a"), (2, "a"), (3, "b"), (8, "z")]
    assert table.refresh().version == 2


@pytest.mark.full
def test_values_are_computed_only_for_rows_that_a_clause_takes(spark: SparkSession, table: Table) -> None:
    source = "(SELECT * FROM VALUES (1L, 0), (2L, 5), (9L, 0), (8L, 2) AS v(n, x)) s"
    spark.sql(
        f"MERGE INTO {named(table)} t USING {source} ON t.n = s.n "
        "WHEN MATCHED AND s.x <> 0 THEN UPDATE SET part = CAST(10 DIV s.x AS STRING) WHEN MATCHED THEN DELETE "
        "WHEN NOT MATCHED AND s.x > 0 THEN INSERT (n, part) VALUES (s.n, CAST(10 DIV s.x AS STRING))"
    )
    assert rows(spark, f"SELECT * FROM {named(table)}") == [(0, "a"), (2, "2"), (3, "b"), (8, "5")]


@pytest.mark.full
@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE {t} SET part = part WHERE n = 1",
        "MERGE INTO {t} t USING (SELECT 1L AS n) s ON t.n = s.n WHEN MATCHED THEN UPDATE SET part = t.part",
    ],
)
def test_a_column_that_gets_its_own_value(spark: SparkSession, table: Table, statement: str) -> None:
    spark.sql(statement.format(t=named(table)))
    assert rows(spark, f"SELECT * FROM {named(table)}") == [(0, "a"), (1, "b"), (2, "a"), (3, "b")]
