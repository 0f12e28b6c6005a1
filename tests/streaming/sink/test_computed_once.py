"""A batch is computed once: its functions can be slow, cost money, or give another value each time."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pytest
from py4j.protocol import Py4JError
from pyspark.accumulators import Accumulator
from pyspark.errors import PySparkException
from pyspark.errors.exceptions.base import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's convention
from pyspark.sql.types import LongType

from tests.lanes import full
from tests.streaming.support import JVM_SOURCE, BatchFunction, Input, drain
from tidelog.log import Table, Transaction
from tidelog.log.errors import ConflictError, StoreUnavailableError
from tidelog.streaming import Sink, Sinks, capture
from tidelog.streaming import table as spark_table
from tidelog.streaming.executors import spark_upsert
from tidelog.streaming.executors.collected import collected
from tidelog.streaming.executors.computed_once import computed_once
from tidelog.streaming.sink import batch, batch_rows

pytestmark = pytest.mark.spark

Calls = Accumulator[int]
_OFTEN_NULL = 0.3
MERGE = "MERGE INTO {} t USING data s ON t.k = s.k"
NOT_THESE = "WHEN NOT MATCHED AND NOT s.n < 5 THEN INSERT *"


def kept_of(spark: SparkSession) -> set[int]:
    """The numbers of what the session keeps. Other tests of the session may have left some."""
    return {int(number) for number in spark.sparkContext._jsc.getPersistentRDDs()}


@pytest.fixture
def source(tmp_path: Path) -> Input:
    return Input(tmp_path / "input")


@pytest.fixture
def calls(spark: SparkSession) -> Calls:
    return spark.sparkContext.accumulator(0)


def counted(frame: DataFrame, calls: Calls) -> DataFrame:
    """The frame with a column `k`, equal to `n`, whose function counts its calls."""

    def key(n: int) -> int:
        calls.add(1)
        return n

    return frame.withColumn("k", F.udf(key, LongType(), useArrow=False).asNondeterministic()("n"))


def upsert(**more: Any) -> dict[str, Any]:
    return {"mode": "upsert", "keys": ["k"], **more}


@pytest.mark.parametrize(
    ("arguments", "has_letters"),
    [
        ({}, False),
        (upsert(), False),
        (upsert(), True),
        *full(
            ({"schema_evolution": True}, False),
            ({"mode": "overwrite-partitions", "partition_by": ["k"]}, False),
            ({"partition_by": ["k"]}, False),
            (upsert(order_by="n"), False),
            (upsert(order_by="n", delete_where="n % 3 = 0"), True),
            (upsert(columns="partial"), False),
            (upsert(columns="partial"), True),
            (upsert(schema_evolution=True, partition_by=["n"]), True),
        ),
    ],
    ids=str,
)
@pytest.mark.parametrize("writer", ["auto", *full(("driver",), ("spark",))])
def test_each_row_of_each_batch_is_computed_once(
    spark: SparkSession,
    source: Input,
    tmp_path: Path,
    calls: Calls,
    writer: str,
    arguments: dict[str, Any],
    *,
    has_letters: bool,
) -> None:
    if writer == "spark" and "columns" in arguments:
        pytest.skip("the driver writes these")
    letters = Sink(str(tmp_path / "dead"), name="dead", writer=writer) if has_letters else None
    sink = Sink(str(tmp_path / "table"), writer=writer, dead_letters=letters, **arguments)
    before = kept_of(spark)
    drain(counted(source.put(3).stream(spark), calls), sink, tmp_path / "cp")
    assert calls.value == source.count * 10
    assert kept_of(spark) == before


@pytest.mark.full
@pytest.mark.parametrize("arguments", [{}, upsert()], ids=str)
def test_a_batch_that_is_too_large_for_the_driver_comes_from_one_computation(
    spark: SparkSession,
    source: Input,
    tmp_path: Path,
    calls: Calls,
    monkeypatch: pytest.MonkeyPatch,
    arguments: dict[str, Any],
) -> None:
    """It is computed again, and none of its rows is of the first time."""
    thrown_away = list[str]()

    def too_large(frame: DataFrame) -> pa.Table:
        rows = collected(frame)
        if not thrown_away:
            thrown_away.extend(rows["call"].to_pylist())
            raise RuntimeError("the results are bigger than spark.driver.maxResultSize")
        return rows

    monkeypatch.setattr(batch_rows, "collected", too_large)
    call = F.udf(lambda: uuid4().hex).asNondeterministic()
    frame = counted(source.put(3).stream(spark), calls).withColumn("call", call())
    drain(frame, Sink(str(tmp_path / "table"), **arguments), tmp_path / "cp")
    assert calls.value == (source.count + 1) * 10
    rows = Table.open(str(tmp_path / "table")).scan().to_arrow()
    assert Counter(rows["n"].to_pylist()) == Counter(source.numbers)
    assert len(thrown_away) == 10
    assert not set(thrown_away) & set(rows["call"].to_pylist())


@pytest.mark.full
@pytest.mark.parametrize("first", [3, 10])
@pytest.mark.parametrize("order", [(), ("n",)])
def test_a_batch_with_more_keys_than_the_driver_holds_is_computed_once(
    spark: SparkSession,
    source: Input,
    tmp_path: Path,
    calls: Calls,
    monkeypatch: pytest.MonkeyPatch,
    order: list[str],
    first: int,
) -> None:
    """The first one after a batch with fewer is computed twice: what it is cannot be known before."""
    monkeypatch.setattr(spark_upsert, "MAX_KEYS", 8)
    monkeypatch.setattr(batch_rows, "MAX_KEYS", 8)
    source.put_table(pa.table({"n": pa.array(range(first), pa.int64())}))
    sink = Sink(str(tmp_path / "table"), writer="spark", **upsert(order_by=order))
    before = kept_of(spark)
    drain(counted(source.put(2).stream(spark), calls), sink, tmp_path / "cp")
    assert calls.value == first + 2 * 10 + (10 if first < 8 else 0)
    assert numbers_of(tmp_path / "table") == Counter([*range(first), *range(10, 30)])
    assert kept_of(spark) == before


@pytest.mark.full
def test_an_upsert_whose_keys_the_driver_holds_is_not_kept(
    spark: SparkSession, source: Input, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch_rows, "MAX_KEYS", 10)
    kept: list[DataFrame] = []

    def noted(frame: DataFrame) -> Any:
        kept.append(frame)
        return computed_once(frame)

    monkeypatch.setattr(batch, "computed_once", noted)
    sink = Sink(str(tmp_path / "table"), mode="upsert", keys=["n"], writer="spark")
    drain(source.put(3).stream(spark), sink, tmp_path / "cp")
    assert len(kept) == 1  # the first batch, which can have any size


@pytest.mark.full
@pytest.mark.parametrize(("arguments", "computed"), [({}, 2), (upsert(), 1)], ids=str)
def test_a_batch_that_lost_a_race_comes_from_one_computation(
    spark: SparkSession,
    source: Input,
    tmp_path: Path,
    calls: Calls,
    monkeypatch: pytest.MonkeyPatch,
    arguments: dict[str, Any],
    computed: int,
) -> None:
    """It is computed again unless it was kept anyway; then none of its rows is of the first time."""
    stage = batch_rows.FrameRows.stage
    attempts: list[int] = []

    def failing_once(self: batch_rows.FrameRows, transaction: Any) -> None:
        stage(self, transaction)
        attempts.append(1)
        if len(attempts) == 1:
            transaction.abort()
            raise ConflictError("another writer was first")

    monkeypatch.setattr(batch_rows.FrameRows, "stage", failing_once)
    frame = counted(source.put().stream(spark), calls).withColumn("call", F.expr("uuid()"))
    drain(frame, Sink(str(tmp_path / "table"), writer="spark", **arguments), tmp_path / "cp")
    assert calls.value == computed * 10
    assert numbers_of(tmp_path / "table") == Counter(source.numbers)


@pytest.mark.full
def test_other_ways_compute_their_data_once(
    spark: SparkSession, tmp_path: Path, calls: Calls, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = str(tmp_path / "table")
    before = kept_of(spark)
    Table.create(path, pa.schema([("n", pa.int64()), ("k", pa.int64())])).insert([{"n": 1, "k": 1}])
    table = spark_table(spark, path)
    data = counted(spark.range(20).withColumnRenamed("id", "n"), calls)

    def by_range(frame: DataFrame) -> None:
        with monkeypatch.context() as patched:
            patched.setattr(spark_upsert, "MAX_KEYS", 2)
            table.upsert(frame, keys=["k"])

    ways: list[Callable[[DataFrame], object]] = [
        lambda frame: table.upsert(frame, keys=["k"]),
        lambda frame: table.upsert(frame, keys=["k"], order_by="n"),
        by_range,
        lambda frame: table.upsert(frame, keys=["k"], columns="partial"),
        table.overwrite,
        lambda frame: frame.write.format("tidelog").mode("append").save(path),
    ]
    for number, way in enumerate(ways, 1):
        way(data)
        assert calls.value == number * 20
    assert kept_of(spark) == before


def test_rows_that_are_kept_go_with_the_block(spark: SparkSession, calls: Calls) -> None:
    before = kept_of(spark)
    with computed_once(counted(spark.range(20).withColumnRenamed("id", "n"), calls)) as kept:
        assert (kept.count(), kept.where("n > 10").count()) == (20, 9)
        assert len(kept_of(spark) - before) == 1
    assert kept_of(spark) == before
    assert calls.value == 20
    with pytest.raises((PySparkException, Py4JError)):  # not computed again, which could give other rows
        kept.collect()


@JVM_SOURCE
@pytest.mark.full
@pytest.mark.parametrize(
    "statement",
    [
        f"{MERGE} WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *",
        f"{MERGE} WHEN MATCHED AND s.n < 5 THEN DELETE WHEN MATCHED THEN UPDATE SET * {NOT_THESE}",
        f"{MERGE} WHEN MATCHED THEN UPDATE SET n = t.n + s.n",
        f"{MERGE} WHEN MATCHED THEN UPDATE SET n = hash(s.n) WHEN NOT MATCHED BY SOURCE THEN DELETE",
        "INSERT INTO {} SELECT n, k FROM data",
    ],
)
def test_statements_of_sql_compute_their_source_once(
    spark: SparkSession, tmp_path: Path, calls: Calls, statement: str
) -> None:
    path = str(tmp_path / "table")
    Table.create(path, pa.schema([("n", pa.int64()), ("k", pa.int64())])).insert([{"n": 1, "k": 1}])
    counted(spark.range(20).withColumnRenamed("id", "n"), calls).createOrReplaceTempView("data")
    before = kept_of(spark)
    spark.sql(statement.format(f"tidelog.`{path}`"))
    assert calls.value == 20
    assert kept_of(spark) == before


@JVM_SOURCE
@pytest.mark.full
@pytest.mark.parametrize("is_plain", [True, False])
def test_merge_into_of_a_frame_computes_it_once(
    spark: SparkSession, tmp_path: Path, calls: Calls, *, is_plain: bool
) -> None:
    path = str(tmp_path / "table")
    Table.create(path, pa.schema([("n", pa.int64()), ("k", pa.int64())])).insert([{"n": 1, "k": 1}])
    spark.sql(f"CREATE TABLE merged USING tidelog LOCATION '{path}'")
    try:
        data = counted(spark.range(20).withColumnRenamed("id", "n"), calls).alias("s")
        merge = data.mergeInto("merged", F.expr("merged.k = s.k"))
        if is_plain:
            merge.whenMatched().updateAll().whenNotMatched().insertAll().merge()
        else:
            merge.whenMatched().update({"n": F.expr("s.n + merged.n")}).merge()
    finally:
        spark.sql("DROP TABLE merged")
    assert calls.value == 20


@JVM_SOURCE
@pytest.mark.full
def test_a_merge_that_lost_a_race_does_not_compute_its_source_again(
    spark: SparkSession, tmp_path: Path, calls: Calls, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = str(tmp_path / "table")
    Table.create(path, pa.schema([("n", pa.int64()), ("k", pa.int64())])).insert([{"n": 1, "k": 1}])
    counted(spark.range(20).withColumnRenamed("id", "n"), calls).createOrReplaceTempView("data")
    merge, attempts = Transaction.merge, list[int]()

    def failing_once(self: Transaction, *given: Any) -> Transaction:
        attempts.append(1)
        if len(attempts) == 1:
            self.abort()
            raise ConflictError("another writer was first")
        return merge(self, *given)

    monkeypatch.setattr(Transaction, "merge", failing_once)
    spark.sql(f"MERGE INTO tidelog.`{path}` t USING data s ON t.k = s.k WHEN MATCHED THEN UPDATE SET n = t.n + s.n")
    assert (len(attempts), calls.value) == (2, 20)


# --- blocks that are lost ---------------------------------------------------------------------------------------------


class Losing(Sink):
    """A sink for dead letters that first lets go of all that Spark keeps, as if executors were lost."""

    loses_blocks = True

    def __call__(self, batch_df: DataFrame, batch_id: int) -> None:
        session = batch_df.sparkSession
        session.catalog.clearCache()
        if self.loses_blocks:
            for kept in session.sparkContext._jsc.getPersistentRDDs().values():
                kept.unpersist(True)
        super().__call__(batch_df, batch_id)


def plain(folder: Path, dead: Sink) -> BatchFunction:
    return Sink(str(folder / "table"), dead_letters=dead, **upsert())


def by_name(folder: Path, dead: Sink) -> BatchFunction:
    return Sinks(
        lambda _: Sink(str(folder / "table"), dead_letters=dead, **upsert()),
        parked=str(folder / "parked"),
        by=F.lit("t"),
    )


def of_records(folder: Path, dead: Sink) -> BatchFunction:
    sink = capture.sink(str(folder / "table"), keys=["k"], dead_letters=dead)

    def apply(batch: DataFrame, number: int) -> None:
        records = batch.select(F.udf(as_json, useArrow=False)("k", "n").alias("value"), F.col("n").alias("offset"))
        sink(capture.debezium(records, schema="k long, n long", keys=["k"]), number)

    return apply


@pytest.mark.parametrize("way", [by_name, *full((of_records,), (plain,))])
@pytest.mark.parametrize("loses_blocks", [True, *full((False,))])
def test_rows_that_are_lost_are_not_computed_again(
    spark: SparkSession,
    source: Input,
    tmp_path: Path,
    calls: Calls,
    way: Callable[[Path, Sink], BatchFunction],
    *,
    loses_blocks: bool,
) -> None:
    """The batch fails instead, unless it was the cache alone that was cleared."""
    dead = Losing(str(tmp_path / "dead"), name="dead", schema_evolution=True)
    dead.loses_blocks = loses_blocks
    frame = counted(source.put().stream(spark), calls)
    if loses_blocks:
        with pytest.raises(StreamingQueryException, match=r"Checkpoint block .* not found"):
            drain(frame, way(tmp_path, dead), tmp_path / "cp")
        assert calls.value == 10
        dead.loses_blocks = False
        calls.value = 0
    drain(frame, way(tmp_path, dead), tmp_path / "cp")
    assert calls.value == 10
    assert numbers_of(tmp_path / "table") == Counter(source.numbers)


@pytest.mark.full
@pytest.mark.parametrize("ending", ["rows", *full(("sinks",), ("new_columns",))])
def test_records_whose_schema_is_looked_up_are_computed_once(
    spark: SparkSession, source: Input, tmp_path: Path, calls: Calls, ending: str
) -> None:
    """They are kept for a batch, as nobody says when their rows have been read."""
    record = F.udf(with_schema, useArrow=False)
    stream = counted(source.put(3).stream(spark), calls).select(record("k").alias("value"), F.col("n").alias("offset"))
    before = kept_of(spark)
    kept: list[int] = []

    def rows(batch: DataFrame) -> DataFrame:
        if ending == "new_columns":
            return capture.debezium(batch, schema="k long", keys=["k"], new_columns=True)
        return capture.debezium(batch, keys=["k"])

    sink = capture.sink(str(tmp_path / "table"), keys=["k"])
    function: BatchFunction = lambda batch, number: sink(rows(batch), number)  # noqa: E731
    if ending == "sinks":
        function = Sinks(
            lambda _: capture.sink(str(tmp_path / "table"), keys=["k"]),
            parked=str(tmp_path / "parked"),
            by=F.lit("t"),
            rows=lambda batch, _: rows(batch),
        )

    def noted(batch: DataFrame, number: int) -> None:
        function(batch, number)
        kept.append(len(kept_of(spark) - before))

    drain(stream, noted, tmp_path / "cp")
    assert calls.value == 30
    assert kept == [0 if ending == "sinks" else 1] * 3
    assert Table.open(str(tmp_path / "table")).scan(columns=["k", "n"]).count() == 30


# --- functions that give another value each time ----------------------------------------------------------------------


def numbers_of(path: Path) -> Counter[int]:
    table = Table.open(str(path))
    if "_raw" not in table.schema.names:
        return Counter(table.scan(columns=["n"]).to_arrow()["n"].to_pylist())
    return Counter(json.loads(raw)["after"]["n"] for raw in table.scan(columns=["_raw"]).to_arrow()["_raw"].to_pylist())


def by_chance(n: int) -> int | None:
    """A key of its own, one that another row can have too, or none."""
    dice = random.SystemRandom().random()
    return None if dice < _OFTEN_NULL else n if dice < 2 * _OFTEN_NULL else -1 - n // 2


def as_json(key: int | None, n: int) -> str:
    # The order of change records has no ties: here a key is of one row only, or null.
    shown = "null" if key is None else n
    source = f'{{"connector": "postgresql", "lsn": {n + 1}, "ts_ms": 1, "snapshot": "false"}}'
    return f'{{"op": "c", "before": null, "after": {{"k": {shown}, "n": {n}}}, "ts_ms": 1, "source": {source}}}'


def with_schema(n: int) -> str:
    columns = [{"field": name, "type": "int64", "optional": True} for name in ("k", "n")]
    fields = [{"field": name, "type": "struct", "fields": columns} for name in ("before", "after")]
    envelope = {"type": "struct", "fields": fields}
    return json.dumps({"schema": envelope, "payload": json.loads(as_json(n, n))})


def of_sink(folder: Path, writer: str) -> BatchFunction:
    dead = Sink(str(folder / "dead"), name="dead", writer=writer)
    return Sink(str(folder / "table"), writer=writer, dead_letters=dead, **upsert())


def of_sinks(folder: Path, writer: str) -> BatchFunction:
    """With a function for the rows, and a store that fails once the dead letters are there."""
    failures = {"left": 1}

    def make(_: str) -> Sink:
        sink: Any = of_sink(folder, writer)
        commit = sink._parts.target.begin

        def failing_once() -> Any:
            if (folder / "dead").exists() and failures["left"]:
                failures["left"] -= 1
                raise StoreUnavailableError("the store is away")
            return commit()

        sink._parts.target.begin = failing_once
        return sink  # type: ignore[no-any-return]

    key = F.udf(by_chance, LongType(), useArrow=False).asNondeterministic()
    return Sinks(
        make, parked=str(folder / "parked"), by=F.lit("t"), rows=lambda rows, _: rows.withColumn("k", key("n"))
    )


def of_capture(folder: Path, writer: str) -> BatchFunction:
    sink = capture.sink(str(folder / "table"), keys=["k"], dead_letters=str(folder / "dead"), writer=writer)
    record = F.udf(as_json, useArrow=False).asNondeterministic()

    def apply(batch: DataFrame, number: int) -> None:
        records = batch.select(record("k", "n").alias("value"), F.lit(0).alias("partition"), F.col("n").alias("offset"))
        sink(capture.debezium(records, schema="k long, n long", keys=["k"]), number)

    return apply


@pytest.mark.parametrize("rows", [200, pytest.param(20_000, marks=pytest.mark.nightly)])
@pytest.mark.parametrize("writer", ["driver", *full(("spark",))])
@pytest.mark.parametrize("way", [of_sink, *full((of_sinks,), (of_capture,))])
def test_no_row_is_lost_or_doubled_by_a_function_that_is_not_deterministic(
    spark: SparkSession,
    source: Input,
    tmp_path: Path,
    way: Callable[[Path, str], BatchFunction],
    writer: str,
    rows: int,
) -> None:
    """Each row is in the table or among the dead letters."""
    for start in (0, rows):
        source.put_table(pa.table({"n": pa.array(range(start, start + rows), pa.int64())}))
    key = F.udf(by_chance, LongType(), useArrow=False).asNondeterministic()
    drain(source.stream(spark).withColumn("k", key("n")), way(tmp_path, writer), tmp_path / "cp")
    alive = numbers_of(tmp_path / "table")
    dead = numbers_of(tmp_path / "dead")
    assert alive + dead == Counter(range(2 * rows))
