"""Tables in SQL, of the catalog `tidelog` and of names in Spark's own: CREATE, REPLACE, DROP and TRUNCATE."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import pyarrow as pa
import pyarrow.types as pt
from pyspark.sql.types import StructType

from tidelog.log import Table, Transaction
from tidelog.log.data.type_names import sql_type
from tidelog.log.errors import ConfigurationError, TableExistsError, TableNotFoundError
from tidelog.log.format.properties import (
    COLUMN_MAPPING_MAX_ID,
    COLUMN_MAPPING_MODE,
    CONSTRAINT_PREFIX,
    FIRST_VERSION,
)
from tidelog.log.format.refused_properties import REFUSED
from tidelog.log.operations.overwrite import stage_truncate
from tidelog.log.read.table_reader import TableReader
from tidelog.log.rules import declared
from tidelog.log.storage import open_store
from tidelog.streaming import spark_versions
from tidelog.streaming.datasource.read_options import split_names
from tidelog.streaming.datasource.sql_catalog import (
    LOCATION,
    Request,
    changed_place,
    described,
    is_table,
    named_place,
    new_of_streams,
    place,
    plain_path,
)
from tidelog.streaming.datasource.sql_columns import (
    arrow_columns,
    column_defaults,
    is_replaceable,
    nullable,
    partitions_and_clusters,
    require_plain,
    with_clusters,
)
from tidelog.streaming.executors.plain_frame import quoted

# What Spark says of each new table, besides the properties that its user gave.
_OF_SPARK = {"provider", "owner", "is_managed_location", "location", "external", "comment"}
# Parts of CREATE TABLE that Spark takes for a property; with a dot at the end, for properties that begin so.
_OF_CREATE = {
    "option.": "OPTIONS",
    "external": "EXTERNAL without LOCATION, as DROP TABLE deletes the files,",
    "collation": "DEFAULT COLLATION",
    "hive.": "STORED AS or ROW FORMAT",
}


def _create(request: Request, _: Any) -> str:
    name, storage_options = named_place(request)
    own = _own_properties(request["properties"])
    path = plain_path(request["properties"].get("location", name))
    if path != name and len(request["names"]) == 1 and "/" in request["names"][0]:
        raise ConfigurationError(
            f"the table tidelog.`{name}` cannot have the LOCATION {path}: its name is its place",
            advice=f"write CREATE TABLE tidelog.`{path}`, or give it a name below the catalog's warehouse",
        )
    columns = StructType.fromJson(json.loads(request["schema"]))
    schema, defaults = arrow_columns(columns), column_defaults(columns)
    partitions, clusters = partitions_and_clusters(request["partitions"])
    made: Table | TableReader
    if path != name and not request.get("fills") and is_table(path, storage_options):
        made = _existing(path, storage_options, schema, partitions, own)
        _require_defaults(made, defaults)
    else:
        made = Table.create(
            path,
            schema,
            partition_by=partitions,
            properties={**clusters, **own},
            storage_options=storage_options,
            description=request["properties"].get("comment"),
            defaults=defaults,
        )
    if path != name and not _has_location(name, storage_options, path):
        if isinstance(made, Table):
            Table.drop(path, storage_options=storage_options)
        raise TableExistsError(
            f"another CREATE TABLE has given {name} a location", advice="choose another name", path=name
        )
    return described((path, storage_options), made)


def _create_like(request: Request, _: Any) -> str:
    """A table with the columns, partitions, comment and properties of another one, and without its rows."""
    source = request["source"]
    if source.get("provider", "").lower() != "tidelog":
        return _create(request, None)
    name, storage_options = named_place(request)
    if "location" in request["properties"]:
        raise ConfigurationError(
            "CREATE TABLE ... LIKE with a LOCATION is not supported", advice="leave it out, or use CREATE TABLE"
        )
    head = TableReader.open(plain_path(source["location"]), storage_options=storage_options).at()
    metadata = head.state.head.metadata
    made = Table.create(
        name,
        head.schema,
        partition_by=head.partition_by,
        properties={**_copied(metadata.configuration), **_own_properties(request["properties"])},
        storage_options=storage_options,
        description=request["properties"].get("comment", metadata.description),
    )
    return described((name, storage_options), made)


def _copied(configuration: Mapping[str, str]) -> dict[str, str]:
    """The properties that another table can have, too."""
    own = {COLUMN_MAPPING_MODE, COLUMN_MAPPING_MAX_ID, FIRST_VERSION, *REFUSED}
    return {
        key: text for key, text in configuration.items() if key not in own and not key.startswith(CONSTRAINT_PREFIX)
    }


def _existing(
    path: str,
    storage_options: Mapping[str, str],
    schema: pa.Schema,
    partitions: Sequence[str],
    properties: Mapping[str, str],
) -> TableReader:
    """The table at the LOCATION of a CREATE TABLE. Raises ConfigurationError if the statement describes another."""
    table = TableReader.open(path, storage_options=storage_options)
    snapshot = table.at()
    known = snapshot.state.head.metadata.configuration
    for what, differs in {
        "columns": bool(schema.names) and not is_replaceable(snapshot.schema, schema),
        "partitions": bool(partitions) and list(snapshot.partition_by) != list(partitions),
        "properties": not properties.items() <= known.items(),
    }.items():
        if differs:
            raise ConfigurationError(
                f"the table at {path} has other {what} than the statement says",
                advice="leave them out: CREATE TABLE name USING tidelog LOCATION '...'",
            )
    return table


def _require_defaults(table: TableReader, wanted: Mapping[str, str]) -> None:
    """Raise ConfigurationError for a default that the table does not have."""
    known = {rule.column: rule.expression for rule in declared(table.at().state.head.metadata, table.path).defaults}
    for name, expression in wanted.items():
        if known.get(name) != expression:
            raise ConfigurationError(
                f"the column {name!r} of {table.path} has no DEFAULT {expression}, as the statement says",
                advice=f"leave it out; use ALTER TABLE ... ALTER COLUMN {name} SET DEFAULT {expression}",
            )


def _has_location(name: str, storage_options: Mapping[str, str], path: str) -> bool:
    """Let a name stand for the table at a path. False if it stands for another one."""
    content = json.dumps({"location": path}, ensure_ascii=False).encode()
    try:
        open_store(name, storage_options).put_if_absent(LOCATION, content)
    except FileExistsError:
        return False
    return True


def _own_properties(properties: Mapping[str, str]) -> dict[str, str]:
    """The properties that the user gave. Raises ConfigurationError for another part that Spark passes on as one."""
    provider = properties.get("provider", "tidelog")
    if provider.lower() != "tidelog":
        raise ConfigurationError(
            f"a table of the catalog tidelog cannot use {provider}",
            advice='write USING tidelog or .format("tidelog"), or leave it out',
        )
    for prefix, what in _OF_CREATE.items():
        if prefix == "external" and "location" in properties:
            continue
        if any(name == prefix or (prefix.endswith(".") and name.startswith(prefix)) for name in properties):
            raise ConfigurationError(
                f"{what} is not supported in the catalog tidelog",
                advice="leave it out; TBLPROPERTIES takes the table's properties, and columns can have comments",
            )
    return {name: value for name, value in properties.items() if name not in _OF_SPARK}


def _replace(request: Request, _: Any) -> str:
    """The table of a REPLACE TABLE, as it will be.

    Raises ConfigurationError for one that would get other properties, another comment or another place.
    """
    path, storage_options = place(request)
    table = TableReader.open(path, storage_options=storage_options)
    head = table.at()
    columns = StructType.fromJson(json.loads(request["schema"]))
    _require_defaults(table, column_defaults(columns))
    wanted = arrow_columns(columns)
    properties = _own_properties(request["properties"])
    partitions, clusters = partitions_and_clusters(request["partitions"])
    properties = {**clusters, **properties}
    comment = request["properties"].get("comment")
    different = [
        what
        for what, differs in {
            "properties": not properties.items() <= head.state.head.metadata.configuration.items()
            or (comment is not None and comment != head.state.head.metadata.description),
            "location": plain_path(request["properties"].get("location", path)) != path,
        }.items()
        if differs
    ]
    if different:
        raise ConfigurationError(
            f"REPLACE TABLE with other {' and '.join(different)} than the table has is not supported",
            advice="use ALTER TABLE or COMMENT ON TABLE before it, or DROP TABLE and CREATE TABLE",
        )
    known = described((path, storage_options), table)
    if is_replaceable(head.schema, wanted) and list(head.partition_by) == partitions:
        return known
    columns = StructType.fromJson(json.loads(request["schema"]))
    found = {
        "schema": spark_versions.columns_from_arrow(nullable(wanted)).json(),
        "strict": columns.json(),
        "partitions": partitions,
        "replaces": True,
    }
    return json.dumps({**json.loads(known), **found})


def _replace_columns(request: Request, _: Any) -> None:
    """Empty a table, and give it other columns, in one commit."""
    path, storage_options = changed_place(request)
    columns = arrow_columns(StructType.fromJson(json.loads(request["schema"])))

    def staged(transaction: Transaction) -> Transaction:
        transaction.replace_columns(columns, request["partitions"])
        return transaction.truncate()

    Table.open(path, storage_options=storage_options).statement(staged)


def _create_named(request: Request, _: Any) -> None:
    """The table of a name in Spark's own catalog, unless its location has one."""
    given, storage_options = split_names(request["options"])
    path = given["path"]
    schema = StructType.fromJson(json.loads(request["schema"]))
    require_plain(schema)
    if not request["managed"] and is_table(path, storage_options):
        return
    made = Table.create(
        path,
        arrow_columns(schema),
        partition_by=request["partitions"],
        properties=with_clusters(request["properties"]),
        storage_options=storage_options,
    )
    if request["stream"]:
        new_of_streams[made.path] = made


def drop_table(request: Request) -> bool:
    """Drop a table; of one with a LOCATION its name. False if there is none."""
    name, storage_options = named_place(request)
    path, _ = place(request)
    if path != name:
        store = open_store(name, storage_options)
        store.delete(LOCATION)
        store.remove_empty_folders()
        return True
    try:
        Table.drop(path, storage_options=storage_options)
    except TableNotFoundError:
        return False
    return True


def _undo(request: Request, _: Any) -> None:
    """Drop the table of a CREATE TABLE ... AS SELECT that failed, unless somebody else has used it meanwhile."""
    path, storage_options = place(request)
    with suppress(TableNotFoundError):
        table = TableReader.open(path, storage_options=storage_options)
        if [table.id, table.version] == request["made"]:
            drop_table(request)
            if is_table(path, storage_options):
                Table.drop(path, storage_options=storage_options)


def _truncate(request: Request, _: Any) -> None:
    path, storage_options = changed_place(request)
    table = Table.open(path, storage_options=storage_options)
    spec = request.get("partition")
    table.truncate(where=None if spec is None else " AND ".join(_partition_test(table, *each) for each in spec.items()))


def _partition_test(table: Table, name: str, text: str | None) -> str:
    """A test for a part of PARTITION of a name in Spark's own catalog, whose values are texts."""
    own = {column.lower(): column for column in table.partition_by}.get(name.lower())
    if own is None:
        raise ConfigurationError(
            f"{name!r} is not a partition column of {table.path}",
            advice=f"its partition columns are {', '.join(table.partition_by) or 'none'}",
        )
    if text is None:
        return f"{quoted(own)} IS NULL"
    literal = "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
    return f"{quoted(own)} <=> CAST({literal} AS {sql_type(table.schema.field(own).type)})"


def _truncate_partitions(request: Request, values: Sequence[Sequence[Any]]) -> None:
    """Delete the rows of partitions. Their values are as Spark has them, so times are numbers."""
    path, storage_options = changed_place(request)
    table = Table.open(path, storage_options=storage_options)
    rows = [list(row) for row in values]

    def staged(transaction: Transaction) -> Transaction:
        schema = pa.schema([transaction.schema.field(name) for name in table.partition_by])
        columns = [_partition_values([row[place] for row in rows], field.type) for place, field in enumerate(schema)]
        partitions = pa.table(columns, schema=nullable(schema))
        return transaction.stage(stage_truncate(transaction.state, transaction.writer, None, partitions))

    table.statement(staged)


def _partition_values(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    plain = {"date32[day]": pa.int32()}.get(str(kind), pa.int64() if pt.is_timestamp(kind) else kind)
    return pa.array([bytes(value) if isinstance(value, bytearray) else value for value in values], plain).cast(kind)


OF_TABLES: Mapping[str, Callable[[Request, Any], Any]] = {
    "create": _create,
    "createLike": _create_like,
    "replace": _replace,
    "replaceColumns": _replace_columns,
    "createNamed": _create_named,
    "truncate": _truncate,
    "truncatePartitions": _truncate_partitions,
    "undo": _undo,
    "drop": lambda request, _: drop_table(request),
}
