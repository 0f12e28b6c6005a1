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
from pyspark.sql import SparkSession
from pyspark.sql.types import ArrayType, DataType, MapType, StructField, StructType

from tidelog.log import Table
from tidelog.log.errors import ConfigurationError, SchemaMismatchError, TableNotFoundError
from tidelog.log.read.table_reader import TableReader
from tidelog.log.rules import declared
from tidelog.log.storage import open_store
from tidelog.streaming import spark_versions
from tidelog.streaming.datasource import sql_changes
from tidelog.streaming.datasource.frames import with_char_types
from tidelog.streaming.datasource.read_options import split_names

_LOG_FOLDER = "_delta_log"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_STORAGE = "storageOption."
_SETTING = "spark.sql.catalog.tidelog"
# What Spark says of each new table, besides the properties that its user gave.
_OF_SPARK = {"provider", "owner", "is_managed_location", "location"}
# Parts of CREATE TABLE that Spark takes for a property; with a dot at the end, for properties that begin so.
_OF_CREATE = {
    "option.": "OPTIONS",
    "external": "EXTERNAL, as DROP TABLE deletes the files,",
    "comment": "COMMENT on a table",
    "collation": "DEFAULT COLLATION",
    "hive.": "STORED AS or ROW FORMAT",
}
# Statements that Spark takes for a change of a property.
_OF_STATEMENTS = {
    "location": "ALTER TABLE ... SET LOCATION",
    "comment": "COMMENT on a table",
    "owner": "ALTER TABLE ... OWNER TO",
    "collation": "DEFAULT COLLATION",
}
# Options of a name in Spark's own catalog that say nothing about its rows.
_OF_NAMES = {"serialization.format"}
_NOTHING: Mapping[str, str] = MappingProxyType({})
_CHANGES = "use ALTER TABLE ... ADD COLUMNS, SET TBLPROPERTIES or UNSET TBLPROPERTIES"
_NEW_TABLE = "make a new table with CREATE TABLE ... AS SELECT, which can have other columns"
_CLUSTER = "use TBLPROPERTIES ('tidelog.clusterBy' = 'column'), by which a major compaction clusters"
# What is refused, by the name of Spark's class for it or of RowChanges, and what to use instead.
_REFUSED = {
    "AddColumn": (
        "a place for a new column, or a DEFAULT, or a field of a struct, is not supported",
        "leave out FIRST, AFTER and DEFAULT: ALTER TABLE ... ADD COLUMNS adds plain columns at the end",
    ),
    "Buckets": ("CLUSTERED BY ... INTO ... BUCKETS is not supported", _CLUSTER),
    "Changes": (
        "a table of the catalog does not have the columns of changes",
        'use spark.read.format("tidelog").option("changes", ...).load(path), or in SQL tidelog_changes(...) or CHANGES',
    ),
    "ClusterBy": ("CLUSTER BY is not supported", _CLUSTER),
    "CreateTableLike": (
        "CREATE TABLE ... LIKE is not supported",
        "use CREATE TABLE ... AS SELECT * FROM ... WHERE false",
    ),
    "DeleteColumn": ("ALTER TABLE ... DROP COLUMN is not supported", _NEW_TABLE),
    "PartitionOrder": (
        "PARTITIONED BY is not supported in this form: Spark has moved the partition columns behind the others",
        "write it for spark.sql, not in a script and without parameters; or use the path: CREATE TABLE tidelog.`/path`",
    ),
    "ReadStream": (
        "a stream cannot read a table of the catalog tidelog",
        'use spark.readStream.format("tidelog").load("/path/to/table")',
    ),
    "RenameColumn": ("ALTER TABLE ... RENAME COLUMN is not supported", _NEW_TABLE),
    "RenameTable": ("ALTER TABLE ... RENAME TO is not supported", "move the folder while nothing writes into it"),
    "ReplacePart": (
        "where and partitionOverwriteMode do not fit REPLACE TABLE, which replaces all rows",
        "leave them out, or use writeTo(...).overwritePartitions(), or INSERT INTO ... REPLACE WHERE",
    ),
    "TableChanges": (
        "table_changes takes a table and one or two versions here",
        "for times use tidelog_changes('table', after => '...', until => '...'), whose start is exclusive",
    ),
    "UpdateColumnComment": ("a change of a column's comment is not supported", _CHANGES),
    "UpdateColumnDefaultValue": ("a change of a column's default is not supported", "name the value in each INSERT"),
    "UpdateColumnNullability": ("a change of a column's nullability is not supported", _NEW_TABLE),
    "UpdateColumnPosition": ("a change of the order of columns is not supported", _NEW_TABLE),
    "UpdateColumnType": ("a change of a column's type is not supported", _NEW_TABLE),
    "View": (
        "UPDATE, DELETE and MERGE cannot change a view that chooses rows or columns of a table",
        "name the table itself",
    ),
}

Request = Mapping[str, Any]


def _place(request: Request) -> tuple[str, dict[str, str]]:
    """The path that the names mean, and the storage options.

    Raises ConfigurationError for a name if the catalog has no folder.
    """
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
    return _place({"options": options, "names": list(names)})


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
    place: tuple[str, Mapping[str, str]], table: TableReader | Table, more: Mapping[str, str] = _NOTHING
) -> str:
    """What Spark has to know of a table."""
    path, storage_options = place
    snapshot = table.at(version=int(more["versionAsOf"])) if more else table.at()
    metadata = snapshot.state.head.metadata
    configuration = metadata.configuration
    defaults = {rule.column: rule.expression for rule in declared(metadata, path).defaults}
    columns = spark_versions.columns_from_arrow(_nullable(snapshot.schema))
    schema = with_char_types(columns, metadata, path).jsonValue()
    for field in schema["fields"]:
        if field["name"] in defaults:
            # Spark fills in the first for DEFAULT. The second is what rows from before would have: here that is null.
            field["metadata"] |= {"CURRENT_DEFAULT": defaults[field["name"]], "EXISTS_DEFAULT": "NULL"}
        comment = (snapshot.schema.field(field["name"]).metadata or {}).get(b"comment")
        if comment is not None:
            field["metadata"]["comment"] = comment.decode()
    return json.dumps(
        {
            "name": path,
            "made": [table.id, snapshot.version],
            "schema": json.dumps(schema),
            "strict": json.dumps(_strict(schema, snapshot.schema)),
            "partitions": list(snapshot.partition_by),
            "properties": {"provider": "tidelog", "location": path, **configuration},
            "options": {"path": path, **more, **{f"{_STORAGE}{name}": text for name, text in storage_options.items()}},
        }
    )


def _strict(schema: Mapping[str, Any], columns: pa.Schema) -> Mapping[str, Any]:
    """The columns with those that cannot be null."""
    fields = [{**field, "nullable": columns.field(field["name"]).nullable} for field in schema["fields"]]
    return {**schema, "fields": fields}


def _nullable(schema: pa.Schema) -> pa.Schema:
    return pa.schema([field.with_nullable(True) for field in schema])  # noqa: FBT003 - pyarrow's signature


def _table(request: Request, _: Any) -> str:
    return _at(request, _place(request))


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
    return _described(place, table)


def _changelog(request: Request, _: Any) -> str:
    """The changes of a table of the catalog, or of a name in the session's catalog."""
    place = _place(request) if "names" in request else changed_place(request)
    return sql_changes.changelog(request, *place)


def _number(text: str) -> str:
    if not text.strip().isdigit():
        raise ConfigurationError(f"VERSION AS OF {text!r} is not a version", advice="give a whole number from 0 on")
    return text.strip()


def _tables(request: Request, _: Any) -> str:
    path, storage_options = _place({**request, "names": [*request["names"], ""]} if request["names"] else request)
    store = open_store(path.rstrip("/"), storage_options)
    inner = [name for name in store.folders() if _LOG_FOLDER in store.folders(name, until=_LOG_FOLDER)]
    return "\n".join(name for name in inner if _is_table(f"{path.rstrip('/')}/{name}", storage_options))


def _exists(request: Request, _: Any) -> bool:
    return _is_table(*_place(request))


def _is_table(path: str, storage_options: Mapping[str, str]) -> bool:
    """Whether it is one, and was not dropped."""
    try:
        TableReader.open(path, storage_options=storage_options)
    except TableNotFoundError:
        return False
    return True


def _create(request: Request, _: Any) -> str:
    path, storage_options = _place(request)
    own = _own_properties(path, request["properties"])
    schema = _arrow(StructType.fromJson(json.loads(request["schema"])))
    made = Table.create(
        path,
        schema,
        partition_by=_partitions(request["partitions"]),
        properties=own,
        storage_options=storage_options,
    )
    return _described((path, storage_options), made)


def _own_properties(path: str, properties: Mapping[str, str]) -> dict[str, str]:
    """The properties that the user gave. Raises ConfigurationError for another part that Spark passes on as one."""
    provider = properties.get("provider", "tidelog")
    if provider.lower() != "tidelog":
        raise ConfigurationError(
            f"a table of the catalog tidelog cannot use {provider}",
            advice='write USING tidelog or .format("tidelog"), or leave it out; toTable(...) of a stream is '
            "foreachBatch(Sink(path)) here",
        )
    if properties.get("location", path).removeprefix("file:") != path:
        raise ConfigurationError(
            "LOCATION is not supported in the catalog tidelog, where the name is the place",
            advice=f"write CREATE TABLE tidelog.`{properties['location']}`",
        )
    for prefix, what in _OF_CREATE.items():
        if any(name == prefix or (prefix.endswith(".") and name.startswith(prefix)) for name in properties):
            raise ConfigurationError(
                f"{what} is not supported in the catalog tidelog",
                advice="leave it out; TBLPROPERTIES takes the table's properties, and columns can have comments",
            )
    return {name: value for name, value in properties.items() if name not in _OF_SPARK}


def _replace(request: Request, _: Any) -> str:
    """The table of a REPLACE TABLE that keeps all but its rows.

    Raises ConfigurationError for one that would get other columns, partitions or properties.
    """
    path, storage_options = _place(request)
    table = TableReader.open(path, storage_options=storage_options)
    head = table.at()
    wanted = _arrow(StructType.fromJson(json.loads(request["schema"])))
    properties = _own_properties(path, request["properties"])
    different = [
        what
        for what, differs in {
            "columns": not _is_replaceable(head.schema, wanted),
            "partitions": list(head.partition_by) != _partitions(request["partitions"]),
            "properties": not properties.items() <= head.state.head.metadata.configuration.items(),
        }.items()
        if differs
    ]
    if different:
        raise ConfigurationError(
            f"REPLACE TABLE with other {' and '.join(different)} than the table has is not supported",
            advice="use DROP TABLE and CREATE TABLE, or ALTER TABLE before it; with the same ones it is one commit",
        )
    return _described((path, storage_options), table)


def _is_replaceable(table: pa.Schema, wanted: pa.Schema) -> bool:
    """Whether the columns are the same. Comments, and what cannot be null, may stay: a SELECT does not say."""
    old_columns, new_columns = (
        _loose(spark_versions.columns_from_arrow(schema).jsonValue()) for schema in (table, wanted)
    )
    return old_columns == new_columns and all(
        (new.nullable or not old.nullable) and (new.metadata or {}).items() <= (old.metadata or {}).items()
        for new, old in zip(wanted, table, strict=True)
    )


def _loose(kind: Any) -> Any:
    """A type of Spark's, as JSON, all of whose parts can be null."""
    if isinstance(kind, dict):
        flags = {"nullable", "containsNull", "valueContainsNull"}
        return {key: key in flags or _loose(part) for key, part in kind.items() if key != "metadata"}
    return [_loose(part) for part in kind] if isinstance(kind, list) else kind


def _create_named(request: Request, _: Any) -> None:
    """The table of a name in Spark's own catalog, unless its location has one."""
    given, storage_options = split_names(request["options"])
    path = given["path"]
    schema = StructType.fromJson(json.loads(request["schema"]))
    require_no_clusters(request["properties"])
    require_plain(schema)
    if not request["managed"] and _is_table(path, storage_options):
        return
    Table.create(
        path,
        _arrow(schema),
        partition_by=request["partitions"],
        properties=request["properties"],
        storage_options=storage_options,
    )


def _partitions(described: Sequence[str]) -> list[str]:
    for text in described:
        if text.startswith("cluster_by("):
            _refused({"change": "ClusterBy"}, None)
        if text.endswith(")"):
            raise ConfigurationError(
                f"PARTITIONED BY ({text}) is not supported", advice="partition by columns of the table"
            )
    return [text[1:-1].replace("``", "`") if text.startswith("`") else text for text in described]


def require_no_clusters(properties: Mapping[str, Any] | None) -> None:
    """Raise ConfigurationError for CLUSTER BY on a name in Spark's own catalog: it arrives as a property."""
    if "clusteringColumns" in (properties or {}):
        _refused({"change": "ClusterBy"}, None)


def require_plain(schema: StructType) -> None:
    """Raise SchemaMismatchError for a type that would lose its length or collation in a table."""
    for field in schema:
        name = field.dataType.simpleString()
        if any("char(" in text or "collate " in text for text in _leaf_types(field.dataType)):
            raise SchemaMismatchError(
                f"column {field.name!r} cannot have the type {name}: a table keeps neither a length nor a collation",
                advice="use STRING",
                column=field.name,
            )


def _leaf_types(kind: DataType) -> Iterator[str]:
    """The names of the types that a type consists of."""
    parts = [kind]
    if isinstance(kind, StructType):
        parts = [field.dataType for field in kind]
    elif isinstance(kind, ArrayType):
        parts = [kind.elementType]
    elif isinstance(kind, MapType):
        parts = [kind.keyType, kind.valueType]
    for part in parts:
        if part is kind:
            yield kind.simpleString()
        else:
            yield from _leaf_types(part)


def _arrow(schema: StructType) -> pa.Schema:
    """The columns as Arrow's, with their comments.

    Raises SchemaMismatchError for a type that a table cannot keep.
    """
    require_plain(schema)
    plain = spark_versions.columns_to_arrow(schema)
    comments = {field.name: field.metadata.get("comment") for field in schema}
    return pa.schema(
        [field.with_metadata({"comment": comments[field.name]}) if comments[field.name] else field for field in plain]
    )


def _alter(request: Request, _: Any) -> None:
    path, storage_options = _place(request) if "names" in request else changed_place(request)
    for name in sorted(_OF_STATEMENTS.keys() & request["properties"].keys() if "names" in request else ()):
        raise ConfigurationError(
            f"{_OF_STATEMENTS[name]} is not supported in the catalog tidelog",
            advice=_CHANGES,
        )
    table = Table.open(path, storage_options=storage_options)
    columns = []
    for column in request["columns"]:
        if len(column["names"]) != 1 or not column["plain"]:
            _refused({"change": "AddColumn"}, None)
        (name,) = column["names"]
        kind = json.loads(column["type"])
        metadata = {"comment": column["comment"]} if column["comment"] else {}
        given = {"name": name, "type": kind, "nullable": column["nullable"], "metadata": metadata}
        columns.append(StructField.fromJson(given))
    if columns:
        table.add_columns(_arrow(StructType(columns)))
    if request["properties"]:
        require_no_clusters(request["properties"])
        table.set_properties(request["properties"])


def _refused(request: Request, _: Any) -> NoReturn:
    what, instead = _REFUSED.get(request["change"], (f"{request['change']} is not supported", _CHANGES))
    raise ConfigurationError(what, advice=instead)


def _drop(request: Request, _: Any) -> bool:
    path, storage_options = _place(request)
    try:
        Table.drop(path, storage_options=storage_options)
    except TableNotFoundError:
        return False
    return True


def _undo(request: Request, _: Any) -> None:
    """Drop the table of a CREATE TABLE ... AS SELECT that failed, unless somebody else has used it meanwhile."""
    path, storage_options = _place(request)
    with suppress(TableNotFoundError):
        table = TableReader.open(path, storage_options=storage_options)
        if [table.id, table.version] == request["made"]:
            Table.drop(path, storage_options=storage_options)


def _truncate(request: Request, _: Any) -> None:
    if request.get("partition"):
        raise ConfigurationError("TRUNCATE TABLE ... PARTITION is not supported", advice="use DELETE FROM ... WHERE")
    path, storage_options = changed_place(request)
    Table.open(path, storage_options=storage_options).truncate()


ANSWERS: Mapping[str, Callable[[Request, Any], Any]] = {
    "table": _table,
    "changelog": _changelog,
    "changelogScan": sql_changes.scan_options,
    "placeOfName": _place_of_name,
    "named": _named,
    "shown": _shown,
    "exists": _exists,
    "tables": _tables,
    "create": _create,
    "replace": _replace,
    "createNamed": _create_named,
    "alter": _alter,
    "refused": _refused,
    "drop": _drop,
    "truncate": _truncate,
    "undo": _undo,
}
