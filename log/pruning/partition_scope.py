"""Which files of a table lie in a scope: whole partitions, by their typed values."""

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
from tidelog.log.predicate import Expression
from tidelog.log.pruning.file_pruning import wholly_matching
from tidelog.log.state.file_values import FileValues


@dataclass(frozen=True, slots=True)
class Scope:
    """A part of the table, in whole partitions.

    `predicate` reads partition columns only; `partitions` holds one row for each partition, its columns the partition
    columns. With neither it is the whole table.
    """

    predicate: Expression | None = None
    partitions: pa.Table | None = None


def partition_scope(where: str | None, metadata: Metadata, path: str) -> Scope:
    """The scope that the SQL text `where` over partition columns describes; None is the whole table.

    Raises PredicateError for a column that does not partition the table, and what `predicate.parse` raises.
    """
    if where is None:
        return Scope()
    tree = predicate.parse(where, columns_of(metadata, path))
    others = predicate.columns(tree) - set(metadata.partition_columns)
    if others:
        known = ", ".join(metadata.partition_columns) or "none: the table is not partitioned"
        raise PredicateError(
            f"only whole partitions can be chosen here, and {min(others)!r} is no partition column",
            advice=f"the partition columns are {known}; delete(where) takes any column",
            token=min(others),
        )
    return Scope(predicate=tree)


def in_scope(values: FileValues, scope: Scope, metadata: Metadata, path: str) -> pa.Table:
    """Those of the files that lie in `scope`. `values` are a state's live files with what is decoded of them.

    Raises CorruptLogError where a file's partition value cannot be told: neither keeping nor removing it is right.
    """
    if scope.predicate is None and scope.partitions is None:
        return values.files
    schema = columns_of(metadata, path)
    partitions = _partition_table(values, schema, metadata, path)
    if scope.predicate is not None:
        return values.files.filter(wholly_matching(values, scope.predicate, schema, metadata))
    return values.files.filter(pa.array(_among(partitions, scope.partitions)))


def _partition_table(values: FileValues, schema: pa.Schema, metadata: Metadata, path: str) -> pa.Table:
    """The partition values, one row for each file."""
    columns = {}
    for name in metadata.partition_columns:
        column, known = values.partition(physical_name(schema.field(name)), schema.field(name).type)
        if not pc.all(known, min_count=0).as_py():
            raise CorruptLogError(
                f"the value of the partition column {name!r} cannot be told for every file of {path}",
                advice="delete(where) reads the files and takes any column",
                path=path,
            )
        columns[name] = column
    return pa.table(columns)


def _among(values: pa.Table, partitions: pa.Table | None) -> BoolArray:
    """For each row of `values`, whether it is one of `partitions`."""
    if partitions is None:
        raise AssertionError(values)
    together = pa.concat_tables([values, partitions.cast(values.schema)])
    numbers = np.array(group_numbers(together, values.column_names))
    return np.isin(numbers[: values.num_rows], numbers[values.num_rows :])
