"""Find the files that may hold a row matching a predicate, using partition values and statistics only.

The predicate is translated into a condition on files. Each part of it is asked two questions about a file: can a row
make it true, and can a row make it false? NOT swaps the two; a null makes neither true. For `NOT n < 5`:

    NOT n < 5 can be true   =  n < 5 can be false  =  the highest n >= 5
    NOT n < 5 can be false  =  n < 5 can be true   =  the lowest n < 5

If a fact about a file is unknown (no statistics, an unreadable value, a function), both answers are "maybe" and the
file is kept. A part that uses only partition columns or constants is evaluated exactly. Bounds are
compared as rows are, so both are rounded alike, and casts keep the order of values.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from tidelog.log import predicate
from tidelog.log.errors import PredicateError
from tidelog.log.format.actions import Metadata
from tidelog.log.format.schema import fields_within, is_list, is_variant, physical_name
from tidelog.log.format.statistics_reader import has_bounds
from tidelog.log.predicate import (
    FUNCTIONS,
    And,
    Arithmetic,
    Call,
    Cast,
    Column,
    Comparison,
    Condition,
    Expression,
    In,
    Interval,
    IsNull,
    Like,
    Literal,
    Not,
    Or,
    like_prefix,
    result_type,
)
from tidelog.log.state.files import FileState, FileValues, Leaf
from tidelog.log.state.loader import LogState


class File(Protocol):
    """A file with its partition values and, if known, statistics."""

    @property
    def partition_values(self) -> Mapping[str, str | None] | None:
        """The `partitionValues` of the `add` action."""

    @property
    def stats(self) -> str | None:
        """The `stats` of the `add` action: JSON text, or None."""


# If a smaller share of the files is left, their statistics are decoded for this call only, not for all files.
_FEW = 0.25


@dataclass(frozen=True, slots=True)
class Pruned:
    """`files` are the files that may hold a matching row, of so many that may by their partitions.

    `values` are what the log knows of them, and perhaps of others.
    """

    files: pa.Table
    in_partitions: int
    values: FileValues


def prune(files: pa.Table, expression: Expression, schema: pa.Schema, metadata: Metadata) -> pa.Table:
    """The files that may hold a row for which `expression` is true.

    `files` has the columns of the `add` action, `schema` is the table's. Never drops a file that holds such a row,
    provided that its statistics and partition values are correct.
    """
    return prune_values(FileValues(files), expression, schema, metadata).files


def may_match(files: Sequence[File], expression: Expression, schema: pa.Schema, metadata: Metadata) -> list[bool]:
    """For each file, whether `prune` would keep it. A file without statistics is judged by its partition only."""
    maps = [_items(file.partition_values) for file in files]
    table = pa.table(
        {
            "partitionValues": pa.array(maps, pa.map_(pa.string(), pa.string())),
            "stats": pa.array([file.stats for file in files], pa.string()),
            "number": pa.array(range(len(files)), pa.int64()),
        }
    )
    kept = set(prune(table, expression, schema, metadata)["number"].to_pylist())
    return [number in kept for number in range(len(files))]


def _items(values: Mapping[str, str | None] | None) -> list[tuple[str, str | None]] | None:
    return None if values is None else list(values.items())


def prune_state(state: LogState, expression: Expression, schema: pa.Schema, metadata: Metadata) -> Pruned:
    """Like `prune` for the live files of a version, of which no more are loaded than necessary."""
    return prune_values(state_within(state, expression, schema, metadata).values, expression, schema, metadata)


def state_within(state: LogState, expression: Expression, schema: pa.Schema, metadata: Metadata) -> FileState:
    """The live files that `prune` may keep by their partitions, and perhaps others."""
    if predicate.columns(expression).isdisjoint(metadata.partition_columns):
        return state.files()
    # Within bounds, partition columns are judged as columns of a file are by its statistics.
    unpartitioned = msgspec.structs.replace(metadata, partition_columns=())

    def matches(bounds: Sequence[str]) -> list[bool]:
        stats = pa.array(bounds, pa.string())
        maps = pa.nulls(len(bounds), pa.map_(pa.string(), pa.string()))
        table = pa.table({"partitionValues": maps, "stats": stats, "number": pa.array(range(len(bounds)))})
        kept = set(prune(table, expression, schema, unpartitioned)["number"].to_pylist())
        return [number in kept for number in range(len(bounds))]

    return state.files_within(matches)


def prune_values(values: FileValues, expression: Expression, schema: pa.Schema, metadata: Metadata) -> Pruned:
    """Like `prune`, with decoded columns that the caller keeps."""
    facts = FileOutcomes(values, expression, schema, metadata)
    asked = facts.leaves
    by_partition = _keep(values.files, facts.answer(with_statistics=False))
    left = by_partition.num_rows
    if not left or not asked:
        return Pruned(by_partition, left, values)
    if left < values.files.num_rows * _FEW and not values.has(asked):
        facts = FileOutcomes(FileValues(by_partition), expression, schema, metadata)
    answers = facts.answer(with_statistics=True)
    kept = _keep(facts.values.files, answers)
    return Pruned(kept, left, facts.values)


def is_partition_only(expression: Expression, metadata: Metadata) -> bool:
    """Whether partition values are enough to evaluate `expression` for every row."""
    return predicate.columns(expression) <= set(metadata.partition_columns)


def wholly_matching(
    values: FileValues, expression: Expression, schema: pa.Schema, metadata: Metadata
) -> pa.BooleanArray:
    """For each file, whether `expression` is certainly true for all its rows, according to the log."""
    return FileOutcomes(values, expression, schema, metadata).certainty()


def _keep(files: pa.Table, answers: pa.BooleanArray) -> pa.Table:
    return files if answers.true_count == len(answers) else files.filter(answers)


# --- whether a row of a file can make a predicate true or false -------------------------------------------------------

_OPPOSITE = {"=": "!=", "!=": "=", "<": ">=", ">=": "<", ">": "<=", "<=": ">"}
# A longer IN list is tested as the range that it spans.
_MAX_TESTED_VALUES = 50


class FileOutcomes:
    """What rows of files can give for `expression`, judged by facts about the files.

    Each method answers for all files at once. `outcome` says which outcome is asked for.
    """

    def __init__(self, values: FileValues, expression: Expression, schema: pa.Schema, metadata: Metadata) -> None:
        self.values = values
        self._expression = expression
        self._facts = FileFacts(values, expression, schema, metadata)
        self.leaves = self._facts.leaves

    def answer(self, *, with_statistics: bool) -> pa.BooleanArray:
        """For each file, whether a row can make the expression true."""
        self._facts.with_statistics = with_statistics
        if with_statistics:
            self.values.load(self.leaves)
        return self._may(self._expression, outcome=True)

    def certainty(self) -> pa.BooleanArray:
        """For each file, whether the expression is certainly true for all its rows: no row makes it false or null."""
        self._facts.with_statistics = True
        self.values.load(self.leaves)
        return pc.invert(
            pc.or_(self._may(self._expression, outcome=False), self._may_have_no_outcome(self._expression))
        )

    def _may(  # noqa: PLR0911, PLR0912 - a case for each kind of node
        self, expression: Expression, *, outcome: bool
    ) -> pa.BooleanArray:
        """Whether a row of a file can give `expression` this outcome."""
        facts = self._facts
        if facts.is_exact(expression):
            exact = facts.outcomes(expression)
            if exact is None:
                return facts.always(answer=True)
            wanted = exact if outcome else pc.invert(exact)
            return pc.or_(pc.fill_null(wanted, False), facts.unknown(expression))  # noqa: FBT003 - a value
        match expression:
            case Not(inner):
                return self._may(inner, outcome=not outcome)
            case And(left, right) | Or(left, right):
                both = self._may(left, outcome=outcome), self._may(right, outcome=outcome)
                return pc.and_(*both) if isinstance(expression, And) == outcome else pc.or_(*both)
            case Comparison(symbol, left, right):
                return self._may_compare(symbol, left, right, outcome=outcome)
            case In(inner, values):
                return self._may_be_in(inner, values, outcome=outcome)
            case IsNull(Column() as column) | Call("isnull", (Column() as column,)):
                return facts.may_be_null(column, outcome=outcome)
            case Call("isnotnull", (Column() as column,)):
                return facts.may_be_null(column, outcome=not outcome)
            case Like(Column() as column, pattern, escape):
                return self._may_start(column, *like_prefix(pattern, escape), outcome=outcome)
            case Call("startswith", (Column() as column, Literal(str(prefix)))):
                return self._may_start(column, prefix, True, outcome=outcome)  # noqa: FBT003 - as `like_prefix` has it
            case Column():
                return self._may_compare("=", expression, Literal(outcome), outcome=True)
            case Call(name, arguments):
                return self._may_call(name, arguments, outcome=outcome)
            case _:
                return facts.always(answer=True)

    def _may_call(self, name: str, arguments: Sequence[Expression], *, outcome: bool) -> pa.BooleanArray:
        """Operators that are kept as functions."""
        match name, arguments:
            case "between", (value, low, high):
                both = And(Comparison(">=", value, low), Comparison("<=", value, high))
                return self._may(both, outcome=outcome)
            case "in", (value, *others):
                tests = [self._may(Comparison("=", value, other), outcome=outcome) for other in others]
                return functools.reduce(pc.or_ if outcome else pc.and_, tests)
            case "istrue" | "isfalse", (inner,) if outcome:
                return self._may(inner, outcome=name == "istrue")
            case "<=>", (value, Literal(None)) | (Literal(None), value):
                return self._may(IsNull(value), outcome=outcome)
            case "<=>", (left, right) if outcome and (isinstance(left, Literal) or isinstance(right, Literal)):
                return self._may(Comparison("=", left, right), outcome=True)
            case _:
                return self._facts.always(answer=True)

    def _may_have_no_outcome(self, expression: Expression) -> pa.BooleanArray:
        """Whether a row of a file can make `expression` null, or an error."""
        facts = self._facts
        if facts.is_exact(expression):
            exact = facts.outcomes(expression)
            if exact is None:
                return facts.always(answer=True)
            return pc.or_(pc.is_null(exact), facts.unknown(expression))
        match expression:
            case Not(inner):
                return self._may_have_no_outcome(inner)
            case And(left, right) | Or(left, right):
                return pc.or_(self._may_have_no_outcome(left), self._may_have_no_outcome(right))
            case IsNull(Column()):
                return facts.always(answer=False)
            case Comparison(_, left, right):
                return self._some_null(left, right)
            case In(inner, values):
                return self._some_null(inner, *map(Literal, values))
            case Like(inner, _, _):
                return self._some_null(inner)
            case _:
                return self._some_null(expression)

    def _some_null(self, *parts: Expression) -> pa.BooleanArray:
        """Whether one of the parts can be null, or something else than a column and a constant."""
        facts = self._facts
        if any(part == Literal(None) or not isinstance(part, (Column, Literal)) for part in parts):
            return facts.always(answer=True)
        nulls = [facts.may_be_null(part, outcome=True) for part in parts if isinstance(part, Column)]
        return functools.reduce(pc.or_, nulls, facts.always(answer=False))

    def _may_compare(self, symbol: str, left: Expression, right: Expression, *, outcome: bool) -> pa.BooleanArray:
        facts = self._facts
        if Literal(None) in (left, right):
            return facts.always(answer=False)
        if facts.reads_texts(left, right) or facts.reads_texts(right, left):
            return facts.always(answer=True)
        # Bounds ignore NaN, which is unequal to every value and neither below nor above it.
        if (symbol == "!=") == outcome and (facts.is_float(left) or facts.is_float(right)):
            return self._some_value(left, right)
        lows = facts.bound(left, "low"), facts.bound(right, "low")
        highs = facts.bound(left, "high"), facts.bound(right, "high")
        if None in (*lows, *highs):
            return facts.always(answer=True)
        match symbol if outcome else _OPPOSITE[symbol]:
            case "=":
                possible = pc.and_(facts.holds("<=", lows[0], highs[1]), facts.holds(">=", highs[0], lows[1]))
            case "!=":
                possible = pc.or_(facts.holds("<", lows[0], highs[1]), facts.holds(">", highs[0], lows[1]))
            case ("<" | "<=") as below:
                possible = facts.holds(below, lows[0], highs[1])
            case above:
                possible = facts.holds(above, highs[0], lows[1])
        return pc.and_(possible, self._some_value(left, right))

    def _may_be_in(self, inner: Expression, values: Sequence[predicate.Value], *, outcome: bool) -> pa.BooleanArray:
        present: list[Any] = [value for value in values if value is not None]
        if len({isinstance(value, str) for value in present}) > 1:  # all of them are compared as one type
            return self._facts.always(answer=True)
        if len(values) > _MAX_TESTED_VALUES:
            numbers = all(isinstance(value, (int, float)) and not isinstance(value, bool) for value in present)
            texts = all(isinstance(value, str) for value in present) and self._facts.is_text(inner)
            if not outcome or not present or not (numbers or texts):
                return self._facts.always(answer=True)
            low, high = Literal(min(present)), Literal(max(present))
            return self._may(And(Comparison(">=", inner, low), Comparison("<=", inner, high)), outcome=True)
        tests = [self._may(Comparison("=", inner, Literal(value)), outcome=outcome) for value in values]
        return functools.reduce(pc.or_ if outcome else pc.and_, tests)

    def _may_start(self, column: Column, prefix: str, open_end: bool, *, outcome: bool) -> pa.BooleanArray:  # noqa: FBT001
        """Whether a text can begin with `prefix`. With an `open_end`, each such text matches."""
        facts = self._facts
        starts = facts.starts(column, prefix) if facts.is_text(column) else None
        if starts is None:
            return facts.always(answer=True)
        if outcome:
            below = pc.or_(
                facts.holds("<=", facts.bound(column, "low"), Literal(prefix)),
                pc.fill_null(starts[0], True),  # noqa: FBT003 - a value
            )
            possible = pc.and_(facts.holds(">=", facts.bound(column, "high"), Literal(prefix)), below)
        elif open_end:
            possible = pc.fill_null(pc.invert(pc.and_(*starts)), True)  # noqa: FBT003 - a value
        else:
            possible = facts.always(answer=True)
        return pc.and_(possible, self._some_value(column))

    def _some_value(self, *sides: Expression) -> pa.BooleanArray:
        """Whether a row can have a value on each side. A comparison with null is neither true nor false."""
        columns = [column for column in map(self._facts.grows_with, sides) if column is not None]
        conditions = [self._facts.may_be_null(column, outcome=False) for column in columns]
        return functools.reduce(pc.and_, conditions, self._facts.always(answer=True))


# --- facts about files ------------------------------------------------------------------------------------------------

# Prefix of the columns that hold facts, so that they cannot clash with partition columns.
_FACT = "\x1f"
# deltalake up to 1.6.0 counts the nulls inside of lists and maps under these names, in place of those of a real column.
# So the counts of fields with these names, at any depth, are not believed in a table with a list or map at any depth.
_MISCOUNTED = frozenset({"item", "element", "key", "keys", "value", "values"})


class FileFacts:
    """Facts as columns of a table with one row for each file, and conditions that are evaluated on them.

    Facts are added as the parts of `expression` need them. Answers are for each file, and never null. `leaves` are the
    leaf columns whose statistics can help to judge the expression.
    """

    def __init__(self, values: FileValues, expression: Expression, schema: pa.Schema, metadata: Metadata) -> None:
        self.values = values
        self.partition_columns = frozenset(metadata.partition_columns)
        self.with_statistics = True
        self._schema = schema
        # A column widened from float to double may have bounds written as the shortest text of the float, which is
        # not exact as a double.
        self._doubles_exact = "delta.typeChanges" not in metadata.schema_string
        self._columns: dict[str, pa.Array] = {}
        self._expression = expression  # its parts stay, so that no other expression gets the identity of one
        self._names = predicate.columns_of_parts(expression)
        columns = dict.fromkeys(predicate.column_nodes(expression))
        self._leaves = {column: self._leaf(column) for column in columns}
        self.leaves = list(dict.fromkeys(leaf for leaf in self._leaves.values() if leaf is not None))
        self._bounded = {leaf for leaf in self.leaves if has_bounds(leaf[1])}

    def always(self, *, answer: bool) -> pa.BooleanArray:
        """The same answer for all files."""
        return pa.repeat(pa.scalar(answer), self.values.files.num_rows)

    def is_exact(self, expression: Expression) -> bool:
        """Whether the partition values are enough to evaluate it."""
        return self._names_in(expression) <= self.partition_columns

    def outcomes(self, expression: Expression) -> pa.BooleanArray | None:
        """The outcomes of an exact expression, which can be null; None if it fails for a file."""
        for name in self._names_in(expression):
            self._known(name)
        try:
            return self._evaluated(expression)
        except pa.ArrowException:  # arithmetic overflowed or divided by zero; the reader raises if a row does so
            return None

    def unknown(self, expression: Expression) -> pa.BooleanArray:
        """Whether a partition value that the expression reads is not known."""
        names = sorted(self._names_in(expression))
        known = [self._columns[self._known(name)] for name in names]
        return pc.invert(functools.reduce(pc.and_, known)) if known else self.always(answer=False)

    def bound(self, side: Expression, which: str) -> Expression | None:
        """The lowest or highest value of an expression, in terms of facts; None if it is not known."""
        names = self._names_in(side)
        if names <= self.partition_columns:
            for name in names:
                self._known(name)
            return side
        column = self.grows_with(side)
        fact = None if column is None else self._fact(which, column)
        return None if column is None or fact is None else with_column(side, column, Column((fact,)))

    def grows_with(self, side: Expression) -> Column | None:
        """The column whose bounds give the bounds of `side`; see `column_of`."""
        return column_of(side, self._schema)

    def holds(self, symbol: str, left: Expression | None, right: Expression | None) -> pa.BooleanArray:
        """Whether a comparison of bounds is true; also where a bound is not known."""
        if left is None or right is None:
            return self.always(answer=True)
        try:
            found = self._evaluated(Comparison(symbol, left, right))
        except (PredicateError, pa.ArrowException):  # too many digits to compare, or the expression fails for a bound
            return self.always(answer=True)
        return pc.fill_null(found, True)  # noqa: FBT003 - a value

    def starts(self, column: Column, prefix: str) -> tuple[pa.BooleanArray, pa.BooleanArray] | None:
        """Whether the lowest and the highest value begin with `prefix`, which can be null."""
        bounds = [self.bound(column, which) for which in ("low", "high")]
        if not all(isinstance(bound, Column) for bound in bounds):
            return None
        low, high = (pc.starts_with(self._columns[bound.path[0]], prefix) for bound in bounds)  # type: ignore[union-attr]
        return low, high

    def may_be_null(self, column: Column, *, outcome: bool) -> pa.BooleanArray:
        """Whether a row can be null, or for `outcome` False, whether a row can have a value."""
        nulls = None if self._is_miscounted(column) else self._fact("nulls", column)
        if nulls is None:
            return self.always(answer=True)
        # The count may include dead rows. It still proves that no row, or every row, is null.
        never = pa.scalar(0) if outcome else self._rows()
        return pc.fill_null(pc.not_equal(self._columns[nulls], never), True)  # noqa: FBT003 - a value

    def _is_miscounted(self, column: Column) -> bool:
        """Whether a writer may have counted other nulls under the column's name."""
        leaf = self._leaves[column] if column in self._leaves else self._leaf(column)
        if leaf is None or leaf[0][-1] not in _MISCOUNTED:
            return False
        fields = (inner for field in self._schema for inner in fields_within(field))
        return any(is_list(field.type) or pt.is_map(field.type) for field in fields)

    def is_float(self, side: Expression) -> bool:
        """Whether it can be NaN, which bounds ignore: a column in it, or what it computes without one."""
        nodes = predicate.column_nodes(side)
        if nodes:
            return any(pt.is_floating(predicate.column_type(column, self._schema)) for column in nodes)
        if isinstance(side, Literal):
            return isinstance(side.value, str) and side.value.strip().lower() == "nan"
        kind = _type(side, self._schema)
        return kind is None or pt.is_floating(kind) or pt.is_string(kind)

    def reads_texts(self, side: Expression, other: Expression) -> bool:
        """Whether bounds of texts would be compared as values of another type, which have another order."""
        if (
            not self.is_text(side)
            or self.is_exact(side)
            or (isinstance(other, Literal) and isinstance(other.value, str))
        ):
            return False
        kind = _type(other, self._schema)
        return kind is None or not pt.is_string(kind)

    def is_text(self, side: Expression) -> bool:
        """Whether it is a column of texts."""
        return isinstance(side, Column) and bool(pt.is_string(predicate.column_type(side, self._schema)))

    def _names_in(self, part: Expression) -> frozenset[str]:
        """The names of the columns in a part of the expression, or in another one."""
        names = self._names.get(id(part))
        return frozenset(predicate.columns(part)) if names is None else names

    def _evaluated(self, expression: Expression) -> pa.BooleanArray:
        names = sorted(predicate.columns(expression))
        columns = [self._columns[name] for name in names] or [pa.nulls(self.values.files.num_rows)]
        facts = pa.RecordBatch.from_arrays(columns, names or ["row"])
        return Condition(expression, facts.schema).outcomes(facts)

    def _known(self, name: str) -> str:
        """Add a partition column, and one that says where its value is known; return the name of the latter."""
        known = f"{_FACT}known {name}"
        if known not in self._columns:
            field = self._schema.field(name)
            found = self.values.partition(physical_name(field), field.type)
            self._add(zip((name, known), found, strict=True))
        return known

    def _fact(self, which: str, column: Column) -> str | None:
        """The name of the column with a leaf's low, high or nulls; None if statistics cannot provide it."""
        leaf = self._leaves[column] if column in self._leaves else self._leaf(column)
        if leaf is None or not self.with_statistics:
            return None
        if which != "nulls" and (leaf not in self._bounded or not (self._doubles_exact or leaf[1] != pa.float64())):
            return None
        name = f"{_FACT}{which} {column.path}"
        if name not in self._columns:
            found = self.values.bounds(leaf)
            known = {"low": found.low, "high": found.high, "nulls": found.nulls}
            self._add((f"{_FACT}{bound} {column.path}", values) for bound, values in known.items())
        return name

    def _rows(self) -> pa.Array:
        name = f"{_FACT}rows"
        if name not in self._columns:
            self._add([(name, self.values.rows())])
        return self._columns[name]

    def _add(self, columns: Iterable[tuple[str, pa.ChunkedArray]]) -> None:
        self._columns |= {name: column.combine_chunks() for name, column in columns}

    def _leaf(self, column: Column) -> Leaf | None:
        """A column's physical path and type; None if it has no statistics."""
        kind: pa.DataType = pa.struct(list(self._schema))
        path = []
        for name in column.path:
            index = kind.get_field_index(name) if pt.is_struct(kind) else -1
            if index < 0 or is_variant(kind.field(index)):
                return None
            path.append(physical_name(kind.field(index)))
            kind = kind.field(index).type
        is_partition = column.path[0] in self.partition_columns
        return None if is_partition or pt.is_struct(kind) else (tuple(path), kind)


# --- expressions that grow with one column ----------------------------------------------------------------------------
#
# Their bounds in a file are those of the column, put into the expression.


def column_of(expression: Expression, schema: pa.Schema) -> Column | None:
    """The column with which `expression` grows, or at least never falls; None if there is none.

    Such an expression is null where the column is.
    """
    match expression:
        case Column():
            return expression
        case Cast(inner, kind):
            return column_of(inner, schema) if _is_ordered(inner, schema) and _keeps_order(kind) else None
        case Arithmetic("+" | "-" as symbol, left, right):
            inner, step = (right, left) if symbol == "+" and not predicate.columns(left) else (left, right)
            if predicate.columns(step) or not _can_step(expression, step, schema):
                return None
            return column_of(inner, schema)
        case Call(name, arguments):
            place = FUNCTIONS[name].monotone
            if place is None or not _is_ordered(arguments[place], schema):
                return None
            if any(predicate.columns(other) for other in (*arguments[:place], *arguments[place + 1 :])):
                return None
            if _hides_nan(expression, arguments[place], schema):
                return None
            return column_of(arguments[place], schema)
        case _:
            return None


def with_column(expression: Expression, old: Column, new: Column) -> Expression:
    """The expression with another column."""
    if expression == old:
        return new
    return predicate.with_parts(expression, [with_column(part, old, new) for part in predicate.parts(expression)])


def _keeps_order(kind: pa.DataType) -> bool:
    return not pt.is_string(kind) and not pt.is_boolean(kind)


def _is_ordered(inner: Expression, schema: pa.Schema) -> bool:
    """Whether the values are numbers, dates or timestamps. Texts of them have another order."""
    kind = _type(inner, schema)
    return kind is not None and not (pt.is_string(kind) or pt.is_boolean(kind) or pt.is_nested(kind))


def _hides_nan(call: Expression, argument: Expression, schema: pa.Schema) -> bool:
    """Whether a function makes a number of NaN, as `floor` does, which bounds ignore."""
    kinds = _type(argument, schema), _type(call, schema)
    return None in kinds or (pt.is_floating(kinds[0]) and not pt.is_floating(kinds[1]))


def _can_step(sum_: Expression, step: Expression, schema: pa.Schema) -> bool:
    """Whether adding `step` keeps the order. Adding infinity does not, nor do months that shorten days to one."""
    kind = _type(sum_, schema)
    if kind is None or pt.is_floating(kind):
        return False
    has_months = isinstance(step, Literal) and isinstance(step.value, Interval) and step.value.months != 0
    return not (has_months and pt.is_timestamp(kind))


def _type(expression: Expression, schema: pa.Schema) -> pa.DataType | None:
    try:
        return result_type(expression, schema)
    except PredicateError:
        return None
