"""Which files may hold a row that a predicate is true for, by their partition values and statistics alone.

The predicate becomes one over facts about files. For each part of it two questions are asked of a file: may some row
make it true, and may some row make it false? NOT swaps them; a null answers neither. An example, for `NOT n < 5`:

    may be true  of NOT n < 5  =  n < 5 may be false  =  the highest n >= 5
    may be false of NOT n < 5  =  n < 5 may be true   =  the lowest n < 5

What is not known of a file (no statistics, a value that cannot be read, arithmetic) answers "maybe" to both, so the
file is kept. Bounds are compared by the same Arrow expressions as rows, so that rounding is the same: a cast never
turns the order of two values around. A part over partition columns alone is evaluated as it is.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from tidelog.log import predicate
from tidelog.log.format.actions import Metadata
from tidelog.log.format.schema import is_variant, physical_name
from tidelog.log.format.statistics_reader import has_bounds
from tidelog.log.predicate import (
    And,
    Arithmetic,
    Column,
    Comparison,
    Expression,
    In,
    IsNull,
    Literal,
    Not,
    Or,
    StartsWith,
)
from tidelog.log.state.file_values import FileValues, Leaf


class File(Protocol):
    """Whatever names a file with its partition values, and perhaps statistics."""

    @property
    def partition_values(self) -> Mapping[str, str | None] | None:
        """As the `add` action has them."""

    @property
    def stats(self) -> str | None:
        """The statistics' text."""


_ANSWER = "answer"
# Begins the names of facts, which stand beside partition columns under their own names.
_FACT = "\x1f"
_OPPOSITE = {"=": "!=", "!=": "=", "<": ">=", ">=": "<", ">": "<=", "<=": ">"}
# An IN list longer than this is asked for as the range that it spans.
_MAX_TESTED_VALUES = 50
# Statistics of fewer files than this share are decoded for them alone, not for the whole table to be kept.
_FEW = 0.25


# Made when they are needed: Arrow's first value of Python's brings pandas with it, which takes long to import.
@functools.cache
def _maybe() -> pc.Expression:
    return pc.scalar(True)  # noqa: FBT003 - a value


@functools.cache
def _never() -> pc.Expression:
    return pc.scalar(False)  # noqa: FBT003 - a value


@dataclass(frozen=True, slots=True)
class Pruned:
    """`files` are the rows of the table of files that may hold a row; the others fell to one of two rules."""

    files: pa.Table
    total: int
    by_partition: int
    by_statistics: int


def prune(files: pa.Table, expression: Expression, schema: pa.Schema, metadata: Metadata) -> pa.Table:
    """The rows of `files` (columns of the `add` action) that may hold a row for which `expression` is true.

    `schema` is the table's. Never leaves a file out that holds such a row, as long as statistics and partition values
    tell the truth.
    """
    return prune_values(FileValues(files), expression, schema, metadata).files


def may_match(files: Sequence[File], expression: Expression, schema: pa.Schema, metadata: Metadata) -> list[bool]:
    """For each of some files, whether `prune` would keep it; one without statistics goes by its partition."""
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


def prune_values(values: FileValues, expression: Expression, schema: pa.Schema, metadata: Metadata) -> Pruned:
    """As `prune`, with decoded columns that the caller keeps, and counts of what fell to which rule."""
    total = values.files.num_rows
    facts = _Facts(values, schema, metadata)
    asked = facts.leaves_of(expression)
    by_partition = _keep(values.files, facts.answer(expression, with_statistics=False))
    left = by_partition.num_rows
    if not left or not asked:
        return Pruned(by_partition, total, total - left, 0)
    if left < total * _FEW and not values.has(asked):
        facts = _Facts(FileValues(by_partition), schema, metadata)
    answers = facts.answer(expression, with_statistics=True)
    kept = _keep(facts.values.files, answers)
    return Pruned(kept, total, total - left, left - kept.num_rows)


def is_partition_only(expression: Expression, metadata: Metadata) -> bool:
    """Whether partition values alone decide `expression` for every row."""
    return predicate.columns(expression) <= set(metadata.partition_columns)


def wholly_matching(
    values: FileValues, expression: Expression, schema: pa.Schema, metadata: Metadata
) -> pa.BooleanArray:
    """For each file, whether `expression` is sure to be true for all its rows.

    Only partition values tell that: with other columns in `expression` (see `is_partition_only`) no file does.
    """
    if not is_partition_only(expression, metadata):
        return pa.repeat(pa.scalar(False), values.files.num_rows)  # noqa: FBT003 - a value
    return _Facts(values, schema, metadata).certainty(expression)


def _keep(files: pa.Table, answers: pa.BooleanArray) -> pa.Table:
    return files if answers.true_count == len(answers) else files.filter(answers)


class _Facts:
    """A table with a row a file, whose columns are what is known of it; made as expressions ask for them."""

    def __init__(self, values: FileValues, schema: pa.Schema, metadata: Metadata) -> None:
        self.values = values
        self._schema = schema
        self._partition_columns = frozenset(metadata.partition_columns)
        # A double may hold what was written as a float, whose shortest text is not exact as a double.
        self._doubles_exact = "delta.typeChanges" not in metadata.schema_string
        self._columns: dict[str, pa.ChunkedArray] = {}
        self._with_statistics = True

    def answer(self, expression: Expression, *, with_statistics: bool) -> pa.BooleanArray:
        """For each file, whether some row may make `expression` true."""
        self._with_statistics = with_statistics
        if with_statistics:
            self.values.load(self.leaves_of(expression))
        return self._evaluate(self._may(expression, outcome=True), otherwise=True)

    def certainty(self, expression: Expression) -> pa.BooleanArray:
        """For each file, whether an expression over partition columns is sure to be true."""
        condition = pc.coalesce(self._exactly(expression), _never())
        return self._evaluate(condition & ~self._unknown(expression), otherwise=False)

    def leaves_of(self, expression: Expression) -> list[Leaf]:
        """The leaf columns whose statistics may tell something about `expression`."""
        found = (self._leaf(column) for column in _columns_of(expression))
        return list(dict.fromkeys(leaf for leaf in found if leaf is not None))

    # --- from expressions over rows to conditions on files

    def _may(self, expression: Expression, *, outcome: bool) -> pc.Expression:
        """Whether some row of a file may give `expression` this outcome; never null."""
        if predicate.columns(expression) <= self._partition_columns:
            exact = self._exactly(expression)
            return pc.coalesce(exact if outcome else ~exact, _never()) | self._unknown(expression)
        match expression:
            case Not(inner):
                return self._may(inner, outcome=not outcome)
            case And(left, right) | Or(left, right):
                both = self._may(left, outcome=outcome), self._may(right, outcome=outcome)
                return both[0] & both[1] if isinstance(expression, And) == outcome else both[0] | both[1]
            case Comparison(symbol, left, right):
                return self._may_compare(symbol, left, right, outcome=outcome)
            case In(inner, values):
                return self._may_be_in(inner, values, outcome=outcome)
            case IsNull(Column() as column):
                return self._may_be_null(column, outcome=outcome)
            case StartsWith(Column() as column, prefix):
                return self._may_start(column, prefix, outcome=outcome)
            case Column():
                return self._may_compare("=", expression, Literal(outcome), outcome=True)
            case _:
                return _maybe()

    def _may_compare(self, symbol: str, left: Expression, right: Expression, *, outcome: bool) -> pc.Expression:
        if Literal(None) in (left, right):
            return _never()
        # NaN is in no bounds. Compared, it is unequal to everything and neither below nor above.
        if (symbol == "!=") == outcome and (self._is_float(left) or self._is_float(right)):
            return self._some_value(left, right)
        lows = self._bound(left, "low"), self._bound(right, "low")
        highs = self._bound(left, "high"), self._bound(right, "high")
        if None in (*lows, *highs):
            return _maybe()
        match symbol if outcome else _OPPOSITE[symbol]:
            case "=":
                possible = self._holds("<=", lows[0], highs[1]) & self._holds(">=", highs[0], lows[1])
            case "!=":
                possible = self._holds("<", lows[0], highs[1]) | self._holds(">", highs[0], lows[1])
            case ("<" | "<=") as below:
                possible = self._holds(below, lows[0], highs[1])
            case above:
                possible = self._holds(above, highs[0], lows[1])
        return possible & self._some_value(left, right)

    def _may_be_in(self, inner: Expression, values: Sequence[predicate.Value], *, outcome: bool) -> pc.Expression:
        if len(values) > _MAX_TESTED_VALUES:
            present = [value for value in values if value is not None]
            numbers = all(isinstance(value, (int, float)) and not isinstance(value, bool) for value in present)
            texts = all(isinstance(value, str) for value in present) and self._is_text(inner)
            if not outcome or not present or not (numbers or texts):
                return _maybe()
            low, high = Literal(min(present)), Literal(max(present))
            return self._may(And(Comparison(">=", inner, low), Comparison("<=", inner, high)), outcome=True)
        tests = [self._may(Comparison("=", inner, Literal(value)), outcome=outcome) for value in values]
        return functools.reduce(operator.or_ if outcome else operator.and_, tests)

    def _may_be_null(self, column: Column, *, outcome: bool) -> pc.Expression:
        nulls = self._fact("nulls", column)
        if nulls is None:
            return _maybe()
        # After deletions the count may be of dead rows too; that none or all of them were null stays true.
        never = pc.scalar(0) if outcome else pc.field(self._rows())
        return pc.coalesce(pc.field(nulls) != never, _maybe())

    def _may_start(self, column: Column, prefix: str, *, outcome: bool) -> pc.Expression:
        if not self._is_text(column):
            return _maybe()
        low, high = self._bound(column, "low"), self._bound(column, "high")
        if low is None or high is None:
            return _maybe()
        starts = [pc.starts_with(pc.field(*bound.path), prefix) for bound in (low, high) if isinstance(bound, Column)]
        if outcome:
            possible = self._holds(">=", high, Literal(prefix)) & (
                self._holds("<=", low, Literal(prefix)) | pc.coalesce(starts[0], _maybe())
            )
        else:
            possible = pc.coalesce(~(starts[0] & starts[1]), _maybe())
        return possible & self._some_value(column)

    def _some_value(self, *sides: Expression) -> pc.Expression:
        """Whether a row may have a value on each side: a comparison with null is neither true nor false."""
        conditions = [self._may_be_null(side, outcome=False) for side in sides if isinstance(side, Column)]
        return functools.reduce(operator.and_, conditions, _maybe())

    def _holds(self, symbol: str, left: Expression | None, right: Expression | None) -> pc.Expression:
        if left is None or right is None:
            return _maybe()
        return pc.coalesce(predicate.to_arrow(Comparison(symbol, left, right), self._known_schema()), _maybe())

    def _exactly(self, expression: Expression) -> pc.Expression:
        for name in predicate.columns(expression):
            self._known(name)
        return predicate.to_arrow(expression, self._known_schema())

    def _unknown(self, expression: Expression) -> pc.Expression:
        names = sorted(predicate.columns(expression))
        return functools.reduce(operator.or_, [~pc.field(self._known(name)) for name in names], _never())

    # --- the columns

    def _bound(self, side: Expression, which: str) -> Expression | None:
        if isinstance(side, Literal):
            return side
        if not isinstance(side, Column):
            return None
        if side.path[0] in self._partition_columns:
            self._known(side.path[0])
            return side
        name = self._fact(which, side)
        return None if name is None else Column((name,))

    def _known(self, name: str) -> str:
        """The name of the column that tells where a partition column's value is known; makes both."""
        known = f"{_FACT}known {name}"
        if known not in self._columns:
            field = self._schema.field(name)
            self._columns[name], self._columns[known] = self.values.partition(physical_name(field), field.type)
        return known

    def _fact(self, which: str, column: Column) -> str | None:
        """The name of the column that holds a leaf's low, high or nulls; None where statistics cannot tell."""
        leaf = self._leaf(column)
        if leaf is None or not self._with_statistics:
            return None
        _, kind = leaf
        if which != "nulls" and not (has_bounds(kind) and (self._doubles_exact or kind != pa.float64())):
            return None
        name = f"{_FACT}{which} {column.path}"
        self._columns[name] = getattr(self.values.bounds(leaf), which)
        return name

    def _rows(self) -> str:
        name = f"{_FACT}rows"
        self._columns[name] = self.values.rows()
        return name

    def _leaf(self, column: Column) -> Leaf | None:
        """A column's physical path and type; None for what has no statistics of its own."""
        kind: pa.DataType = pa.struct(list(self._schema))
        path = []
        for name in column.path:
            index = kind.get_field_index(name) if pt.is_struct(kind) else -1
            if index < 0 or is_variant(kind.field(index)):
                return None
            path.append(physical_name(kind.field(index)))
            kind = kind.field(index).type
        is_partition = column.path[0] in self._partition_columns
        return None if is_partition or pt.is_struct(kind) else (tuple(path), kind)

    def _is_float(self, side: Expression) -> bool:
        return isinstance(side, Column) and bool(pt.is_floating(predicate.column_type(side, self._schema)))

    def _is_text(self, side: Expression) -> bool:
        return isinstance(side, Column) and bool(pt.is_string(predicate.column_type(side, self._schema)))

    def _known_schema(self) -> pa.Schema:
        return pa.schema([(name, column.type) for name, column in self._columns.items()])

    def _evaluate(self, condition: pc.Expression, *, otherwise: bool) -> pa.BooleanArray:
        # Brings pandas with it, which takes longer to import than all the rest.
        import pyarrow.dataset as ds  # noqa: PLC0415

        files = self.values.files.num_rows
        if not self._columns:
            # A row a file to evaluate constants on.
            self._columns["row"] = pa.chunked_array([pa.nulls(files)])
        try:
            answers = ds.dataset(pa.table(self._columns)).to_table(columns={_ANSWER: condition})[_ANSWER]
        except pa.ArrowException:
            # Arithmetic that overflows or divides by zero: the reader says so where a row is concerned.
            return pa.repeat(pa.scalar(otherwise), files)
        return answers.combine_chunks()


def _columns_of(expression: Expression) -> list[Column]:
    match expression:
        case Column():
            return [expression]
        case Literal():
            return []
        case Not(inner) | IsNull(inner) | In(inner, _) | StartsWith(inner, _):
            return _columns_of(inner)
        case Arithmetic(_, left, right) | Comparison(_, left, right) | And(left, right) | Or(left, right):
            return [*_columns_of(left), *_columns_of(right)]
