"""Taking up data files that another program, such as Spark's JVM, wrote for a transaction of ours.

What the log has to say of them is in the files themselves: row counts and bounds in the footers, and, as such a file
keeps the table's partition columns, the partition's values in its first row.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tidelog.log.data.physical_schema import physical_path
from tidelog.log.data.writer import DataWriter, partition_text
from tidelog.log.errors import DataFileMissingError, WriteVerificationError
from tidelog.log.format import footer_statistics, paths, properties
from tidelog.log.format.actions import AddFile
from tidelog.log.format.schema import physical_name
from tidelog.log.storage import FileStatus


def take_up(writer: DataWriter, path: str, status: FileStatus) -> AddFile | None:
    """The `add` of a file of whole rows of one partition; None where it has no row.

    Raises DataFileMissingError where it went meanwhile, WriteVerificationError where it is of several partitions.
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
            f"the file {path} of {writer.store.url} went before it was committed",
            advice="let nothing but tidelog clean up below the table; the batch can be run again",
            path=writer.store.url,
        ) from error


def _partition_values(writer: DataWriter, parquet: pq.ParquetFile) -> dict[str, str | None]:
    names = list(writer.metadata.partition_columns)
    if not names:
        return {}
    first = next(parquet.iter_batches(batch_size=1, columns=names))
    values = {}
    for name in names:
        field = writer.schema.field(name)
        _require_one_value(writer, parquet, name)
        values[physical_name(field)] = partition_text(first.column(name).cast(field.type)[0], field)
    return values


def _require_one_value(writer: DataWriter, parquet: pq.ParquetFile, name: str) -> None:
    """Raise WriteVerificationError where the footer shows that a partition column has several values in the file."""
    footer = parquet.metadata
    column = next(place for place in range(footer.num_columns) if footer.schema.column(place).path == name)
    seen: set[Any] = set()
    for number in range(footer.num_row_groups):
        chunk = footer.row_group(number).column(column)
        found = chunk.statistics
        if found is not None and found.has_null_count and found.null_count:
            seen.add(None)
        if found is not None and found.has_min_max:
            seen |= {found.min_raw, found.max_raw}
    if len(seen) > 1:
        raise WriteVerificationError(
            f"a file written for {writer.store.url} has several values of the partition column {name!r}",
            advice="run it again, and report this; nothing was committed",
            path=writer.store.url,
        )


def _statistics(writer: DataWriter, parquet: pq.ParquetFile) -> str:
    """As `DataWriter.write_file` has it: partition columns have no bounds, the log tells their values."""
    configuration = writer.metadata.configuration
    named = properties.statistics_columns(configuration)
    return footer_statistics.collect_from_footer(
        parquet.metadata,
        pa.schema(parquet.schema_arrow),
        leave_out=set(writer.metadata.partition_columns),
        indexed_columns=properties.indexed_columns(configuration),
        only=None if named is None else [physical_path(name, writer.schema) for name in named],
    )
