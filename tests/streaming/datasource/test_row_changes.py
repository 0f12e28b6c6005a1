"""UPDATE, DELETE and MERGE in `spark.sql`, by path and by a name of the session's catalog."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.functions import expr

from tests.lanes import full
from tests.streaming.datasource.sql_tables import rows, small_table
from tests.streaming.support import JVM_SOURCE, numbers_in
from tidelog.log import Committed, Table, Transaction
from tidelog.streaming import register

pytestmark = [pytest.mark.spark, JVM_SOURCE]


@pytest.fixture
def table(tmp_path: Path) -> Table:
    return small_table(tmp_path)


@pytest.fixture
def named(spark: SparkSession, table: Table) -> Iterator[str]:
    """The table by a name in the catalog of the session."""
    spark.sql(f"CREATE TABLE named USING tidelog LOCATION '{table.path}'")
    yield "named"
    spark.sql("DROP TABLE named")


@pytest.fixture(params=["path", "name"])
def target(request: pytest.FixtureRequest, table: Table) -> str:
    """The table by its path, and by a name in the catalog of the session."""
    return f"tidelog.`{table.path}`" if request.param == "path" else request.getfixturevalue("named")


@pytest.mark.oldest
def test_spark_s_own_sql_changes_rows(spark: SparkSession, table: Table, target: str) -> None:
    assert spark.sql(f"UPDATE {target} SET Part = upper(PART), n = n + 10 WHERE N % 2 = 1").collect() == []
    assert rows(spark, f"SELECT * FROM {target}") == [(0, "a"), (2, "a"), (11, "B"), (13, "B")]
    source = "(VALUES (2L, 'x', false), (11L, 'x', true), (4L, 'y', false)) AS s(n, part, gone)"
    spark.sql(
        f"MERGE INTO {target} t USING (SELECT * FROM {source}) s "
        "ON t.n = s.n WHEN MATCHED AND s.gone THEN DELETE WHEN MATCHED THEN UPDATE SET * "
        "WHEN NOT MATCHED AND NOT s.gone THEN INSERT *"
    )
    assert rows(spark, f"SELECT * FROM {target}") == [(0, "a"), (2, "x"), (4, "y"), (13, "B")]
    spark.sql(f"DELETE FROM {target} WHERE sqrt(n) > 3 OR n = 0")
    assert rows(spark, f"SELECT n FROM {target}") == [(2,), (4,)]
    assert [record.operation for record in table.refresh().history(3)] == ["DELETE", "MERGE", "UPDATE"]
    spark.sql(f"TRUNCATE TABLE {target}")
    assert table.refresh().scan().count() == 0


def test_a_name_of_the_session_s_catalog_is_altered(spark: SparkSession, table: Table) -> None:
    spark.sql(f"CREATE TABLE altered USING tidelog LOCATION '{table.path}'")
    try:
        spark.sql("ALTER TABLE altered ADD COLUMNS (note STRING COMMENT 'a note', size INT)")
        assert table.refresh().schema.names == ["n", "part", "note", "size"]
        spark.sql("INSERT INTO altered VALUES (9, 'z', 'new', 1)")
        assert rows(spark, "SELECT note, size FROM altered WHERE n = 9") == [("new", 1)]
        spark.sql("ALTER TABLE altered SET TBLPROPERTIES ('delta.appendOnly' = 'true')")
        assert table.refresh().properties["delta.appendOnly"] == "true"
        spark.sql("ALTER TABLE altered UNSET TBLPROPERTIES ('delta.appendOnly')")
        assert "delta.appendOnly" not in table.refresh().properties
        for statement in ("ADD COLUMNS (n INT)", "SET TBLPROPERTIES ('tidelog.no' = '1')"):
            with pytest.raises(PySparkException):
                spark.sql(f"ALTER TABLE altered {statement}")
        assert table.refresh().schema.names == spark.table("altered").columns
    finally:
        spark.sql("DROP TABLE altered")


@pytest.mark.oldest
@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("ALTER TABLE {} ADD COLUMN x INT DEFAULT 5", "a DEFAULT, a new field of a struct, or a place"),
        ("ALTER TABLE {} ADD COLUMN x STRING COLLATE UTF8_LCASE", "a table keeps no collation"),
    ],
)
def test_what_a_new_column_cannot_have_is_refused(
    spark: SparkSession, table: Table, target: str, statement: str, message: str
) -> None:
    with pytest.raises(PySparkException, match=message):
        spark.sql(statement.format(target))
    assert table.refresh().version == 1
    assert spark.table(target).columns == ["n", "part"]


@pytest.mark.oldest
@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("ALTER TABLE {} ADD COLUMN x INT FIRST", "a place for a column of a name in Spark's own catalog"),
        ("ALTER TABLE {} ADD COLUMNS (x INT, y INT AFTER n)", "a place for a column of a name"),
        ("EXECUTE IMMEDIATE 'ALTER TABLE {} ADD COLUMN x INT FIRST'", "a place for a column of a name"),
        ("ALTER TABLE {} ALTER COLUMN n SET DEFAULT 5", "a default of a column of a name in Spark's own catalog"),
    ],
)
def test_what_a_name_would_not_pass_on_is_refused(
    spark: SparkSession, table: Table, named: str, statement: str, message: str
) -> None:
    with pytest.raises(PySparkException, match=message):
        spark.sql(statement.format(named))
    assert table.refresh().version == 1
    assert spark.table(named).columns == ["n", "part"]


def test_a_comment_is_not_a_position(spark: SparkSession, table: Table, target: str) -> None:
    spark.sql(f"ALTER TABLE {target} ADD COLUMNS (`after` INT, x INT COMMENT 'the first after y')")
    assert table.refresh().schema.names == ["n", "part", "after", "x"]


@pytest.mark.oldest
def test_the_properties_of_a_name_are_the_table_s(spark: SparkSession, table: Table, target: str) -> None:
    spark.sql(f"ALTER TABLE {target} SET TBLPROPERTIES ('team' = 'x')")
    found = {row.key: row.value for row in spark.sql(f"SHOW TBLPROPERTIES {target}").collect()}
    assert found["team"] == "x"
    assert found == table.refresh().properties
    assert rows(spark, f"SHOW TBLPROPERTIES {target} ('team')") == [("team", "x")]


@pytest.mark.oldest
@pytest.mark.parametrize("selected", ["* FROM {} WHERE n > 0", "part, n AS m FROM {}"])
def test_a_view_that_chooses_is_not_changed(spark: SparkSession, table: Table, target: str, selected: str) -> None:
    spark.sql(f"CREATE TEMPORARY VIEW chosen AS SELECT {selected.format(target)}")
    try:
        for statement in (
            "DELETE FROM chosen",
            "UPDATE chosen SET part = 'x'",
            "MERGE INTO chosen USING (SELECT 'a' AS p) s ON chosen.part = s.p WHEN MATCHED THEN DELETE",
        ):
            with pytest.raises(PySparkException, match="cannot change a view that chooses"):
                spark.sql(statement)
    finally:
        spark.catalog.dropTempView("chosen")
    assert table.refresh().version == 1


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM loose WHERE part = upper(part)",
        "MERGE INTO loose t USING (SELECT 'A' COLLATE UTF8_LCASE AS p) s ON t.part = s.p WHEN MATCHED THEN DELETE",
    ],
)
def test_a_collation_of_a_name_does_not_choose_rows(spark: SparkSession, table: Table, statement: str) -> None:
    """The table compares bytes."""
    columns = "(n BIGINT, part STRING COLLATE UTF8_LCASE)"
    spark.sql(f"CREATE TEMPORARY VIEW loose {columns} USING tidelog OPTIONS (path '{table.path}')")
    try:
        assert rows(spark, "SELECT n FROM loose WHERE part = 'A'") == [(0,), (2,)]
        with pytest.raises(PySparkException, match="made with other types or collations than the table has"):
            spark.sql(statement)
    finally:
        spark.catalog.dropTempView("loose")
    assert table.refresh().version == 1


def test_explain_changes_nothing(spark: SparkSession, table: Table, target: str) -> None:
    [(plan,)] = spark.sql(f"EXPLAIN UPDATE {target} SET part = 'x'").collect()
    assert "tidelog update" in plan.lower()
    assert table.refresh().version == 1


def test_a_merge_of_frames(spark: SparkSession, target: str) -> None:
    rows_to_merge = spark.createDataFrame([(1, "it's"), (9, "z")], "n int, part string").alias("s")
    merge = rows_to_merge.mergeInto(target, expr(f"{target}.n = s.n"))
    merge.whenMatched().updateAll().whenNotMatched().insertAll().merge()
    assert rows(spark, f"SELECT * FROM {target}") == [(0, "a"), (1, "it's"), (2, "a"), (3, "b"), (9, "z")]


@pytest.mark.oldest
def test_any_merge_by_keys(spark: SparkSession, target: str) -> None:
    spark.sql(
        f"""
        MERGE INTO {target} t USING (
          SELECT * FROM (VALUES (0L, 'up', 5), (1L, 'gone', 1), (3L, 'low', 0), (8L, 'new', 9), (9L, 'no', 0))
            AS s(key, part, weight)
        ) s ON t.n = s.key
        WHEN MATCHED AND s.part = 'gone' THEN DELETE
        WHEN MATCHED AND s.weight > 3 THEN UPDATE SET part = concat(t.part, s.part)
        WHEN NOT MATCHED AND s.weight > 3 THEN INSERT (n, part) VALUES (s.key, upper(s.part))
        WHEN NOT MATCHED BY SOURCE AND t.part = 'a' THEN UPDATE SET part = 'old'
        """
    )
    assert rows(spark, f"SELECT * FROM {target}") == [(0, "aup"), (2, "old"), (3, "b"), (8, "NEW")]
    nothing = "(SELECT CAST(NULL AS BIGINT) AS n, 'x' AS p) s"
    spark.sql(f"MERGE INTO {target} t USING {nothing} ON t.n = s.n WHEN NOT MATCHED THEN INSERT (part) VALUES (p)")
    assert rows(spark, f"SELECT part FROM {target} WHERE n IS NULL") == [("x",)]


@pytest.mark.parametrize(
    ("clauses", "expected"),
    [
        pytest.param("MATCHED AND s.x <> 0 THEN UPDATE SET part = CAST(10 / s.x AS STRING)", {1: "b"}, id="rules"),
        pytest.param(
            "MATCHED AND s.gone THEN DELETE WHEN MATCHED THEN UPDATE SET n = s.n, part = string(10 / s.x) "
            "WHEN NOT MATCHED AND NOT s.gone THEN INSERT (n, part) VALUES (s.n, string(10 / s.x))",
            {},
            id="upsert",
        ),
    ],
)
def test_values_are_computed_for_rows_that_a_clause_takes(
    spark: SparkSession, target: str, clauses: str, expected: dict[int, str]
) -> None:
    source = "(SELECT *, x = 0 AS gone FROM VALUES (1L, 0), (2L, 5) AS v(n, x)) s"
    merge = f"MERGE INTO {target} t USING {source} ON t.n = s.n WHEN {clauses}"
    spark.sql(merge)
    found = {row["n"]: row["part"] for row in spark.sql(f"SELECT n, part FROM {target}").collect()}
    assert found == {0: "a", 2: "2.0", 3: "b", **expected}


@pytest.mark.parametrize("on", ["t.n = s.a AND t.n = s.b", "t.n = s.b AND t.n = s.a"])
def test_a_key_with_two_conditions(spark: SparkSession, table: Table, target: str, on: str) -> None:
    source = "(SELECT * FROM VALUES (1L, 2L), (3L, 3L) AS v(a, b)) s"
    spark.sql(f"MERGE INTO {target} t USING {source} ON {on} WHEN MATCHED THEN DELETE")
    assert numbers_in(table.path) == [0, 1, 2]


@pytest.mark.parametrize("form", ["plain", "rules"])
def test_casts_of_a_merge_are_spark_s(spark: SparkSession, tmp_path: Path, form: str) -> None:
    schema = pa.schema([("n", pa.int64()), ("x", pa.float64()), ("text", pa.string()), ("day", pa.date32())])
    table = Table.create(str(tmp_path / "casts"), schema)
    table.insert([{"n": 1, "x": 0.0, "text": "", "day": None}])
    more = "" if form == "plain" else "AND t.n > 0"
    spark.sql(
        f"""
        MERGE INTO tidelog.`{table.path}` t USING (SELECT 1L AS n, 7.96D AS x, '2020-1-2' AS text) s ON t.n = s.n
        WHEN MATCHED {more} THEN UPDATE SET n = s.n, x = CAST(s.x AS INT), text = CAST(CAST(s.text AS DATE) AS STRING),
          day = CAST(CAST(s.text AS TIMESTAMP) AS DATE)
        WHEN NOT MATCHED THEN INSERT (n, x, text, day) VALUES (s.n, CAST(s.x AS INT),
          CAST(CAST(s.text AS DATE) AS STRING), CAST(CAST(s.text AS TIMESTAMP) AS DATE))
        """
    )
    assert table.refresh().scan().to_arrow().to_pylist() == [
        {"n": 1, "x": 7.0, "text": "2020-01-02", "day": date(2020, 1, 2)}
    ]


@pytest.mark.parametrize(
    ("value", "column", "expected"),
    [
        ("CAST(x AS INT)", "x", 1.0),
        *full(
            ("TRY_CAST(n AS TINYINT)", "n", None),
            ("CAST(x AS FLOAT)", "x", 1.75),
            ("CAST(x AS DECIMAL(9,1))", "x", 1.8),
        ),
    ],
)
def test_a_cast_that_loses_something_is_not_left_out(
    spark: SparkSession, tmp_path: Path, value: str, column: str, expected: object
) -> None:
    table = Table.create(str(tmp_path / "casts"), pa.schema([("n", pa.int64()), ("x", pa.float64())]))
    table.insert([{"n": 300, "x": 1.75}])
    spark.sql(f"UPDATE tidelog.`{table.path}` SET {column} = {value}")
    assert table.refresh().scan().to_arrow()[column].to_pylist() == [expected]


def test_a_field_of_a_struct_is_read(spark: SparkSession, tmp_path: Path) -> None:
    kind = pa.struct([("a", pa.int64()), ("b", pa.string())])
    table = Table.create(str(tmp_path / "structs"), pa.schema([("n", pa.int64()), ("st", kind)]))
    table.insert([{"n": n, "st": {"a": n, "b": "x"} if n else None} for n in range(3)])
    name = f"tidelog.`{table.path}`"
    assert rows(spark, f"SELECT n FROM {name} WHERE st.a > 1") == [(2,)]
    assert rows(spark, f"SELECT st.b FROM {name} WHERE n > 0") == [("x",), ("x",)]


def test_a_source_that_reads_the_table_runs_again_after_a_race(
    spark: SparkSession, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    raced: list[Committed] = []
    merge = Transaction.merge

    def racing(self: Transaction, *arguments: object) -> Transaction:
        staged = merge(self, *arguments)  # type: ignore[arg-type]
        if not raced:
            raced.append(Table.open(table.path).update("n = 1", {"part": "'late'"}))
        return staged

    monkeypatch.setattr(Transaction, "merge", racing)
    name = f"tidelog.`{table.path}`"
    spark.sql(
        f"MERGE INTO {name} t USING (SELECT n, concat(part, '!') AS part FROM {name} WHERE n < 2) s ON t.n = s.n "
        "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
    )
    assert rows(spark, f"SELECT * FROM {name}") == [(0, "a!"), (1, "late!"), (2, "a"), (3, "b")]


def test_a_merge_keeps_times(spark: SparkSession, tmp_path: Path) -> None:
    schema = pa.schema([("n", pa.int64()), ("at", pa.timestamp("us", "UTC")), ("day", pa.date32())])
    table = Table.create(str(tmp_path / "times"), schema)
    table.insert([{"n": n, "at": datetime(2026, 1, 1, n, tzinfo=UTC), "day": date(2026, 1, 1)} for n in range(3)])
    abroad = spark.newSession()
    register(abroad)
    abroad.conf.set("spark.sql.session.timeZone", "+02:00")
    abroad.sql(
        f"""
        MERGE INTO tidelog.`{table.path}` t USING (
          SELECT n, TIMESTAMP '2026-05-01 12:00:00' AS at, DATE '2026-05-02' AS day FROM (VALUES (1L), (9L)) AS v(n)
        ) s ON t.n = s.n
        WHEN MATCHED AND t.at < TIMESTAMP '2026-01-01 03:30:00' THEN UPDATE SET at = s.at, day = s.day
        WHEN NOT MATCHED THEN INSERT *
        WHEN NOT MATCHED BY SOURCE AND t.at >= TIMESTAMP '2026-01-01 04:00:00' THEN DELETE
        """
    )
    noon = datetime(2026, 5, 1, 10, tzinfo=UTC)
    assert table.refresh().scan().to_arrow().sort_by("n").to_pylist() == [
        {"n": 0, "at": datetime(2026, 1, 1, tzinfo=UTC), "day": date(2026, 1, 1)},
        {"n": 1, "at": noon, "day": date(2026, 5, 2)},
        {"n": 9, "at": noon, "day": date(2026, 5, 2)},
    ]


def test_tables_of_others_keep_spark_s_own_statements(spark: SparkSession, tmp_path: Path) -> None:
    spark.sql(f"CREATE TABLE plain USING parquet LOCATION '{tmp_path}/plain' AS SELECT 1L AS n")
    try:
        with pytest.raises(AnalysisException, match="does not support DELETE"):
            spark.sql("DELETE FROM plain WHERE n = 1")
        with pytest.raises(AnalysisException, match="TRUNCATE TABLE on external tables"):
            spark.sql("TRUNCATE TABLE plain")
    finally:
        spark.sql("DROP TABLE plain")


def test_parameters_of_a_statement(spark: SparkSession, table: Table, target: str) -> None:
    spark.sql(f"UPDATE {target} SET part = :text WHERE n = :n", args={"n": 1, "text": "it's a \\ 'b'"})
    assert rows(spark, f"SELECT part FROM {target} WHERE n = 1") == [("it's a \\ 'b'",)]
    spark.sql(
        f"DELETE FROM {target} WHERE part = :text OR sqrt(n) > :root", args={"text": "it's a \\ 'b'", "root": 1.5}
    )
    assert numbers_in(table.path) == [0, 2]
    merge = f"MERGE INTO {target} t USING (SELECT :n AS n, :text AS part) s ON t.n = s.n"
    rest = "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
    spark.sql(f"{merge} {rest}", args={"n": 2, "text": "it's"})
    assert rows(spark, f"SELECT * FROM {target}") == [(0, "a"), (2, "it's")]


@pytest.mark.parametrize(
    ("statement", "left"),
    [
        ("DELETE FROM {} WHERE n IN (SELECT 1)", [0, 2, 3]),
        *full(
            ("UPDATE {} SET n = length(reverse(part))", [1, 1, 1, 1]),
            ("DELETE FROM {} x WHERE EXISTS (SELECT 1 FROM range(2) r WHERE r.id = x.n)", [2, 3]),
            ("UPDATE {} SET n = (SELECT max(id) FROM range(9))", [8, 8, 8, 8]),
            ("MERGE INTO {} t USING (SELECT 1L n) s ON t.n > s.n WHEN MATCHED THEN DELETE", [0, 1]),
        ),
    ],
)
def test_what_has_no_translation_is_run_by_spark(
    spark: SparkSession, table: Table, target: str, statement: str, left: list[int]
) -> None:
    spark.sql(statement.format(target))
    assert numbers_in(table.path) == left


CONDITIONS = [
    "n > 1 AND NOT part <=> 'b'",
    "n IN (1, 3, NULL) OR part IS NULL",
    "n IN (0,1,2,3,4,5,6,7,8,9,10,11)",
    "x > 5",
    "x >= 5 OR x = 1.5",
    "5 < x",
    "NOT (x < 5)",
    "part = 'it''s'",
    "part = 'it\\'s'",
    "part LIKE 'it%'",
    "lower(part) = 'a' AND n + 1 < 3",
    "coalesce(part, 'none') = 'none'",
    "CASE WHEN n > 2 THEN true ELSE part = 'a' END",
    "if(n > 2, part, 'b') = 'b'",
    "price >= 1.50",
    "CAST(n AS STRING) = '3'",
    "length(part) > 1 AND substring(part, 1, 2) = 'it'",
    "at >= TIMESTAMP '2026-01-01 02:00:00'",
    "day = DATE '2026-01-02'",
    "place.city = 'Rome'",
    "n % 2 = 1",
    "n = 9223372036854775807",
    "n = 9223372036854775808",
    "1 = 0",
    "n > NULL",
    "n > 1 -- not this \\\n OR true",
]
# They have no translation, at least in some versions of Spark.
OF_SPARK = [
    "CAST(at AS DATE) = DATE '2026-01-01'",
    "day < TIMESTAMP '2026-01-01T00:00:00Z'",
    "hour(at) = 1",
    "x <=> 5",
    "x > n",
    "CAST(CAST(n AS STRING) AS INT) = 1",
    "at < local",
]


@pytest.mark.full
@pytest.mark.parametrize("zone", ["UTC", "+02:00"])
def test_conditions_select_what_they_select_in_spark(spark: SparkSession, tmp_path: Path, zone: str) -> None:
    schema = pa.schema(
        [
            ("n", pa.int64()),
            ("part", pa.string()),
            ("x", pa.float64()),
            ("price", pa.decimal128(8, 2)),
            ("at", pa.timestamp("us", "UTC")),
            ("local", pa.timestamp("us")),
            ("day", pa.date32()),
            ("place", pa.struct([("city", pa.string())])),
        ]
    )
    data = [
        {
            "n": n,
            "part": part,
            "x": x,
            "price": Decimal(n) / 2,
            "at": datetime(2026, 1, 1, n, tzinfo=UTC),
            "local": datetime(2026, 1, 1, n),  # noqa: DTZ001 - a time without a zone
            "day": date(2026, 1, n + 1),
            "place": {"city": "Rome" if n else "Bern"},
        }
        for n, (part, x) in enumerate([("a", 1.5), ("b", float("nan")), (None, None), ("it's", 7.0), ("its", 5.0)])
    ]
    table = Table.create(str(tmp_path / "table"), schema)
    table.insert(data)
    session = spark.newSession()
    register(session)
    session.conf.set("spark.sql.session.timeZone", zone)
    name = f"tidelog.`{table.path}`"
    for condition in (*CONDITIONS, *OF_SPARK):
        selected = {row.n for row in session.sql(f"SELECT n FROM {name} WHERE {condition}").collect()}
        session.sql(f"DELETE FROM {name} WHERE {condition}")
        left = set(table.refresh().scan(columns=["n"]).to_arrow()["n"].to_pylist())
        assert left == set(range(5)) - selected, condition
        if selected:
            table.restore(version=1)


VALUES = {
    "part": [
        "'it''s'",
        "'x\\ty'",
        "upper(part)",
        "concat(part, '!')",
        "part || (SELECT 'x')",
        "NULL",
        "CAST(n AS STRING)",
    ],
    "n": ["n + 1", "n * 2 - 1", "length(part)", "CASE WHEN n > 1 THEN 5 END", "CAST(7 AS SMALLINT)", "-n"],
    "x": ["x * 2", "n", "1.5", "CAST(0.1 AS FLOAT)"],
    "price": ["price", "1.25", "n"],
    "at": ["TIMESTAMP '2026-05-01 10:00:00'", "CAST('2026-05-01T10:00:00Z' AS TIMESTAMP)", "NULL"],
    "day": ["DATE '2026-05-01'"],
}


@pytest.mark.full
@pytest.mark.parametrize("zone", ["UTC", "+02:00"])
def test_values_are_those_of_spark(spark: SparkSession, tmp_path: Path, zone: str) -> None:
    schema = pa.schema(
        [
            ("n", pa.int64()),
            ("part", pa.string()),
            ("x", pa.float64()),
            ("price", pa.decimal128(8, 2)),
            ("at", pa.timestamp("us", "UTC")),
            ("day", pa.date32()),
        ]
    )
    table = Table.create(str(tmp_path / "table"), schema)
    table.insert([{"n": n, "part": part, "x": n / 4} for n, part in enumerate(["a", None, "it's"])])
    session = spark.newSession()
    register(session)
    session.conf.set("spark.sql.session.timeZone", zone)
    name = f"tidelog.`{table.path}`"
    for column, values in VALUES.items():
        kind = session.table(name).schema[column].dataType.simpleString()
        for value in values:
            expected = session.sql(f"SELECT CAST({value} AS {kind}) FROM {name} ORDER BY n").collect()
            session.sql(f"UPDATE {name} SET {column} = {value}")
            found = session.sql(f"SELECT {column} FROM {name} ORDER BY x").collect()
            assert sorted(map(str, found)) == sorted(
                str(row).replace(next(iter(row.asDict())), column) for row in expected
            ) or [row[0] for row in found] == [row[0] for row in expected], value
            table.restore(version=1)


def test_settings_of_the_parser_count(spark: SparkSession, table: Table) -> None:
    session = spark.newSession()
    register(session)
    session.conf.set("spark.sql.ansi.doubleQuotedIdentifiers", "true")
    session.conf.set("spark.sql.parser.escapedStringLiterals", "true")
    name = f"tidelog.`{table.path}`"
    session.sql(f"""UPDATE {name} SET part = concat("part", 'x\\ty') WHERE n = 1""")
    session.sql(f"""DELETE FROM {name} WHERE lower("part") = 'a'""")
    assert rows(spark, f"SELECT part FROM {name}") == [("b",), ("bx\\ty",)]


def test_a_name_that_chooses_rows_is_not_changed(spark: SparkSession, table: Table) -> None:
    table.delete("n = 0")
    refused = "has the option '{}', which chooses what is read, and the statement is about the whole table"
    for option, value in {
        "where": "n > 2",
        "timestampAsOf": str(table.history()[1].timestamp),
        "changes": "cdc",
    }.items():
        spark.sql(f"CREATE TABLE chosen USING tidelog OPTIONS ({option} '{value}') LOCATION '{table.path}'")
        spark.sql(f"CREATE TEMPORARY VIEW chosen_view USING tidelog OPTIONS (path '{table.path}', {option} '{value}')")
        try:
            for statement in ("DELETE FROM chosen", "TRUNCATE TABLE chosen", "DELETE FROM chosen_view"):
                with pytest.raises(PySparkException, match=refused.format(option.lower())):
                    spark.sql(statement)
        finally:
            spark.sql("DROP TABLE chosen")
            spark.sql("DROP VIEW chosen_view")
    assert table.refresh().version == 2


def test_what_spark_has_cached_is_read_again(spark: SparkSession, target: str) -> None:
    spark.sql(f"CACHE TABLE held AS SELECT * FROM {target}")
    spark.table(target).cache().count()
    try:
        spark.sql(f"UPDATE {target} SET part = 'x' WHERE n = 1")
        spark.sql(f"DELETE FROM {target} WHERE n = 0")
        assert rows(spark, f"SELECT * FROM {target}") == [(1, "x"), (2, "a"), (3, "b")]
        assert rows(spark, "SELECT * FROM held") == [(1, "x"), (2, "a"), (3, "b")]
        if target == "named":
            spark.sql(f"TRUNCATE TABLE {target}")
            assert rows(spark, f"SELECT * FROM {target}") == []
    finally:
        spark.table(target).unpersist()
        spark.sql("DROP VIEW held")


@pytest.mark.parametrize("gone", ["CAST(NULL AS BOOLEAN)", *full(("s.n = 1",), ("s.n > 99",))])
def test_a_merge_inserts_what_its_condition_says(spark: SparkSession, table: Table, target: str, gone: str) -> None:
    merge = (
        f"MERGE INTO {target} t USING (SELECT id AS n, 'new' AS part FROM range(1, 5)) s "
        f"ON t.n = s.n WHEN MATCHED AND {gone} THEN DELETE WHEN MATCHED THEN UPDATE SET * "
        f"WHEN NOT MATCHED AND NOT ({gone}) THEN INSERT *"
    )
    spark.sql(merge)
    left = {"s.n = 1": [0, 2, 3, 4], "s.n > 99": [0, 1, 2, 3, 4]}.get(gone, [0, 1, 2, 3])
    assert numbers_in(table.path) == left
