"""Taking up data files that another program, such as Spark's JVM, wrote for a transaction of ours.

What the log has to say of them is in the files themselves: row counts and bounds in the footers, and, as such a file
keeps the table's partition columns, the partition's values in its first row.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq

from tidelog.log.errors import DataFileMissingError
from tidelog.log.format import footer_statistics, partition_values, paths, properties
from tidelog.log.format.actions import AddFile
from tidelog.log.format.schema import physical_name
from tidelog.log.reshape import physical_path
from tidelog.log.storage import FileStatus
from tidelog.log.write import DataWriter


def take_up(writer: DataWriter, path: str, status: FileStatus) -> AddFile | None:
    """The `add` of a file of whole rows of one partition; None where it has no row.

    Raises DataFileMissingError where it went meanwhile.
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
        value = first.column(name).cast(field.type)[0].as_py()
        values[physical_name(field)] = partition_values.to_text(value, field.type)
    return values


def _statistics(writer: DataWriter, parquet: pq.ParquetFile) -> str:
    """As `DataWriter.write_file` has it: partition columns have no bounds, the log tells their values."""
    configuration = writer.metadata.configuration
    named = properties.statistics_columns(configuration)
    return footer_statistics.collect(
        parquet.metadata,
        pa.schema(parquet.schema_arrow),
        leave_out=set(writer.metadata.partition_columns),
        indexed_columns=properties.indexed_columns(configuration),
        only=None if named is None else [physical_path(name, writer.schema) for name in named],
    )
