"""`current_timestamp()` is one moment for a whole statement: in all its files, tasks and attempts."""

from __future__ import annotations

import datetime as dt

import pyarrow as pa
import pytest

from tests.log.support import memory_store, new_table
from tidelog.log import Table, predicate
from tidelog.log.errors import ConflictError, PredicateError
from tidelog.log.predicate import at_time, require_syntax
from tidelog.log.system import System

SCHEMA = pa.schema([("id", pa.int64()), ("t", pa.timestamp("us", tz="UTC")), ("d", pa.date32()), ("s", pa.string())])
NOW_MS = 1_600_000_000_000  # 2020-09-13 12:26:40
NOW = "TIMESTAMP '2020-09-13 12:26:40.000000Z'"


class Ticking(System):
    """A clock that moves on by an hour whenever it is read."""

    def __init__(self) -> None:
        self.now = NOW_MS

    def now_ms(self) -> int:
        self.now += 3_600_000
        return self.now


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("t > current_timestamp()", f"t > {NOW}"),
        ("t > CURRENT_TIMESTAMP", f"t > CURRENT_TIMESTAMP /* {NOW} */"),
        ("t > now ( ) - INTERVAL 1 DAY", f"t > {NOW} - INTERVAL 1 DAY"),
        ("d = current_date OR d = curdate()", "d = current_date /* DATE '2020-09-13' */ OR d = DATE '2020-09-13'"),
        ("localtimestamp() > t", "TIMESTAMP_NTZ '2020-09-13 12:26:40.000000' > t"),
        ("s = 'current_date' AND s = \"now()\"", "s = 'current_date' AND s = \"now()\""),
        ("`current_date` = 1 AND st.current_date = 1", "`current_date` = 1 AND st.current_date = 1"),
        ("now = 1 OR current_timestamp(3) = t", "now = 1 OR current_timestamp(3) = t"),
        ("s = 'never ends, current_date", "s = 'never ends, current_date"),
        ("s = r'current_date' -- current_date", "s = r'current_date' -- current_date"),
        ("id = 1", "id = 1"),
    ],
)
def test_the_time_takes_the_place_of_the_function(text: str, expected: str) -> None:
    assert at_time(text, lambda: NOW_MS) == expected
    assert at_time(expected, lambda: NOW_MS + 1) == expected


@pytest.mark.parametrize("name", ["current_date", "Current_Date", "CURRENT_TIMESTAMP"])
def test_a_column_wins_against_a_function_without_parentheses(name: str) -> None:
    with_column = pa.schema([*SCHEMA, (name, pa.date32())])
    for text in (f"d < {name.lower()}", f"d < {name} /* why */", f"d < `{name}`"):
        assert predicate.columns(predicate.parse(at_time(text, lambda: NOW_MS), with_column)) == {"d", name}
    call = predicate.parse(at_time(f"d < {name}()", lambda: NOW_MS), with_column)
    bare = predicate.parse(at_time(f"d < {name}", lambda: NOW_MS), SCHEMA)
    assert call == bare
    assert predicate.columns(bare) == {"d"}


def test_the_time_of_a_bare_name_is_no_word_of_the_text() -> None:
    """Comments make each word inside of texts count, so that a long list would be refused."""
    many = ", ".join(f"'{number} x'" for number in range(6_000))
    text = at_time(f"d < current_date AND s IN ({many})", lambda: NOW_MS)
    for schema in (SCHEMA, pa.schema([*SCHEMA, ("current_date", pa.date32())]), None):
        if schema is None:
            require_syntax(text)
        else:
            predicate.parse(text, schema)


def test_a_predicate_without_a_time_is_refused() -> None:
    with pytest.raises(PredicateError, match="current_timestamp\\(\\) has no value here"):
        predicate.parse("t > current_timestamp", SCHEMA)
    require_syntax("t > now() - INTERVAL 1 HOUR")
    assert at_time(None, lambda: NOW_MS) is None


@pytest.fixture
def table() -> Table:
    made = new_table(memory_store(), SCHEMA, system=Ticking())
    for number in range(3):
        made.insert([{"id": number, "t": None}])
    return made


def test_all_rows_of_a_statement_have_the_same_time(table: Table) -> None:
    table.update("t IS NULL AND now() = now()", {"t": "current_timestamp()", "d": "current_date", "s": "'' || now()"})
    rows = table.scan().to_arrow()
    assert len(set(rows["t"].to_pylist())) == len(set(rows["s"].to_pylist())) == 1
    assert rows["d"].to_pylist() == [moment.date() for moment in rows["t"].to_pylist()]
    assert table.scan("t < now()").count() == 3
    assert table.scan("t < now() - INTERVAL 10 YEARS").count() == 0
    assert table.at().scan("d <= current_date()").count() == 3
    assert table.changes(where="t < now()").to_arrow().num_rows == 3
    table.upsert([{"id": 0, "t": dt.datetime(2020, 1, 1, tzinfo=dt.UTC)}], keys=["id"], delete_where="t < now()")
    table.delete("t < now()")
    assert table.scan().count() == 0


def test_another_attempt_and_the_log_have_the_time_of_the_statement(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    staged: list[str] = []
    begin = Table._begin

    def recorded(self: Table) -> object:
        transaction = begin(self)
        delete = transaction.delete

        def fails_once(where: str) -> object:
            staged.append(where)
            if len(staged) == 1:
                raise ConflictError("another commit came first")
            return delete(where)

        monkeypatch.setattr(transaction, "delete", fails_once)
        return transaction

    monkeypatch.setattr(Table, "_begin", recorded)
    table.delete("t > current_timestamp()")
    assert len(staged) == 2
    assert staged[0] == staged[1]
    assert staged[0].startswith("t > TIMESTAMP '2020-09-1")


def test_partitions_are_chosen_by_the_time() -> None:
    made = new_table(memory_store(), SCHEMA, partition_by=["d"])
    made.insert([{"id": 1, "d": dt.date(2020, 1, 1)}, {"id": 2, "d": dt.date(2999, 1, 1)}])
    made.truncate(where="d < current_date - INTERVAL 1 YEAR")
    assert made.scan().to_arrow()["id"].to_pylist() == [2]
    made.overwrite([{"id": 3, "d": dt.date(2999, 1, 1)}], where="d > current_date()")
    assert made.scan().to_arrow()["id"].to_pylist() == [3]
    assert made.at().files("d > now()").num_rows == 1
