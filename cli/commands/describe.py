"""`tidelog describe`."""

from __future__ import annotations

from typing import Any

import pyarrow.compute as pc

from tidelog.cli import output, parameters
from tidelog.cli.reports import log_cleanup
from tidelog.cli.spinner import Progress
from tidelog.log import Snapshot, Table
from tidelog.log.data.type_names import sql_type
from tidelog.log.errors import CorruptLogError
from tidelog.log.format import properties
from tidelog.log.presentable import without_credentials
from tidelog.log.state.head import Head
from tidelog.log.state.loader import load
from tidelog.log.state.segment import list_segment

_COUNTS = ("files", "rows", "dead_rows", "bytes", "small_files", "small_bytes", "dead_row_files")


def describe_command(
    path: parameters.TablePath,
    storage_option: parameters.StorageOptions = None,
    as_json: parameters.AsJson = False,
) -> None:
    """Describe a table: schema, properties, size, log and streams.

    Example:
      tidelog describe /data/events
      tidelog describe /data/events --json | jq .version
    """
    with Progress(f"reading the log of {path}"):
        table = parameters.open_table(path, storage_option)
        found = _description(table)
    if as_json:
        output.write_json(found)
    else:
        output.write_fields({_label(name): value for name, value in _as_text(table, found).items()})


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
        "earliest_version": max(segment.earliest_version, head.first_version),
        "partition_by": list(table.partition_by),
        "files": snapshot.num_files,
        "rows": _num_rows(snapshot),
        "dead_rows": debt.dead_rows,
        "bytes": pc.sum(snapshot.files()["size"]).as_py() or 0,
        "small_files": debt.small_files,
        "small_bytes": debt.small_bytes,
        "dead_row_files": debt.dead_row_files,
        "log_tail": len(segment.commit_versions),
        "log_cleanup": log_cleanup(table),
        "protocol": {
            "min_reader_version": head.protocol.min_reader_version,
            "min_writer_version": head.protocol.min_writer_version,
            "reader_features": _listed(head.protocol.reader_features),
            "writer_features": _listed(head.protocol.writer_features),
        },
        "schema": output.schema_fields(table.schema),
        "properties": {without_credentials(key): without_credentials(text) for key, text in table.properties.items()},
        "streams": dict(table.transactions),
    }


def _as_text(table: Table, found: dict[str, Any]) -> dict[str, Any]:
    """The values of a description as a person reads them."""
    protocol = found["protocol"]
    features = sorted({*(protocol["reader_features"] or ()), *(protocol["writer_features"] or ())})
    versions = f"reader {protocol['min_reader_version']}, writer {protocol['min_writer_version']}"
    texts = {
        "partition_by": ", ".join(found["partition_by"]) or "none",
        "log_cleanup": _cleanup_text(table, found["log_cleanup"]),
        "protocol": f"{versions}; {', '.join(features) or 'no features'}",
        "schema": [
            f"{field.name}  {sql_type(field.type)}{'' if field.nullable else '  not null'}" for field in table.schema
        ],
    }
    for name in ("properties", "streams"):
        texts[name] = [f"{key} = {value}" for key, value in sorted(found[name].items())]
    for name in _COUNTS:
        texts[name] = "unknown" if found[name] is None else f"{found[name]:,}"
    texts["time_version"] = found["time_version"] or "none"
    return {**found, **texts}


def _cleanup_text(table: Table, cleanup: dict[str, Any]) -> Any:
    if not cleanup["enabled"]:
        return output.coloured(f"off ({cleanup['advice']})", "yellow")
    age = parameters.age_text(properties.duration_ms(table.properties, properties.LOG_RETENTION))
    return f"on (`tidelog expire` deletes entries older than {age})"


def _label(name: str) -> str:
    return "log clean-up" if name == "log_cleanup" else name.replace("_", " ")


def _listed(features: tuple[str, ...] | None) -> list[str] | None:
    return None if features is None else list(features)


def _num_rows(snapshot: Snapshot) -> int | None:
    """The number of live rows; None if another writer left a file without a count."""
    try:
        return snapshot.num_rows
    except CorruptLogError:
        return None
