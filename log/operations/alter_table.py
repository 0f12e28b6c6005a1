"""Stage ALTER TABLE: what the metadata says about the table, its columns and its constraints, in one commit.

No data file is written. A condition that old rows have to meet, NOT NULL or a constraint, is looked up by the caller;
a writer that changes rows meanwhile is a conflict.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import msgspec
import pyarrow as pa
import pyarrow.types as pt

from tidelog.log.conflict.operation_class import OperationClass
from tidelog.log.conflict.staged import Staged
from tidelog.log.errors import (
    ConfigurationError,
    ConstraintViolationError,
    SchemaMismatchError,
    UnsupportedFeatureError,
)
from tidelog.log.format import type_widening
from tidelog.log.format.actions import Metadata, Protocol
from tidelog.log.format.column_mapping import Field
from tidelog.log.format.properties import CONSTRAINT_PREFIX
from tidelog.log.format.protocol import allows, with_feature
from tidelog.log.format.schema import DEFAULT, EXISTS_DEFAULT, delta_type, primitive_of
from tidelog.log.format.type_widening import TypeChange
from tidelog.log.operations.add_columns import stage_add_columns
from tidelog.log.operations.mapped_columns import (
    has_column,
    place_of,
    renamed_column,
    with_fields,
    without_column,
)
from tidelog.log.operations.schema_evolution import fixed_columns
from tidelog.log.predicate import backquoted
from tidelog.log.predicate.tree import clipped
from tidelog.log.presentable import brief
from tidelog.log.rules import refusals
from tidelog.log.state.head import Head
from tidelog.log.system import System

_COMPUTED = ("delta.generationExpression", "delta.identity.")
AT_START = ""


@dataclass(frozen=True, slots=True)
class AddColumn:
    """A new column that can be null; `after` is AT_START, or the name of the column before it, or None for the end."""

    field: pa.Field
    after: str | None = None


@dataclass(frozen=True, slots=True)
class SetDescription:
    """The comment on the table; None for none."""

    text: str | None


@dataclass(frozen=True, slots=True)
class SetComment:
    """The comment on a column, or on a field of structs; None for none."""

    column: tuple[str, ...]
    text: str | None


@dataclass(frozen=True, slots=True)
class SetNullable:
    """Whether a column can be null."""

    column: tuple[str, ...]
    nullable: bool


@dataclass(frozen=True, slots=True)
class SetDefault:
    """The SQL of the value that new rows get that do not name the column; None for null."""

    column: tuple[str, ...]
    expression: str | None


@dataclass(frozen=True, slots=True)
class SetType:
    """A wider type."""

    column: tuple[str, ...]
    kind: pa.DataType


@dataclass(frozen=True, slots=True)
class MoveColumn:
    """Another place among the columns: AT_START, or the name of the column before it."""

    column: tuple[str, ...]
    after: str


@dataclass(frozen=True, slots=True)
class AddConstraint:
    """A condition that is true for each row."""

    name: str
    expression: str


@dataclass(frozen=True, slots=True)
class DropConstraint:
    """The end of a constraint; `exists` says that there must be one."""

    name: str
    exists: bool = True


@dataclass(frozen=True, slots=True)
class RenameColumn:
    """Another name for a column, or for a field of structs."""

    column: tuple[str, ...]
    name: str


@dataclass(frozen=True, slots=True)
class DropColumn:
    """The end of a column, or of a field of structs; `exists` says that there must be one."""

    column: tuple[str, ...]
    exists: bool = True


Alteration = (
    AddColumn
    | SetDescription
    | SetComment
    | SetNullable
    | SetDefault
    | SetType
    | MoveColumn
    | AddConstraint
    | DropConstraint
    | RenameColumn
    | DropColumn
)


def stage_alter(
    head: Head, path: str, system: System, changes: Sequence[Alteration], violates: Callable[[str], bool]
) -> Staged | None:
    """Stage the changes, in their order. None if they change nothing.

    `violates` says whether a row of the version is there for which a condition, as Spark's SQL, is not true.

    Raises ConfigurationError for a column or constraint that does not exist, or exists already,
    ConstraintViolationError for a condition that an old row does not meet, SchemaMismatchError for a type that is not
    wider, UnsupportedFeatureError for what the table's protocol, or another rule of the table, does not allow.
    """
    altered = _Altered(head, path, system)
    for change in changes:
        altered.apply(change)
    known = {str(error) for error in refusals.of_table(head.metadata, path)}
    for error in refusals.of_table(altered.metadata, path):
        if str(error) not in known:
            raise error
    for condition, what in altered.conditions:
        if violates(condition):
            raise ConstraintViolationError(
                f"rows of {path} violate {what}: {clipped(condition)}",
                advice="correct these rows first; a condition that is null counts as violated",
                path=path,
                constraint=what,
                expression=clipped(condition),
                row="",
            )
    metadata, protocol = altered.metadata, altered.protocol
    if (metadata, protocol) == (head.metadata, head.protocol):
        return None
    return Staged(
        operation=altered.operation,
        operation_class=OperationClass.NONE,
        metadata=metadata,
        protocol=None if protocol == head.protocol else protocol,
        sees_all=bool(altered.conditions),
        parameters={"changes": msgspec.json.encode([brief(change) for change in changes]).decode()},
    )


class _Altered:
    """The metadata and the protocol after some changes, and the conditions that old rows have to meet."""

    def __init__(self, head: Head, path: str, system: System) -> None:
        self.metadata: Metadata = head.metadata
        self.protocol: Protocol = head.protocol
        self.conditions: list[tuple[str, str]] = []
        self.operation = "CHANGE COLUMN"
        self._head, self._path, self._system = head, path, system

    def apply(self, change: Alteration) -> None:
        """Make one change."""
        match change:
            case AddColumn():
                self._add(change)
            case SetDescription(text):
                self.metadata = msgspec.structs.replace(self.metadata, description=text)
                self.operation = "COMMENT ON TABLE" if text is not None else "UNSET COMMENT"
            case SetComment(column, text):
                self._change(column, lambda field: _with(field, comment=text))
            case SetNullable(column, nullable):
                self._set_nullable(column, nullable=nullable)
            case SetDefault():
                self._set_default(change)
            case SetType():
                self._change(change.column, lambda field: self._widened(field, change))
            case MoveColumn(column, after):
                self._fields(column[:-1], lambda fields: self._moved(fields, column[-1], after))
            case AddConstraint():
                self._add_constraint(change)
            case DropConstraint():
                self._drop_constraint(change)
            case RenameColumn(column, name):
                self.operation = "RENAME COLUMN"
                found = renamed_column(self._changed_head(), self._path, column, name)
                self.metadata = found
            case DropColumn():
                self.operation = "DROP COLUMNS"
                self._drop(change)

    # --- columns

    def _add(self, change: AddColumn) -> None:
        self.operation = "ADD COLUMNS"
        staged = stage_add_columns(self._changed_head(), self._path, self._system, [change.field])
        if staged is None or staged.metadata is None:
            raise AssertionError(change)
        self.metadata = staged.metadata
        if change.after is not None:
            name, after = change.field.name, change.after
            self._fields((), lambda fields: self._moved(fields, name, after))

    def _drop(self, change: DropColumn) -> None:
        if not change.exists and not has_column(self.metadata, change.column):
            return
        self.metadata = without_column(self._changed_head(), self._path, change.column)

    def _changed_head(self) -> Head:
        return replace(self._head, metadata=self.metadata, protocol=self.protocol)

    def _change(self, column: Sequence[str], change: Callable[[Field], Field]) -> Field:
        """Change a column, or a field of structs. Returns it."""
        changed: list[Field] = []

        def changed_fields(fields: list[Field]) -> list[Field]:
            place = self._place(fields, column[-1])
            changed.append(change(fields[place]))
            return [*fields[:place], changed[0], *fields[place + 1 :]]

        self._fields(column[:-1], changed_fields)
        return changed[0]

    def _fields(self, above: Sequence[str], change: Callable[[list[Field]], list[Field]]) -> None:
        """Change the table's columns, or the fields of a struct."""
        self.metadata = with_fields(self.metadata, self._path, above, change)

    def _place(self, fields: list[Field], name: str) -> int:
        return place_of(fields, name, self._path)

    def _moved(self, fields: list[Field], name: str, after: str) -> list[Field]:
        moved = fields[self._place(fields, name)]
        rest = [field for field in fields if field is not moved]
        place = 0 if after == AT_START else self._place(rest, after) + 1
        return [*rest[:place], moved, *rest[place:]]

    def _set_nullable(self, column: tuple[str, ...], *, nullable: bool) -> None:
        before = self.metadata
        self._change(column, lambda field: {**field, "nullable": nullable})
        if not nullable and self.metadata != before:
            spelled = [backquoted(name) for name in column]
            above = "".join(f"{'.'.join(spelled[:depth])} IS NULL OR " for depth in range(1, len(spelled)))
            self.conditions.append((f"{above}{'.'.join(spelled)} IS NOT NULL", f"NOT NULL of {'.'.join(column)}"))
            self._use("invariants", "NOT NULL")

    def _set_default(self, change: SetDefault) -> None:
        if len(change.column) > 1:
            raise ConfigurationError(
                f"{'.'.join(change.column)} is a field of a struct, and only columns have defaults",
                advice="give the whole column a default",
            )

        def with_default(field: Field) -> Field:
            if any(key.startswith(_COMPUTED) for key in field.get("metadata") or {}):
                raise ConfigurationError(
                    f"the column {field['name']!r} is generated, and has no default", advice="leave it as it is"
                )
            # Old rows keep what they have. Readers of Spark's may ask for this value.
            return _with(field, **{DEFAULT: change.expression, EXISTS_DEFAULT: None})

        self._change(change.column, with_default)
        if change.expression is not None:
            self._use("allowColumnDefaults", "a default")

    def _widened(self, field: Field, change: SetType) -> Field:
        before, name = field["type"], field["name"]
        after = delta_type(change.kind, name)
        if before == after:
            return field
        if not isinstance(before, str) or not isinstance(after, str) or not _is_wider(before, change.kind):
            raise SchemaMismatchError(
                f"the column {name!r} of {self._path} has the type {_shown(before)}, which cannot become "
                f"{_shown(after)}",
                advice="choose a type that holds all values of the old one, or make a new table",
                column=name,
            )
        if not type_widening.is_enabled(self.protocol, self.metadata):
            raise UnsupportedFeatureError(
                f"the type of the column {name!r} cannot change: {self._path} does not allow type widening",
                advice="set the table property 'delta.enableTypeWidening' to true first",
                path=self._path,
                features="typeWidening",
            )
        if name.lower() in fixed_columns(self.metadata, self._path):
            raise ConfigurationError(
                f"the type of the column {name!r} of {self._path} cannot change: an expression of the table reads it",
                advice="drop the constraint first, or make a new table",
            )
        return type_widening.with_changes({**field, "type": after}, [TypeChange((), before, after)])

    # --- constraints

    def _add_constraint(self, change: AddConstraint) -> None:
        key = CONSTRAINT_PREFIX + change.name.lower()
        if key in self.metadata.configuration:
            raise ConfigurationError(
                f"{self._path} has a constraint {change.name!r} already: {self.metadata.configuration[key]}",
                advice="drop it first, or choose another name",
            )
        self.operation = "ADD CONSTRAINT"
        self._configure({**self.metadata.configuration, key: change.expression})
        self.conditions.append((change.expression, f"the constraint {change.name!r}"))
        self._use("checkConstraints", "a constraint")

    def _drop_constraint(self, change: DropConstraint) -> None:
        known = {
            name.removeprefix(CONSTRAINT_PREFIX).lower(): name
            for name in self.metadata.configuration
            if name.startswith(CONSTRAINT_PREFIX)
        }
        key = known.get(change.name.lower())
        self.operation = "DROP CONSTRAINT"
        if key is None and change.exists:
            shown = ", ".join(known) or "none"
            raise ConfigurationError(
                f"{self._path} has no constraint {change.name!r}", advice=f"its constraints are: {shown}"
            )
        self._configure({name: text for name, text in self.metadata.configuration.items() if name != key})

    def _configure(self, configuration: dict[str, str]) -> None:
        self.metadata = msgspec.structs.replace(self.metadata, configuration=configuration)

    def _use(self, feature: str, what: str) -> None:
        """Add a table feature to the protocol. Raises UnsupportedFeatureError if it has no lists of features."""
        if allows(self.protocol, feature):
            return
        wanted = with_feature(self.protocol, feature)
        if wanted.min_writer_version != self.protocol.min_writer_version:
            raise UnsupportedFeatureError(
                f"{what} needs the table feature {feature}, which the protocol of {self._path} does not allow",
                advice=f"set the table property 'delta.feature.{feature}' to 'supported' first; clients that do not "
                "support the feature can then no longer write to the table",
                path=self._path,
                features=feature,
            )
        self.protocol = wanted


def _with(field: Field, **entries: str | None) -> Field:
    """The field with entries in its metadata; None removes one."""
    metadata = {**(field.get("metadata") or {}), **entries}
    return {**field, "metadata": {key: value for key, value in metadata.items() if value is not None}}


def _is_wider(before: str, kind: pa.DataType) -> bool:
    """Whether the Delta protocol lets a column of the type `before` become `kind`."""
    known = primitive_of(before)
    if type_widening.wider(known, kind) == kind:
        return True
    if pt.is_date(known):
        return bool(pt.is_timestamp(kind) and kind.tz is None)
    if not pt.is_signed_integer(known):
        return False
    is_short = known.bit_width < pa.int64().bit_width
    if pt.is_decimal(kind):
        return bool(kind.precision - kind.scale >= (_INT_DIGITS if is_short else _LONG_DIGITS))
    return bool(is_short and pt.is_float64(kind))


# The digits before the point that a decimal needs for all integers, as the protocol says.
_INT_DIGITS, _LONG_DIGITS = 10, 20


def _shown(kind: object) -> str:
    return kind if isinstance(kind, str) else str(kind["type"]) if isinstance(kind, dict) else str(kind)
