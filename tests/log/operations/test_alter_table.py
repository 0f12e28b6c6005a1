"""Changes of what the metadata says about a table, its columns and its constraints."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.randomness import seed
from tidelog.log import Committed, Table
from tidelog.log.errors import (
    ConcurrentAppendException,
    ConfigurationError,
    ConstraintViolationError,
    MetadataChangedException,
    SchemaMismatchError,
    UnsupportedFeatureError,
)
from tidelog.log.operations.alter_table import (
    AT_START,
    AddColumn,
    AddConstraint,
    Alteration,
    DropConstraint,
    MoveColumn,
    SetComment,
    SetDefault,
    SetDescription,
    SetNullable,
    SetType,
)

INNER = pa.struct([pa.field("a", pa.int32()), pa.field("b", pa.string())])
SCHEMA = pa.schema([("id", pa.int32()), ("s", pa.string()), ("st", INNER), ("x", pa.float32())])
WIDENS = {"delta.enableTypeWidening": "true"}


@pytest.fixture
def table(tmp_path: Path) -> Table:
    return Table.create(str(tmp_path / "table"), SCHEMA)


def never(_: str) -> bool:
    return False


def alter(table: Table, *changes: Alteration, violates: Callable[[str], bool] = never) -> Committed:
    return table.statement(lambda transaction: transaction.alter(changes, violates))


def test_places_of_columns(table: Table) -> None:
    before = table.version
    alter(table, AddColumn(pa.field("new", pa.int64()), AT_START), AddColumn(pa.field("more", pa.int64()), "ID"))
    assert table.schema.names == ["new", "id", "more", "s", "st", "x"]
    alter(table, MoveColumn(("x",), AT_START), MoveColumn(("st", "a"), "b"))
    assert table.schema.names == ["x", "new", "id", "more", "s", "st"]
    assert [field.name for field in table.schema.field("st").type] == ["b", "a"]
    assert table.version == before + 2
    alter(table, MoveColumn(("x",), AT_START))
    assert table.version == before + 2
    table.insert([{"id": 1, "st": {"a": 2, "b": "y"}}])
    assert table.scan().to_arrow().to_pylist()[0]["st"] == {"b": "y", "a": 2}


def test_comments(table: Table) -> None:
    alter(table, SetComment(("id",), "the id"), SetComment(("st", "b"), "inner"), SetDescription("all"))
    assert table.schema.field("id").metadata == {b"comment": b"the id"}
    assert table.schema.field("st").type.field("b").metadata == {b"comment": b"inner"}
    assert table.head.metadata.description == "all"
    alter(table, SetComment(("id",), None), SetDescription(None))
    assert table.schema.field("id").metadata is None
    description: str | None = table.head.metadata.description
    assert description is None


def test_null_or_not(table: Table) -> None:
    asked: list[str] = []

    def violates(condition: str) -> bool:
        asked.append(condition)
        return "st" in condition

    alter(table, SetNullable(("id",), nullable=False), violates=violates)
    with pytest.raises(ConstraintViolationError, match=r"rows of .* violate NOT NULL of st\.a"):
        alter(table, SetNullable(("st", "a"), nullable=False), violates=violates)
    assert asked == ["`id` IS NOT NULL", "`st` IS NULL OR `st`.`a` IS NOT NULL"]
    with pytest.raises(SchemaMismatchError):
        table.insert([{"id": None}])
    alter(table, SetNullable(("id",), nullable=True), violates=violates)
    table.insert([{"id": None}])
    assert len(asked) == 2


def test_a_default(table: Table) -> None:
    table.insert([{"id": 1}])
    alter(table, SetDefault(("s",), "concat('a', 'b')"))
    assert "allowColumnDefaults" in (table.head.protocol.writer_features or ())
    table.insert([{"id": 2}])
    alter(table, SetDefault(("s",), None))
    table.insert([{"id": 3}])
    assert sorted((row["id"], row["s"]) for row in table.scan().to_arrow().to_pylist()) == [
        (1, None),
        (2, "ab"),
        (3, None),
    ]


@pytest.mark.parametrize(
    ("column", "kind", "spelled"),
    [
        ("id", pa.int64(), "long"),
        ("id", pa.float64(), "double"),
        ("id", pa.decimal128(12, 2), "decimal(12,2)"),
        ("x", pa.float64(), "double"),
    ],
)
def test_a_wider_type(tmp_path: Path, column: str, kind: pa.DataType, spelled: str) -> None:
    table = Table.create(str(tmp_path / "table"), SCHEMA, properties=WIDENS)
    table.insert([{"id": 7, "x": 1.5}])
    alter(table, SetType((column,), kind))
    assert f'"toType":"{spelled}"' in table.head.metadata.schema_string
    assert table.schema.field(column).type == kind
    assert float(table.scan().to_arrow()[column][0].as_py()) == (7 if column == "id" else 1.5)


@pytest.mark.parametrize(
    ("column", "kind"),
    [("id", pa.int16()), ("id", pa.string()), ("id", pa.decimal128(9, 0)), ("x", pa.int64()), ("st", pa.int64())],
)
def test_a_type_that_does_not_hold_all_values(tmp_path: Path, column: str, kind: pa.DataType) -> None:
    table = Table.create(str(tmp_path / "table"), SCHEMA, properties=WIDENS)
    with pytest.raises(SchemaMismatchError, match=f"the column '{column}' of .* cannot become"):
        alter(table, SetType((column,), kind))


def test_a_constraint(table: Table) -> None:
    alter(table, AddConstraint("Positive", "id > 0"))
    assert table.properties["delta.constraints.positive"] == "id > 0"
    assert "checkConstraints" in (table.head.protocol.writer_features or ())
    with pytest.raises(ConstraintViolationError):
        table.insert([{"id": 0}])
    with pytest.raises(ConfigurationError, match="has a constraint 'POSITIVE' already: id > 0"):
        alter(table, AddConstraint("POSITIVE", "id > 1"))
    with pytest.raises(ConstraintViolationError, match="violate the constraint 'big': id > 5"):
        alter(table, AddConstraint("big", "id > 5"), violates=lambda _: True)
    alter(table, DropConstraint("POSITIVE"))
    table.insert([{"id": 0}])
    with pytest.raises(ConfigurationError, match="has no constraint 'positive'; its constraints are: none"):
        alter(table, DropConstraint("positive"))
    version = table.version
    alter(table, DropConstraint("positive", exists=False))
    assert table.version == version


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (
            SetComment(("nothing",), "x"),
            ConfigurationError,
            r"there is no column 'nothing' in .*; the columns are id, s",
        ),
        (SetComment(("idd",), "x"), ConfigurationError, "did you mean 'id'"),
        (SetComment(("id", "a"), "x"), ConfigurationError, "id is not a struct, and only columns and fields"),
        (
            SetDefault(("st", "a"), "1"),
            ConfigurationError,
            r"st\.a is a field of a struct, and only columns have defaults",
        ),
        (SetType(("id",), pa.int64()), UnsupportedFeatureError, "set the table property 'delta.enableTypeWidening'"),
        (AddColumn(pa.field("ID", pa.int64())), ConfigurationError, "already has a column 'id'"),
        (AddColumn(pa.field("y", pa.int64()), "nothing"), ConfigurationError, "there is no column 'nothing'"),
    ],
)
def test_what_the_log_cannot_have(table: Table, change: Alteration, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        alter(table, change)
    assert table.refresh().version == 0


@pytest.mark.parametrize("change", [AddConstraint("c", "id > 0"), SetDefault(("s",), "'x'")])
def test_an_old_protocol_is_not_raised(tmp_path: Path, change: Alteration) -> None:
    off = {"delta.enableDeletionVectors": "false", "delta.enableInCommitTimestamps": "false"}
    table = Table.create(str(tmp_path / "table"), SCHEMA, properties=off)
    with pytest.raises(UnsupportedFeatureError, match=r"set the table property 'delta\.feature\.\w+' to 'supported'"):
        alter(table, change)


def test_a_type_that_a_rule_reads_stays(tmp_path: Path) -> None:
    table = Table.create(str(tmp_path / "table"), SCHEMA, properties=WIDENS)
    alter(table, AddConstraint("c", "id > 0"))
    with pytest.raises(ConfigurationError, match=r"the type of the column 'id' .* an expression of the table reads it"):
        alter(table, SetType(("id",), pa.int64()))


@pytest.mark.parametrize("changes", [[AddConstraint("c", "id > 0")], [SetNullable(("id",), nullable=False)]])
def test_rows_that_arrive_meanwhile_are_looked_at(table: Table, changes: Sequence[Alteration]) -> None:
    """A condition that was looked up in an older version says nothing about them."""
    transaction = table.begin()
    transaction.alter(changes, never)
    other = Table.open(table.path)
    other.insert([{"id": None}])
    with pytest.raises(ConcurrentAppendException):
        transaction.commit()
    looked: list[Any] = []

    def violates(condition: str) -> bool:
        looked.append(condition)
        if len(looked) == 1:
            other.insert([{"id": None}])
        return len(looked) > 1

    with pytest.raises(ConstraintViolationError):
        alter(table, *changes, violates=violates)
    assert len(looked) == 2


def test_a_writer_of_rows_that_began_before_is_a_conflict(table: Table) -> None:
    alter(table, AddConstraint("other", "id < 100"))
    transaction = Table.open(table.path).begin()
    transaction.insert([{"id": -1}])
    alter(table, AddConstraint("c", "id > 0"))
    with pytest.raises(MetadataChangedException):
        transaction.commit()


@pytest.mark.parametrize("steps", [15, pytest.param(200, marks=pytest.mark.nightly)])
def test_any_changes_one_after_the_other(table: Table, steps: int) -> None:
    """The columns are those of a list that is changed in the same way, and each change is one commit."""
    chance = random.Random(seed())
    model: list[tuple[str, str | None]] = [(name, None) for name in SCHEMA.names]
    for step in range(steps):
        place = chance.randrange(len(model))
        name, comment = model[place]
        version = table.version
        kind = chance.choice(["add", "move", "comment", "null"])
        others = [each for each in model if each[0] != name]
        after = chance.choice([AT_START, *(each[0] for each in others)])
        where = 0 if after == AT_START else 1 + [each[0] for each in others].index(after)
        if kind == "add":
            where = 0 if after == AT_START else 1 + [each[0] for each in model].index(after)
            model.insert(where, (f"c{step}", None))
            alter(table, AddColumn(pa.field(f"c{step}", pa.int64()), after))
        elif kind == "move":
            model = [*others[:where], (name, comment), *others[where:]]
            alter(table, MoveColumn((name.upper(),), after.upper()))
        elif kind == "comment":
            model[place] = (name, chance.choice(["a", "b", None]))
            alter(table, SetComment((name,), model[place][1]))
        else:
            nullable = chance.random() < 0.5
            alter(table, SetNullable((name,), nullable=nullable))
            assert table.schema.field(name).nullable == nullable
        found = [(field.name, (field.metadata or {}).get(b"comment")) for field in table.schema]
        assert found == [(name, None if text is None else text.encode()) for name, text in model]
        assert table.version - version <= 1
