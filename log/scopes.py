"""Which files of a table lie in a scope: whole partitions, by their typed values."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidelog.log import predicate
from tidelog.log.conflict.staged import Scope
from tidelog.log.errors import PredicateError
from tidelog.log.format import partition_values
from tidelog.log.format.actions import Metadata
from tidelog.log.format.schema import columns_of, physical_name
from tidelog.log.grouping import group_numbers


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
            f"only whole partitions can be replaced, and {min(others)!r} is no partition column",
            advice=f"the partition columns are {known}; delete(where) takes any column",
            token=min(others),
        )
    return Scope(predicate=tree)


def partition_schema(metadata: Metadata, path: str) -> pa.Schema:
    """The partition columns, in the order in which the table is partitioned."""
    schema = columns_of(metadata, path)
    return pa.schema([schema.field(name) for name in metadata.partition_columns])


def partition_table(adds: pa.Table, schema: pa.Schema) -> pa.Table:
    """The typed partition values of files (columns of the `add` action), one row for each; `schema` as above."""
    columns = []
    for field in schema:
        texts = pc.map_lookup(adds["partitionValues"], physical_name(field), "last")
        encoded = texts.combine_chunks().dictionary_encode()
        # Each of the few distinct texts is parsed once.
        values = [partition_values.from_text(text, field.type) for text in encoded.dictionary.to_pylist()]
        columns.append(pa.array(values, field.type).take(encoded.indices))
    return pa.table(columns, schema=pa.schema([field.with_nullable(True) for field in schema]))  # noqa: FBT003 - pyarrow's signature


def in_scope(adds: pa.Table, scope: Scope, metadata: Metadata, path: str) -> pa.Table:
    """Those of the live files `adds` that lie in `scope`."""
    if scope.predicate is None and scope.partitions is None:
        return adds
    schema = partition_schema(metadata, path)
    values = partition_table(adds, schema)
    if scope.predicate is not None:
        # Beside the partition columns, so that no name can clash.
        numbered = pa.table([*values.columns, pa.array(np.arange(adds.num_rows))], names=[*values.column_names, ""])
        return adds.take(numbered.filter(predicate.to_arrow(scope.predicate, schema)).column(values.num_columns))
    return adds.filter(pa.array(_among(values, scope.partitions)))


def _among(values: pa.Table, partitions: pa.Table | None) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """For each row of `values`, whether it is one of `partitions`."""
    if partitions is None:
        raise AssertionError(values)
    together = pa.concat_tables([values, partitions.cast(values.schema)])
    numbers = np.array(group_numbers(together, values.column_names))
    return np.isin(numbers[: values.num_rows], numbers[values.num_rows :])
