"""CHECK constraints, invariants and NOT NULL: a row that breaks one fails the whole statement."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Mapping
from typing import Any

import msgspec
import pyarrow as pa
import pytest

from tests.log.rules.support import default, generated, invariant, rows_of, ruled_table
from tests.log.support import put_foreign
from tidelog.log import Table
from tidelog.log.errors import (
    ConfigurationError,
    ConstraintViolationError,
    CorruptLogError,
    MetadataChangedException,
    SchemaMismatchError,
    UnsupportedFeatureError,
)
from tidelog.log.format.actions import Metadata
from tidelog.log.state.loader import load

COLUMNS = pa.schema([("id", pa.int64()), ("price", pa.int64()), ("secret", pa.string())])
POSITIVE = {"positive": "price > 0"}


def priced(**more: object) -> Table:
    return ruled_table(COLUMNS, constraints=POSITIVE, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize("price", [0, -1, None])
def test_a_row_that_breaks_a_constraint_fails_the_insert(price: int | None) -> None:
    table = priced()
    table.insert([{"id": 1, "price": 5, "secret": "kept"}])
    with pytest.raises(ConstraintViolationError) as raised:
        table.insert([{"id": 2, "price": 7, "secret": "a"}, {"id": 3, "price": price, "secret": "password"}])
    error = raised.value
    shown = "null" if price is None else str(price)
    assert (error.constraint, error.expression, error.row) == ("positive", "price > 0", f"price={shown}")
    assert error.message.startswith("1 of 2 rows violate the constraint 'positive'")
    assert "password" not in str(error)
    assert pickle.loads(pickle.dumps(error)).row == error.row
    assert rows_of(table) == [{"id": 1, "price": 5, "secret": "kept"}]
    assert table.version == 1
    assert not [path for path, _ in table.store.walk("") if path.endswith("parquet")][1:]


def test_a_column_that_the_data_lacks_is_null_and_so_violates() -> None:
    with pytest.raises(ConstraintViolationError, match="positive"):
        priced().insert([{"id": 1}])


def test_every_statement_checks_its_new_rows() -> None:
    table = ruled_table(COLUMNS, constraints=POSITIVE, properties={"tidelog.primaryKey": "id"})
    table.insert([{"id": n, "price": n} for n in (1, 2, 3)])
    bad = [{"id": 1, "price": -1}]
    statements: list[Callable[[], object]] = [
        lambda: table.overwrite(bad),
        lambda: table.upsert(bad),
        lambda: table.upsert(bad, delete_where="id = 7"),
        lambda: table.update("id = 1", {"price": "price - 1"}),
    ]
    for statement in statements:
        with pytest.raises(ConstraintViolationError) as raised:
            statement()
        assert raised.value.constraint == "positive"
    assert table.refresh().version == 1
    # A row that only deletes its key is not a new row.
    table.upsert([*bad, {"id": 4, "price": 4}], delete_where="price < 0")
    table.update("id = 2", {"price": "price * 10"})
    table.delete("id = 3")
    assert [row["price"] for row in rows_of(table)] == [20, 4]
    table.overwrite([{"id": 9, "price": 9}])
    assert [row["id"] for row in rows_of(table)] == [9]


@pytest.mark.parametrize("vectors", [True, False])
@pytest.mark.parametrize("feed", [True, False])
def test_an_update_is_checked_with_and_without_vectors_and_change_files(*, vectors: bool, feed: bool) -> None:
    properties = {
        "delta.enableDeletionVectors": str(vectors).lower(),
        "delta.enableChangeDataFeed": str(feed).lower(),
    }
    table = priced(properties=properties)
    table.insert([{"id": n, "price": n} for n in (1, 2, 3)])
    before = {path for path, _ in table.store.walk("")}
    with pytest.raises(ConstraintViolationError, match="1 of 3 rows"):
        table.update("true", {"price": "price - 1"})
    assert {path for path, _ in table.store.walk("")} == before
    table.update("true", {"price": "price + 1"})
    assert [row["price"] for row in rows_of(table)] == [2, 3, 4]


def test_an_invariant_of_a_nested_field() -> None:
    inner = pa.struct([("low", pa.int64()), ("high", pa.int64())])
    table = ruled_table(pa.schema([("range", inner)]), fields={"range.high": invariant("range.low <= range.high")})
    table.insert([{"range": {"low": 1, "high": 2}}])
    with pytest.raises(ConstraintViolationError) as raised:
        table.insert([{"range": {"low": 3, "high": 2}}])
    assert (raised.value.constraint, raised.value.row) == ("range.high", "range={'low': 3, 'high': 2}")
    assert "the invariant 'range.high'" in raised.value.message


def test_an_invariant_that_cannot_be_read_is_a_damaged_log() -> None:
    for text in ("no JSON", "{}", '{"expression":{"expression":3}}'):
        table = ruled_table(COLUMNS, fields={"price": {"delta.invariants": text}})
        with pytest.raises(CorruptLogError, match="price"):
            table.insert([{"price": 1}])


def test_a_column_that_cannot_be_null() -> None:
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), ("price", pa.int64())])
    table = ruled_table(schema, constraints=POSITIVE, properties={"tidelog.primaryKey": "id"})
    table.insert([{"id": 1, "price": 1}])
    statements: list[Callable[[], object]] = [
        lambda: table.insert([{"id": None, "price": 1}]),
        lambda: table.insert([{"price": 1}]),
        lambda: table.overwrite([{"id": None, "price": 1}]),
        lambda: table.upsert([{"id": None, "price": 1}]),
        lambda: table.update("true", {"id": "null"}),
    ]
    for statement in statements:
        with pytest.raises(SchemaMismatchError, match="id"):
            statement()
    assert table.refresh().version == 1


def test_an_empty_partition_value_is_checked_as_the_null_that_it_becomes() -> None:
    schema = pa.schema([("n", pa.int64()), ("part", pa.string())])
    table = ruled_table(schema, constraints={"given": "part IS NOT NULL"}, partition_by=["part"])
    with pytest.raises(ConstraintViolationError) as raised:
        table.insert([{"n": 1, "part": ""}])
    assert raised.value.row == "part=null"


def test_the_values_shown_are_few_and_short() -> None:
    schema = pa.schema([(f"c{n}", pa.string()) for n in range(20)])
    condition = " OR ".join(f"c{n} = 'x'" for n in range(20))
    table = ruled_table(schema, constraints={"some": condition})
    with pytest.raises(ConstraintViolationError) as raised:
        table.insert([{f"c{n}": f"\x1b[2J{'v' * 1000}" for n in range(20)}])
    assert raised.value.row.count("=") == 8
    assert len(raised.value.row) < 500
    assert len(raised.value.expression) < 210
    assert "\x1b" not in str(raised.value)


def test_only_columns_of_the_constraint_are_shown() -> None:
    table = ruled_table(COLUMNS, constraints={"kind": "price > length('secret')"})
    with pytest.raises(ConstraintViolationError) as raised:
        table.insert([{"id": 1, "price": -1, "secret": "password"}])
    assert raised.value.row == "price=-1"


def test_an_expression_that_tidelog_cannot_evaluate_is_refused_by_name() -> None:
    table = ruled_table(COLUMNS, constraints={"odd": "crc32(secret) > 5 AND price > 0"})
    statements: list[Callable[[], object]] = [
        lambda: table.insert([{"id": 1, "price": 1}]),
        lambda: table.overwrite([{"id": 1, "price": 1}]),
        lambda: table.upsert([{"id": 1, "price": 1}], keys=["id"]),
        lambda: table.update("true", {"price": "1"}),
    ]
    for statement in statements:
        with pytest.raises(UnsupportedFeatureError) as raised:
            statement()
        assert "crc32(secret) > 5" in raised.value.message
        assert "writer='spark'" in raised.value.advice
    # Neither reads a column of the constraint, so it holds as it did before.
    table.update("true", {"id": "id + 1"})
    table.delete("id = 1")


def test_an_expression_that_fails_for_a_row_is_a_violation() -> None:
    table = ruled_table(COLUMNS, constraints={"share": "100 / price > 5"})
    with pytest.raises(ConstraintViolationError, match=r"share.*cannot be evaluated"):
        table.insert([{"price": 0}])
    table.insert([{"price": 10}])


def test_restoring_compacting_and_deleting_check_nothing() -> None:
    table = ruled_table(COLUMNS, properties={"delta.enableDeletionVectors": "false"})
    table.insert([{"id": 1, "price": -1}])
    table.insert([{"id": 2, "price": -1}])
    head = load(table.store).head
    put_foreign(table, constrained(head.metadata, POSITIVE))
    with pytest.raises(ConstraintViolationError):
        table.refresh().insert([{"id": 3, "price": -1}])
    assert table.compact("major").did_anything
    table.delete("id = 1")
    assert [row["id"] for row in rows_of(table)] == [2]
    table.restore(version=1)
    assert [row["id"] for row in rows_of(table)] == [1]
    # The restored version had no constraint.
    table.insert([{"id": 4, "price": -1}])


def test_a_constraint_that_another_writer_adds_meanwhile_is_a_conflict() -> None:
    table = ruled_table(COLUMNS)
    transaction = table.begin().insert([{"id": 1, "price": -1}])
    put_foreign(table, constrained(load(table.store).head.metadata, POSITIVE))
    with pytest.raises(MetadataChangedException):
        transaction.commit()
    table.refresh()
    with pytest.raises(ConstraintViolationError):
        table.insert([{"id": 1, "price": -1}])
    assert rows_of(table) == []


def test_a_constraint_cannot_be_added_but_removed() -> None:
    table = priced()
    statements: list[Callable[[], object]] = [
        lambda: table.set_properties({"delta.constraints.small": "price < 10"}),
        lambda: Table.create("memory://constrained", COLUMNS, properties={"delta.constraints.small": "price < 10"}),
    ]
    for statement in statements:
        with pytest.raises(ConfigurationError, match=r"delta\.constraints\.small") as raised:
            statement()
        assert "ALTER TABLE" in raised.value.advice
    table.set_properties({"tidelog.minorSpan": "2 days"})
    with pytest.raises(ConstraintViolationError):
        table.insert([{"price": -1}])
    table.set_properties({"delta.constraints.positive": None})
    table.insert([{"price": -1}])


def test_new_columns_keep_the_rules_of_the_old_ones() -> None:
    table = ruled_table(COLUMNS, constraints=POSITIVE, fields={"id": invariant("id > 0"), "secret": default("'none'")})
    table.add_columns([pa.field("more", pa.int64())])
    with pytest.raises(ConstraintViolationError, match="invariant 'id'"):
        table.insert([{"id": -1, "price": 1, "more": 1}])
    transaction = table.begin()
    assert transaction.evolve(pa.schema([("id", pa.int64()), ("extra", pa.string())]))
    transaction.insert([{"id": 1, "price": 1, "extra": "x"}]).commit()
    assert rows_of(table) == [{"id": 1, "price": 1, "secret": "none", "more": None, "extra": "x"}]
    with pytest.raises(ConstraintViolationError, match="positive"):
        table.insert([{"id": 1, "price": 0}])


def constrained(metadata: Metadata, constraints: Mapping[str, str]) -> Metadata:
    more = {f"delta.constraints.{name}": text for name, text in constraints.items()}
    return msgspec.structs.replace(metadata, configuration={**metadata.configuration, **more})


NAN = float("nan")
FLOATS = pa.schema([("f", pa.float64()), ("g", pa.float32())])


# Spark orders NaN above all numbers, and it equals itself. For each condition, what it is for f = g = NaN.
@pytest.mark.parametrize(
    ("condition", "holds"),
    [
        ("f > 1", True),
        ("f >= g", True),
        ("f > g", False),
        ("1 > f", False),
        ("1 < f", True),
        ("NOT (f > 1)", False),
        ("f = g", True),
        ("f != g", False),
        ("f <> 5", True),
        ("f <=> g", True),
        ("f <=> 5.0D", False),
        ("f = double('nan')", True),
        ("f BETWEEN 1 AND 2", False),
        ("f BETWEEN 1 AND g", True),
        ("f NOT IN (1.0D, 2.0D)", True),
        ("f IN (1.0D, g, f + 1)", True),
        ("nullif(f, g) IS NULL", True),
        ("CASE f WHEN g THEN true ELSE false END", True),
        ("CASE WHEN f > 1 THEN false ELSE true END", False),
    ],
)
def test_nan_has_the_order_of_spark(condition: str, *, holds: bool) -> None:
    table = ruled_table(FLOATS, constraints={"c": condition})
    if holds:
        table.insert([{"f": NAN, "g": NAN}])
        assert table.scan().to_arrow().num_rows == 1
    else:
        with pytest.raises(ConstraintViolationError):
            table.insert([{"f": NAN, "g": NAN}])


@pytest.mark.parametrize("condition", ["f > g", "f <= g", "f = g", "f != g", "f < g OR f >= g"])
def test_a_null_beside_a_nan_is_unknown(condition: str) -> None:
    table = ruled_table(FLOATS, constraints={"c": f"({condition}) IS NULL"})
    table.insert([{"f": NAN, "g": None}, {"f": None, "g": NAN}, {"f": None, "g": None}])
    assert table.scan().to_arrow().num_rows == 3


NAMED = pa.schema([("Name", pa.string()), ('odd "one"', pa.int64()), ("more", pa.int64())])


@pytest.mark.parametrize(
    "rule",
    [
        "\"Name\" <> 'bad'",
        "upper(\"name\") <> 'BAD'",
        'crc32("NAME") > 5 AND more > 0',
        '"odd ""one""" > 5 OR true',
        # Backslashes are not escapes in standard SQL, so the text ends elsewhere.
        "more > 0 AND 'C:\\' < \"Name\" AND 'd\\' > ''",
        '"Name" <> \'bad',
    ],
)
@pytest.mark.parametrize("kind", ["constraint", "invariant", "generated"])
def test_a_column_in_double_quotation_marks_is_refused(rule: str, kind: str) -> None:
    by_kind: dict[str, dict[str, Any]] = {
        "constraint": {"constraints": {"c": rule}},
        "invariant": {"fields": {"more": invariant(rule)}},
        "generated": {"fields": {"more": generated(rule)}},
    }
    table = ruled_table(NAMED, properties={"tidelog.primaryKey": "Name"}, **by_kind[kind])
    bad = [{"Name": "bad", "more": 1}]
    statements: list[Callable[[], object]] = [
        lambda: table.insert(bad),
        lambda: table.overwrite(bad),
        lambda: table.upsert(bad),
        lambda: table.update("true", {'`odd "one"`': "1"}),
    ]
    for statement in statements:
        with pytest.raises(UnsupportedFeatureError, match="double quotation marks") as raised:
            statement()
        assert "backquotes" in raised.value.advice
        assert "writer=" not in raised.value.advice
    table.delete("more = 1")  # makes no rows


@pytest.mark.parametrize(
    "rule", ['`Name` <> "bad"', "Name <> '{\"Name\": 1}'", "Name <> 'Name'", "`odd \"one\"` IS NULL AND Name <> 'bad'"]
)
def test_double_quotation_marks_around_anything_else_are_a_text(rule: str) -> None:
    table = ruled_table(NAMED, constraints={"c": rule}, fields={"Name": default('"name"')})
    table.insert([{"Name": "ok", "more": 1}, {"more": 2}])
    assert [row["Name"] for row in rows_of(table)] == ["name", "ok"]
