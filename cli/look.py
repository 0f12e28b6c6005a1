"""Commands that look at a table: describe, history, scan, changes."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from enum import StrEnum
from typing import Annotated, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt
import typer

from tidelog.cli import options, output
from tidelog.cli.app import app
from tidelog.log import CommitRecord, Snapshot, Table
from tidelog.log.errors import ConfigurationError, CorruptLogError
from tidelog.log.internals import Head, RowReader, commit_records, list_segment, load

# How many rows a table of them holds unless told: enough to see what is there, few enough to read.
_TABLE_ROWS = 100


class OutputFormat(StrEnum):
    """How rows are written."""

    TABLE = "table"
    JSON = "json"
    CSV = "csv"


FormatOption = Annotated[
    OutputFormat | None, typer.Option("--format", help="table (the default), json (lines) or csv.")
]


@app.command()
def describe(
    path: options.TablePath,
    storage_option: options.StorageOptions = None,
    as_json: options.AsJson = False,
) -> None:
    """Say what a table is: schema, properties, size, log and streams."""
    found = _description(options.open_table(path, storage_option))
    if as_json:
        output.write_json(found)
        return
    protocol = found["protocol"]
    features = sorted({*(protocol["reader_features"] or ()), *(protocol["writer_features"] or ())})
    versions = f"reader {protocol['min_reader_version']}, writer {protocol['min_writer_version']}"
    found["schema"] = [
        f"{field['name']}  {field['type']}{'' if field['nullable'] else '  not null'}" for field in found["schema"]
    ]
    for name in ("properties", "streams"):
        found[name] = [f"{key} = {value}" for key, value in sorted(found[name].items())]
    found["partition_by"] = ", ".join(found["partition_by"]) or "none"
    for name in ("files", "rows", "dead_rows", "bytes", "small_files", "small_bytes", "dead_row_files"):
        found[name] = "unknown" if found[name] is None else f"{found[name]:,}"
    found["protocol"] = f"{versions}; {', '.join(features) or 'no features'}"
    output.write_fields({name.replace("_", " "): value for name, value in found.items()})


def _description(table: Table) -> dict[str, Any]:
    snapshot = table.at()
    head: Head = load(table.store, table.version).head
    segment = list_segment(table.store, table.version)
    debt = table.debt()
    return {
        "path": table.path,
        "id": table.id,
        "version": table.version,
        "timestamp": output.timestamp_text(snapshot.timestamp),
        "time_version": output.timestamp_text(table.time_version),
        "earliest_version": segment.earliest_version,
        "partition_by": list(table.partition_by),
        "files": snapshot.num_files,
        "rows": _num_rows(snapshot),
        "dead_rows": debt.dead_rows,
        "bytes": pc.sum(snapshot.files()["size"]).as_py() or 0,
        "small_files": debt.small_files,
        "small_bytes": debt.small_bytes,
        "dead_row_files": debt.dead_row_files,
        "log_tail": len(segment.commit_versions),
        "protocol": {
            "min_reader_version": head.protocol.min_reader_version,
            "min_writer_version": head.protocol.min_writer_version,
            "reader_features": _listed(head.protocol.reader_features),
            "writer_features": _listed(head.protocol.writer_features),
        },
        "schema": [{"name": field.name, "type": str(field.type), "nullable": field.nullable} for field in table.schema],
        "properties": dict(table.properties),
        "streams": dict(table.transactions),
    }


def _listed(features: tuple[str, ...] | None) -> list[str] | None:
    return None if features is None else list(features)


def _num_rows(snapshot: Snapshot) -> int | None:
    """None where another writer left a file without a count."""
    try:
        return snapshot.num_rows
    except CorruptLogError:
        return None


@app.command()
def history(
    path: options.TablePath,
    limit: options.Limit = None,
    storage_option: options.StorageOptions = None,
    as_json: options.AsJson = False,
) -> None:
    """List the commits, newest first."""
    table = options.open_table(path, storage_option)
    records = map(_to_json, itertools.islice(commit_records(table.timeline), limit))
    if as_json:
        for record in records:
            output.write_json(record)
        return
    names = ["version", "timestamp", "time_version", "class", "operation", "rows", "files", "engine"]
    output.write_grid(
        [name.replace("_", " ") for name in names],
        ([_history_cell(record, name) for name in names] for record in records),
        numbers=[0, 5, 6],
    )


def _to_json(record: CommitRecord) -> dict[str, Any]:
    return {
        "version": record.version,
        "timestamp": output.timestamp_text(record.timestamp),
        "time_version": output.timestamp_text(record.time_version),
        "class": str(record.operation_class),
        "operation": record.operation,
        "data_change": record.data_change,
        "rows": record.rows_added,
        "files_added": record.files_added,
        "files_removed": record.files_removed,
        "engine": record.engine,
        "user_metadata": record.user_metadata,
        "metrics": record.metrics,
    }


def _history_cell(record: dict[str, Any], name: str) -> str | None:
    if name == "files":
        return f"+{record['files_added']} -{record['files_removed']}"
    if name == "time_version":
        # It is the commit's own time or none, which a mark says shorter.
        return "*" if record[name] else ""
    return None if record[name] is None else str(record[name])


@app.command()
def scan(
    path: options.TablePath,
    where: options.Where = None,
    columns: options.Columns = None,
    limit: options.Limit = None,
    version: Annotated[int | None, typer.Option(metavar="N", help="As it was at this ID version.")] = None,
    timestamp: Annotated[str | None, typer.Option(metavar="TIME", help="As it was at this time.")] = None,
    output_format: FormatOption = None,
    storage_option: options.StorageOptions = None,
    as_json: options.AsJson = False,
) -> None:
    """Print the rows of a table."""
    chosen = _format(output_format, as_json=as_json)
    snapshot = options.open_table(path, storage_option).at(version=version, timestamp=timestamp)
    _write_rows(snapshot.scan(where, options.split_columns(columns)), chosen, limit)


@app.command()
def changes(
    path: options.TablePath,
    after: Annotated[str | None, typer.Option(metavar="POINT", help="After this version or time.")] = None,
    until: Annotated[str | None, typer.Option(metavar="POINT", help="Up to and with this version or time.")] = None,
    mode: Annotated[str | None, typer.Option(metavar="MODE", help="append, cdc or net.")] = None,
    where: options.Where = None,
    columns: options.Columns = None,
    keys: Annotated[list[str] | None, typer.Option(metavar="NAMES", help="For --mode net: the key columns.")] = None,
    limit: options.Limit = None,
    output_format: FormatOption = None,
    storage_option: options.StorageOptions = None,
    as_json: options.AsJson = False,
) -> None:
    """Print what changed between two points of a table's history; a compaction never shows."""
    chosen = _format(output_format, as_json=as_json)
    # What was not given is left to the table's own defaults.
    given: dict[str, Any] = {"mode": mode, "keys": options.split_columns(keys)}
    reader = options.open_table(path, storage_option).changes(
        after=options.parse_point(after),
        until=options.parse_point(until),
        where=where,
        columns=options.split_columns(columns),
        **{name: value for name, value in given.items() if value is not None},
    )
    _write_rows(reader, chosen, limit)


def _format(chosen: OutputFormat | None, *, as_json: bool) -> OutputFormat:
    if as_json and chosen not in (None, OutputFormat.JSON):
        raise ConfigurationError(f"--json and --format {chosen.value} exclude each other", advice="leave one out")
    return OutputFormat.JSON if as_json else chosen or OutputFormat.TABLE


def _write_rows(reader: RowReader, chosen: OutputFormat, limit: int | None) -> None:
    if chosen is OutputFormat.TABLE:
        _write_table(reader, limit)
        return
    if chosen is OutputFormat.CSV:
        output.write_csv_header(reader.schema.names)
    for row in itertools.islice(_rows(reader), limit):
        if chosen is OutputFormat.JSON:
            output.write_json(row)
        else:
            output.write_csv_row(row.values())


def _write_table(reader: RowReader, limit: int | None) -> None:
    shown = limit or _TABLE_ROWS
    rows = list(itertools.islice(_rows(reader), shown + 1))
    numbers = [index for index, field in enumerate(reader.schema) if _is_number(field.type)]
    output.write_grid(reader.schema.names, [list(row.values()) for row in rows[:shown]], numbers=numbers)
    if len(rows) > shown and limit is None:
        output.complain(f"these are the first {shown} rows; --limit N shows more, --format csv or json all")


def _rows(reader: RowReader) -> Iterator[dict[str, Any]]:
    for batch in reader.to_batches():
        yield from output.rows_of(batch)


def _is_number(kind: pa.DataType) -> bool:
    return bool(pt.is_integer(kind) or pt.is_floating(kind) or pt.is_decimal(kind))
