"""UPDATE, DELETE and MERGE of `spark.sql` make of the rows what SELECTs of Spark make of a copy of them."""

from __future__ import annotations

import random
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tests.lanes import full_but
from tests.log.row_tracking import TRACKING, rows_with_ids, tracked_table
from tests.log.rules.support import generated, ruled_table
from tests.randomness import seed
from tests.streaming.datasource.everyday_expressions import (
    CONDITIONS,
    SCHEMA,
    VALUES,
    WITH_SUBQUERY,
    WITH_UDF,
    random_rows,
    register_functions,
)
from tests.streaming.datasource.random_statements import Drawn
from tests.streaming.datasource.second_opinion import (
    SOURCE,
    Delete,
    Expected,
    Rules,
    Statement,
    Update,
    expected,
    multiset,
    view,
)
from tests.streaming.support import JVM_SOURCE
from tidelog.log import Table
from tidelog.log.storage import open_store
from tidelog.streaming import register
from tidelog.streaming.datasource import rewritten

pytestmark = [pytest.mark.spark, JVM_SOURCE]

FEED = {"delta.enableChangeDataFeed": True}
# The protocol of the tables of other engines lacks TIMESTAMP_NTZ here.
FOREIGN = SCHEMA.remove(SCHEMA.get_field_index("local"))
RULES = Rules({"initial": "substring(s, 1, 1)"}, "i IS NULL OR i < 1000")
KINDS: dict[str, Callable[[str], Table]] = {
    "vectors": lambda path: Table.create(path, SCHEMA),
    "feed": lambda path: Table.create(path, SCHEMA, properties=FEED),
    "copies-feed-partitions": lambda path: Table.create(
        path, SCHEMA, properties={**FEED, "delta.enableDeletionVectors": False}, partition_by=["p"]
    ),
    "partitions": lambda path: Table.create(path, SCHEMA, partition_by=["p"]),
    "keys": lambda path: Table.create(path, SCHEMA, properties={"tidelog.primaryKey": "id"}),
    "order": lambda path: Table.create(
        path, SCHEMA, properties={"tidelog.primaryKey": "id", "tidelog.orderBy": "id", **FEED}
    ),
    "rules": lambda path: ruled_table(
        FOREIGN.append(pa.field("initial", pa.string())),
        constraints={"few": RULES.constraint},
        fields={name: generated(text) for name, text in RULES.generated.items()},
        store=open_store(path),
    ),
    "tracked": lambda path: tracked_table(
        open_store(path), schema=FOREIGN, properties={**TRACKING, "delta.enableChangeDataFeed": "true"}
    ),
}
ROWS = 24
# A relation of the format that is no table of the catalog, as names of Spark's own catalog are.
NAMED = "named_relation"
# What Spark cannot compute for a row, and what a statement with several values can say instead of another of them.
OF_VALUES = (
    "ARITHMETIC_OVERFLOW",
    "CAST_INVALID_INPUT",
    "CAST_OVERFLOW",
    "DATETIME_FIELD_OUT_OF_BOUNDS",
    "DIVIDE_BY_ZERO",
    "DUPLICATED_MAP_KEY",
    "INVALID_ARRAY_INDEX",
    "MERGE_CARDINALITY_VIOLATION",
    "NUMERIC_VALUE_OUT_OF_RANGE",
    "REMAINDER_BY_ZERO",
)


class Run:
    """Statements on a table of a kind, in a session of their own."""

    def __init__(self, spark: SparkSession, folder: Path, kind: str, *, ansi: bool = True, zone: str = "UTC") -> None:
        self.spark = spark.newSession()
        register(self.spark)
        self.spark.conf.set("spark.sql.ansi.enabled", ansi)
        self.spark.conf.set("spark.sql.session.timeZone", zone)
        register_functions(self.spark)
        self.chosen = random.Random(f"{seed()} {kind} {ansi} {zone}")
        self.kind = kind
        self.rules = RULES if kind == "rules" else Rules()
        self.table = KINDS[kind](str(folder / kind))
        schema = self.table.schema
        self._given = [name for name in schema.names if name not in self.rules.generated]
        self.drawn = Drawn(self.chosen, schema, list(self.rules.generated))
        for first in (0, ROWS // 2):
            self.table.insert(self.rows(range(first, first + ROWS // 2)))
        self.counts: Counter[str] = Counter()
        self.spark.sql(f"CREATE TEMPORARY VIEW {NAMED} USING tidelog OPTIONS (path '{self.table.path}')")

    def rows(self, ids: range | list[int]) -> pa.Table:
        """Random rows that keep the table's constraint."""
        found = random_rows(self.chosen, ids).select([name for name in SCHEMA.names if name in self._given])
        if self.kind == "rules":
            allowed = [number is None or number < 1000 for number in found["i"].to_pylist()]
            found = found.filter(pa.array(allowed, pa.bool_()))
        return found

    def draw_source(self, *, repeats: bool = True) -> None:
        """Make a source for the next MERGE: some rows have keys of the table, sometimes one twice."""
        ids = self.chosen.sample(range(0, 2 * ROWS, self.chosen.choice([1, 2])), ROWS // 2)
        if repeats and self.chosen.random() < 0.2:
            ids.append(ids[0])
        view(self.spark, SOURCE, self.rows(ids))

    def check(self, statement: Statement, table: Table, target: str = "") -> None:
        """Run a statement, by the table's path if not told otherwise, and compare what it did with what Spark says."""
        before, version = table.refresh().scan().to_arrow(), table.version
        ids = row_ids(table) if self.kind == "tracked" else set()
        wanted = expected(self.spark, statement, before, self.rules)
        text = statement.text(target or f"tidelog.`{table.path}`")
        if (failed := self._error_of(text)) is not None:
            assert wanted.error, f"{text} failed: {failed}"
            assert any(name in failed for name in (wanted.error.partition(".")[0], *OF_VALUES)), (text, failed)
            assert table.refresh().version == version, text
            self.counts["errors"] += 1
            return
        assert wanted.error is None, f"{text} did not fail with {wanted.error}"
        assert table.refresh().version <= version + 1, f"{text} made several commits"
        after = multiset(table.scan().to_arrow())
        assert after == wanted.rows, f"{text}: lacks {wanted.rows - after}; has {after - wanted.rows}"
        check_changes(table, text, multiset(before), version, wanted)
        if self.kind == "tracked":
            new, gone = row_ids(table) - ids, ids - row_ids(table)
            assert (len(new), len(gone)) == (wanted.inserted, wanted.deleted), text
        if "tidelog.primaryKey" in table.properties:
            check_keys(table, text, before)
        self.counts[type(statement).__name__] += 1

    def _error_of(self, text: str) -> str | None:
        try:
            self.spark.sql(text)
        except PySparkException as error:
            return str(error)
        return None


def check_keys(table: Table, text: str, before: pa.Table) -> None:
    """The index finds the rows, and with an order the rows that are gone stay away from late records."""
    after = table.scan().to_arrow()
    keys = sorted({*before["id"].to_pylist(), *after["id"].to_pylist()})
    assert multiset(table.get([{"id": key} for key in keys])) == multiset(after), text
    gone = before.filter(pc.invert(pc.is_in(before["id"], after["id"])))
    if "tidelog.orderBy" in table.properties and gone.num_rows and text.startswith("DELETE"):
        table.upsert(gone)
        assert multiset(table.refresh().scan().to_arrow()) == multiset(after), text


def check_changes(table: Table, text: str, before: Counter[str], version: int, wanted: Expected) -> None:
    """The change feed has the difference of the rows; with change files it has just the rows that were taken."""
    found = table.changes(after=version).to_arrow()
    kinds = found["_change_type"].to_pylist()

    def of(*wanted_kinds: str) -> Counter[str]:
        chosen = pa.array([kind in wanted_kinds for kind in kinds], pa.bool_())
        return multiset(found.filter(chosen).select(table.schema.names))

    gone, came = of("delete", "update_preimage"), of("insert", "update_postimage")
    assert gone <= before, f"{text}: the feed says that {gone - before} were there"
    assert before - gone + came == wanted.rows, f"{text}: {gone} are gone, and {came} came"
    if table.properties.get("delta.enableChangeDataFeed") == "true":
        taken = {"delete": wanted.deleted, "insert": wanted.inserted}
        taken |= dict.fromkeys(("update_preimage", "update_postimage"), wanted.updated)
        assert Counter(kinds) == Counter(taken), text


def row_ids(table: Table) -> set[int]:
    """The ids of all rows of a table with row tracking."""
    return set(rows_with_ids(table).column(len(table.schema.names)).to_pylist())


@pytest.mark.parametrize("kind", full_but(["vectors"], KINDS))
def test_random_statements(spark: SparkSession, tmp_path: Path, kind: str) -> None:
    run = Run(spark, tmp_path, kind)
    for target in ("", NAMED, ""):
        run.draw_source()
        run.check(run.drawn.statement(), run.table, target)


@pytest.mark.parametrize(
    "count", [pytest.param(3, marks=pytest.mark.full), pytest.param(25, marks=pytest.mark.nightly)]
)
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "rules"])
def test_both_ways_give_the_same_rows(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, count: int
) -> None:
    """A statement that tidelog's predicates can express is run by them, and by the rows that Spark computes."""
    translated: list[bool] = []
    own = rewritten._translated

    def counted(*given: Any) -> Any:
        found = own(*given)
        translated.append(found is not None)
        return found

    run = Run(spark, tmp_path, kind)
    for _ in range(count):
        run.draw_source(repeats=False)
        statement = run.drawn.simple()
        copy = Table.open(str(shutil.copytree(run.table.path, tmp_path / "copy")))
        with monkeypatch.context() as patched:
            patched.setattr(rewritten, "_translated", lambda *_: None)
            run.check(statement, copy)
        shutil.rmtree(copy.path)
        monkeypatch.setattr(rewritten, "_translated", counted)
        run.check(statement, run.table)
    assert run.counts["errors"] == 0
    assert translated == [True] * count


@pytest.mark.nightly
@pytest.mark.parametrize("zone", ["UTC", "America/New_York"])
@pytest.mark.parametrize("ansi", [True, False], ids=["ansi", "not-ansi"])
@pytest.mark.parametrize("kind", KINDS)
def test_many_random_statements(spark: SparkSession, tmp_path: Path, kind: str, ansi: bool, zone: str) -> None:
    for history in range(5):
        run = Run(spark, tmp_path / str(history), kind, ansi=ansi, zone=zone)
        for target in ("", NAMED) * 3:
            run.draw_source()
            run.check(run.drawn.statement(), run.table, target)


@pytest.mark.nightly
@pytest.mark.parametrize("ansi", [True, False], ids=["ansi", "not-ansi"])
def test_every_everyday_expression(spark: SparkSession, tmp_path: Path, ansi: bool) -> None:
    """Each by itself, on the same rows."""
    run = Run(spark, tmp_path, "vectors", ansi=ansi)
    first = run.table.version
    statements: list[Statement] = [
        Update({name: value}, "t.id < 20") for name, values in VALUES.items() for value in values
    ]
    statements += [Delete(condition) for condition in (*CONDITIONS, *WITH_SUBQUERY, *WITH_UDF)]
    for statement in statements:
        run.check(statement, run.table)
        if run.table.version > first:
            run.table.restore(version=first)
            first = run.table.refresh().version
    # Few fail, so that this says something of the others.
    assert run.counts["errors"] < 15
    assert run.counts["Update"] + run.counts["Delete"] > 220
