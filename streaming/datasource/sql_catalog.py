"""Answers for the SQL catalog `tidelog`: tables by their path, or by their name below a folder.

    SELECT * FROM tidelog.`/data/events` VERSION AS OF 3
    CREATE TABLE tidelog.sales.orders (id BIGINT, day DATE) PARTITIONED BY (day)

A name without a path is below `spark.sql.catalog.tidelog.warehouse`. The setting
`spark.sql.catalog.tidelog.storageOption.<name>` is a storage option of all tables of the catalog.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from types import MappingProxyType
from typing import Any, NoReturn

import pyarrow as pa
import pyarrow.types as pt
from pyspark.sql import SparkSession
from pyspark.sql.types import StructField, StructType

from tidelog.log import Table, Transaction
from tidelog.log.data.type_names import sql_type
from tidelog.log.errors import ConfigurationError, CorruptLogError, TableExistsError, TableNotFoundError
from tidelog.log.format.actions import Metadata
from tidelog.log.format.properties import (
    COLUMN_MAPPING_MAX_ID,
    COLUMN_MAPPING_MODE,
    CONSTRAINT_PREFIX,
    FIRST_VERSION,
    cluster_by,
)
from tidelog.log.format.refused_properties import REFUSED
from tidelog.log.format.schema import columns_of
from tidelog.log.operations.overwrite import stage_truncate
from tidelog.log.read.table_reader import TableReader
from tidelog.log.rules import declared
from tidelog.log.storage import open_store
from tidelog.streaming import spark_versions
from tidelog.streaming.datasource import sql_changes
from tidelog.streaming.datasource.frames import with_char_types
from tidelog.streaming.datasource.read_options import split_names
from tidelog.streaming.datasource.sql_columns import (
    arrow_columns,
    column_defaults,
    is_replaceable,
    nullable,
    partitions_and_clusters,
    require_plain,
    strict,
    with_clusters,
    with_part,
)
from tidelog.streaming.executors.changed_rows import RowColumns
from tidelog.streaming.executors.plain_frame import quoted

_LOG_FOLDER = "_delta_log"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_STORAGE = "storageOption."
_SETTING = "spark.sql.catalog.tidelog"
# The file in the folder of a name that says where else its table is.
_LOCATION = "_tidelog_location.json"
# What Spark says of each new table, besides the properties that its user gave.
_OF_SPARK = {"provider", "owner", "is_managed_location", "location", "external", "comment"}
# Parts of CREATE TABLE that Spark takes for a property; with a dot at the end, for properties that begin so.
_OF_CREATE = {
    "option.": "OPTIONS",
    "external": "EXTERNAL without LOCATION, as DROP TABLE deletes the files,",
    "collation": "DEFAULT COLLATION",
    "hive.": "STORED AS or ROW FORMAT",
}
# Options of a name in Spark's own catalog that say nothing about its rows.
_OF_NAMES = {"serialization.format"}
_NOTHING: Mapping[str, str] = MappingProxyType({})
# What stands between DESCRIBE and a table in statements of Delta.
_DELTAS_WORDS = {"HISTORY", "DETAIL"}
_CHANGES = "use ALTER TABLE ... ADD COLUMNS, ALTER COLUMN, ADD CONSTRAINT or SET TBLPROPERTIES"
_CLUSTER = "use TBLPROPERTIES ('tidelog.clusterBy' = 'column'), by which a major compaction clusters"
# What is refused, by the name of Spark's class for it or of RowChanges, and what to use instead.
_REFUSED = {
    "AddColumn": (
        "a DEFAULT, a new field of a struct, or a place for a column of a name in Spark's own catalog is not supported",
        "leave it out; ALTER TABLE ... ALTER COLUMN ... SET DEFAULT is a second statement",
    ),
    "SchemaEvolution": (
        "WITH SCHEMA EVOLUTION is not supported with this Spark",
        "leave it out, and add the columns with ALTER TABLE ... ADD COLUMNS first; or use Spark 4.1 or later",
    ),
    "EvolutionOfName": (
        "WITH SCHEMA EVOLUTION of a name in Spark's own catalog is not supported",
        "name the table by its path, or leave it out, and add the columns with ALTER TABLE ... ADD COLUMNS first",
    ),
    "OtherTypes": (
        "the name was made with other types or collations than the table has",
        "name the table by its path: tidelog.`/path/to/table`",
    ),
    "Buckets": ("CLUSTERED BY ... INTO ... BUCKETS is not supported", _CLUSTER),
    "Changes": (
        "a table of the catalog does not have the columns of changes",
        'use spark.read.changes(name), .format("tidelog").option("changes", ...).load(path), or in SQL CHANGES',
    ),
    "AddPartition": ("a partition cannot be added", "insert its rows: a partition is there as long as it has some"),
    "Collation": ("DEFAULT COLLATION is not supported", _CHANGES),
    "DropPartition": ("ALTER TABLE ... DROP PARTITION is not supported", "use TRUNCATE TABLE ... PARTITION, or DELETE"),
    "CreateTableLike": (
        "CREATE TABLE ... LIKE is not supported",
        "use CREATE TABLE ... AS SELECT * FROM ... WHERE false",
    ),
    "NewConstraint": ("a constraint in CREATE TABLE is not supported", "use ALTER TABLE ... ADD CONSTRAINT after it"),
    "PartitionOrder": (
        "PARTITIONED BY is not supported in this form: Spark has moved the partition columns behind the others",
        "write it for spark.sql, not in a script and without parameters; or use the path: CREATE TABLE tidelog.`/path`",
    ),
    "SetLocation": (
        "ALTER TABLE ... SET LOCATION is not supported",
        "use DROP TABLE, which keeps a table that has a LOCATION, and CREATE TABLE ... LOCATION",
    ),
    "RenameTable": ("ALTER TABLE ... RENAME TO is not supported", "move the folder while nothing writes into it"),
    "OverwriteSchema": (
        "the table has other columns than the frame",
        'add .option("overwriteSchema", "true"), which replaces the columns of the table with those of the frame',
    ),
    "ReplacePart": (
        "where and partitionOverwriteMode do not fit REPLACE TABLE, which replaces all rows",
        "leave them out, or use writeTo(...).overwritePartitions(), or INSERT INTO ... REPLACE WHERE",
    ),
    "TableChanges": (
        "table_changes takes a table and one or two versions here",
        "for times use tidelog_changes('table', after => '...', until => '...'), whose start is exclusive",
    ),
    "UpdateColumnDefaultValue": (
        "a default of a column of a name in Spark's own catalog is not supported",
        "name the table by its path: ALTER TABLE tidelog.`/path`",
    ),
    "View": (
        "UPDATE, DELETE and MERGE cannot change a view that chooses rows or columns of a table",
        "name the table itself",
    ),
}

Request = Mapping[str, Any]

new_of_streams: dict[str, Table] = {}
"""The tables that toTable(...) has just made for names in Spark's own catalog, by their paths."""


def place(request: Request) -> tuple[str, dict[str, str]]:
    """The path of the table that the names mean, and the storage options.

    Raises ConfigurationError for a name if the catalog has no folder.
    """
    path, storage_options = _named_place(request)
    is_path = len(request["names"]) == 1 and path == request["names"][0]
    return (path if is_path else _location(path, storage_options) or path), storage_options


def folder_place(request: Request) -> tuple[str, dict[str, str]]:
    """The path of the folder of a namespace, and the storage options. Raises the error of `place`."""
    path, storage_options = _named_place({**request, "names": [*request["names"], ""]} if request["names"] else request)
    return path.rstrip("/") or path, storage_options


def _location(path: str, storage_options: Mapping[str, str]) -> str | None:
    """Where the table of a name is if CREATE TABLE had a LOCATION; None if it is at the name's path."""
    try:
        content = open_store(path, storage_options).read(_LOCATION)
    except FileNotFoundError:
        return None
    try:
        return str(json.loads(content)["location"])
    except (ValueError, KeyError, TypeError) as error:
        raise CorruptLogError(
            f"the location of the table {path} cannot be read: {error}",
            advice=f"delete the file {_LOCATION} there, and create the table again with its LOCATION",
            path=path,
        ) from error


def _named_place(request: Request) -> tuple[str, dict[str, str]]:
    given, storage_options = split_names(request["options"])
    *above, last = request["names"] or [""]
    _require_names(above, last)
    if "/" in last:
        return last, storage_options
    folder = given.get("warehouse")
    if not folder:
        shown = ".".join([*above, last]) or "the catalog's tables"
        raise ConfigurationError(
            f"the catalog tidelog has no folder in which {shown} could be found",
            advice="set spark.sql.catalog.tidelog.warehouse to a folder before the catalog is first used, or write the "
            "path: tidelog.`/path/to/table`",
        )
    if "/" in "".join(above):
        folder = "/".join(above)
        above = []
    return "/".join([folder.rstrip("/"), *above, *([last] if last else [])]), storage_options


def _require_names(above: Sequence[str], last: str) -> None:
    """Raise ConfigurationError for a name that could lie outside of the catalog's folder, or of a path."""
    is_path = _is_whole(last) and not above
    names = [*above[1:], last] if above and _is_whole(above[0]) else [*above, last]
    if is_path or not ("" in above or any(name in {".", ".."} or "/" in name for name in names)):
        return
    shown = ".".join(f"`{name}`" for name in (*above, last))
    raise ConfigurationError(
        f"tidelog.{shown} is not the name of a table below the catalog's folder",
        advice="write the whole path as one name, tidelog.`/path/to/table`; a name in a folder has no slashes, and is "
        "neither empty nor dots alone",
    )


def _is_whole(name: str) -> bool:
    """Whether it is a path from the root on, or a URL."""
    return name.startswith(("/", "file:/")) or "://" in name


def table_place(spark: SparkSession, names: Sequence[str]) -> tuple[str, dict[str, str]]:
    """The path of a table of the catalog, and its storage options, by the settings of the session."""
    prefix = f"{_SETTING}."
    settings = {name[len(prefix) :]: text for name, text in spark.conf.getAll.items() if name.startswith(prefix)}
    options = {name: text for name, text in settings.items() if name == "warehouse" or name.startswith(_STORAGE)}
    return place({"options": options, "names": list(names)})


def changed_place(request: Request) -> tuple[str, dict[str, str]]:
    """The path and the storage options of a whole table, by the options of the request.

    Raises ConfigurationError for options that choose what is read.
    """
    given, storage_options = split_names(request["options"])
    path = given.pop("path")
    for name in sorted(given.keys() - _OF_NAMES):
        raise ConfigurationError(
            f"the name has the option {name!r}, which chooses what is read, and the statement is about the whole table",
            advice=f"name the table by its path: tidelog.`{path}`",
        )
    return path, storage_options


def _place_of_name(request: Request, _: Any) -> str:
    """The path of the table that a name stands for, for a function that takes paths."""
    if request["options"] is None:
        raise ConfigurationError(
            f"{request['name']} is not a table of tidelog, or it is a view that chooses rows or columns of one",
            advice="give a table of the catalog tidelog, a name that was made USING tidelog, or a path",
        )
    path, storage_options = changed_place(request)
    if storage_options and not request["hasStorageOptions"]:
        raise ConfigurationError(
            f"{request['name']} has storage options, which a table function would show in its plan",
            advice="use CHANGES or changes(spark, path); or pass storage_options => map(...) to the function yourself",
        )
    return path


def _described(
    place: tuple[str, Mapping[str, str]],
    table: TableReader | Table,
    more: Mapping[str, str] = _NOTHING,
    changes: Sequence[Any] = (),
) -> str:
    """What Spark has to know of a table, after the changes of columns that a statement will make."""
    path, storage_options = place
    snapshot = table.at(version=int(more["versionAsOf"])) if more else table.at()
    metadata = _evolved(path, storage_options, changes) if changes else snapshot.state.head.metadata
    own = columns_of(metadata, path)
    configuration = metadata.configuration
    defaults = {rule.column: rule.expression for rule in declared(metadata, path).defaults}
    columns = spark_versions.columns_from_arrow(nullable(own))
    schema = with_char_types(columns, metadata, path).jsonValue()
    for field in schema["fields"]:
        if field["name"] in defaults:
            # Spark fills in the first for DEFAULT. The second is what rows from before would have: here that is null.
            field["metadata"] |= {"CURRENT_DEFAULT": defaults[field["name"]], "EXISTS_DEFAULT": "NULL"}
        comment = (own.field(field["name"]).metadata or {}).get(b"comment")
        if comment is not None:
            field["metadata"]["comment"] = comment.decode()
    return json.dumps(
        {
            "name": path,
            "made": [table.id, snapshot.version],
            "schema": json.dumps(schema),
            "strict": json.dumps(strict(schema, own)),
            "evolve": changes or None,
            "partitions": list(snapshot.partition_by),
            "clusters": list(cluster_by(configuration)),
            "rowColumns": spark_versions.columns_from_arrow(RowColumns.of(metadata, path).schema).json(),
            "properties": {**configuration, **_of_table(metadata), "provider": "tidelog", "location": path},
            "options": {**more, **_options(path, storage_options)},
        }
    )


def _evolved(path: str, storage_options: Mapping[str, str], changes: Sequence[Any]) -> Metadata:
    """The table's metadata with changes of columns, which are not committed."""
    transaction = Table.open(path, storage_options=storage_options).begin()
    try:
        evolve(transaction, changes)
        return transaction.state.head.metadata
    finally:
        transaction.abort()


def _options(path: str, storage_options: Mapping[str, str]) -> dict[str, str]:
    return {"path": path, **{f"{_STORAGE}{name}": text for name, text in storage_options.items()}}


def evolve(transaction: Transaction, changes: Sequence[Any]) -> None:
    """Give the table of a transaction new or wider columns, or parts of columns, as Spark describes them."""
    for change in changes:
        schema = spark_versions.columns_from_arrow(transaction.schema)
        given = {"name": "", "type": json.loads(change["type"]), "nullable": True, "metadata": {}}
        column = with_part(schema, change["names"], StructField.fromJson(given).dataType)
        transaction.evolve(arrow_columns(column))


def _of_table(metadata: Metadata) -> dict[str, str]:
    """What Spark shows among the properties, and a table has elsewhere."""
    return {} if metadata.description is None else {"comment": metadata.description}


def _table(request: Request, _: Any) -> str:
    try:
        return _at(request, place(request))
    except TableNotFoundError as error:
        *_, last = request["names"]
        if last.upper() not in _DELTAS_WORDS:
            raise
        # Spark reads DESCRIBE HISTORY orders as a question for the column `orders` of a table.
        raise TableNotFoundError(
            f"there is no table {last}, and Spark does not know the statement DESCRIBE {last.upper()}",
            advice=f"use CALL tidelog.system.{last.lower()}('table'), or tidelog.sql(spark, ...) for the statement",
            path=error.path,
        ) from None


def _target(request: Request, _: Any) -> str:
    """What toTable(...) of a stream writes to. There may be no table yet, and Spark needs to know no columns."""
    path, storage_options = place(request)
    columns = StructType().json()
    return json.dumps({"name": path, "schema": columns, "options": _options(path, storage_options)})


def _named(request: Request, _: Any) -> str:
    """A version of the past of a table in the session's catalog."""
    return _at(request, changed_place(request))


def _shown(request: Request, _: Any) -> str:
    """The whole table behind a name in the session's catalog, whatever the name chooses of it."""
    given, storage_options = split_names(request["options"])
    return _at(request, (given["path"], storage_options))


def _at(request: Request, place: tuple[str, Mapping[str, str]]) -> str:
    path, storage_options = place
    table = TableReader.open(path, storage_options=storage_options)
    if "version" in request:
        return _described(place, table, {"versionAsOf": _number(request["version"])})
    if "timestamp" in request:
        moment = _EPOCH + timedelta(microseconds=request["timestamp"])
        return _described(place, table, {"versionAsOf": str(table.at(timestamp=moment).version)})
    return _described(place, table, changes=request.get("evolve") or ())


def _changelog(request: Request, _: Any) -> str:
    """The changes of a table of the catalog, or of a name in the session's catalog."""
    found = place(request) if "names" in request else changed_place(request)
    return sql_changes.changelog(request, *found)


def _number(text: str) -> str:
    if not text.strip().isdigit():
        raise ConfigurationError(f"VERSION AS OF {text!r} is not a version", advice="give a whole number from 0 on")
    return text.strip()


def tables_in(request: Request) -> Iterator[str]:
    """The names of the tables in a namespace."""
    path, storage_options = folder_place(request)
    store = open_store(path, storage_options)
    for name in store.folders():
        if _LOG_FOLDER in store.folders(name, until=_LOG_FOLDER):
            if _is_table(f"{path}/{name}", storage_options):
                yield name
        elif _LOCATION in store.names(name):
            yield name


def _exists(request: Request, _: Any) -> bool:
    return _is_table(*place(request))


def _is_table(path: str, storage_options: Mapping[str, str]) -> bool:
    """Whether it is one, and was not dropped."""
    try:
        TableReader.open(path, storage_options=storage_options)
    except TableNotFoundError:
        return False
    return True


def _create(request: Request, _: Any) -> str:
    name, storage_options = _named_place(request)
    own = _own_properties(request["properties"])
    path = _plain(request["properties"].get("location", name))
    if path != name and len(request["names"]) == 1 and "/" in request["names"][0]:
        raise ConfigurationError(
            f"the table tidelog.`{name}` cannot have the LOCATION {path}: its name is its place",
            advice=f"write CREATE TABLE tidelog.`{path}`, or give it a name below the catalog's warehouse",
        )
    columns = StructType.fromJson(json.loads(request["schema"]))
    schema, defaults = arrow_columns(columns), column_defaults(columns)
    partitions, clusters = partitions_and_clusters(request["partitions"])
    made: Table | TableReader
    if path != name and not request.get("fills") and _is_table(path, storage_options):
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
    return _described((path, storage_options), made)


def _create_like(request: Request, _: Any) -> str:
    """A table with the columns, partitions, comment and properties of another one, and without its rows."""
    source = request["source"]
    if source.get("provider", "").lower() != "tidelog":
        return _create(request, None)
    name, storage_options = _named_place(request)
    if "location" in request["properties"]:
        raise ConfigurationError(
            "CREATE TABLE ... LIKE with a LOCATION is not supported", advice="leave it out, or use CREATE TABLE"
        )
    head = TableReader.open(_plain(source["location"]), storage_options=storage_options).at()
    metadata = head.state.head.metadata
    made = Table.create(
        name,
        head.schema,
        partition_by=head.partition_by,
        properties={**_copied(metadata.configuration), **_own_properties(request["properties"])},
        storage_options=storage_options,
        description=request["properties"].get("comment", metadata.description),
    )
    return _described((name, storage_options), made)


def _copied(configuration: Mapping[str, str]) -> dict[str, str]:
    """The properties that another table can have, too."""
    own = {COLUMN_MAPPING_MODE, COLUMN_MAPPING_MAX_ID, FIRST_VERSION, *REFUSED}
    return {
        key: text for key, text in configuration.items() if key not in own and not key.startswith(CONSTRAINT_PREFIX)
    }


def _plain(path: str) -> str:
    return path.removeprefix("file://").removeprefix("file:").rstrip("/") or path


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
        open_store(name, storage_options).put_if_absent(_LOCATION, content)
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
            "location": _plain(request["properties"].get("location", path)) != path,
        }.items()
        if differs
    ]
    if different:
        raise ConfigurationError(
            f"REPLACE TABLE with other {' and '.join(different)} than the table has is not supported",
            advice="use ALTER TABLE or COMMENT ON TABLE before it, or DROP TABLE and CREATE TABLE",
        )
    described = _described((path, storage_options), table)
    if is_replaceable(head.schema, wanted) and list(head.partition_by) == partitions:
        return described
    columns = StructType.fromJson(json.loads(request["schema"]))
    found = {
        "schema": spark_versions.columns_from_arrow(nullable(wanted)).json(),
        "strict": columns.json(),
        "partitions": partitions,
        "replaces": True,
    }
    return json.dumps({**json.loads(described), **found})


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
    if not request["managed"] and _is_table(path, storage_options):
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


def _alter(request: Request, _: Any) -> None:
    """Change a name in Spark's own catalog: new columns, and properties."""
    path, storage_options = changed_place(request)
    table = Table.open(path, storage_options=storage_options)
    columns = []
    for column in request["columns"]:
        if not column["plain"]:
            refuse_change("AddColumn")
        (name,) = column["names"]
        kind = json.loads(column["type"])
        metadata = {"comment": column["comment"]} if column["comment"] else {}
        given = {"name": name, "type": kind, "nullable": column["nullable"], "metadata": metadata}
        columns.append(StructField.fromJson(given))
    if columns:
        table.add_columns(arrow_columns(StructType(columns)))
    if request["properties"]:
        table.set_properties(with_clusters(request["properties"]))


def refuse_change(change: str) -> NoReturn:
    """Raise ConfigurationError for what is not supported, by its name in `_REFUSED`, or by Spark's for it."""
    what, instead = _REFUSED.get(change, (f"{change} is not supported", _CHANGES))
    raise ConfigurationError(what, advice=instead)


def drop_table(request: Request) -> bool:
    """Drop a table; of one with a LOCATION its name. False if there is none."""
    name, storage_options = _named_place(request)
    path, _ = place(request)
    if path != name:
        store = open_store(name, storage_options)
        store.delete(_LOCATION)
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
            if _is_table(path, storage_options):
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


ANSWERS: Mapping[str, Callable[[Request, Any], Any]] = {
    "table": _table,
    "changelog": _changelog,
    "changelogScan": sql_changes.scan_options,
    "placeOfName": _place_of_name,
    "target": _target,
    "named": _named,
    "shown": _shown,
    "exists": _exists,
    "tables": lambda request, _: "\n".join(tables_in(request)),
    "create": _create,
    "createLike": _create_like,
    "replace": _replace,
    "replaceColumns": _replace_columns,
    "createNamed": _create_named,
    "alter": _alter,
    "refused": lambda request, _: refuse_change(request["change"]),
    "drop": lambda request, _: drop_table(request),
    "truncate": _truncate,
    "truncatePartitions": _truncate_partitions,
    "undo": _undo,
}
