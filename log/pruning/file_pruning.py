"""Find the files that may hold a row matching a predicate, using partition values and statistics only.

The predicate is translated into a condition on files. Each part of it is asked two questions about a file: can a row
make it true, and can a row make it false? NOT swaps the two; a null makes neither true. For `NOT n < 5`:

    NOT n < 5 can be true   =  n < 5 can be false  =  the highest n >= 5
    NOT n < 5 can be false  =  n < 5 can be true   =  the lowest n < 5

If a fact about a file is unknown (no statistics, an unreadable value, arithmetic), both answers are "maybe" and the
file is kept. Bounds are compared with the same Arrow expressions as rows, so both are rounded alike, and casts keep the
order of values. A part that uses only partition columns is evaluated exactly.
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
from tidelog.log.errors import PredicateError
from tidelog.log.format.actions import Metadata
from tidelog.log.format.schema import is_variant, physical_name
from tidelog.log.format.statistics_reader import has_bounds
from tidelog.log.predicate import (
    And,
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
    """A file with its partition values and, if known, statistics."""

    @property
    def partition_values(self) -> Mapping[str, str | None] | None:
        """The `partitionValues` of the `add` action."""

    @property
    def stats(self) -> str | None:
        """The `stats` of the `add` action: JSON text, or None."""


_ANSWER = "answer"
# Prefix of the columns that hold facts, so that they cannot clash with partition columns.
_FACT = "\x1f"
_OPPOSITE = {"=": "!=", "!=": "=", "<": ">=", ">=": "<", ">": "<=", "<=": ">"}
# A longer IN list is tested as the range that it spans.
_MAX_TESTED_VALUES = 50
# If a smaller share of the files is left, their statistics are decoded for this call only, not for all files.
_FEW = 0.25


# Created lazily: the first `pc.scalar` of a Python value imports pandas, which is slow.
@functools.cache
def _maybe() -> pc.Expression:
    return pc.scalar(True)  # noqa: FBT003 - a value


@functools.cache
def _never() -> pc.Expression:
    return pc.scalar(False)  # noqa: FBT003 - a value


@dataclass(frozen=True, slots=True)
class Pruned:
    """`files` are the files that may hold a matching row, of `total`. The other two fields count the files dropped."""

    files: pa.Table
    total: int
    by_partition: int
    by_statistics: int


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


def prune_values(values: FileValues, expression: Expression, schema: pa.Schema, metadata: Metadata) -> Pruned:
    """Like `prune`, with decoded columns that the caller keeps, and counts of the files that each rule dropped."""
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
    """Whether partition values are enough to evaluate `expression` for every row."""
    return predicate.columns(expression) <= set(metadata.partition_columns)


def wholly_matching(
    values: FileValues, expression: Expression, schema: pa.Schema, metadata: Metadata
) -> pa.BooleanArray:
    """For each file, whether `expression` is certainly true for all its rows.

    Only partition values can prove that. If `expression` uses another column (see `is_partition_only`), the answer is
    False for every file.
    """
    if not is_partition_only(expression, metadata):
        return pa.repeat(pa.scalar(False), values.files.num_rows)  # noqa: FBT003 - a value
    return _Facts(values, schema, metadata).certainty(expression)


def _keep(files: pa.Table, answers: pa.BooleanArray) -> pa.Table:
    return files if answers.true_count == len(answers) else files.filter(answers)


class _Facts:
    """A table with one row for each file. Its columns are facts about the files, added as expressions need them."""

    def __init__(self, values: FileValues, schema: pa.Schema, metadata: Metadata) -> None:
        self.values = values
        self._schema = schema
        self._partition_columns = frozenset(metadata.partition_columns)
        # A column widened from float to double may have bounds written as the shortest text of the float, which is
        # not exact as a double.
        self._doubles_exact = "delta.typeChanges" not in metadata.schema_string
        self._columns: dict[str, pa.ChunkedArray] = {}
        self._with_statistics = True

    def answer(self, expression: Expression, *, with_statistics: bool) -> pa.BooleanArray:
        """For each file, whether a row can make `expression` true."""
        self._with_statistics = with_statistics
        if with_statistics:
            self.values.load(self.leaves_of(expression))
        return self._evaluate(self._may(expression, outcome=True), otherwise=True)

    def certainty(self, expression: Expression) -> pa.BooleanArray:
        """For each file, whether an expression over partition columns is certainly true."""
        condition = pc.coalesce(self._exactly(expression), _never())
        return self._evaluate(condition & ~self._unknown(expression), otherwise=False)

    def leaves_of(self, expression: Expression) -> list[Leaf]:
        """The leaf columns whose statistics can help to judge `expression`."""
        found = (self._leaf(column) for column in predicate.column_nodes(expression))
        return list(dict.fromkeys(leaf for leaf in found if leaf is not None))

    # --- from expressions over rows to conditions on files

    def _may(self, expression: Expression, *, outcome: bool) -> pc.Expression:
        """Whether a row of a file can give `expression` this outcome; never null."""
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
        # Bounds ignore NaN, which is unequal to every value and neither below nor above it.
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
        # The count may include dead rows. It still proves that no row, or every row, is null.
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
        """Whether a row can have a value on each side. A comparison with null is neither true nor false."""
        conditions = [self._may_be_null(side, outcome=False) for side in sides if isinstance(side, Column)]
        return functools.reduce(operator.and_, conditions, _maybe())

    def _holds(self, symbol: str, left: Expression | None, right: Expression | None) -> pc.Expression:
        if left is None or right is None:
            return _maybe()
        try:
            condition = predicate.to_arrow(Comparison(symbol, left, right), self._known_schema())
        except PredicateError:  # a bound can have more digits than the column, too many to compare
            return _maybe()
        return pc.coalesce(condition, _maybe())

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
        """Add a partition column, and one that says where its value is known; return the name of the latter."""
        known = f"{_FACT}known {name}"
        if known not in self._columns:
            field = self._schema.field(name)
            self._columns[name], self._columns[known] = self.values.partition(physical_name(field), field.type)
        return known

    def _fact(self, which: str, column: Column) -> str | None:
        """The name of the column with a leaf's low, high or nulls; None if statistics cannot provide it."""
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
        """A column's physical path and type; None if it has no statistics."""
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
        import pyarrow.dataset as ds  # noqa: PLC0415 - imports pandas, which takes longer than all the rest

        files = self.values.files.num_rows
        if not self._columns:
            # Constants need a table with one row for each file as well.
            self._columns["row"] = pa.chunked_array([pa.nulls(files)])
        try:
            answers = ds.dataset(pa.table(self._columns)).to_table(columns={_ANSWER: condition})[_ANSWER]
        except pa.ArrowException:
            # Arithmetic overflowed or divided by zero. The reader raises if that happens for a row.
            return pa.repeat(pa.scalar(otherwise), files)
        return answers.combine_chunks()
