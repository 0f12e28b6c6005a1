"""Rows and bound expressions: what an expression computes once its columns and types are known."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

Datum: TypeAlias = Any  # a pa.Array with one value for each row, or a pa.Scalar for all of them
Kernel: TypeAlias = Callable[..., Datum]


class RowBlock:
    """The rows that an expression is evaluated on. A column is cut out when it is first needed."""

    def __init__(
        self,
        count: int,
        column: Callable[[tuple[str, ...]], pa.Array],
        whole: tuple[RowBlock, pa.BooleanArray] | None = None,
    ) -> None:
        self.count = count
        self._read = column
        self._columns: dict[tuple[str, ...], pa.Array] = {}
        self._whole = whole
        self._known: dict[Bound, Datum] = {}

    @classmethod
    def of(cls, data: pa.RecordBatch | pa.Table) -> RowBlock:
        """All rows of a batch or table."""

        def column(path: tuple[str, ...]) -> pa.Array:
            values = data[path[0]]
            if isinstance(values, pa.ChunkedArray):
                values = values.combine_chunks()
            for name in path[1:]:
                values = pc.struct_field(values, [values.type.get_field_index(name)])
            return values

        return cls(data.num_rows, column)

    def column(self, path: tuple[str, ...]) -> pa.Array:
        """A column, or a field of a struct, which is null where the struct is."""
        if path not in self._columns:
            self._columns[path] = self._read(path)
        return self._columns[path]

    def only(self, mask: pa.BooleanArray) -> RowBlock:
        """The rows for which `mask` is true."""
        return RowBlock(mask.true_count, lambda path: self.column(path).filter(mask), (self, mask))

    def known(self, bound: Bound) -> Datum | None:
        """What was computed for `bound` on these rows, or on more rows of which these are a part."""
        if bound not in self._known and self._whole is not None:
            whole, mask = self._whole
            found = whole.known(bound)
            if found is not None:
                self._known[bound] = found if isinstance(found, pa.Scalar) else found.filter(mask)
        return self._known.get(bound)

    def remember(self, bound: Bound, value: Datum) -> None:
        """Keep what was computed for `bound`."""
        self._known[bound] = value


_ONE_ROW = RowBlock(1, lambda _: pa.nulls(1))


@dataclass(frozen=True, slots=True, eq=False)
class Bound:
    """An expression with its type, and how to compute it. `fallible` says that it can raise an error for a row."""

    kind: pa.DataType
    compute: Callable[[RowBlock], Datum]
    fallible: bool = False
    constant: bool = False

    def of(self, rows: RowBlock) -> Datum:
        """The value for each row. Raises pa.ArrowException."""
        return self.compute(rows) if rows.count else pa.nulls(0, self.kind)

    def array(self, rows: RowBlock) -> pa.Array:
        """The value for each row, as an array."""
        return as_array(self.of(rows), rows.count)


def constant(value: pa.Scalar) -> Bound:
    """A value that is the same in all rows."""
    return Bound(value.type, lambda _: value, constant=True)


def computed(
    kind: pa.DataType, kernel: Kernel, inputs: Sequence[Bound], *, fallible: bool = False, strict: bool = True
) -> Bound:
    """What `kernel` gives for the values of `inputs`. Constants are computed once.

    A `strict` kernel gives null where an input is null. Then, as in Spark, later inputs are not computed, and so they
    cannot be errors.
    """
    fallible = fallible or any(each.fallible for each in inputs)
    skips = strict and any(each.fallible for each in inputs[1:])

    def compute(rows: RowBlock) -> Datum:
        return kernel(*(_until_null(inputs, rows) if skips else [each.of(rows) for each in inputs]))

    found = Bound(kind, compute, fallible=fallible)
    return folded(found) if all(each.constant for each in inputs) else found


def _until_null(inputs: Sequence[Bound], rows: RowBlock) -> list[pa.Array]:
    """The inputs; each one only where those before it have values."""
    found = [inputs[0].array(rows)]
    live = pc.is_valid(found[0])
    for each in inputs[1:]:
        some = each.array(rows.only(live))
        found.append(pc.replace_with_mask(pa.nulls(rows.count, each.kind), live, some))
        live = pc.and_(live, pc.is_valid(found[-1]))
    return found


def folded(bound: Bound) -> Bound:
    """An expression without columns as a constant, unless computing it fails: then it does so if there are rows."""
    try:
        value = bound.of(_ONE_ROW)
    except pa.ArrowException:
        return bound
    return constant(value[0] if isinstance(value, pa.Array) else value)


def shared(bound: Bound) -> Bound:
    """The same expression, computed once for the same rows however often it is used."""
    if bound.constant:
        return bound

    def compute(rows: RowBlock) -> Datum:
        found = rows.known(bound)
        if found is None:
            found = bound.of(rows)
            rows.remember(bound, found)
        return found

    return replace(bound, compute=compute)


def as_array(values: Datum, count: int) -> pa.Array:
    """The values as an array of `count` rows."""
    if isinstance(values, pa.Scalar):
        return pa.nulls(count, values.type) if not values.is_valid else pa.repeat(values, count)
    return values


def null_of(kind: pa.DataType) -> Bound:
    """NULL with a type."""
    return constant(pa.scalar(None, kind))


def per_value(kind: pa.DataType, function: Callable[..., Any]) -> Kernel:
    """A kernel that calls `function` for each row that has no null. Its ValueErrors become Arrow's."""

    def kernel(*data: Datum) -> Datum:
        scalar = all(isinstance(values, pa.Scalar) for values in data)
        count = 1 if scalar else next(len(values) for values in data if isinstance(values, pa.Array))
        columns = [as_array(values, count).to_pylist() for values in data]
        try:
            found = [None if None in row else function(*row) for row in zip(*columns, strict=True)]
            result = pa.array(found, kind)
        except (ValueError, OverflowError, ArithmeticError) as error:
            raise pa.ArrowInvalid(str(error)) from error
        return result[0] if scalar else result

    return kernel


def is_text_constant(bound: Bound) -> bool:
    """Whether it is a text that is the same in all rows."""
    return bound.constant and bool(pt.is_string(bound.kind))


def constant_value(bound: Bound) -> Any:
    """The value of a constant, as a Python object."""
    return bound.of(_ONE_ROW).as_py()
