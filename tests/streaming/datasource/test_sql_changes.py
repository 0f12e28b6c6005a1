"""The changes of a table as Spark 4.2 and later ask for them: CHANGES, `read.changes` and `readStream.changes`."""

from __future__ import annotations

import itertools
import json
import random
from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException, PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's convention

from tests.lanes import full
from tests.log.read.test_change_histories import History
from tests.randomness import seed
from tests.streaming.support import (
    NUMBERS,
    SINCE_CHANGES,
    changes_stream,
    drain,
    feed,
    forget_last_commit,
    numbers_in,
    rewrite_all,
)
from tidelog.log import Table
from tidelog.log.storage.local import LocalStore
from tidelog.streaming import Sink, register

pytestmark = [pytest.mark.spark, SINCE_CHANGES]

KEYED = pa.schema([("k", pa.int64()), ("v", pa.string())])
NET = "deduplicationMode = 'netChanges'"


@pytest.fixture(scope="module")
def keyed(tmp_path_factory: pytest.TempPathFactory) -> Table:
    """Versions: 0 the table, 1 the rows 1 to 3, 2 an update, 3 a compaction, 4 a delete, 5 an update and an insert."""
    made = Table.create(
        str(tmp_path_factory.mktemp("changes") / "table"), KEYED, properties={"tidelog.primaryKey": "k"}
    )
    made.insert([{"k": k, "v": "new"} for k in (1, 2, 3)])
    made.update("k = 1", {"v": "'old'"})
    rewrite_all(made)
    made.delete("k = 2")
    made.upsert([{"k": 1, "v": "older"}, {"k": 4, "v": "new"}])
    return made.refresh()


def counted(found: pa.Table) -> Counter[str]:
    return Counter(repr(sorted(row.items())) for row in found.to_pylist())


def changed(spark: SparkSession, table: Table, clause: str) -> list[tuple[Any, ...]]:
    frame = spark.sql(f"SELECT _commit_version, _change_type, k FROM tidelog.`{table.path}` CHANGES {clause}")
    return sorted(tuple(row) for row in frame.collect())


EVERY = [
    (1, "insert", 1),
    (1, "insert", 2),
    (1, "insert", 3),
    (2, "update_postimage", 1),
    (2, "update_preimage", 1),
    (4, "delete", 2),
    (5, "insert", 4),
    (5, "update_postimage", 1),
    (5, "update_preimage", 1),
]


@pytest.mark.oldest
def test_an_interval_of_versions(spark: SparkSession, keyed: Table) -> None:
    """Both bounds belong to it, unless they say EXCLUSIVE. Spark takes away and pairs nothing: there is no need."""

    def expected(*versions: int) -> list[tuple[Any, ...]]:
        return [row for row in EVERY if row[0] in versions]

    assert changed(spark, keyed, "FROM VERSION 0") == EVERY
    assert changed(spark, keyed, "FROM VERSION 2 TO VERSION 4") == expected(2, 4)
    assert changed(spark, keyed, "FROM VERSION 2 EXCLUSIVE TO VERSION 5 EXCLUSIVE") == expected(4)
    assert changed(spark, keyed, "FROM VERSION 2 TO VERSION 2 EXCLUSIVE") == []
    assert changed(spark, keyed, "FROM VERSION 2 EXCLUSIVE TO VERSION 2 EXCLUSIVE") == []
    assert changed(spark, keyed, "FROM VERSION 3 TO VERSION 3") == []
    assert changed(spark, keyed, "FROM VERSION 4 WITH (deduplicationMode = 'none', computeUpdates = true)") == expected(
        4, 5
    )


@pytest.mark.full
def test_an_interval_of_times(spark: SparkSession, keyed: Table) -> None:
    second, fourth = (f"'{keyed.at(version=version).timestamp.isoformat()}'" for version in (2, 4))
    assert changed(spark, keyed, f"FROM TIMESTAMP {second} TO TIMESTAMP {fourth}") == EVERY[3:6]
    assert changed(spark, keyed, f"FROM TIMESTAMP {second} EXCLUSIVE TO TIMESTAMP {fourth} EXCLUSIVE") == []
    assert changed(spark, keyed, f"FROM TIMESTAMP {fourth} TO TIMESTAMP {fourth} EXCLUSIVE") == []
    later = f"'{(keyed.at(version=2).timestamp + timedelta(microseconds=500)).isoformat()}'"
    assert changed(spark, keyed, f"FROM TIMESTAMP {later} TO TIMESTAMP {fourth}") == EVERY[5:6]
    assert changed(spark, keyed, f"FROM TIMESTAMP '2001-01-01' TO TIMESTAMP {later} EXCLUSIVE") == EVERY[:5]


def test_net_changes_are_those_of_tidelog(spark: SparkSession, keyed: Table) -> None:
    """With computeUpdates, an update has the row before the interval, too, as Spark defines it."""
    net = [(1, "insert", 3), (5, "insert", 1), (5, "insert", 4)]
    assert changed(spark, keyed, f"FROM VERSION 1 WITH ({NET})") == net
    later = [(4, "delete", 2), (5, "insert", 4), (5, "update_postimage", 1)]
    assert changed(spark, keyed, f"FROM VERSION 2 WITH ({NET})") == later
    both = spark.read.option("startingVersion", 2).option("deduplicationMode", "netChanges")
    frame = both.option("computeUpdates", "true").changes(f"tidelog.`{keyed.path}`").drop("_commit_timestamp")
    assert sorted(tuple(row) for row in frame.where("k = 1").collect()) == [
        (1, "new", "update_preimage", 5),
        (1, "older", "update_postimage", 5),
    ]


@pytest.mark.full
def test_columns_filters_and_options(spark: SparkSession, keyed: Table) -> None:
    reader = spark.read.option("startingVersion", "2").option("where", "k <> 4")
    frame = reader.changes(f"tidelog.`{keyed.path}`")
    assert frame.dtypes == [
        ("k", "bigint"), ("v", "string"), ("_change_type", "string"), ("_commit_version", "bigint"),
        ("_commit_timestamp", "timestamp"),
    ]  # fmt: skip
    expected = keyed.changes(after=1, where="k <> 4").to_arrow()
    assert counted(frame.toArrow()) == counted(expected)
    assert frame.where("_change_type = 'delete' AND k > 1").select("v").collect() == [("new",)]
    assert frame.groupBy().count().collect() == [(5,)]
    first = reader.option("startingBoundInclusive", "false").option("endingVersion", 4)
    assert first.changes(f"tidelog.`{keyed.path}`").select("k").collect() == [(2,)]
    # Without a bound it is the whole history.
    assert spark.read.changes(f"tidelog.`{keyed.path}`").count() == len(EVERY)


@pytest.mark.parametrize(
    ("clause", "options", "message"),
    [
        ("FROM VERSION 99", {}, "TIDELOG_HISTORY_RANGE: version 99 does not exist"),
        ("FROM VERSION 4 TO VERSION 2", {}, "TIDELOG_CONFIGURATION: the interval ends before it starts"),
        ("FROM VERSION 'x'", {}, "TIDELOG_CONFIGURATION: CHANGES cannot begin or end with the version 'x'"),
        (None, {"after": "2"}, "TIDELOG_CONFIGURATION: the option 'after' does not fit CHANGES and changes()"),
        *full(
            (
                None,
                {"changes": "append"},
                "the option 'changes' does not fit CHANGES and changes(); use deduplicationMode",
            ),
            (None, {"maxFilesPerTrigger": "1"}, "the option 'maxFilesPerTrigger' is for streams only"),
            (None, {"nonsense": "1"}, "unknown option 'nonsense'"),
            (None, {"startingTimestamp": "12000-01-01"}, "before the year 1 or after 9999"),
            (None, {"endingVersion": "3"}, "INVALID_CDC_OPTION"),
        ),
    ],
)
def test_what_cannot_be_meant(
    spark: SparkSession, keyed: Table, clause: str | None, options: dict[str, str], message: str
) -> None:
    name = f"tidelog.`{keyed.path}`"

    def read() -> DataFrame:
        if clause:
            return spark.sql(f"SELECT * FROM {name} CHANGES {clause}")
        return spark.read.options(**options).changes(name)

    with pytest.raises(PySparkException) as caught:
        read().collect()
    assert message in str(caught.value)


@pytest.mark.full
def test_a_table_that_is_missing(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(PySparkException, match="TIDELOG_TABLE_NOT_FOUND"):
        spark.sql(f"SELECT * FROM tidelog.`{tmp_path}/nothing` CHANGES FROM VERSION 0")


def test_a_name_of_the_catalog(spark: SparkSession, tmp_path: Path) -> None:
    session = spark.newSession()
    session.conf.set("spark.sql.catalog.tidelog.warehouse", str(tmp_path))
    register(session)
    table = Table.create(f"{tmp_path}/sales/orders", NUMBERS)
    table.insert([{"n": 1}])
    assert session.sql("SELECT n FROM tidelog.sales.orders CHANGES FROM VERSION 1").collect() == [(1,)]
    session.sql("USE tidelog.sales")
    assert session.read.option("startingVersion", 1).changes("orders").select("n").collect() == [(1,)]


@pytest.mark.full
def test_a_name_of_sparks_catalog(spark: SparkSession, keyed: Table, tmp_path: Path) -> None:
    """In a session whose user asked for it; other tables have no changes."""
    session = spark.newSession()
    register(session)
    session.conf.set("spark.sql.catalog.spark_catalog", "tidelog.SessionCatalog")
    session.sql(f"CREATE TABLE tasks USING tidelog LOCATION '{keyed.path}'")
    session.sql("CREATE TABLE other (n INT) USING parquet")
    try:
        frame = session.sql("SELECT _change_type FROM tasks CHANGES FROM VERSION 4 TO VERSION 4")
        assert frame.collect() == [("delete",)]
        seen: list[Any] = []
        stream = session.readStream.option("startingVersion", 5).changes("default.tasks").select("k")
        drain(stream, lambda batch, _: seen.extend(batch.collect()), tmp_path / "cp")
        assert sorted(seen) == [(1,), (1,), (4,)]
        with pytest.raises(AnalysisException, match=r"UNSUPPORTED_FEATURE.CHANGE_DATA_CAPTURE"):
            session.sql("SELECT * FROM other CHANGES FROM VERSION 1")
    finally:
        session.sql("DROP TABLE tasks")
        session.sql("DROP TABLE other")


@pytest.mark.parametrize("count", [1, pytest.param(25, marks=pytest.mark.nightly)])
def test_random_histories_are_those_of_the_table(spark: SparkSession, tmp_path: Path, count: int) -> None:
    chosen = seed()
    for number in range(count):
        randomness = random.Random(f"{chosen} {number}")
        history = History(randomness, LocalStore(str(tmp_path / str(number))))
        history.run()
        table = Table.open(str(tmp_path / str(number)))
        for _ in range(2 if count == 1 else 8):
            compare(spark, table, randomness)


def compare(spark: SparkSession, table: Table, randomness: random.Random) -> None:
    """An interval by CHANGES, as `Table.changes` gives it."""
    start, end = sorted(randomness.choices(range(table.version + 1), k=2))
    has_start, has_end, is_net, of_times = (randomness.random() < 0.5 for _ in range(4))
    after, until = start - has_start, end - (not has_end)
    mode = "net" if is_net else "cdc"
    found = table.changes(after=after, until=max(after, until), mode=mode, keys=["k"] if is_net else ()).to_arrow()
    expected = counted(found)
    computes_updates = randomness.random() < 0.5
    if is_net and computes_updates and after >= 0:
        expected += counted(pre_images(table.at(version=after).scan().to_arrow(), found))
    name, points = "VERSION", [str(start), str(end)]
    if of_times:
        name, points = "TIMESTAMP", [f"'{table.at(version=version).timestamp.isoformat()}'" for version in (start, end)]
    bounds = [
        f"{word} {name} {point}{'' if included else ' EXCLUSIVE'}"
        for word, point, included in zip(("FROM", "TO"), points, (has_start, has_end), strict=True)
    ]
    mode_name = "netChanges" if is_net else randomness.choice(["none", "dropCarryovers"])
    keys = ", keys = 'k'" if is_net else ""
    options = f"deduplicationMode = '{mode_name}', computeUpdates = {computes_updates}{keys}"
    text = f"CHANGES {' '.join(bounds)} WITH ({options})"
    assert counted(spark.sql(f"SELECT * FROM tidelog.`{table.path}` {text}").toArrow()) == expected, text


def pre_images(before: pa.Table, net: pa.Table) -> pa.Table:
    """The rows before the interval of the keys that it updated, as changes of the version of their last one."""
    old = {row["k"]: row for row in before.to_pylist()}
    updates = [row for row in net.to_pylist() if row["_change_type"] == "update_postimage"]
    return pa.Table.from_pylist(
        [{**row, **old[row["k"]], "_change_type": "update_preimage"} for row in updates], net.schema
    )


# --- streams ----------------------------------------------------------------------------------------------------------


def test_a_stream_gives_each_change_once(spark: SparkSession, tmp_path: Path) -> None:
    """Over restarts, a micro-batch that runs again, compactions, which run none, and in the parts that limits make."""
    table = Table.create(str(tmp_path / "table"), NUMBERS)
    for n in (1, 2, 3):
        table.insert([{"n": n}])
    table.update("n = 2", {"n": "20"})
    checkpoint, seen = tmp_path / "cp", list[tuple[int, list[tuple[Any, ...]]]]()

    def run() -> list[tuple[int, list[tuple[Any, ...]]]]:
        seen.clear()
        stream = changes_stream(spark, table.path, startingVersion=2, maxFilesPerTrigger=1)
        narrow = stream.where("n <> 3").select("_change_type", "n")
        drain(narrow, lambda batch, number: seen.append((number, sorted(map(tuple, batch.collect())))), checkpoint)
        return seen

    images = [("update_postimage", 20), ("update_preimage", 2)]
    assert run() == [(0, [("insert", 2)]), (1, []), (2, images)]
    rewrite_all(table)
    assert run() == []
    table.delete("n = 1")
    assert forget_last_commit(checkpoint) == 2
    assert run() == [(2, images), (3, [("delete", 1)])]
    ends = json.loads((checkpoint / "offsets" / "3").read_text().splitlines()[2])
    assert ends["version"] == table.refresh().version


@pytest.mark.full
def test_a_stream_counts_its_rows_and_reads_the_columns_that_it_needs(spark: SparkSession, keyed: Table) -> None:
    stream = changes_stream(spark, keyed.path)
    query = (
        stream.groupBy("_change_type").count().writeStream.outputMode("complete").format("memory").queryName("kinds")
    )
    running = query.trigger(availableNow=True).start()
    running.awaitTermination()
    assert dict(spark.sql("SELECT * FROM kinds").collect()) == Counter(kind for _, kind, _ in EVERY)
    assert running.lastProgress
    (source,) = running.lastProgress["sources"]
    assert source["numInputRows"] == len(EVERY)
    assert json.loads(source["latestOffset"])["newestVersion"] == keyed.version
    (scan,) = [line for line in explained(running).splitlines() if "FeedScan" in line]
    assert "_change_type" in scan
    assert "_commit_version" not in scan


def explained(query: Any) -> str:
    return str(query._jsq.explainInternal(False))


@pytest.mark.full
def test_two_parts_of_a_query_read_other_columns_of_one_stream(spark: SparkSession, tmp_path: Path) -> None:
    """Spark exchanges rows once for parts of a plan that it takes for equal."""
    table = Table.create(str(tmp_path / "table"), pa.schema([("a", pa.int64()), ("b", pa.int64())]))
    table.insert([{"a": 1, "b": 2}, {"a": 2, "b": 3}])
    stream = changes_stream(spark, table.path)
    joined = stream.select("a").join(stream.select("b"), F.expr("a = b"))
    seen: list[tuple[Any, ...]] = []
    drain(joined, lambda batch, _: seen.extend(map(tuple, batch.collect())), tmp_path / "cp")
    assert seen == [(2, 2)]


@pytest.mark.full
def test_a_query_goes_on_from_the_checkpoint_of_the_format(spark: SparkSession, tmp_path: Path) -> None:
    """The offsets are the same, so a program can change over."""
    table = Table.create(str(tmp_path / "table"), NUMBERS)
    sink = Sink(str(tmp_path / "copy"))
    streams = itertools.cycle([feed(spark, table.path, changes="cdc"), changes_stream(spark, table.path)])
    for n, stream in zip(range(4), streams, strict=False):
        table.insert([{"n": n}])
        drain(stream.select("n"), sink, tmp_path / "cp")
        assert numbers_in(tmp_path / "copy") == list(range(n + 1))


@pytest.mark.full
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"deduplicationMode": "netChanges"}, "TIDELOG_CONFIGURATION: a stream cannot have the change mode 'net'"),
        ({"endingVersion": "3", "startingVersion": "1"}, "the option 'endingVersion' is for batch reads only"),
        ({"maxFilesPerTrigger": "0"}, "TIDELOG_CONFIGURATION: the option 'maxFilesPerTrigger' cannot be '0'"),
        ({"startingVersion": "99"}, "TIDELOG_HISTORY_RANGE: version 99 does not exist"),
    ],
)
def test_a_stream_that_cannot_be(
    spark: SparkSession, keyed: Table, tmp_path: Path, options: dict[str, str], message: str
) -> None:
    with pytest.raises((AnalysisException, StreamingQueryException, PySparkException)) as caught:
        drain(changes_stream(spark, keyed.path, **options), lambda *_: None, tmp_path / "cp")
    assert message in str(caught.value)


@pytest.mark.full
@pytest.mark.parametrize("way", [changes_stream, partial(feed, changes="cdc")])
def test_other_columns_stop_a_stream(
    spark: SparkSession, tmp_path: Path, way: Callable[[SparkSession, str], DataFrame]
) -> None:
    """Also those that came between the load and the start: Spark would read them as the old ones."""
    table = Table.create(str(tmp_path / "table"), NUMBERS)
    table.insert([{"n": 1}])
    stream = way(spark, table.path)
    table.add_columns([pa.field("note", pa.string())])
    table.insert([{"n": 2, "note": "x"}])
    seen: list[int] = []

    def take(batch: DataFrame, _: int) -> None:
        seen.extend(sorted(row["n"] for row in batch.collect()))

    with pytest.raises(StreamingQueryException, match="TIDELOG_SCHEMA_CHANGED"):
        drain(stream, take, tmp_path / "cp")
    assert seen == []
    drain(way(spark, table.path), take, tmp_path / "cp")
    assert seen == [1, 2]


@pytest.mark.full
def test_a_snapshot_in_parts_is_not_read_below_a_watermark(spark: SparkSession, tmp_path: Path) -> None:
    table = Table.create(str(tmp_path / "table"), NUMBERS)
    for n in (1, 2):
        table.insert([{"n": n}])
    options: dict[str, Any] = {"initialSnapshot": "true", "maxFilesPerTrigger": 1}
    stream = changes_stream(spark, table.path, **options)
    timed = stream.withWatermark("_commit_timestamp", "1 hour").groupBy(F.window("_commit_timestamp", "1 hour")).count()
    with pytest.raises(StreamingQueryException, match="the query has a watermark"):
        drain(timed, lambda *_: None, tmp_path / "cp")


@pytest.mark.full
def test_a_session_that_was_not_registered_says_so(spark: SparkSession, keyed: Table, tmp_path: Path) -> None:
    """It finds the catalog by a setting, and has no plan for the stream. Rows are never lost without a word."""
    session = spark.newSession()
    session.conf.set("spark.sql.catalog.tidelog", "tidelog.ChangesCatalog")
    assert session.read.changes(f"tidelog.`{keyed.path}`").count() == len(EVERY)
    with pytest.raises(StreamingQueryException, match=r"call tidelog\.register"):
        drain(changes_stream(session, keyed.path), lambda batch, _: batch.foreach(print), tmp_path / "cp")
