"""Generated columns, defaults and identity columns: what tidelog fills, checks and refuses."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from decimal import Decimal

import msgspec
import polars as pl
import pyarrow as pa
import pytest

from tests.log.rules.support import default, generated, identity, invariant, rows_of, ruled_table, with_field_metadata
from tests.log.support import put_foreign
from tidelog.log import Table
from tidelog.log.errors import (
    ConfigurationError,
    ConstraintViolationError,
    SchemaMismatchError,
    UnsupportedFeatureError,
)
from tidelog.log.state.loader import load

UTC = dt.UTC
EVENTS = pa.schema([("id", pa.int64()), ("at", pa.timestamp("us", tz="UTC")), ("day", pa.date32())])
NOON = dt.datetime(2026, 3, 8, 12, tzinfo=UTC)


def events(**more: object) -> Table:
    fields = {"day": generated("CAST(at AS DATE)")}
    return ruled_table(EVENTS, fields=fields, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize("partitioned", [True, False])
def test_a_generated_column_is_computed_if_the_data_lacks_it(*, partitioned: bool) -> None:
    table = events(partition_by=["day"] if partitioned else ())
    table.insert([{"id": 1, "at": NOON}, {"id": 2, "at": None}])
    table.insert(pa.table({"ID": [3], "at": pa.array([NOON], EVENTS.field("at").type)}))
    assert [row["day"] for row in rows_of(table)] == [NOON.date(), None, NOON.date()]


def test_a_generated_column_that_is_given_must_be_what_its_expression_says() -> None:
    table = events()
    table.insert([{"id": 1, "at": NOON, "day": NOON.date()}, {"id": 2, "at": None, "day": None}])
    for wrong in (dt.date(2026, 3, 9), None):
        with pytest.raises(ConstraintViolationError) as raised:
            table.insert([{"id": 1, "at": NOON, "day": NOON.date()}, {"id": 2, "at": NOON, "day": wrong}])
        shown = "null" if wrong is None else "2026-03-09"
        assert raised.value.column == raised.value.constraint == "day"
        assert raised.value.expression == "CAST(at AS DATE)"
        assert raised.value.row.startswith(f"day={shown}, at=2026-03-08")
        assert "must be 2026-03-08" in raised.value.message
    assert table.refresh().version == 1


def test_an_update_computes_generated_columns_again() -> None:
    schema = pa.schema([("n", pa.int64()), ("m", pa.int64()), ("twice", pa.int32()), ("other", pa.int64())])
    fields = {"twice": generated("n * 2"), "other": generated("m + 1")}
    table = ruled_table(schema, fields=fields, constraints={"small": "twice < 100"})
    table.insert([{"n": 1, "m": 1}])
    table.update("true", {"n": "n + 4"})
    assert rows_of(table) == [{"n": 5, "m": 1, "twice": 10, "other": 2}]
    table.update("true", {"n": "6", "twice": "12"})
    with pytest.raises(ConstraintViolationError, match="twice"):
        table.update("true", {"n": "7", "twice": "12"})
    with pytest.raises(ConstraintViolationError, match="small"):
        table.update("true", {"n": "50"})
    assert rows_of(table) == [{"n": 6, "m": 1, "twice": 12, "other": 2}]


def test_an_upsert_and_an_overwrite_compute_generated_columns() -> None:
    table = events(partition_by=["day"])
    table.insert([{"id": 1, "at": NOON}])
    later = NOON + dt.timedelta(days=1)
    table.upsert([{"id": 1, "at": later}, {"id": 2, "at": NOON}], keys=["id"])
    assert [row["day"] for row in rows_of(table)] == [later.date(), NOON.date()]
    table.upsert([{"id": 2, "at": later, "gone": False}, {"id": 1, "gone": True}], keys=["id"], delete_where="gone")
    assert [(row["id"], row["day"]) for row in rows_of(table)] == [(2, later.date())]
    table.overwrite([{"id": 3, "at": later}], dynamic=True)
    assert [(row["id"], row["day"]) for row in rows_of(table)] == [(3, later.date())]


def test_a_generated_column_that_tidelog_cannot_compute_is_refused() -> None:
    schema = pa.schema([("id", pa.int64()), ("hash", pa.int64())])
    table = ruled_table(schema, fields={"hash": generated("xxhash64(id)")})
    for row in ({"id": 1}, {"id": 1, "hash": 2}):
        with pytest.raises(UnsupportedFeatureError, match=r"xxhash64\(id\)"):
            table.insert([row])
    with pytest.raises(UnsupportedFeatureError):
        table.update("id = 1", {"id": "2"})


DEFAULTS = pa.schema(
    [
        ("id", pa.int64()),
        ("state", pa.string()),
        ("price", pa.decimal128(10, 2)),
        ("since", pa.date32()),
        ("at", pa.timestamp("us", tz="UTC")),
        ("plain", pa.int32()),
    ]
)
DEFAULT_FIELDS = {
    "state": default("'new'"),
    "price": default("1.5"),
    "since": default("DATE '2020-01-01'"),
    "at": default("current_timestamp()"),
}


def test_a_column_that_the_data_lacks_gets_its_default() -> None:
    table = ruled_table(DEFAULTS, fields=DEFAULT_FIELDS)
    table.insert(pl.DataFrame({"id": [1, 2]}))
    for row in rows_of(table):
        assert (row["state"], row["price"], row["since"]) == ("new", Decimal("1.50"), dt.date(2020, 1, 1))
        assert row["plain"] is None
        assert abs(row["at"] - dt.datetime.now(UTC)) < dt.timedelta(minutes=10)


def test_an_explicit_null_stays_null() -> None:
    table = ruled_table(DEFAULTS, fields=DEFAULT_FIELDS)
    table.insert(pa.table({"id": [1], "state": pa.nulls(1)}))
    # In a list of dicts, each row says for itself what it has.
    table.insert([{"id": 2, "STATE": None}, {"id": 3}, {"id": 4, "STATE": "old"}])
    assert [(row["id"], row["state"]) for row in rows_of(table)] == [(1, None), (2, None), (3, "new"), (4, "old")]
    assert {row["price"] for row in rows_of(table)} == {Decimal("1.50")}


def test_upserts_and_overwrites_fill_defaults_and_updates_do_not() -> None:
    table = ruled_table(DEFAULTS, fields=DEFAULT_FIELDS)
    table.insert([{"id": 1, "state": "old"}])
    table.update("id = 1", {"plain": "1"})
    assert rows_of(table)[0]["state"] == "old"
    table.upsert([{"id": 1}, {"id": 2, "gone": True}], keys=["id"], delete_where="gone")
    assert [(row["id"], row["state"]) for row in rows_of(table)] == [(1, "new")]
    rows = [{"id": 1, "state": None}, {"id": 2}, {"id": 3, "gone": True}]
    table.upsert(rows, keys=["id"], delete_where="gone")
    assert [(row["id"], row["state"]) for row in rows_of(table)] == [(1, None), (2, "new")]
    table.overwrite([{"id": 5}])
    assert [(row["id"], row["state"]) for row in rows_of(table)] == [(5, "new")]


def test_a_default_fills_a_column_that_cannot_be_null_and_feeds_other_rules() -> None:
    schema = pa.schema(
        [pa.field("id", pa.int64()), pa.field("n", pa.int64(), nullable=False), pa.field("twice", pa.int64())]
    )
    fields = {"n": default("21") | invariant("n > 0"), "twice": generated("n * 2")}
    table = ruled_table(schema, fields=fields)
    table.insert([{"id": 1}])
    assert rows_of(table) == [{"id": 1, "n": 21, "twice": 42}]
    with pytest.raises(SchemaMismatchError, match="cannot be null"):
        table.insert([{"id": 1, "n": None}])


def test_a_default_that_tidelog_cannot_evaluate_is_refused_only_where_it_is_needed() -> None:
    schema = pa.schema([("id", pa.int64()), ("key", pa.string())])
    table = ruled_table(schema, fields={"key": default("uuid()")})
    table.insert([{"id": 1, "key": "k"}])
    with pytest.raises(UnsupportedFeatureError, match=r"default of the column 'key'.*uuid\(\)"):
        table.insert([{"id": 1}])


def test_a_default_of_null() -> None:
    table = ruled_table(pa.schema([("id", pa.int64()), ("n", pa.int8())]), fields={"n": default("NULL")})
    table.insert([{"id": 1}])
    assert rows_of(table) == [{"id": 1, "n": None}]


def test_a_default_that_does_not_fit_its_column_is_an_error() -> None:
    table = ruled_table(pa.schema([("id", pa.int64()), ("n", pa.int8())]), fields={"n": default("1000")})
    with pytest.raises(SchemaMismatchError, match="'n'"):
        table.insert([{"id": 1}])


NUMBERED = pa.schema([("id", pa.int64()), ("name", pa.string())])


def test_a_given_identity_value_is_written_and_the_mark_stays() -> None:
    table = ruled_table(NUMBERED, fields={"id": identity(explicit=True, mark=7)})
    before = load(table.store).head.metadata.schema_string
    table.insert([{"id": 100, "name": "a"}])
    table.upsert([{"id": 100, "name": "b"}, {"id": 101, "name": "c"}], keys=["id"])
    assert [(row["id"], row["name"]) for row in rows_of(table)] == [(100, "b"), (101, "c")]
    assert load(table.store).head.metadata.schema_string == before


@pytest.mark.parametrize("rows", [[{"name": "a"}], [{"id": None, "name": "a"}]])
def test_an_identity_value_that_would_have_to_be_generated_is_refused(rows: list[dict[str, object]]) -> None:
    table = ruled_table(NUMBERED, fields={"id": identity(explicit=True)})
    statements: list[Callable[[], object]] = [
        lambda: table.insert(rows),
        lambda: table.overwrite(rows),
        lambda: table.upsert(rows, keys=["name"]),
    ]
    for statement in statements:
        with pytest.raises(UnsupportedFeatureError, match="identity column 'id'") as raised:
            statement()
        assert raised.value.features == "identityColumns"
    table.insert([])
    assert table.refresh().version == 0


def test_a_column_that_is_always_generated_takes_no_values() -> None:
    table = ruled_table(NUMBERED, fields={"id": identity(explicit=False)})
    for row in ({"id": 1, "name": "a"}, {"name": "a"}):
        with pytest.raises(UnsupportedFeatureError, match="GENERATED ALWAYS"):
            table.insert([row])


@pytest.mark.parametrize("explicit", [True, False])
def test_rows_with_identities_are_deleted_updated_and_compacted(*, explicit: bool) -> None:
    table = ruled_table(NUMBERED, fields={"id": identity(explicit=True, mark=3)})
    for n in (1, 2, 3):
        table.insert([{"id": n, "name": "a"}])
    schema_string = load(table.store).head.metadata.schema_string
    kept = with_field_metadata(schema_string, {"id": identity(explicit=explicit, mark=3)})
    put_foreign(table, msgspec.structs.replace(load(table.store).head.metadata, schema_string=kept))
    table.update("id = 2", {"name": "'b'"})
    table.delete("id = 1")
    assert table.compact("major", purge=True).did_anything
    assert rows_of(table) == [{"id": 2, "name": "b"}, {"id": 3, "name": "a"}]
    with pytest.raises(ConfigurationError, match=r"identity column 'id'.*cannot be updated"):
        table.update("id = 2", {"id": "9"})


def test_a_restore_never_lowers_the_mark_of_an_identity_column() -> None:
    schema = pa.schema([("id", pa.int64()), ("down", pa.int64())])
    down = identity(explicit=True, mark=-2) | {"delta.identity.step": -1}
    table = ruled_table(schema, fields={"id": identity(explicit=True), "down": down})
    table.insert([{"id": 1, "down": 1}])
    marks = {"id": identity(explicit=True, mark=50), "down": {"delta.identity.highWaterMark": -60}}
    found = load(table.store).head.metadata
    put_foreign(table, msgspec.structs.replace(found, schema_string=with_field_metadata(found.schema_string, marks)))
    table.refresh().insert([{"id": 51, "down": -61}])
    table.restore(version=1)
    fields = msgspec.json.decode(load(table.store).head.metadata.schema_string)["fields"]
    assert [field["metadata"]["delta.identity.highWaterMark"] for field in fields] == [50, -60]
    assert rows_of(table) == [{"id": 1, "down": 1}]


def test_a_generated_value_can_be_nan_and_be_computed_from_it() -> None:
    schema = pa.schema([("f", pa.float64()), ("twice", pa.float64()), ("large", pa.bool_())])
    table = ruled_table(schema, fields={"twice": generated("f * 2"), "large": generated("f > 1")})
    table.insert([{"f": float("nan"), "twice": float("nan")}])
    assert table.scan().to_arrow()["large"].to_pylist() == [True]
    with pytest.raises(ConstraintViolationError, match="twice"):
        table.insert([{"f": 1.0, "twice": float("nan")}])


def test_generated_values_are_computed_from_the_partition_values_that_readers_see() -> None:
    schema = pa.schema([("n", pa.int64()), ("part", pa.string()), ("is_known", pa.bool_())])
    fields = {"is_known": generated("part IS NOT NULL")}
    table = ruled_table(schema, fields=fields, partition_by=["part"])
    table.insert([{"n": 1, "part": ""}, {"n": 2, "part": "a"}])
    table.update("n = 2", {"part": "''"})
    assert rows_of(table) == [{"n": n, "part": None, "is_known": False} for n in (1, 2)]
    with pytest.raises(ConstraintViolationError, match="is_known"):
        table.insert([{"n": 1, "part": "", "is_known": True}])
