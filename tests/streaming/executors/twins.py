"""Two copies of one table: `Table` changes one, Spark's executors the other."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable
from operator import methodcaller
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from tests.log.operations.changing_rows import KINDS, SCHEMA, rows
from tidelog.log import Committed, Table
from tidelog.streaming import table

FRAME = "k long, part string, v int, price decimal(10,2)"
Operation = Callable[[Any], Any]


class Twins:
    """Two copies of a table with the same ids. This process changes one, Spark's executors the other."""

    def __init__(self, spark: SparkSession, folder: Path, made: Table) -> None:
        shutil.copytree(made.path, folder / "twin")
        self.local = Table.open(made.path)
        self.other = Table.open(str(folder / "twin"))
        self.spark = table(spark, str(folder / "twin"))

    def check(self, operation: Operation, spark_operation: Operation | None = None) -> Committed:
        """Run an operation on both copies: versions, metrics, rows, changes and the log's row counts must be equal."""
        before = self.local.version
        expected, found = operation(self.local), (spark_operation or operation)(self.spark)
        assert isinstance(found, Committed)
        assert (found.version, counts(found)) == (expected.version, counts(expected))
        self.other.refresh()
        assert bag(self.other.scan()) == bag(self.local.scan())
        assert self.other.at().num_rows == self.local.at().num_rows == self.local.scan().count()
        if found.version > before:
            ours, theirs = (one.changes(after=before) for one in (self.other, self.local))
            assert bag(ours) == bag(theirs)
            (record,), (same) = self.other.history(1), self.local.history(1)
            assert [record.operation_class] == [entry.operation_class for entry in same]
        return found


def counts(committed: Committed) -> dict[str, int]:
    """The row counts of a commit. Files, and so the rows copied with them, depend on the number of tasks."""
    return {name: count for name, count in committed.metrics.items() if "Row" in name and name != "numCopiedRows"}


def bag(reader: Any) -> Counter[str]:
    """The rows in any order, without the commit's time."""
    found = reader.to_arrow()
    names = [name for name in found.column_names if name != "_commit_timestamp"]
    return Counter(repr(row) for row in found.select(names).to_pylist())


def filled(folder: Path, kind: str) -> Table:
    """Twenty rows in five files and three partitions, one of them null. Three rows are dead."""
    made = Table.create(str(folder / "table"), SCHEMA, partition_by=["part"], properties=KINDS[kind])
    made.insert([*rows(range(6)), *rows(range(6, 10), "b")])
    made.insert([*rows(range(10, 13), None), *rows(range(13, 20))])
    made.delete("k IN (3, 14, 15)")
    return made.refresh()


def frame_of(spark: SparkSession, data: list[dict[str, Any]]) -> DataFrame:
    """The rows as a frame with two partitions, so that two tasks write them."""
    return spark.createDataFrame([tuple(row.values()) for row in data], FRAME).repartition(2)


def check_upserts(twins: Twins, spark: SparkSession) -> None:
    """Later upserts meet rows of earlier ones. In the last but two a key has two rows in the table."""
    schema = f"{FRAME}, op string"
    calls: list[tuple[list[dict[str, Any]], list[str], str | None]] = [
        ([*rows(range(4, 8)), *rows(range(30, 34), "b")], ["k"], None),
        ([{**row, "op": "d" if row["k"] % 2 else None} for row in rows(range(3, 12), "c")], ["k"], "op = 'd'"),
        ([{**row, "op": "d"} for row in rows(range(97, 100))], ["k"], "op = 'd'"),
        (rows(range(16, 19), "new"), ["part", "k"], None),
        ([*rows(range(16, 17), "x"), *rows(range(90, 92), "")], ["k"], None),
        ([], ["k"], None),
        ([{**row, "op": "d"} for row in rows(range(100))], ["k"], "op = 'd'"),
    ]
    for data, keys, delete_where in calls:
        names = schema if delete_where else FRAME
        frame = spark.createDataFrame([tuple(row.values()) for row in data], names).repartition(2)
        on_spark = methodcaller("upsert", frame, keys=keys, delete_where=delete_where)
        twins.check(methodcaller("upsert", data, keys=keys, delete_where=delete_where), on_spark)


def check_upserts_with_an_order(twins: Twins, spark: SparkSession) -> None:
    """Older records, deletions of rows and of nothing, rows that come twice, and a batch without any effect."""
    steps: list[tuple[list[tuple[Any, ...]], int]] = [
        ([(1, 5), (2, 500), (3, 30), (40, 40), (40, 41), (41, 7), (41, 7)], 1),
        ([(5, 51, "gone"), (6, 59, "gone"), (99, 50, "gone")], 1),
        ([(5, 50), (6, 60), (99, 49), (40, 39), (2, 501, "gone")], 3),
        ([(5, 50), (99, 50, "gone"), (7, 1)], 2),
        ([(5, 1), (40, 1), (99, 1)], 3),
        ([(99, 50), (5, 52), (8, 80)], 0),
    ]
    for batch, outdated in steps:
        data = [{"k": k, "part": "new", "v": v, "price": None} for k, v, *_ in batch]
        gone = [row[0] for row in batch if len(row) > 2]
        where = f"k IN ({', '.join(map(str, gone or [-1]))})"
        upsert = methodcaller("upsert", data, keys=["k"], order_by="V", delete_where=where)
        on_spark = methodcaller("upsert", frame_of(spark, data), keys=["k"], order_by="V", delete_where=where)
        assert twins.check(upsert, on_spark).metrics["numSourceRowsOutdated"] == outdated
