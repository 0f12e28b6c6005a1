"""Writing data files: rows grouped by partition, parquet that every reader takes, statistics beside them.

Files are named `<2 hex>/part-<uuid>.parquet`: partition values never decide a path. Each file is durable when its
`AddFile` is returned; without a commit that names it, it is garbage that no reader sees.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pyarrow.types as pt

from tidelog.log.errors import ConfigurationError, SchemaMismatchError
from tidelog.log.format import partition_values, paths, properties, statistics
from tidelog.log.format.actions import AddFile, Metadata
from tidelog.log.storage import Store
from tidelog.log.system import System

_PART = "__tidelog_part"


@dataclass(frozen=True, slots=True)
class DataWriter:
    """Writes data files for one version of a table's metadata."""

    store: Store
    metadata: Metadata
    system: System

    def write(self, table: pa.Table, *, data_change: bool = True) -> list[AddFile]:
        """Write `table`, whose schema is the table's; at least one file a partition, none for no rows."""
        return [
            add
            for values, rows in split_by_partition(table, self.metadata.partition_columns)
            for add in self.write_partition(rows, values, data_change=data_change)
        ]

    def write_partition(self, rows: pa.Table, values: dict[str, str | None], *, data_change: bool) -> Iterator[AddFile]:
        """Write rows of one partition (partition columns left out), in files of about the target size."""
        target = properties.size_bytes(self.metadata.configuration, properties.TARGET_FILE_SIZE)
        # In memory a column is rarely smaller than in a compressed file, so no file gets larger than the target.
        pieces = max(1, -(-rows.nbytes // target))
        length = max(1, -(-rows.num_rows // pieces))
        for start in range(0, rows.num_rows, length):
            yield self.write_file(rows.slice(start, length), values, data_change=data_change)

    def write_file(self, rows: pa.Table, values: dict[str, str | None], *, data_change: bool) -> AddFile:
        """Write rows of one partition (partition columns left out) as one file, whatever its size."""
        name = self.system.uuid()
        path = f"{name[:2]}/part-{name}.parquet"
        # A void column has no place in parquet; readers take its absence for null.
        rows = rows.select([field.name for field in rows.schema if not pt.is_null(field.type)])
        with self.store.create(path) as file:
            pq.write_table(rows, file, compression="snappy", store_schema=False, data_page_version="1.0", version="2.6")
            size = file.tell()
        configuration = self.metadata.configuration
        return AddFile(
            path=paths.to_uri(path),
            partition_values=values,
            size=size,
            modification_time=self.system.now_ms(),
            data_change=data_change,
            stats=statistics.collect(
                rows,
                indexed_columns=properties.indexed_columns(configuration),
                only=properties.statistics_columns(configuration),
            ),
        )


def split_by_partition(
    table: pa.Table, partition_columns: Sequence[str]
) -> Iterator[tuple[dict[str, str | None], pa.Table]]:
    """The rows of each partition, in their order, without the partition columns, and the partition's values."""
    if not partition_columns:
        if table.num_rows:
            yield {}, table
        return
    names = list(partition_columns)
    groups = table.select(names).group_by(names, use_threads=False).aggregate([])
    numbered = groups.append_column(_PART, pa.array(range(groups.num_rows), pa.int64()))
    number_of_row = _numbers(table, numbered, names)
    data = table.drop_columns(names)
    if groups.num_rows == 1:
        yield _texts(groups, 0), data
        return
    order = pc.sort_indices(number_of_row)  # stable
    ordered, counts = data.take(order), pc.value_counts(number_of_row.take(order))
    start = 0
    for entry in counts:
        length = entry["counts"].as_py()
        yield _texts(groups, entry["values"].as_py()), ordered.slice(start, length)
        start += length


def _numbers(table: pa.Table, numbered: pa.Table, names: list[str]) -> pa.ChunkedArray:
    """For each row of `table`, the number of its group."""
    if numbered.num_rows == 1:
        return _zeros(table)
    codes = _zeros(table)
    group_codes = _zeros(numbered)
    for name in names:
        values = numbered[name].unique()
        codes = _code(codes, table[name], values)
        group_codes = _code(group_codes, numbered[name], values)
        # Numbered anew after each column, so that no product of many columns overflows.
        known = group_codes.unique()
        codes, group_codes = (pc.index_in(each, value_set=known).cast(pa.int64()) for each in (codes, group_codes))
    return pc.index_in(codes, value_set=group_codes.combine_chunks()).cast(pa.int64())


def _zeros(table: pa.Table) -> pa.ChunkedArray:
    return pa.chunked_array([pa.repeat(pa.scalar(0, pa.int64()), table.num_rows)])


def _code(codes: pa.ChunkedArray, column: pa.ChunkedArray, values: pa.Array) -> pa.ChunkedArray:
    """`codes` with one more digit: which of `values` (null may be one) the column holds."""
    digit = pc.index_in(column, value_set=values).cast(pa.int64())
    return pc.add(pc.multiply(codes, len(values)), digit)


def _texts(groups: pa.Table, row: int) -> dict[str, str | None]:
    texts = {}
    for name in groups.column_names:
        try:
            texts[name] = partition_values.to_text(groups[name][row].as_py(), groups.schema.field(name).type)
        except UnicodeDecodeError as error:
            raise SchemaMismatchError(
                f"a value of the binary partition column {name!r} is not UTF-8, which the log cannot hold",
                advice="partition by a text or number column instead",
                column=name,
            ) from error
    return texts


def check_partition_columns(table_schema: pa.Schema, partition_by: Sequence[str]) -> None:
    """Raise SchemaMismatchError unless `partition_by` names distinct, partitionable columns, and leaves one over."""
    for name in partition_by:
        if name not in table_schema.names or partition_by.count(name) > 1:
            raise SchemaMismatchError(
                f"cannot partition by {name!r}: the schema has no such column, or it is named twice",
                advice=f"choose from {', '.join(table_schema.names)}",
                column=name,
            )
        if not partition_values.is_partitionable(table_schema.field(name).type):
            raise SchemaMismatchError(
                f"cannot partition by {name!r} of the type {table_schema.field(name).type}",
                advice="partition by a column that is not nested",
                column=name,
            )
    if all(field.name in partition_by or pt.is_null(field.type) for field in table_schema):
        raise SchemaMismatchError(
            "every column is a partition column or void, so no file could hold a row",
            advice="leave at least one column with a type out of partition_by",
            column=table_schema.names[0],
        )


def check_statistics_columns(
    table_schema: pa.Schema, partition_by: Sequence[str], configuration: Mapping[str, str]
) -> None:
    """Raise ConfigurationError unless the columns chosen for statistics are distinct columns of the data files."""
    chosen = properties.statistics_columns(configuration) or ()
    for column in chosen:
        fault = _statistics_fault(table_schema, partition_by, column)
        if sum(_lowered(other) == _lowered(column) for other in chosen) > 1:
            fault = "is named twice"
        if fault:
            raise ConfigurationError(
                f"the table property {properties.STATISTICS_COLUMNS!r} cannot name {'.'.join(column)!r}, which {fault}",
                advice="name columns of numbers, texts, dates or timestamps, or structs of them",
            )


def _lowered(column: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(name.lower() for name in column)


def _statistics_fault(table_schema: pa.Schema, partition_by: Sequence[str], column: tuple[str, ...]) -> str | None:
    if _lowered(column)[0] in {name.lower() for name in partition_by}:
        return "is a partition column"
    kind: pa.DataType = pa.struct(list(table_schema))
    for name in column:
        fields = [kind.field(index) for index in range(kind.num_fields)] if pt.is_struct(kind) else []
        found = next((field for field in fields if field.name.lower() == name.lower()), None)
        if found is None:
            return "is not in the schema"
        kind = found.type
    has_statistics = pt.is_struct(kind) or statistics.is_ordered(kind)
    return None if has_statistics else f"has the type {kind}, which statistics have no bounds for"
