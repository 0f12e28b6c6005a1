"""A condition has the same outcome in Spark as the predicate has in tidelog."""

from __future__ import annotations

import datetime as dt
import math
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's convention

from tests.log.predicate.strategies import FAMILIES, cases
from tests.streaming.jvm_reading.support import assert_same, is_read_by_spark, is_read_by_tidelog
from tidelog.log import Table, predicate
from tidelog.log.format.schema import TIMESTAMP, TIMESTAMP_NTZ
from tidelog.streaming import read
from tidelog.streaming.jvm_reading.spark_conditions import condition

UTC = dt.UTC
YEARS = (1, 1900, 2026, 9999)
PLACE = pa.struct([("city", pa.string())])
ROWS = pa.table(
    {
        "id": pa.array(range(5), pa.int64()),
        "small": pa.array([None, -128, 0, 1, 127], pa.int8()),
        "large": pa.array([None, -(2**63), 2**53 + 1, 1, 2**63 - 1], pa.int64()),
        "single": pa.array([None, math.nan, math.inf, -0.0, 0.1], pa.float32()),
        "double": pa.array([None, math.nan, -math.inf, 0.0, 0.1], pa.float64()),
        "exact": pa.array([None, *map(Decimal, ("-1.50", "0.00", "0.10", "99.99"))], pa.decimal128(9, 2)),
        "text": pa.array([None, "", "it's", "back\\slash", "\U0001f600"], pa.string()),
        "flag": pa.array([None, True, False, True, False], pa.bool_()),
        "day": pa.array([None, dt.date(1, 1, 1), dt.date(1582, 10, 10), dt.date(2026, 1, 31), dt.date(9999, 12, 31)]),
        "moment": pa.array([None, *(dt.datetime(year, 1, 1, 0, 0, 0, 1, UTC) for year in YEARS)], TIMESTAMP),
        "wall": pa.array([None, *(dt.datetime(year, 3, 29, 2, 30) for year in YEARS)], TIMESTAMP_NTZ),  # noqa: DTZ001 - on purpose
        "place": pa.array([None, *({"city": city} for city in (None, "Bern", "bern", ""))], PLACE),
        "odd `name.x": pa.array([None, 1, 2, 3, 4], pa.int32()),
    }
)
TRANSLATED = [
    "id = 2",
    "ID >= 3 AND NOT small < 0",
    "large > 9007199254740992 OR large = -9223372036854775808",
    "small != 1",
    "single > 0 OR double > 0",
    "NOT (single > 0)",
    "NOT (single <= 0.1 AND double >= 0.1)",
    "single = 0.1 OR double = 0.1",
    "double != 0",
    "double < double OR double >= double",
    "exact >= 0.1",
    "exact < 1 AND exact > -100",
    "exact IN (0, 0.10, NULL)",
    "text = 'it\\'s'",
    "text IN ('back\\\\slash', '\U0001f600')",
    "text > 'b' OR text = ''",
    "flag",
    "NOT flag OR flag = true",
    "day >= DATE '1582-10-10'",
    "day < '2026-01-31'",
    "day BETWEEN '0001-01-01' AND '1600-01-01'",
    "moment > TIMESTAMP '1900-01-01 00:00:00Z'",
    "moment = TIMESTAMP '2026-01-01T00:00:00.000001+00:00'",
    "wall <= TIMESTAMP_NTZ '2026-03-29 02:30:00'",
    "id NOT IN (1, 2)",
    "id NOT IN (1, NULL)",
    "id = NULL OR id = 4",
    "place IS NULL OR place.city IS NOT NULL",
    "place.city = 'Bern'",
    "`odd ``name.x` > 2",
    "true",
    "1 < id AND 3 >= id",
    "id = large",
]
LEFT_TO_TIDELOG = ["id + 1 > 2", "id < 2.5", "moment > '2026-01-01'", "single = double", "double IN (0.1)"]


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Table:
    made = Table.create(str(tmp_path_factory.mktemp("conditions") / "table"), ROWS.schema)
    made.insert(ROWS)
    return made


SETTINGS = {
    "spark.sql.session.timeZone": "Asia/Tokyo",
    "spark.sql.ansi.enabled": "false",
    "spark.sql.caseSensitive": "true",
    "spark.sql.parser.escapedStringLiterals": "true",
    "spark.sql.timestampType": "TIMESTAMP_NTZ",
}


@pytest.mark.parametrize("changed", [pytest.param({}, marks=pytest.mark.full), SETTINGS], ids=["own", "other"])
def test_translated(spark: SparkSession, table: Table, changed: dict[str, str]) -> None:
    texts = [condition(predicate.parse(text, table.schema), table.schema) for text in TRANSLATED]
    assert None not in texts
    before = {name: spark.conf.get(name, None) for name in changed}
    try:
        for name, value in changed.items():
            spark.conf.set(name, value)
        rows = read(spark, table.path).select("id", *(F.expr(str(text)) for text in texts)).collect()
    finally:
        for name, old in before.items():
            spark.conf.unset(name) if old is None else spark.conf.set(name, old)
    for place, text in enumerate(TRANSLATED, start=1):
        found = sorted(row[0] for row in rows if row[place])
        assert (text, found) == (text, sorted(table.scan(text).to_arrow()["id"].to_pylist()))


def test_a_translated_predicate_prunes_and_is_pushed_down(spark: SparkSession, table: Table) -> None:
    frame = read(spark, table.path, where="id > 1 AND text IS NOT NULL", columns=["day"])
    assert is_read_by_spark(frame)
    plan = frame._jdf.queryExecution().executedPlan().toString()
    assert "GreaterThan(id,1)" in plan
    assert_same(frame, table.scan("id > 1 AND text IS NOT NULL", columns=["day"]))


def test_what_is_not_translated_is_left_to_tidelog(spark: SparkSession, table: Table) -> None:
    for text in LEFT_TO_TIDELOG:
        assert condition(predicate.parse(text, table.schema), table.schema) is None
    frame = read(spark, table.path, where=LEFT_TO_TIDELOG[0])
    assert is_read_by_tidelog(frame)
    assert_same(frame, table.scan(LEFT_TO_TIDELOG[0]))


@pytest.mark.nightly
@pytest.mark.parametrize("family", FAMILIES)
@settings(deadline=None, max_examples=50, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_random_predicates(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory, family: str, data: st.DataObject
) -> None:
    case = data.draw(cases(FAMILIES[family]))
    table = Table.create(str(tmp_path_factory.mktemp("random") / "table"), case.schema, partition_by=case.partition_by)
    for rows in case.inserts:
        table.insert(pa.Table.from_pylist(rows, schema=case.schema))
    assert_same(read(spark, table.path, where=case.where), table.scan(case.where))
