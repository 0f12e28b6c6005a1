"""Of a large checkpoint, only the row groups are read whose partitions a predicate can match."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from tests.log.support import PROTOCOL, add, memory_store, metadata, put_commit, put_vector, remove
from tidelog.log import Table, predicate
from tidelog.log.errors import PredicateError
from tidelog.log.format import filenames, seal
from tidelog.log.pruning import file_pruning
from tidelog.log.state import checkpoint_reader, checkpoint_writer, checkpointing
from tidelog.log.state.files import FileState
from tidelog.log.state.loader import LogState, load
from tidelog.log.storage.memory import MemoryStore
from tidelog.log.system import REAL_SYSTEM

FILES = 400
DAY = dt.date(2026, 1, 1)
SCHEMA = pa.schema([("n", pa.int64()), ("day", pa.date32()), ("city", pa.string())])


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoint_writer, "GROUPED_FILES", 10)


@pytest.fixture
def read_groups(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many row groups each call has read."""
    counts: list[int] = []
    inner = checkpoint_reader._read_groups

    def count(parquet: Any, groups: list[int], *others: Any, **more: Any) -> Any:
        counts.append(len(groups))
        return inner(parquet, groups, *others, **more)

    monkeypatch.setattr(checkpoint_reader, "_read_groups", count)
    return counts


def partitioned(
    values: Callable[[int], dict[str, str | None]], schema: pa.Schema = SCHEMA, by: tuple[str, ...] = ("day", "city")
) -> MemoryStore:
    """A table with one file for each number, in the order of the numbers, and a checkpoint of it."""
    store = memory_store()
    put_commit(store, 0, metadata(schema, partition_columns=by), PROTOCOL)
    stats = [json.dumps({"numRecords": 1, "minValues": {"n": n}, "maxValues": {"n": n}}) for n in range(FILES)]
    put_commit(
        store,
        1,
        *(
            add(f"part-{n}", partition_values=values(n), stats=text)
            for n, text in zip(range(FILES), stats, strict=True)
        ),
    )
    checkpointing.checkpoint(store, load(store), REAL_SYSTEM)
    return store


def by_day_and_city(number: int) -> dict[str, str | None]:
    day = DAY + dt.timedelta(days=number % 20)
    return {"day": None if number % 20 == 7 else day.isoformat(), "city": "abc"[number % 3]}


def within(state: LogState, where: str) -> list[str]:
    """The files that a scan would open."""
    schema = Table(state._store, state).schema
    found = file_pruning.prune_state(state, predicate.parse(where, schema), schema, state.head.metadata)
    paths: list[str] = found.files["path"].to_pylist()
    return paths


def of_all(store: MemoryStore, where: str) -> list[str]:
    """The same with all files loaded."""
    state = load(store)
    state.files()
    return within(state, where)


@pytest.mark.parametrize(
    ("where", "few"),
    [
        ("day = DATE '2026-01-05'", True),
        ("day = DATE '2026-01-05' AND city = 'b'", True),
        ("day IN (DATE '2026-01-05', DATE '2026-01-06') AND n > 100", True),
        ("day IS NULL", True),
        ("day > DATE '2026-01-19'", True),
        ("day = DATE '2027-01-01'", True),
        ("NOT (day <> DATE '2026-01-05')", True),
        ("city = 'b'", False),
        ("n = 5", False),
        ("day = DATE '2026-01-05' OR n = 5", False),
    ],
)
def test_it_finds_what_all_files_give(where: str, few: bool, read_groups: list[int]) -> None:
    store = partitioned(by_day_and_city)
    expected = of_all(store, where)
    read_groups.clear()
    assert within(load(store), where) == expected
    assert (read_groups[-1] <= 10) == few


def test_files_of_a_partition_keep_their_order_and_all_are_there() -> None:
    store = partitioned(by_day_and_city)
    state = load(store)
    assert sorted(state.files().adds["path"].to_pylist()) == sorted(f"part-{n}" for n in range(FILES))
    for number in range(60):
        values = by_day_and_city(number)
        day = "day IS NULL" if values["day"] is None else f"day = DATE '{values['day']}'"
        expected = [f"part-{n}" for n in range(FILES) if by_day_and_city(n) == values]
        assert within(load(store), f"{day} AND city = '{values['city']}'") == expected


def test_commits_after_the_checkpoint_count(read_groups: list[int]) -> None:
    store = partitioned(by_day_and_city)
    values = by_day_and_city(4)
    first, second = (put_vector(store, [row], f"{row}.bin") for row in (1, 2))
    put_commit(store, 2, remove(add("part-4", partition_values=values)), add("new", partition_values=values))
    old = add("part-64", partition_values=values)
    put_commit(store, 3, remove(old), add("part-64", partition_values=values, deletion_vector=first))
    state = load(store, 3)
    put_commit(
        store,
        4,
        remove(add("part-64", partition_values=values, deletion_vector=first)),
        add("part-64", partition_values=values, deletion_vector=second),
        remove(add("part-0", partition_values=by_day_and_city(0))),
    )
    where = f"day = DATE '{values['day']}' AND city = '{values['city']}'"
    expected = [f"part-{n}" for n in range(FILES) if by_day_and_city(n) == values and n != 4] + ["new"]
    for found in (load(store), Table(store, state).refresh().at().state):
        read_groups.clear()
        assert within(found, where) == expected
        assert len(read_groups) == 1
    assert within(load(store), where) == of_all(store, where)


VALUES: dict[str, tuple[pa.DataType, list[str | None], str]] = {
    "long": (pa.int64(), [str(n - 10) for n in range(20)], "p = -3"),
    "double": (pa.float64(), ["NaN", "Infinity", "-0.0", "0.0", "1.5", "-7.25", None], "p = 1.5"),
    "nan": (pa.float64(), ["NaN", "1.5"], "p > 2"),
    "boolean": (pa.bool_(), ["true", "false", None], "p = true"),
    "timestamp": (
        pa.timestamp("us", "UTC"),
        [f"2026-01-01 00:00:00.{n:06}" for n in range(0, 4000, 100)],
        "p = TIMESTAMP '2026-01-01 00:00:00.0012Z'",
    ),
    "decimal": (pa.decimal128(10, 2), [str(Decimal(n) / 100) for n in range(-20, 20)], "p = 0.05"),
    "text": (pa.string(), ["", "a", "B", "é", "\U0001f600", "z" * 50, "z" * 49 + "y", None], "p > 'y'"),
    "binary": (pa.binary(), ["a", "b", None], "p IS NOT NULL"),
}


@pytest.mark.parametrize("kind", VALUES)
def test_every_type_of_partition_column(kind: str) -> None:
    arrow, texts, where = VALUES[kind]
    schema = pa.schema([("n", pa.int64()), ("p", arrow)])
    store = partitioned(lambda number: {"p": texts[number % len(texts)]}, schema, ("p",))
    for each in (where, f"NOT ({where})", "p IS NULL", f"{where} AND n < 100"):
        assert sorted(within(load(store), each)) == sorted(of_all(store, each))


def test_an_unreadable_value_leaves_the_order_as_it_is() -> None:
    store = partitioned(lambda number: {"day": "no day" if number == 3 else "2026-01-01", "city": "abc"[number % 3]})
    assert load(store).files().adds["path"].to_pylist() == [f"part-{n}" for n in range(FILES)]
    assert within(load(store), "city = 'b'") == of_all(store, "city = 'b'")


def test_damage_where_it_reads_is_found_and_elsewhere_is_not_read() -> None:
    store = partitioned(by_day_and_city)
    where = "day = DATE '2026-01-01'"
    expected = of_all(store, where)
    path = filenames.checkpoint_path(1)
    content = store.read(path)
    found = seal.seal_of_parquet(pa.BufferReader(content), 1)
    assert found is not None
    ends = [end for end, _ in found.parts]
    for place, is_read in ((ends[1] - 5, True), (ends[-1] - 5, False), (len(content) - 50, True)):
        damaged = bytearray(content)
        damaged[place] ^= 1
        store.replace(path, bytes(damaged))
        state = load(store)
        # The commits are still there, so a damaged checkpoint costs time only.
        assert sorted(within(state, where)) == sorted(expected)
        assert isinstance(state._base, FileState) == is_read


def test_a_version_is_read_whole_in_the_end(read_groups: list[int]) -> None:
    state = load(partitioned(by_day_and_city))
    read_groups.clear()
    for _ in range(40):
        within(state, "day = DATE '2026-01-05'")
    assert len(read_groups) == 17
    assert read_groups[-1] > 10


def test_a_wrong_predicate_is_an_error() -> None:
    with pytest.raises(PredicateError):
        within(load(partitioned(by_day_and_city)), "dya = DATE '2026-01-05'")


def test_what_a_scan_explains() -> None:
    table = Table.open(partitioned(by_day_and_city).url)
    assert table.scan("day = DATE '2026-01-05' AND n < 10").explain().splitlines()[:3] == [
        "files: 1 of 400",
        "dropped by partition values: 380",
        "dropped by statistics: 19",
    ]


def test_a_long_lived_table_does_not_read_the_log_each_time(read_groups: list[int]) -> None:
    store = partitioned(by_day_and_city)
    table = Table(store, load(store))
    for version in range(2, 30):
        put_commit(store, version, add(f"new-{version}", partition_values=by_day_and_city(version)))
        assert within(table.refresh().at().state, "day = DATE '2026-01-05'")
    assert read_groups[-1] > 10, "all were read in the end"
