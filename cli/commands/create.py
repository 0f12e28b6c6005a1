"""`tidelog create`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import pyarrow as pa
import pyarrow.parquet as pq
import typer

from tidelog.cli import output, parameters
from tidelog.cli.schema_text import parse_schema
from tidelog.cli.spinner import Progress
from tidelog.log import Table
from tidelog.log.errors import ConfigurationError


def create_command(
    path: Annotated[str, typer.Argument(metavar="PATH", help="Where to create it: a local path or a URL.")],
    schema: Annotated[
        str | None, typer.Option(metavar="COLUMNS", help='The columns, such as "id bigint not null, name string".')
    ] = None,
    like: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Take the columns of this parquet file; its rows are not read.")
    ] = None,
    partition_by: Annotated[
        list[str] | None, typer.Option(metavar="NAMES", help="Partition by these columns, separated by commas.")
    ] = None,
    table_property: Annotated[
        list[str] | None, typer.Option("--property", metavar="K=V", help="A table property. Repeatable.")
    ] = None,
    storage_option: parameters.StorageOptions = None,
    as_json: parameters.AsJson = False,
) -> None:
    """Create an empty table.

    Types are named as in Spark SQL: bigint, int, smallint, tinyint, double, float, decimal(p, s), string, boolean,
    binary, date, timestamp, timestamp_ntz, array<...>, map<..., ...> and struct<...>.

    Example:
      tidelog create /data/events --schema "id bigint, day date, tags array<string>" --partition-by day
      tidelog create /data/flights --like flights.parquet --property tidelog.targetFileSize="64 MiB"
    """
    if (schema is None) == (like is None):
        raise ConfigurationError("a table needs columns", advice="give either --schema or --like")
    columns = _read_schema(like) if like is not None else parse_schema(schema or "")
    with Progress(f"creating {path}"):
        table = Table.create(
            path,
            columns,
            partition_by=parameters.split_columns(partition_by) or (),
            properties=parameters.parse_properties(table_property),
            storage_options=parameters.parse_storage_options(storage_option),
        )
    if as_json:
        output.write_json(
            {
                "path": table.path,
                "id": table.id,
                "version": table.version,
                "schema": output.schema_fields(table.schema),
                "partition_by": list(table.partition_by),
                "properties": dict(table.properties),
            }
        )
        return
    partitions = f", partitioned by {', '.join(table.partition_by)}" if table.partition_by else ""
    output.say(f"{table.path}: created with {output.counted(len(table.schema), 'column')}{partitions}")


def _read_schema(file: Path) -> pa.Schema:
    """The columns of a parquet file. Raises ConfigurationError if there is no such file or it is not parquet."""
    try:
        return pq.read_schema(file)
    except OSError as error:
        raise ConfigurationError(
            f"cannot read {str(file)!r}: {error.strerror or error}", advice="check --like"
        ) from error
    except pa.ArrowException as error:
        raise ConfigurationError(f"{str(file)!r} is not a parquet file", advice="check --like") from error
