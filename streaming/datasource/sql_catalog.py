"""Answers for the SQL catalog `tidelog`: tables by their path, or by their name below a folder.

    SELECT * FROM tidelog.`/data/events` VERSION AS OF 3
    CREATE TABLE tidelog.sales.orders (id BIGINT, day DATE) PARTITIONED BY (day)

A name without a path is below `spark.sql.catalog.tidelog.warehouse`. The setting
`spark.sql.catalog.tidelog.storageOption.<name>` is a storage option of all tables of the catalog.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from types import MappingProxyType
from typing import Any, NoReturn

from pyspark.sql import SparkSession
from pyspark.sql.types import StructField, StructType

from tidelog.log import Table, Transaction
from tidelog.log.errors import ConfigurationError, CorruptLogError, TableNotFoundError
from tidelog.log.format.actions import Metadata
from tidelog.log.format.properties import (
    cluster_by,
)
from tidelog.log.format.schema import columns_of
from tidelog.log.read.table_reader import TableReader
from tidelog.log.rules import declared
from tidelog.log.storage import open_store
from tidelog.streaming import spark_versions
from tidelog.streaming.datasource import sql_changes
from tidelog.streaming.datasource.frames import with_char_types
from tidelog.streaming.datasource.read_options import split_names
from tidelog.streaming.datasource.sql_columns import (
    arrow_columns,
    nullable,
    strict,
    with_clusters,
    with_part,
)
from tidelog.streaming.executors.changed_rows import RowColumns

_LOG_FOLDER = "_delta_log"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_STORAGE = "storageOption."
_SETTING = "spark.sql.catalog.tidelog"
# The file in the folder of a name that says where else its table is.
LOCATION = "_tidelog_location.json"
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
        (
            'use spark.read.changes(name), .format("tidelog").option("changes", ...).load(path), or in SQL CHANGES, or '
            "tidelog_changes before Spark 4.2"
        ),
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
    path, storage_options = named_place(request)
    is_path = len(request["names"]) == 1 and path == request["names"][0]
    return (path if is_path else _location(path, storage_options) or path), storage_options


def folder_place(request: Request) -> tuple[str, dict[str, str]]:
    """The path of the folder of a namespace, and the storage options. Raises the error of `place`."""
    path, storage_options = named_place({**request, "names": [*request["names"], ""]} if request["names"] else request)
    return path.rstrip("/") or path, storage_options


def _location(path: str, storage_options: Mapping[str, str]) -> str | None:
    """Where the table of a name is if CREATE TABLE had a LOCATION; None if it is at the name's path."""
    try:
        content = open_store(path, storage_options).read(LOCATION)
    except FileNotFoundError:
        return None
    try:
        return str(json.loads(content)["location"])
    except (ValueError, KeyError, TypeError) as error:
        raise CorruptLogError(
            f"the location of the table {path} cannot be read: {error}",
            advice=f"delete the file {LOCATION} there, and create the table again with its LOCATION",
            path=path,
        ) from error


def named_place(request: Request) -> tuple[str, dict[str, str]]:
    """The place that the name itself means, wherever its table is. Raises ConfigurationError."""
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


def described(
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
        return described(place, table, {"versionAsOf": _number(request["version"])})
    if "timestamp" in request:
        moment = _EPOCH + timedelta(microseconds=request["timestamp"])
        return described(place, table, {"versionAsOf": str(table.at(timestamp=moment).version)})
    return described(place, table, changes=request.get("evolve") or ())


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
            if is_table(f"{path}/{name}", storage_options):
                yield name
        elif LOCATION in store.names(name):
            yield name


def _exists(request: Request, _: Any) -> bool:
    return is_table(*place(request))


def is_table(path: str, storage_options: Mapping[str, str]) -> bool:
    """Whether it is one, and was not dropped."""
    try:
        TableReader.open(path, storage_options=storage_options)
    except TableNotFoundError:
        return False
    return True


def plain_path(path: str) -> str:
    """A path on this machine without the scheme of an address."""
    return path.removeprefix("file://").removeprefix("file:").rstrip("/") or path


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
    "alter": _alter,
    "refused": lambda request, _: refuse_change(request["change"]),
}
