"""Expressions of SQL as people write them, over one row `t` of a table with a column of most types.

In a MERGE, `of_source` makes them expressions over a row `s` of the source, which has the same columns.
"""

from __future__ import annotations

import random
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("p", pa.string()),
        ("b", pa.int8()),
        ("i", pa.int32()),
        ("n", pa.int64()),
        ("price", pa.decimal128(10, 2)),
        ("f", pa.float64()),
        ("r", pa.float32()),
        ("flag", pa.bool_()),
        ("s", pa.string()),
        ("raw", pa.binary()),
        ("d", pa.date32()),
        ("ts", pa.timestamp("us", "UTC")),
        ("local", pa.timestamp("us")),
        ("place", pa.struct([("city", pa.string()), ("zip", pa.int32())])),
        ("tags", pa.list_(pa.string())),
        ("counts", pa.map_(pa.string(), pa.int32())),
    ]
)
# What a column can get. `i`, `b` and `p` also get values of wider types, which Spark narrows.
VALUES: Mapping[str, Sequence[str]] = {
    "p": ["t.p", "upper(t.p)", "concat(t.p, '2')", "NULL", "coalesce(t.p, 'none')", "if(t.flag, 'yes', t.p)"],
    "b": [
        "-t.b",
        "t.b & 7",
        "t.i % 5",
        "try_cast(t.i AS TINYINT)",
        "CAST(length(t.s) AS TINYINT)",
        "NULL",
        "CASE t.s WHEN 'a' THEN 1 WHEN 'b' THEN 2 END",
    ],
    "i": [
        "t.i + 1",
        "t.i / 2",
        "t.i % 7",
        "pmod(t.i, 5)",
        "abs(t.i)",
        "greatest(t.i, 3)",
        "try_add(t.i, 1)",
        "try_divide(t.i, t.b)",
        "year(t.d)",
        "month(t.ts)",
        "dayofweek(t.d)",
        "hour(t.ts)",
        "datediff(t.d, DATE'2026-01-01')",
        "length(trim(t.s))",
        "instr(t.s, 'b')",
        "size(t.tags)",
        "t.counts['a']",
        "t.place.zip + 1",
        "coalesce(t.i, t.b, 0)",
        "nullif(t.i, 0)",
        "CASE WHEN t.i > 2 THEN t.i WHEN t.flag THEN 0 END",
        "CAST(t.f AS INT)",
        "7 % t.b",
        "t.i DIV 2",
        "round(t.price)",
    ],
    "n": [
        "t.n * 2 - 1",
        "t.n + t.i",
        "plus_one(t.n)",
        "unix_timestamp(t.ts)",
        "xxhash64(t.s, t.i)",
        "try_subtract(t.n, t.i)",
        "try_cast(t.s AS BIGINT)",
        "CAST(t.price AS BIGINT)",
        "(SELECT max(o.w) FROM other o)",
        "(SELECT max(o.w) FROM other o WHERE o.id = t.id)",
        "t.n | 1",
        "bit_count(t.n)",
        "ceil(t.price)",
        "sum_of(t.i, t.b)",
    ],
    "price": [
        "t.price + 1",
        "t.price * 1.1",
        "t.price * 1.1 - 0.05",
        "t.price / 3",
        "t.price % 2",
        "-t.price",
        "round(t.price, 1)",
        "t.i",
        "CAST(t.f AS DECIMAL(10, 2))",
        "CAST('12.345' AS DECIMAL(10, 2))",
        "least(t.price, 10)",
        "coalesce(t.price, 0)",
        "try_multiply(t.price, 3)",
        "1.25",
        "t.f",
    ],
    "f": [
        "t.f * 2",
        "t.i / 4",
        "t.f / t.b",
        "t.price",
        "sqrt(abs(t.i))",
        "exp(t.b / 100)",
        "power(t.b, 3)",
        "nanvl(t.f, 0)",
        "round(t.f, 1)",
        "try_cast(t.s AS DOUBLE)",
        "CAST(t.s AS DOUBLE)",
        "signum(t.f)",
        "CASE WHEN isnan(t.f) THEN NULL ELSE t.f END",
        "0.1",
    ],
    "r": ["t.r + 1", "CAST(0.1 AS FLOAT)", "t.b", "t.f", "-t.r"],
    "flag": [
        "NOT t.flag",
        "t.i > 3 OR t.flag",
        "t.s LIKE 'a%'",
        "isnan(t.f)",
        "t.s IS NULL",
        "t.i <=> 3",
        "array_contains(t.tags, 'x')",
        "t.d > DATE'2026-01-05'",
        "NULL",
    ],
    "s": [
        "upper(t.s)",
        "lower(t.s)",
        "trim(t.s)",
        "replace(t.s, 'a', 'b')",
        "regexp_replace(t.s, '[aeiou]+', '-')",
        "regexp_extract(t.s, '([a-z]+)', 1)",
        "concat(t.s, '!')",
        "t.s || t.p",
        "substring(t.s, 2, 3)",
        "left(t.s, 2)",
        "lpad(t.s, 5, '*')",
        "initcap(t.s)",
        "reverse(t.s)",
        "repeat(t.s, 2)",
        "translate(t.s, 'ab', 'xy')",
        "concat_ws('-', t.s, t.p)",
        "split(t.s, ' ')[0]",
        "date_format(t.d, 'yyyy-MM')",
        "md5(t.s)",
        "CAST(t.price AS STRING)",
        "CAST(t.f AS STRING)",
        "CAST(t.ts AS STRING)",
        "CAST(t.i AS STRING)",
        "format_string('%05d', t.i)",
        "t.place.city",
        "to_json(t.place)",
        "array_join(t.tags, ',')",
        "try_element_at(t.tags, 2)",
        "element_at(t.tags, 2)",
        "coalesce(t.s, 'none')",
        "if(t.flag, 'yes', 'no')",
        "decode(t.b, 1, 'one', 'other')",
        "shout(t.s)",
        "(SELECT max(o.name) FROM other o WHERE o.id = t.id)",
        "'it''s'",
        "NULL",
    ],
    "raw": ["X'CAFE'", "CAST(t.s AS BINARY)", "unhex('0A')", "NULL", "substring(t.raw, 1, 1)"],
    "d": [
        "date_add(t.d, 1)",
        "date_sub(t.d, t.b)",
        "t.d + INTERVAL 1 MONTH",
        "t.d - INTERVAL 3 DAYS",
        "add_months(t.d, 1)",
        "last_day(t.d)",
        "trunc(t.d, 'MM')",
        "CAST(t.ts AS DATE)",
        "make_date(2026, 1, t.b)",
        "to_date('2026-01-05')",
        "DATE'2026-05-01'",
        "NULL",
    ],
    "ts": [
        "t.ts + INTERVAL 2 HOURS",
        "t.ts - INTERVAL '1 02:03:04' DAY TO SECOND",
        "date_trunc('DAY', t.ts)",
        "timestampadd(MINUTE, 5, t.ts)",
        "CAST(t.d AS TIMESTAMP)",
        "to_timestamp('2026-01-01 10:00:00')",
        "from_utc_timestamp(t.ts, 'Europe/Rome')",
        "timestamp_seconds(t.i)",
        "NULL",
    ],
    "local": [
        "t.local + INTERVAL 1 DAY",
        "CAST(t.d AS TIMESTAMP_NTZ)",
        "TIMESTAMP_NTZ'2026-01-01 00:00:00'",
        "NULL",
    ],
    "place": ["named_struct('city', upper(t.s), 'zip', t.i)", "t.place", "NULL", "struct(t.s AS city, 1 AS zip)"],
    "place.city": ["upper(t.place.city)", "'Oslo'", "NULL"],
    "place.zip": ["t.place.zip + 1", "t.i"],
    "tags": [
        "array('x', t.s)",
        "array_distinct(t.tags)",
        "concat(t.tags, array('z'))",
        "transform(t.tags, x -> upper(x))",
        "filter(t.tags, x -> x <> 'x')",
        "sort_array(t.tags)",
        "split(t.s, ' ')",
        "NULL",
    ],
    "counts": [
        "map('a', t.i)",
        "map_filter(t.counts, (k, v) -> v > 1)",
        "transform_values(t.counts, (k, v) -> v + 1)",
        "map_concat(t.counts, map('z', 1))",
        "NULL",
    ],
}
CONDITIONS: Sequence[str] = [
    "t.i > 3",
    "t.i BETWEEN 1 AND 3",
    "t.i IN (1, 2, NULL)",
    "t.i NOT IN (1, 2)",
    "(t.i, t.s) IN ((1, 'a'), (2, 'b'))",
    "t.i <=> NULL",
    "t.i % 2 = 1",
    "t.i / 2 > 1",
    "nullif(t.i, 3) IS NULL",
    "t.price >= 1.50",
    "t.price * t.i > 10",
    "t.price + 0.5 < t.f",
    "t.f > 1.5",
    "NOT (t.f < 1.5)",
    "isnan(t.f)",
    "t.f <=> 2.5",
    "t.f = t.r",
    "t.f > t.i",
    "t.s LIKE 'a%'",
    "t.s ILIKE 'A%'",
    "t.s RLIKE '^[ab]'",
    "t.s = t.p",
    "upper(trim(t.s)) = 'A'",
    "length(t.s) > 1",
    "concat(t.s, t.p) > 'b'",
    "t.s IS NULL OR t.f IS NULL",
    "t.raw = X'CAFE'",
    "t.d BETWEEN DATE'2026-01-02' AND DATE'2026-01-05'",
    "year(t.d) = 2026",
    "dayofweek(t.d) IN (1, 7)",
    "hour(t.ts) < 12",
    "CAST(t.ts AS DATE) = DATE'2026-01-02'",
    "t.ts > TIMESTAMP'2026-01-03 00:00:00' - INTERVAL 1 HOUR",
    "t.ts < t.local",
    "t.d < t.ts",
    "t.flag",
    "NOT t.flag",
    "t.flag IS NOT TRUE",
    "coalesce(t.flag, t.i > 2)",
    "CASE WHEN t.flag THEN t.i > 1 ELSE t.s = 'b' END",
    "t.place.city = 'Rome'",
    "t.place.zip IS NULL",
    "t.place IS NOT NULL",
    "array_contains(t.tags, 'x')",
    "size(t.tags) > 1",
    "exists(t.tags, x -> x = 'y')",
    "t.counts['a'] = 1",
    "try_divide(t.i, t.b) > 1",
    "try_cast(t.s AS INT) = 12",
    "CAST(t.s AS INT) = 12",
    "10 / t.b > 2",
    "t.p = 'a'",
    "t.p = 'a' AND t.i > 1",
    "t.p IN ('a', 'b') AND upper(t.s) = 'B'",
    "t.id < 5 AND year(t.d) = 2026",
    "t.id = 3",
    "t.id IN (1, 4, 7)",
    "true",
    "false",
    "CAST(NULL AS BOOLEAN)",
]
# Those that a MERGE cannot have in its ON, and for which Spark has no lambda or join.
WITH_SUBQUERY: Sequence[str] = [
    "t.id IN (SELECT o.id FROM other o)",
    "t.id NOT IN (SELECT o.id FROM other o WHERE o.id IS NOT NULL)",
    "t.i NOT IN (SELECT o.w FROM other o)",
    "EXISTS (SELECT 1 FROM other o WHERE o.id = t.id AND o.w > 2)",
    "NOT EXISTS (SELECT 1 FROM other o WHERE o.id = t.id)",
    "t.i > (SELECT avg(o.w) FROM other o)",
    "t.i = (SELECT max(o.w) FROM other o WHERE o.id = t.id)",
    "t.flag OR t.id IN (SELECT o.id FROM other o)",
]
WITH_UDF: Sequence[str] = ["plus_one(t.n) % 2 = 0", "shout(t.s) = 'A!'"]
_TEXTS = ["a", "b", "ab", "abc", " a ", "A", "b c", "12", "1.5", "", "it's", "ü", None]
_FLOATS = [0.0, -0.0, 1.5, 2.5, -3.25, 100.0, float("nan"), None]


def random_rows(chosen: random.Random, ids: Sequence[int], schema: pa.Schema = SCHEMA) -> pa.Table:
    """Rows with these ids. Each value can be null, floats can be NaN, texts are sometimes numbers."""
    return pa.Table.from_pylist([_row(chosen, number) for number in ids], SCHEMA).select(schema.names)


def _row(chosen: random.Random, number: int) -> dict[str, Any]:
    def maybe(value: Any) -> Any:
        return None if chosen.random() < 0.15 else value

    moment = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(minutes=chosen.randrange(10_000), microseconds=number)
    return {
        "id": number,
        "p": chosen.choice("aab") if chosen.random() < 0.9 else None,
        "b": maybe(chosen.randint(-2, 9)),
        "i": maybe(chosen.choice([-5, 0, 1, 2, 3, 4, 12, 2**31 - 1 if chosen.random() < 0.05 else 5])),
        "n": maybe(chosen.randint(-100, 100)),
        "price": maybe(Decimal(chosen.randint(-200, 2000)) / 100),
        "f": chosen.choice(_FLOATS),
        "r": maybe(chosen.choice([0.5, 1.5, 2.5, float("nan")])),
        "flag": maybe(chosen.random() < 0.5),
        "s": chosen.choice(_TEXTS),
        "raw": maybe(chosen.choice([b"\xca\xfe", b"", b"\x00\x01"])),
        "d": maybe(date(2026, 1, 1) + timedelta(days=chosen.randrange(-40, 40))),
        "ts": maybe(moment),
        "local": maybe(datetime(2026, 1, 1) + timedelta(hours=chosen.randrange(200))),  # noqa: DTZ001 - without a zone
        "place": maybe({"city": maybe(chosen.choice(["Rome", "Bern"])), "zip": maybe(chosen.randrange(100))}),
        "tags": maybe([chosen.choice(["x", "y", "z"]) for _ in range(chosen.randrange(4))]),
        "counts": maybe({name: chosen.randrange(3) for name in "ab"[: chosen.randrange(3)]}),
    }


def register_functions(spark: SparkSession) -> None:
    """Make the functions and the table `other` of the expressions known to a session."""
    spark.udf.register("plus_one", lambda x: None if x is None else x + 1, "long")
    spark.udf.register("sum_of", lambda x, y: None if x is None or y is None else x + y, "long")
    spark.udf.register("shout", lambda x: None if x is None else x.upper().strip() + "!", "string")
    rows = "(1L, 1L, 'one'), (2L, 5L, 'two'), (4L, NULL, 'four'), (7L, 2L, NULL), (50L, 12L, 'far'), (NULL, 3L, 'none')"
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW other AS SELECT * FROM VALUES {rows} AS o(id, w, name)")


def of_source(expression: str) -> str:
    """The expression over the row of a MERGE's source."""
    return re.sub(r"\bt\.", "s.", expression)


def known(expressions: Sequence[str], schema: pa.Schema) -> list[str]:
    """Those that read no column that the table lacks."""
    missing = [name for name in SCHEMA.names if name not in schema.names]
    return [each for each in expressions if not any(f"t.{name}" in each for name in missing)]
