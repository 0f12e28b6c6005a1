"""Net changes of keys that are not unique: the net effect is right, or it is a DuplicateKeyError."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from tests.log.support import live_files, memory_store, new_table, stage_compaction
from tests.randomness import seed
from tidelog.log import Table
from tidelog.log.errors import DuplicateKeyError
from tidelog.log.read.net_changes import net_changes

SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.int64())])
HISTORIES = 25


def table_with(*rows: tuple[int, int], **properties: object) -> Table:
    table = new_table(memory_store(), SCHEMA, properties={"tidelog.primaryKey": "k", **properties})
    table.insert([{"k": key, "v": value} for key, value in rows])
    return table


def net(table: Table, after: int, until: int | None = None) -> list[tuple[int, int, str]]:
    found = table.changes(after=after, until=until, mode="net").to_arrow().sort_by("k")
    return list(zip(found["k"].to_pylist(), found["v"].to_pylist(), found["_change_type"].to_pylist(), strict=True))


@pytest.mark.parametrize("feed", [False, True])
@pytest.mark.parametrize(
    "statements",
    [
        ["insert 1 20", "delete 10"],
        ["insert 1 20", "delete 10", "insert 1 30"],
        ["insert 1 20", "update 10 11"],
        ["insert 1 20", "update 20 21", "delete 10"],
        ["insert 1 20", "insert 1 30"],
        ["insert 1 20", "upsert 1 30"],
    ],
    ids=", ".join,
)
def test_two_rows_of_a_key_at_once_are_an_error(statements: list[str], feed: bool) -> None:
    table = table_with((1, 10), (2, 10_000), **{"delta.enableChangeDataFeed": feed})
    start = table.version
    for statement in statements:
        run(table, *statement.split())
    with pytest.raises(DuplicateKeyError, match=r"the key \{'k': 1\}"):
        net(table, start)


def test_a_row_that_was_deleted_and_inserted_again_is_one_row() -> None:
    table = table_with((1, 10))
    start = table.version
    run(table, "delete", "10")
    run(table, "insert", "1", "10")
    assert net(table, start) == []
    run(table, "delete", "10")
    run(table, "insert", "1", "20")
    assert net(table, start) == [(1, 20, "update_postimage")]


def test_updates_with_the_rows_before_them() -> None:
    """As Spark defines net changes with computeUpdates."""
    table = table_with((1, 10), (2, 20), (3, 30))
    start = table.version
    for statement in ("update 10 11", "delete 20", "insert 4 40", "delete 30", "insert 3 31", "update 11 12"):
        run(table, *statement.split())
    found = net_changes(table.changes(after=start).to_arrow(), ["k"], "table", pre_images=True)
    columns = [found[name].to_pylist() for name in ("k", "v", "_change_type", "_commit_version")]
    assert list(zip(*columns, strict=True)) == [
        (2, 20, "delete", start + 2),
        (4, 40, "insert", start + 3),
        (3, 30, "update_preimage", start + 5),
        (3, 31, "update_postimage", start + 5),
        (1, 10, "update_preimage", start + 6),
        (1, 12, "update_postimage", start + 6),
    ]


def test_a_row_that_no_commit_of_the_interval_touches_is_not_seen() -> None:
    """Documented: the primary key is a declaration, and `net` reads changes only."""
    table = table_with((1, 10))
    start = table.version
    run(table, "insert", "1", "20")
    assert net(table, start) == [(1, 20, "insert")]


def test_rows_are_compared_by_value_also_where_python_has_no_such_value() -> None:
    """Dates after the year 9999, NaN, -0.0, nulls, and all of them nested."""
    date, moment = pa.date32(), pa.timestamp("us", "UTC")
    late = pa.array([2_932_897], pa.int32()).cast(date)
    later = pa.array([2**60], pa.int64()).cast(moment)
    nested = pa.struct([("d", date), ("ts", pa.list_(moment)), ("f", pa.float64())])
    first = pa.table(
        {
            "k": [1],
            "d": late,
            "t": later,
            "f": [float("nan")],
            "z": [0.0],
            "n": pa.array([None], pa.string()),
            "s": pa.StructArray.from_arrays(
                [late, pa.ListArray.from_arrays([0, 1], later), pa.array([float("nan")])], fields=list(nested)
            ),
        }
    )
    table = new_table(memory_store(), first.schema, properties={"tidelog.primaryKey": "k"})
    table.insert(first)
    start = table.version
    table.delete("k = 1")
    table.insert(first.set_column(4, "z", pa.array([-0.0])))
    assert table.changes(after=start, mode="net").to_arrow().num_rows == 0
    other = pa.StructArray.from_arrays(
        [late, pa.ListArray.from_arrays([0, 1], later), pa.array([1.0])], fields=list(nested)
    )
    table.delete("k = 1")
    table.insert(first.set_column(6, "s", other))
    assert table.changes(after=start, mode="net").to_arrow()["_change_type"].to_pylist() == ["update_postimage"]


def test_an_error_can_name_a_date_that_python_lacks() -> None:
    table = new_table(memory_store(), pa.schema([("d", pa.date32()), ("v", pa.int64())]))
    day = pa.array([2_932_897], pa.int32()).cast(pa.date32())
    for value in (1, 2):
        table.insert(pa.table({"d": day, "v": [value]}))
    with pytest.raises(DuplicateKeyError, match="10000-01-01"):
        table.changes(mode="net", keys=["d"]).to_arrow()
    with pytest.raises(DuplicateKeyError, match="10000-01-01"):
        table.upsert(pa.table({"d": pa.concat_arrays([day, day]), "v": [1, 2]}), keys=["d"])


# --- random histories, compared with a model -------------------------------------------------------------------------


def test_net_changes_of_random_histories_equal_the_model() -> None:
    """The model has every row that was ever there, by its value, which is never used twice."""
    randomness = random.Random(seed())
    outcomes = {"error": 0, "rows": 0}
    for _ in range(HISTORIES):
        table = table_with(**{"delta.enableDeletionVectors": randomness.random() < 0.7})
        states = dict(history(table, randomness))
        versions = sorted(states)
        for after, until in itertools.combinations(versions, 2):
            expected = model([states[version] for version in versions if after <= version <= until])
            if expected is None:
                outcomes["error"] += 1
                with pytest.raises(DuplicateKeyError):
                    net(table, after, until)
            else:
                outcomes["rows"] += len(expected)
                assert net(table, after, until) == expected
    assert min(outcomes.values()) > HISTORIES, outcomes


def history(table: Table, randomness: random.Random) -> Iterator[tuple[int, dict[int, int]]]:
    """Run statements on few keys; yield each version with its rows, as value: key."""
    values = itertools.count(1)
    rows: dict[int, int] = {}
    yield table.version, dict(rows)
    for _ in range(randomness.randrange(2, 8)):
        key = randomness.randrange(3)
        value = randomness.choice([*rows, 0])
        match randomness.choice(["insert", "insert", "delete", "update", "upsert", "compact"]):
            case "insert":
                rows[run(table, "insert", str(key), str(next(values)))] = key
            case "delete" if value:
                run(table, "delete", str(value))
                del rows[value]
            case "update" if value:
                rows[run(table, "update", str(value), str(next(values)))] = rows.pop(value)
            case "upsert":
                rows = {old: other for old, other in rows.items() if other != key}
                rows[run(table, "upsert", str(key), str(next(values)))] = key
            case _:
                if rows:
                    stage_compaction(table, live_files(table)).commit()
                table.refresh()
        yield table.version, dict(rows)


def run(table: Table, statement: str, *numbers: str) -> int:
    """Run a statement; return the last number, the value of the row that it wrote."""
    given: list[Any] = [int(number) for number in numbers]
    match statement:
        case "insert":
            table.insert([{"k": given[0], "v": given[1]}])
        case "delete":
            table.delete(f"v = {given[0]}")
        case "update":
            table.update(f"v = {given[0]}", {"v": str(given[1])})
        case _:
            table.upsert([{"k": given[0], "v": given[1]}], keys=["k"])
    return int(given[-1])


def model(states: list[dict[int, int]]) -> list[tuple[int, int, str]] | None:
    """The net effect, from the states of an interval; None if a key has several of its touched rows at once."""
    untouched = set.intersection(*(set(state) for state in states))
    by_key: list[dict[int, int]] = []
    for state in states:
        touched = {value: key for value, key in state.items() if value not in untouched}
        if len(set(touched.values())) < len(touched):
            return None
        by_key.append({key: value for value, key in touched.items()})
    before, after = by_key[0], by_key[-1]
    effects = [(key, value, "delete") for key, value in before.items() if key not in after]
    effects += [
        (key, value, "update_postimage" if key in before else "insert")
        for key, value in after.items()
        if before.get(key) != value
    ]
    return sorted(effects)
