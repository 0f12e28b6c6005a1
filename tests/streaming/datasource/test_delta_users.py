"""The rows of the guide for users of delta-spark: what is the same runs as it stands, of the rest what to use instead.

A row whose right side begins with "the same" runs its left side. Any other row refuses its left side with an error of
its own, and runs the code on its right side. What cannot run here, such as delta-spark's classes, is left out.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from datetime import date, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, DataFrameReader, DataFrameWriter, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as the guide has it
from pyspark.sql.streaming.readwriter import DataStreamReader, DataStreamWriter

from tests.streaming.support import JVM_SOURCE
from tidelog.log import Table
from tidelog.log.errors import TidelogError
from tidelog.streaming import register, table
from tidelog.streaming.spark_versions import INSTALLED

pytestmark = [
    pytest.mark.spark,
    pytest.mark.full,
    JVM_SOURCE,
    pytest.mark.skipif(INSTALLED < (4, 2), reason="the guide is for Spark 4.2"),
]

PAGE = Path(__file__).parents[3] / "docs" / "guides" / "from-delta-spark.md"
SCHEMA = pa.schema([("id", pa.int64()), ("day", pa.date32()), ("state", pa.string()), ("price", pa.decimal128(10, 2))])
ROWS: list[dict[str, Any]] = [
    {"id": 1, "day": date(2026, 11, 20), "state": "new", "price": Decimal("1.50")},
    {"id": 2, "day": date(2026, 11, 21), "state": "new", "price": Decimal("2.50")},
    {"id": 3, "day": date(2026, 11, 22), "state": "new", "price": Decimal("3.50")},
]
_STATEMENT = re.compile(
    r"(?:ALTER|ANALYZE|CALL|COMMENT|CONVERT|CREATE|DELETE|DESCRIBE|DROP|GENERATE|INSERT|MSCK|OPTIMIZE|REORG|RESTORE"
    r"|SELECT|SHOW|TRUNCATE|UPDATE|VACUUM) .+"
)
_CALL = re.compile(r"(?:append|counts|df|overwrite|read|sink|spark|stream|table\(|Table\.)(?!Stream).*")


def _rows() -> list[tuple[str, str]]:
    lines = PAGE.read_text().splitlines()
    cells = [
        line.strip("| ").split(" | ") for line in lines if line.startswith("| ") and not line.startswith("| delta")
    ]
    assert all(len(row) == 2 for row in cells)
    return [(left, right) for left, right in cells]


def _codes(cell: str) -> list[str]:
    """The statements and calls in a cell that can run."""
    found = [text.strip() for _, text in re.findall(r"(`+)(.+?)\1(?!`)", cell)]
    return [text for text in found if "..." not in text and (_STATEMENT.fullmatch(text) or _CALL.fullmatch(text))]


class Place:
    """A schema of the catalog with a table `orders` of its own, and what the guide's rows call by names."""

    def __init__(self, spark: SparkSession, folder: Path, name: str, template: Table) -> None:
        self.spark = spark
        self.path = str(folder / "warehouse" / name / "orders")
        shutil.copytree(template.path, self.path)
        self.scratch = folder / name
        self.scratch.mkdir()
        pq.write_to_dataset(pa.Table.from_pylist(ROWS, SCHEMA), str(self.scratch / "files"))
        spark.sql(f"USE tidelog.{name}")
        self.runs = 0
        self.moment = template.at(version=2).timestamp

    def run(self, code: str) -> None:
        """Run a statement, or a call of Python to its end."""
        self.runs += 1
        code = code.replace("/data/orders", self.path)
        code = code.replace("/data/", f"{self.scratch}/")
        code = code.replace("2026-11-20 12:00:00", self.moment.strftime("%Y-%m-%d %H:%M:%S.%f"))
        code = code.replace("2026-11-20T12:00:00Z", self.moment.isoformat())
        if _STATEMENT.fullmatch(code):
            self.spark.sql(code).collect()
        else:
            self._finish(eval(code, self._names()))

    def _names(self) -> dict[str, Any]:
        frame = self.spark.table("arrived")
        source = self.spark.readStream.schema(frame.schema).parquet(str(self.scratch / "files"))

        def sink(rows: DataFrame) -> DataStreamWriter:
            writer = rows.writeStream.format("tidelog").trigger(availableNow=True)
            return writer.option("checkpointLocation", str(self.scratch / f"checkpoint{self.runs}"))

        return {
            "spark": self.spark,
            "path": self.path,
            "df": frame,
            "read": self.spark.read.format("tidelog"),
            "append": frame.write.format("tidelog").mode("append"),
            "overwrite": frame.write.format("tidelog").mode("overwrite"),
            "stream": self.spark.readStream.format("tidelog"),
            "sink": sink(source),
            "counts": sink(source.groupBy("state").count()),
            "F": F,
            "Table": Table,
            "table": table,
            "timedelta": timedelta,
        }

    def _finish(self, found: Any) -> None:
        match found:
            case DataFrameReader():
                found.load(self.path).collect()
            case DataFrameWriter():
                found.save(self.path)
            case DataStreamReader():
                query = found.load(self.path).writeStream.format("noop").trigger(availableNow=True)
                query.option(
                    "checkpointLocation", str(self.scratch / f"consumer{self.runs}")
                ).start().awaitTermination()
            case DataStreamWriter():
                found.start(str(self.scratch / "new")).awaitTermination()
                assert Table.open(str(self.scratch / "new")).scan().count() > 0
            case DataFrame():
                found.collect()
            case _:
                assert found is None or not isinstance(found, type)


@pytest.fixture(scope="module")
def session(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[SparkSession, Path]]:
    folder = tmp_path_factory.mktemp("delta-users")
    session = spark.newSession()
    session.conf.set("spark.sql.catalog.tidelog.warehouse", str(folder / "warehouse"))
    session.conf.set("spark.sql.session.timeZone", "UTC")
    register(session)
    session.createDataFrame(pa.Table.from_pylist(ROWS[1:], SCHEMA)).createTempView("arrived")
    yield session, folder
    session.sql("DROP VIEW IF EXISTS spark_catalog.default.v")


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Table:
    """The table `orders`: two commits that insert, and one that changes a row."""
    path = str(tmp_path_factory.mktemp("template") / "orders")
    made = Table.create(path, SCHEMA, partition_by=["day"], properties={"tidelog.primaryKey": "id"})
    made.insert(ROWS[:1])
    made.insert(ROWS[1:2])
    made.update("id = 1", {"state": "'paid'"})
    return made


@pytest.mark.parametrize(
    ("number", "left", "right"), [pytest.param(n, *row, id=f"{n}-{row[0]}") for n, row in enumerate(_rows())]
)
def test_a_row_of_the_guide(
    session: tuple[SparkSession, Path], template: Table, number: int, left: str, right: str
) -> None:
    place = Place(*session, f"row{number}", template)
    if right.startswith("the same"):
        assert _codes(left)
        for code in _codes(left):
            place.run(code)
        return
    for code in _codes(left):
        with pytest.raises((PySparkException, TidelogError)) as refused:
            place.run(code)
        assert "INTERNAL_ERROR" not in str(refused.value)
        assert "\tat " not in str(refused.value).partition("JVM stacktrace")[0]
    for code in _codes(right):
        place.run(code)


@pytest.mark.parametrize("word", ["history", "detail"])
def test_a_statement_that_spark_does_not_know_names_the_procedure(
    session: tuple[SparkSession, Path], template: Table, word: str
) -> None:
    place = Place(*session, word, template)
    with pytest.raises(PySparkException, match=rf"use CALL tidelog\.system\.{word}\('table'\)"):
        place.run(f"DESCRIBE {word.upper()} orders")


def test_a_name_does_not_give_changes_without_their_columns(
    session: tuple[SparkSession, Path], template: Table
) -> None:
    place = Place(*session, "columns", template)
    place.run('spark.read.option("readChangeFeed", "false").table("orders")')
    with pytest.raises(PySparkException, match=r"use spark\.read\.changes\(name\)"):
        place.run('spark.read.option("readChangeFeed", "true").table("orders")')


def test_each_kind_of_row_is_run() -> None:
    runs = [_codes(left if right.startswith("the same") else right) for left, right in _rows()]
    assert sum(map(bool, runs)) > 100
