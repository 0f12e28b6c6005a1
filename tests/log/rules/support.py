"""Tables with rules, as another engine would have made them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import pyarrow as pa

from tests.log.support import memory_store, metadata, put_commit
from tidelog.log import Table
from tidelog.log.format.actions import Protocol
from tidelog.log.format.schema import to_schema_string
from tidelog.log.state.loader import load
from tidelog.log.storage import Store

FEATURES = ("allowColumnDefaults", "checkConstraints", "generatedColumns", "identityColumns", "invariants")


def ruled_table(
    schema: pa.Schema,
    *,
    constraints: Mapping[str, str] | None = None,
    fields: Mapping[str, Mapping[str, Any]] | None = None,
    partition_by: Sequence[str] = (),
    properties: Mapping[str, str] | None = None,
    store: Store | None = None,
) -> Table:
    """A table with CHECK constraints, and with metadata of fields: `{column: {key: value}}`."""
    store = store or memory_store()
    configuration = {f"delta.constraints.{name}": text for name, text in (constraints or {}).items()}
    action = metadata(
        schema,
        schema_string=with_field_metadata(to_schema_string(schema), fields or {}),
        configuration=configuration | dict(properties or {}),
        partition_columns=tuple(partition_by),
    )
    writers = (*FEATURES, "appendOnly", "changeDataFeed", "deletionVectors")
    protocol = Protocol(
        min_reader_version=3, min_writer_version=7, reader_features=("deletionVectors",), writer_features=writers
    )
    put_commit(store, 0, protocol, action)
    return Table(store, load(store))


def with_field_metadata(schema_string: str, fields: Mapping[str, Mapping[str, Any]]) -> str:
    """A schema whose fields have more metadata; `a.b` names the field b of the struct a."""
    schema = msgspec.json.decode(schema_string)
    for path, more in fields.items():
        inner = schema
        *parents, last = path.split(".")
        for name in parents:
            inner = next(field for field in inner["fields"] if field["name"] == name)["type"]
        next(field for field in inner["fields"] if field["name"] == last)["metadata"] |= more
    return msgspec.json.encode(schema).decode()


def invariant(expression: str) -> dict[str, str]:
    return {"delta.invariants": msgspec.json.encode({"expression": {"expression": expression}}).decode()}


def generated(expression: str) -> dict[str, str]:
    return {"delta.generationExpression": expression}


def default(expression: str) -> dict[str, str]:
    return {"CURRENT_DEFAULT": expression}


def identity(*, explicit: bool, mark: int | None = None) -> dict[str, Any]:
    found = {
        "delta.identity.start": 1,
        "delta.identity.step": 1,
        "delta.identity.allowExplicitInsert": explicit,
    }
    return found if mark is None else {**found, "delta.identity.highWaterMark": mark}


def rows_of(table: Table) -> list[dict[str, Any]]:
    """All rows, sorted by their values."""
    found: list[dict[str, Any]] = table.refresh().scan().to_arrow().to_pylist()
    return sorted(found, key=lambda row: [str(value) for value in row.values()])
