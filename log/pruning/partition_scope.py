"""Scopes: whole partitions chosen by a predicate or by their values, and the files in them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidelog.log import predicate
from tidelog.log.arrays import BoolArray
from tidelog.log.data.grouping import group_numbers
from tidelog.log.errors import CorruptLogError, PredicateError
from tidelog.log.format.actions import Metadata
from tidelog.log.format.schema import columns_of, physical_name
from tidelog.log.predicate import Condition, Expression
from tidelog.log.pruning.file_pruning import state_within
from tidelog.log.state.files import FileValues
from tidelog.log.state.loader import LogState


@dataclass(frozen=True, slots=True)
class Scope:
    """A set of whole partitions.

    Either `predicate` selects them, using partition columns only, or `partitions` lists them, one row each, with the
    partition columns as its columns. With neither, the scope is the whole table.
    """

    predicate: Expression | None = None
    partitions: pa.Table | None = None


def partition_scope(where: str | None, metadata: Metadata, path: str) -> Scope:
    """The scope that `where`, SQL text over partition columns, selects; the whole table for None.

    Raises PredicateError if `where` is invalid or uses a column that is not a partition column.
    """
    if where is None:
        return Scope()
    tree = predicate.parse(where, columns_of(metadata, path))
    others = predicate.columns(tree) - set(metadata.partition_columns)
    if others:
        known = ", ".join(metadata.partition_columns)
        columns = f"the partition columns are {known}" if known else "the table is not partitioned"
        raise PredicateError(
            f"only whole partitions can be selected here, and {min(others)!r} is not a partition column",
            advice=columns,
            token=min(others),
        )
    return Scope(predicate=tree)


def in_scope(state: LogState, scope: Scope, metadata: Metadata, path: str) -> pa.Table:
    """The live files of a version in `scope`.

    Raises CorruptLogError if a file's partition value is unknown, and PredicateError if the predicate fails for one of
    the values: neither keeping nor removing that file would be right.
    """
    if scope.predicate is None and scope.partitions is None:
        return state.files().adds
    schema = columns_of(metadata, path)
    tree = scope.predicate
    values = (state.files() if tree is None else state_within(state, tree, schema, metadata)).values
    partitions = _partition_table(values, schema, metadata, path)
    if tree is not None:
        return values.files.filter(Condition(tree, schema).mask(partitions))
    return values.files.filter(pa.array(in_partitions(partitions, scope.partitions)))


def partition_rows(state: LogState, metadata: Metadata, path: str) -> pa.Table:
    """The partition values of each file that has live rows, or may have some. Raises CorruptLogError."""
    values = state.files().values
    found = _partition_table(values, columns_of(metadata, path), metadata, path)
    return found.filter(pc.fill_null(pc.not_equal(values.live_rows(), 0), True))  # noqa: FBT003 - a value


def _partition_table(values: FileValues, schema: pa.Schema, metadata: Metadata, path: str) -> pa.Table:
    """The partition values, one row for each file."""
    table = values.files.select([])
    for name in metadata.partition_columns:
        column, known = values.partition(physical_name(schema.field(name)), schema.field(name).type)
        if not pc.all(known, min_count=0).as_py():
            raise CorruptLogError(
                f"a file of {path} has no readable value of the partition column {name!r}",
                advice="use delete(where), which reads the files and accepts any column",
                path=path,
            )
        table = table.append_column(name, column)
    return table


def in_partitions(values: pa.Table, partitions: pa.Table | None) -> BoolArray:
    """For each row of `values`, whether it is in `partitions`."""
    if partitions is None:
        raise AssertionError(values)
    together = pa.concat_tables([values, partitions.cast(values.schema)])
    numbers = np.array(group_numbers(together, values.column_names))
    return np.isin(numbers[: values.num_rows], numbers[values.num_rows :])
