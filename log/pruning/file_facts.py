"""Facts about files as columns of a table with one row for each file, and conditions that are evaluated on them.

Bounds are compared as rows are, so both are rounded alike, and casts keep the order of values.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from tidelog.log import predicate
from tidelog.log.errors import PredicateError
from tidelog.log.format.actions import Metadata
from tidelog.log.format.schema import is_variant, physical_name
from tidelog.log.format.statistics_reader import has_bounds
from tidelog.log.predicate import Column, Comparison, Condition, Expression
from tidelog.log.pruning.monotone import column_of, with_column
from tidelog.log.state.files import FileValues, Leaf

# Prefix of the columns that hold facts, so that they cannot clash with partition columns.
_FACT = "\x1f"


class FileFacts:
    """The facts, added as expressions need them. Answers are for each file, and never null."""

    def __init__(self, values: FileValues, schema: pa.Schema, metadata: Metadata) -> None:
        self.values = values
        self.partition_columns = frozenset(metadata.partition_columns)
        self.with_statistics = True
        self._schema = schema
        # A column widened from float to double may have bounds written as the shortest text of the float, which is
        # not exact as a double.
        self._doubles_exact = "delta.typeChanges" not in metadata.schema_string
        self._columns: dict[str, pa.Array] = {}

    def always(self, *, answer: bool) -> pa.BooleanArray:
        """The same answer for all files."""
        return pa.repeat(pa.scalar(answer), self.values.files.num_rows)

    def leaves_of(self, expression: Expression) -> list[Leaf]:
        """The leaf columns whose statistics can help to judge `expression`."""
        found = (self._leaf(column) for column in predicate.column_nodes(expression))
        return list(dict.fromkeys(leaf for leaf in found if leaf is not None))

    def is_exact(self, expression: Expression) -> bool:
        """Whether the partition values are enough to evaluate it."""
        return predicate.columns(expression) <= self.partition_columns

    def outcomes(self, expression: Expression) -> pa.BooleanArray | None:
        """The outcomes of an exact expression, which can be null; None if it fails for a file."""
        for name in predicate.columns(expression):
            self._known(name)
        try:
            return self._evaluated(expression)
        except pa.ArrowException:  # arithmetic overflowed or divided by zero; the reader raises if a row does so
            return None

    def unknown(self, expression: Expression) -> pa.BooleanArray:
        """Whether a partition value that the expression reads is not known."""
        names = sorted(predicate.columns(expression))
        known = [self._columns[self._known(name)] for name in names]
        return pc.invert(functools.reduce(pc.and_, known)) if known else self.always(answer=False)

    def bound(self, side: Expression, which: str) -> Expression | None:
        """The lowest or highest value of an expression, in terms of facts; None if it is not known."""
        names = predicate.columns(side)
        if names <= self.partition_columns:
            for name in names:
                self._known(name)
            return side
        column = self.grows_with(side)
        fact = None if column is None else self._fact(which, column)
        return None if column is None or fact is None else with_column(side, column, Column((fact,)))

    def grows_with(self, side: Expression) -> Column | None:
        """The column whose bounds give the bounds of `side`; see `monotone`."""
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
        nulls = self._fact("nulls", column)
        if nulls is None:
            return self.always(answer=True)
        # The count may include dead rows. It still proves that no row, or every row, is null.
        never = pa.scalar(0) if outcome else self._rows()
        return pc.fill_null(pc.not_equal(self._columns[nulls], never), True)  # noqa: FBT003 - a value

    def is_float(self, side: Expression) -> bool:
        """Whether a column in it can have NaN, which bounds ignore."""
        kinds = (predicate.column_type(column, self._schema) for column in predicate.column_nodes(side))
        return any(pt.is_floating(kind) for kind in kinds)

    def is_text(self, side: Expression) -> bool:
        """Whether it is a column of texts."""
        return isinstance(side, Column) and bool(pt.is_string(predicate.column_type(side, self._schema)))

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
        leaf = self._leaf(column)
        if leaf is None or not self.with_statistics:
            return None
        _, kind = leaf
        if which != "nulls" and not (has_bounds(kind) and (self._doubles_exact or kind != pa.float64())):
            return None
        name = f"{_FACT}{which} {column.path}"
        if name not in self._columns:
            self._add([(name, getattr(self.values.bounds(leaf), which))])
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
