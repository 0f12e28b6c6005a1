"""Two copies of one table: `Table` changes one, Spark's executors the other."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable
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
