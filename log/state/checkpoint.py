"""Classic (V1) checkpoints: the reconciled state of one version as one parquet file, and the pointer to it.

One row an action, one struct column a kind, absent structs null, every field nullable: the shape that all readers
accept. The pointer never names `parts`, which would send readers after a multi-part checkpoint.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from tidelog.log.errors import CorruptLogError
from tidelog.log.format import filenames
from tidelog.log.format.actions import DomainMetadata, Metadata, Protocol, SetTransaction, encode
from tidelog.log.state import files
from tidelog.log.state.files import FileState
from tidelog.log.state.head import Head, PartialHead, Totals
from tidelog.log.storage import Store

_TEXT_MAP = pa.map_(pa.string(), pa.string())
_TXN = pa.struct([("appId", pa.string()), ("version", pa.int64()), ("lastUpdated", pa.int64())])
_PROTOCOL_FIELDS = [("minReaderVersion", pa.int32()), ("minWriterVersion", pa.int32())]
_METADATA = pa.struct(
    [
        ("id", pa.string()),
        ("name", pa.string()),
        ("description", pa.string()),
        ("format", pa.struct([("provider", pa.string()), ("options", _TEXT_MAP)])),
        ("schemaString", pa.string()),
        ("partitionColumns", pa.list_(pa.string())),
        ("createdTime", pa.int64()),
        ("configuration", _TEXT_MAP),
    ]
)
_DOMAIN = pa.struct([("domain", pa.string()), ("configuration", pa.string()), ("removed", pa.bool_())])
_HEAD_COLUMNS = ("protocol", "metaData", "txn", "domainMetadata")


def write(store: Store, head: Head, state: FileState) -> int:
    """Write the checkpoint of `head`'s version, then the pointer; returns how many actions it holds.

    Tombstones in `state` are written as they are: the caller has dropped the expired ones. A checkpoint that is there
    already holds the same state and is left alone.
    """
    table = _to_table(head, state)
    buffer = io.BytesIO()
    pq.write_table(table, buffer, compression="snappy", store_schema=False)
    content = buffer.getvalue()
    try:
        store.put_if_absent(filenames.checkpoint_path(head.version), content)
    except FileExistsError:
        return int(table.num_rows)
    pointer = {
        "version": head.version,
        "size": table.num_rows,
        "sizeInBytes": len(content),
        "numOfAddFiles": state.adds.num_rows,
    }
    store.replace(filenames.LAST_CHECKPOINT, encode(pointer))
    return int(table.num_rows)


def read_partial_head(store: Store, version: int) -> PartialHead:
    """The head's part of the checkpoint at `version`. Raises CorruptLogError where it cannot be read."""
    table = _read_columns(store, version, _HEAD_COLUMNS)
    protocols = [_convert(row, Protocol) for row in _rows(table, "protocol")]
    metadata = [_convert(row, Metadata) for row in _rows(table, "metaData")]
    transactions = [_convert(row, SetTransaction) for row in _rows(table, "txn")]
    domains = [_convert(row, DomainMetadata) for row in _rows(table, "domainMetadata")]
    return PartialHead(
        protocols[0] if protocols else None,
        metadata[0] if metadata else None,
        {transaction.app_id: transaction for transaction in transactions},
        {domain.domain: domain for domain in domains if not domain.removed},
        totals=None,
    )


def read_files(store: Store, version: int) -> FileState:
    """The live files and tombstones of the checkpoint at `version`. Raises CorruptLogError."""
    table = _read_columns(store, version, ("add", "remove"))
    try:
        return FileState(_unnest(table, "add", files.ADD), _unnest(table, "remove", files.REMOVE))
    except pa.ArrowInvalid as error:
        raise _corrupt(store, version, error) from error


def count(state: FileState) -> Totals:
    """The totals of `state`, counted."""
    sizes = state.adds["size"].to_pylist()
    return Totals(len(sizes), sum(sizes))


def _to_table(head: Head, state: FileState) -> pa.Table:
    protocol = msgspec.to_builtins(head.protocol)
    fields = _PROTOCOL_FIELDS + [
        (name, pa.list_(pa.string())) for name in ("readerFeatures", "writerFeatures") if name in protocol
    ]
    columns = {
        "protocol": pa.array([protocol], pa.struct(fields)),
        "metaData": pa.array([_metadata_row(head.metadata)], _METADATA),
        "txn": pa.array([msgspec.to_builtins(txn) for txn in head.transactions.values()], _TXN),
        "domainMetadata": pa.array([msgspec.to_builtins(domain) for domain in head.domains.values()], _DOMAIN),
        "remove": _nest(state.removes),
        "add": _nest(state.adds),
    }
    if not head.domains:
        del columns["domainMetadata"]
    return _stack(columns)


def _stack(columns: dict[str, Any]) -> pa.Table:
    """One row for each value: a column is null in the rows of the others."""
    total = sum(len(values) for values in columns.values())
    before = 0
    stacked = {}
    for name, values in columns.items():
        after = total - before - len(values)
        chunks = values.chunks if isinstance(values, pa.ChunkedArray) else [values]
        parts = [pa.nulls(before, values.type), *chunks, pa.nulls(after, values.type)]
        stacked[name] = pa.chunked_array(parts, values.type)
        before += len(values)
    return pa.table(stacked)


def _nest(table: pa.Table) -> pa.ChunkedArray:
    chunks = [batch.to_struct_array() for batch in table.to_batches()]
    return pa.chunked_array(chunks, pa.struct(list(table.schema)))


def _metadata_row(metadata: Metadata) -> dict[str, Any]:
    row: dict[str, Any] = msgspec.to_builtins(metadata)
    row["configuration"] = list(metadata.configuration.items())
    row["format"] = {"provider": metadata.format.provider, "options": list(metadata.format.options.items())}
    return row


def _read_columns(store: Store, version: int, names: Sequence[str]) -> pa.Table:
    try:
        file = pq.ParquetFile(store.open_input(filenames.checkpoint_path(version)))
        present = [name for name in names if name in file.schema_arrow.names]
        return file.read(columns=present)
    except (pa.ArrowException, OSError) as error:
        raise _corrupt(store, version, error) from error


def _rows(table: pa.Table, name: str) -> list[dict[str, Any]]:
    if name not in table.column_names:
        return []
    return table[name].drop_null().to_pylist()  # type: ignore[no-any-return]


def _convert(row: dict[str, Any], kind: type[Any]) -> Any:
    values = {key: value for key, value in row.items() if value is not None}
    for name in ("configuration",):
        if isinstance(values.get(name), list):
            values[name] = dict(values[name])
    if "format" in values:
        values["format"] = {"provider": values["format"]["provider"], "options": {}}
    return msgspec.convert(values, kind)


def _unnest(table: pa.Table, name: str, schema: pa.Schema) -> pa.Table:
    """The rows of one action, with exactly the columns of `schema`."""
    if name not in table.column_names:
        return schema.empty_table()
    values = table[name].drop_null()
    rows = pa.Table.from_batches(
        [pa.RecordBatch.from_struct_array(chunk) for chunk in values.chunks], _as_schema(values)
    )
    columns = [
        rows[field.name].cast(field.type) if field.name in rows.column_names else pa.nulls(rows.num_rows, field.type)
        for field in schema
    ]
    return pa.table(columns, schema=schema)


def _as_schema(values: pa.ChunkedArray) -> pa.Schema:
    return pa.schema(list(values.type))


def _corrupt(store: Store, version: int, error: Exception) -> CorruptLogError:
    return CorruptLogError(
        f"the checkpoint {version} of {store.url} cannot be read: {error}",
        advice="delete that one file if the commits before it are still there, or restore it from a backup",
        path=store.url,
    )
