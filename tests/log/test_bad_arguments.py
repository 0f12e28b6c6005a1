"""Arguments beyond all bounds get a typed error, or mean the nearest value that makes sense."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import msgspec
import pyarrow as pa
import pytest

from tests.log.support import (
    Clock,
    live_files,
    memory_store,
    memory_url,
    new_table,
    numbers,
    put_foreign,
    read_numbers,
    remove,
    reopen,
)
from tidelog.compaction_daemon import Daemon, plan
from tidelog.log import Table
from tidelog.log.errors import (
    ConfigurationError,
    CorruptLogError,
    HistoryExpiredError,
    SchemaMismatchError,
    TidelogError,
)
from tidelog.log.format import properties
from tidelog.log.format.commit_info import MAX_TIMESTAMP_MS
from tidelog.log.read.timeline import to_timestamp_ms
from tidelog.log.system import to_datetime

HUGE = 10**30
NAIVE = datetime(2026, 1, 31)  # noqa: DTZ001 - what a newcomer passes
AWARE = datetime(2026, 1, 31, tzinfo=UTC)
EAST, WEST = timezone(timedelta(hours=14)), timezone(timedelta(hours=-14))
BEFORE, AFTER = datetime.min.replace(tzinfo=EAST), datetime.max.replace(tzinfo=WEST)


@pytest.fixture
def table() -> Table:
    made = new_table(memory_store())
    made.insert(numbers(range(3)))
    return made


# --- the clock -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("now_ms", [MAX_TIMESTAMP_MS + 1, 2**63 - 1, HUGE])
def test_a_clock_after_the_year_9999_commits_nothing(now_ms: int) -> None:
    clock = Clock()
    table = new_table(memory_store(), system=clock)
    table.insert(numbers([1]))
    clock.ms = now_ms
    changes: list[Callable[[], object]] = [
        lambda: table.insert(numbers([2])),
        lambda: table.set_properties({"x": 1}),
        table.truncate,
    ]
    for change in changes:
        with pytest.raises(ConfigurationError, match="not in the years 1970 to 9999"):
            change()
    assert (table.refresh().version, read_numbers(table)) == (1, [1])
    assert len(list(table.store.walk(live_files(table)[0].path[:2]))) == 1


def test_no_table_is_created_after_the_year_9999() -> None:
    clock = Clock()
    clock.ms = MAX_TIMESTAMP_MS + 1
    with pytest.raises(ConfigurationError, match="not in the years 1970 to 9999"):
        new_table(memory_store(), system=clock)


def test_a_clock_before_1970_counts_from_1970() -> None:
    clock = Clock()
    clock.ms = -(2**62)
    table = new_table(memory_store(), system=clock)
    table.insert(numbers([1]))
    assert [to_timestamp_ms(record.timestamp) for record in table.history()] == [2, 1]


def test_the_last_moment_of_the_year_9999_is_a_time() -> None:
    clock = Clock()
    clock.ms = MAX_TIMESTAMP_MS
    table = new_table(memory_store(), system=clock)
    assert table.history()[0].timestamp == to_datetime(MAX_TIMESTAMP_MS)
    with pytest.raises(ConfigurationError, match="not in the years 1970 to 9999"):
        table.insert(numbers([1]))


@pytest.mark.parametrize("at_ms", [-HUGE, -(2**63), MAX_TIMESTAMP_MS + 1, HUGE])
def test_a_time_beyond_pythons_calendar_is_its_end(at_ms: int) -> None:
    assert to_datetime(at_ms).year == (1 if at_ms < 0 else 9999)


# --- ages and times --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("age", [timedelta.max, timedelta(days=999_999), BEFORE], ids=repr)
def test_an_age_before_all_times_deletes_nothing(age: Any, table: Table) -> None:
    table.truncate()
    for dry_run in (False, True):
        assert not table.vacuum(older_than=age, dry_run=dry_run).files
    assert not table.expire(older_than=age).files


@pytest.mark.parametrize("age", [timedelta.min, AFTER], ids=repr)
def test_an_age_after_all_times_is_refused(age: Any, table: Table) -> None:
    for clean in (table.vacuum, table.expire):
        with pytest.raises(ConfigurationError, match="running transactions may need newer files"):
            clean(older_than=age)


@pytest.mark.parametrize("moment", [BEFORE, AFTER, "9999-12-31T23:59:59-14:00", "0001-01-01T00:00:00+14:00"], ids=repr)
def test_a_time_beyond_the_calendar_is_outside_the_history(moment: Any, table: Table) -> None:
    with pytest.raises(HistoryExpiredError):
        table.at(timestamp=moment)
    for change in (lambda: table.changes(after=moment), lambda: table.restore(timestamp=moment)):
        try:
            change()
        except HistoryExpiredError:
            continue


@pytest.mark.parametrize("n", [0, -1, 1.5, "x", True, None, datetime(2026, 1, 1, tzinfo=UTC)], ids=repr)
def test_the_nth_version_needs_a_number(n: Any, table: Table) -> None:
    for latest in (table.latest_version, table.latest_timestamp):
        with pytest.raises(ConfigurationError, match="must be a whole number from 1 on"):
            latest(n)


@pytest.mark.parametrize("n", [2**63, HUGE])
def test_there_are_not_so_many_versions(n: int, table: Table) -> None:
    for latest in (table.latest_version, table.latest_timestamp):
        with pytest.raises(HistoryExpiredError):
            latest(n)
    assert len(table.history(n)) == 2


@pytest.mark.parametrize("limit", [-1, 1.5, "x", True], ids=repr)
def test_the_limit_of_a_history_is_a_number(limit: Any, table: Table) -> None:
    with pytest.raises(ConfigurationError, match="limit must be a whole number from 0 on"):
        table.history(limit)


# --- properties ------------------------------------------------------------------------------------------------------

NUMBERS_OF = {
    "2^63-1": str(2**63 - 1),
    "2^63": str(2**63),
    "30 digits": str(HUGE),
    "5,000 digits": "9" * 5_000,
}


@pytest.mark.parametrize("digits", NUMBERS_OF)
def test_large_properties_mean_as_much_as_possible(digits: str) -> None:
    number = NUMBERS_OF[digits]
    table = new_table(
        memory_store(),
        properties={
            "tidelog.targetFileSize": f"{number} gib",
            "delta.checkpointInterval": number,
            "delta.dataSkippingNumIndexedCols": number,
            "delta.deletedFileRetentionDuration": f"{number} days",
            "delta.logRetentionDuration": f"interval {number} weeks",
            "tidelog.maxTransactionTime": f"{number} days",
            "tidelog.minorSpan": f"{number} weeks",
        },
    )
    for number_of_insert in range(4):
        table.insert(numbers([number_of_insert]))
    assert table.scan(where="n > 0").count() == 3
    table.debt()
    plan(table)
    assert table.compact(level="minor").did_anything
    assert not table.compact(level="major").did_anything
    assert not table.vacuum().files
    assert not table.expire().files
    with pytest.raises(ConfigurationError, match="running transactions may need newer files"):
        table.vacuum(older_than=timedelta(days=1))


@pytest.mark.parametrize("text", ["\u00b2", "-1", "1e9", "", "9" * 300 + "x"])
def test_a_property_that_is_no_number_says_what_it_must_be(text: str) -> None:
    for key in (properties.TARGET_FILE_SIZE, properties.CHECKPOINT_INTERVAL, properties.MINOR_SPAN):
        with pytest.raises(ConfigurationError, match="it must be a") as raised:
            properties.validate({key: text})
        assert len(str(raised.value)) < 500


# --- text that no log can hold ---------------------------------------------------------------------------------------

HALF = "\ud800"
TEXTS: dict[str, Callable[[Table], object]] = {
    "property": lambda table: table.set_properties({"x": HALF}),
    "name of a property": lambda table: table.set_properties({HALF: "x"}),
    "property of a new table": lambda _: new_table(memory_store(), properties={"x": HALF}),
    "key": lambda table: table.insert(numbers([1]), idempotency_key=(HALF, 1)),
    "value": lambda table: table.insert([{"n": 1, "t": HALF}]),
    "nested value": lambda table: table.upsert([{"n": HALF}], keys=["n"]),
    "columns": lambda table: table.scan(columns=[HALF]).count(),
}


@pytest.mark.parametrize("name", TEXTS)
def test_half_of_a_surrogate_pair_is_refused(name: str, table: Table) -> None:
    with pytest.raises(TidelogError):
        TEXTS[name](table)
    assert table.refresh().version == 1


# --- dates outside of Python's years ---------------------------------------------------------------------------------

DAYS = pa.array([2_932_897, -719_163], pa.int32()).cast(pa.date32())
MOMENTS = pa.array([253_402_300_800_000_000, -62_135_596_800_000_001], pa.int64()).cast(pa.timestamp("us", "UTC"))


@pytest.mark.parametrize("values", [DAYS, MOMENTS, MOMENTS.cast(pa.timestamp("us"))], ids=["date", "zoned", "ntz"])
def test_a_partition_cannot_be_outside_of_pythons_years(values: pa.Array) -> None:
    schema = pa.schema([("n", pa.int64()), ("p", values.type)])
    table = new_table(memory_store(), schema, partition_by=["p"])
    for row in range(2):
        data = pa.table({"n": [0, 1], "p": pa.concat_arrays([pa.nulls(1, values.type), values.slice(row, 1)])})
        writes: list[Callable[[pa.Table], object]] = [
            table.insert,
            table.overwrite,
            lambda rows: table.overwrite(rows, dynamic=True),
            lambda rows: table.upsert(rows, keys=["n"]),
        ]
        for write in writes:
            with pytest.raises(SchemaMismatchError, match=r"'p' has the value (10000-01-01|0000-12-31)"):
                write(data)
    assert table.refresh().version == 0
    assert not [path for path, _ in table.store.walk() if path.endswith(".parquet")]


def test_other_columns_can_be_outside_of_pythons_years() -> None:
    table = new_table(memory_store(), pa.schema([("n", pa.int64()), ("d", DAYS.type), ("t", MOMENTS.type)]))
    data = pa.table({"n": [0, 1], "d": DAYS, "t": MOMENTS})
    for keys in (["n"], ["d"], ["t"]):
        table.upsert(data, keys=keys)
        assert table.scan().to_arrow().equals(data)
    table.delete("d > '9999-12-31'")
    assert table.scan().to_arrow().equals(data.slice(1))
    assert table.changes(mode="net", keys=["d", "t"]).to_arrow().num_rows == 1


def test_sizes_of_63_bits_in_a_log_are_numbers() -> None:
    table = new_table(memory_store())
    for number in range(2):
        table.insert(numbers([number]))
    adds = live_files(table)
    put_foreign(table, *map(remove, adds), *(msgspec.structs.replace(add, size=2**63 - 1) for add in adds))
    assert table.refresh().debt().small_files == 0
    for level in ("minor", "major"):
        plan(table, level=level)
        table.compact(level=level)
    table.insert(numbers([2]))
    table.checkpoint()
    assert read_numbers(reopen(table)) == [0, 1, 2]
    checksums = [table.store.read(path) for path, _ in table.store.walk() if path.endswith(".crc")]
    assert all(json.loads(content)["tableSizeBytes"] < 2**63 for content in checksums)


ENDLESS, DIGITS = 10**5000, "9" * 5000


@pytest.mark.parametrize(
    "act",
    [
        lambda table: table.at(version=ENDLESS),
        lambda table: table.at(version=-ENDLESS),
        lambda table: table.at(timestamp=ENDLESS),
        lambda table: table.restore(version=ENDLESS),
        lambda table: table.changes(after=ENDLESS).to_arrow(),
        lambda table: table.changes(until=ENDLESS).to_arrow(),
        lambda table: table.latest_version(ENDLESS),
        lambda table: table.latest_version(-ENDLESS),
        lambda table: table.history(-ENDLESS),
        lambda table: table.compact(growth=ENDLESS),
        lambda table: table.latest_timestamp(ENDLESS),
        lambda table: table.insert([], idempotency_key=("app", ENDLESS)),
        lambda table: table.upsert([{"n": 1}], keys=[ENDLESS]),
        lambda table: table.insert([{"n": ENDLESS}]),
        lambda table: table.expire(older_than=ENDLESS),
        lambda table: table.vacuum(older_than=ENDLESS),
        lambda table: table.set_properties({"delta.checkpointInterval": ENDLESS}),
        lambda table: table.set_properties({"mine": ENDLESS}),
        lambda table: table.set_properties({"delta.columnMapping.maxColumnId": ENDLESS}),
        lambda table: table.delete(f"n = CAST(1 AS DECIMAL({DIGITS}, 1))"),
    ],
)
def test_an_integer_that_python_does_not_spell_gets_a_typed_error(act: Callable[[Table], Any], table: Table) -> None:
    version = table.version
    with pytest.raises(TidelogError) as caught:
        act(table)
    assert len(str(caught.value)) < 1000
    assert reopen(table).version == version


@pytest.mark.parametrize("where", [f"n = {DIGITS}", f"n < -{DIGITS}", f"n IN ({DIGITS})", f"n = {DIGITS}e9"])
def test_a_constant_of_5000_digits_equals_no_number(where: str, table: Table) -> None:
    assert table.scan(where).count() == 0


@pytest.mark.parametrize("text", [DIGITS, "x"])
def test_an_id_of_a_column_that_is_no_number_is_a_corrupt_log(text: str, table: Table) -> None:
    mapping = {"delta.columnMapping.mode": "name", "delta.columnMapping.maxColumnId": text}
    found = table._state.head.metadata
    fields = json.loads(found.schema_string)["fields"]
    for number, field in enumerate(fields, 1):
        field["metadata"] = {"delta.columnMapping.id": number, "delta.columnMapping.physicalName": field["name"]}
    schema_string = json.dumps({"type": "struct", "fields": fields})
    put_foreign(
        table,
        msgspec.structs.replace(found, schema_string=schema_string, configuration={**found.configuration, **mapping}),
    )
    with pytest.raises(CorruptLogError, match="the ids of columns"):
        reopen(table).add_columns([pa.field("z", pa.int64())])


# --- a newcomer's mistakes -------------------------------------------------------------------------------------------

COLUMNS = pa.schema(
    [("k", pa.int64()), ("day", pa.date32()), ("at", pa.timestamp("us", "UTC")), ("local", pa.timestamp("us"))]
)


@pytest.mark.parametrize(
    ("call", "message", "advice"),
    [
        (lambda table: Table(table.path), "a Table is not made from its path alone", "call Table.open(path)"),  # type: ignore[call-arg]
        (
            lambda table: table.scan(columns=5),
            "columns must be a list of column names, not int",
            "columns=['k', 'day']",
        ),
        (lambda table: table.delete("day = 2026-01-31"), "do not match", "write a date in quotes, as in '2026-01-31'"),
        (lambda table: table.delete("day > 2026-1-3"), "do not match", "write a date in quotes, as in '2026-01-03'"),
        (lambda table: table.insert(pa.table({"at": [NAIVE]})), "timestamp[us] in the data", "replace(tzinfo=UTC)"),
        (lambda table: table.insert(pa.table({"local": [AWARE]})), "tz=UTC] in the data", "replace(tzinfo=None)"),
        (lambda table: table.set_properties({"targetFileSize": 1}), "would have no effect", "'tidelog.targetFileSize'"),
        (lambda table: table.set_properties({"TIDELOG.primarykey": "k"}), "no effect", "'tidelog.primaryKey'"),
        (lambda table: table.set_properties({"Delta.appendonly": True}), "no effect", "'delta.appendOnly'"),
        (lambda table: table.set_properties({"tidelog.primaryKey": ["k"]}), "cannot be ['k']", "commas separate names"),
        (lambda table: Table.open(table.path, storage_options="key"), "must be a dict, not str", "endpoint_url"),  # type: ignore[arg-type]
        (lambda _: Table.open("s3:/bucket/events"), "s3:/bucket/events has no bucket", "s3://bucket/folder"),
        (lambda table: Daemon([table], config={"interval_s": 1}), "a DaemonConfig, not dict", "DaemonConfig("),  # type: ignore[arg-type]
    ],
)
def test_the_error_says_what_to_do(call: Callable[[Table], object], message: str, advice: str) -> None:
    table = Table.create(memory_url(), COLUMNS)
    with pytest.raises(TidelogError) as raised:
        call(table)
    assert message in raised.value.message
    assert advice in raised.value.advice


def test_a_key_with_an_own_prefix_is_the_user_s() -> None:
    own = {"team.targetFileSize": "big", "owner": "me"}
    assert own.items() <= Table.create(memory_url(), COLUMNS, properties=own).properties.items()
