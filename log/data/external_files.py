"""Add data files that another program, such as Spark's JVM, wrote for one of our transactions.

The `add` action is built from the file itself: row counts and bounds come from the footer, and the partition's values
from the first row, because such a file keeps the partition columns.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tidelog.log.data.writer import DataWriter, partition_text
from tidelog.log.errors import DataFileMissingError, WriteVerificationError
from tidelog.log.format import footer_statistics, paths, properties
from tidelog.log.format.actions import AddFile
from tidelog.log.format.schema import physical_name, physical_path
from tidelog.log.storage import FileStatus


def take_up(writer: DataWriter, path: str, status: FileStatus) -> AddFile | None:
    """The `add` action for a file that holds whole rows of one partition, or None if it has no rows.

    Raises DataFileMissingError if the file is gone, WriteVerificationError if its rows are in several partitions.
    """
    try:
        with pq.ParquetFile(writer.store.open_input(path)) as parquet:
            if not parquet.metadata.num_rows:
                return None
            return AddFile(
                path=paths.to_uri(path),
                partition_values=_partition_values(writer, parquet),
                size=status.size_bytes,
                modification_time=writer.system.now_ms(),
                data_change=True,
                stats=_statistics(writer, parquet),
            )
    except FileNotFoundError as error:
        raise DataFileMissingError(
            f"the file {path} of {writer.store.url} was deleted before it was committed",
            advice="run the batch again, and let only tidelog delete files below the table's path",
            path=writer.store.url,
        ) from error


def _partition_values(writer: DataWriter, parquet: pq.ParquetFile) -> dict[str, str | None]:
    names = list(writer.metadata.partition_columns)
    if not names:
        return {}
    first = next(parquet.iter_batches(batch_size=1, columns=names, use_threads=False))
    values = {}
    for name in names:
        field = writer.schema.field(name)
        _require_one_value(writer, parquet, name)
        values[physical_name(field)] = partition_text(first.column(name).cast(field.type)[0], field)
    return values


def _require_one_value(writer: DataWriter, parquet: pq.ParquetFile, name: str) -> None:
    """Raise WriteVerificationError if the footer's bounds show several values of a partition column."""
    footer = parquet.metadata
    column = next(index for index in range(footer.num_columns) if footer.schema.column(index).path == name)
    seen: set[Any] = set()
    for number in range(footer.num_row_groups):
        chunk = footer.row_group(number).column(column)
        found = chunk.statistics
        if found is not None and found.has_null_count and found.null_count:
            seen.add(None)
        if found is not None and found.has_min_max:
            seen |= {_comparable(found.min_raw), _comparable(found.max_raw)}
    if len(seen) > 1:
        raise WriteVerificationError(
            f"a file written for {writer.store.url} has several values in the partition column {name!r}",
            advice="nothing was committed; run the write again, and report this as a bug",
            path=writer.store.url,
        )


def _comparable(bound: Any) -> Any:
    """A bound that equals itself: NaN does not, and Spark writes it as the bounds of a column that holds NaN only."""
    return "NaN" if bound != bound else bound  # noqa: PLR0124 - only NaN differs from itself


def _statistics(writer: DataWriter, parquet: pq.ParquetFile) -> str:
    """The file's statistics, like those of `DataWriter.write_file`: partition columns have no bounds."""
    configuration = writer.metadata.configuration
    named = properties.statistics_columns(configuration)
    return footer_statistics.collect_from_footer(
        parquet.metadata,
        pa.schema(parquet.schema_arrow),
        leave_out=set(writer.metadata.partition_columns),
        indexed_columns=properties.indexed_columns(configuration),
        only=None if named is None else [physical_path(name, writer.schema) for name in named],
    )
