"""The procedures of the SQL catalog `tidelog`, which look after a table: `CALL tidelog.system.compact('/data/events')`.

`Procedures.java` is what Spark calls. A procedure names its table by a path, or by a name as in a query.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from types import MappingProxyType
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DataType,
    DayTimeIntervalType,
    LongType,
    StringType,
    StructType,
    TimestampType,
)

from tidelog.log import Table
from tidelog.log.errors import ConfigurationError, TableNotFoundError
from tidelog.log.format import properties
from tidelog.log.format.clustering import clustering_columns
from tidelog.log.presentable import brief, did_you_mean
from tidelog.streaming.datasource.read_options import in_zone
from tidelog.streaming.datasource.sql_catalog import changed_place, table_place
from tidelog.streaming.datasource.table_functions import history_rows
from tidelog.streaming.executors.session import is_connect, prepare_session
from tidelog.streaming.executors.spark_table import SparkTable

_SCHEMA = "system"
_CATALOG = "tidelog"
# What Spark calls an argument that has a name.
_BY_NAME = "BY_NAME"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# What a clean-up of millions of files shows of them.
_SHOWN_FILES = 1000
_ZONE = "spark.sql.session.timeZone"
# How Spark calls the options of a name among the properties of its table.
_OPTION = "option."
_PART = re.compile(r"`(?:[^`]|``)*`|[^.`]+")
_TEXT, _FLAG, _TIME, _NAMES = StringType(), BooleanType(), TimestampType(), ArrayType(StringType())

Values = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter: its types, of which the first is meant unless the argument has another of them, and its default.

    The default is a text of SQL; None if the argument is required.
    """

    name: str
    types: tuple[DataType, ...]
    comment: str
    default: str | None = "NULL"


@dataclass(frozen=True, slots=True)
class Procedure:
    """A procedure, and what it does with a session, a table and its arguments: rows as a result."""

    about: str
    parameters: tuple[Parameter, ...]
    run: Callable[[SparkSession, Table, Values], pa.Table]


# --- what they do -----------------------------------------------------------------------------------------------------


def _compact(spark: SparkSession, table: Table, values: Values) -> pa.Table:
    columns = _columns(values["cluster_by"])
    level = values["level"] or ("major" if columns or values["purge"] else "minor")
    report = SparkTable(spark, table).compact(
        level, where=values["where"], cluster_by=columns, purge=bool(values["purge"])
    )
    return _row(
        _COMPACTED,
        version=report.version,
        versions=list(report.versions),
        levels=list(report.levels),
        groups=report.groups,
        files_removed=report.files_removed,
        files_added=report.files_added,
        bytes_read=report.bytes_read,
        bytes_written=report.bytes_written,
        groups_left=report.groups_left,
        stopped=report.stopped,
    )


def _expire(_: SparkSession, table: Table, values: Values) -> pa.Table:
    report = table.expire(older_than=values["older_than"], dry_run=bool(values["dry_run"]))
    return _row(
        _EXPIRED,
        version=report.commit_version,
        cutoff=report.cutoff,
        earliest_version=report.earliest_version,
        commits=report.commits,
        checkpoints=report.checkpoints,
        others=report.others,
        bytes_deleted=report.bytes_deleted,
        files=list(report.files[:_SHOWN_FILES]),
        held_by=list(report.held_by),
        dry_run=report.dry_run,
    )


def _vacuum(_: SparkSession, table: Table, values: Values) -> pa.Table:
    listing = values["listing"] is not False
    report = table.vacuum(older_than=values["older_than"], dry_run=bool(values["dry_run"]), listing=listing)
    return _row(
        _VACUUMED,
        version=report.commit_version,
        cutoff=report.cutoff,
        earliest_version=report.earliest_version,
        data_files=report.data_files,
        deletion_vectors=report.deletion_vectors,
        change_files=report.change_files,
        row_maps=report.row_maps,
        others=report.others,
        bytes_deleted=report.bytes_deleted,
        files=list(report.files[:_SHOWN_FILES]),
        failed=list(report.failed),
        held_by=list(report.held_by),
        dry_run=report.dry_run,
    )


def _restore(_: SparkSession, table: Table, values: Values) -> pa.Table:
    done = table.restore(version=values["version"], timestamp=values["timestamp"])
    return _row(
        _RESTORED,
        version=done.version,
        files_restored=done.metrics.get("numRestoredFiles", 0),
        files_removed=done.metrics.get("numRemovedFiles", 0),
    )


def _history(_: SparkSession, table: Table, values: Values) -> pa.Table:
    return history_rows(table, values["limit"])


def _detail(_: SparkSession, table: Table, __: Values) -> pa.Table:
    snapshot = table.at()
    head = snapshot.state.head
    metadata, protocol = head.metadata, head.protocol
    clustered = properties.cluster_by(metadata.configuration) or clustering_columns(head.domains, snapshot.schema)
    created = metadata.created_time
    return _row(
        _DETAIL,
        format=_CATALOG,
        id=metadata.id,
        name=metadata.name,
        description=metadata.description,
        location=table.path,
        createdAt=None if created is None else _EPOCH + timedelta(milliseconds=created),
        lastModified=snapshot.timestamp,
        partitionColumns=list(snapshot.partition_by),
        clusteringColumns=list(clustered),
        numFiles=snapshot.num_files,
        sizeInBytes=pc.sum(snapshot.files()["size"]).as_py() or 0,
        properties=list(metadata.configuration.items()),
        minReaderVersion=protocol.min_reader_version,
        minWriterVersion=protocol.min_writer_version,
        tableFeatures=sorted({*(protocol.reader_features or ()), *(protocol.writer_features or ())}),
    )


def _row(schema: pa.Schema, **values: Any) -> pa.Table:
    return pa.Table.from_pylist([values], schema=schema)


def _columns(names: str | Sequence[str] | None) -> list[str]:
    return [name.strip() for name in names.split(",")] if isinstance(names, str) else list(names or ())


_LONG, _STRING, _MOMENT = pa.int64(), pa.string(), pa.timestamp("us", tz="UTC")
_STRINGS = pa.list_(_STRING)
_COMPACTED = pa.schema(
    {
        "version": _LONG,
        "versions": pa.list_(_LONG),
        "levels": _STRINGS,
        "groups": _LONG,
        "files_removed": _LONG,
        "files_added": _LONG,
        "bytes_read": _LONG,
        "bytes_written": _LONG,
        "groups_left": _LONG,
        "stopped": _STRING,
    }
)
_EXPIRED = pa.schema(
    {
        "version": _LONG,
        "cutoff": _MOMENT,
        "earliest_version": _LONG,
        "commits": _LONG,
        "checkpoints": _LONG,
        "others": _LONG,
        "bytes_deleted": _LONG,
        "files": _STRINGS,
        "held_by": _STRINGS,
        "dry_run": pa.bool_(),
    }
)
_VACUUMED = pa.schema(
    {
        "version": _LONG,
        "cutoff": _MOMENT,
        "earliest_version": _LONG,
        "data_files": _LONG,
        "deletion_vectors": _LONG,
        "change_files": _LONG,
        "row_maps": _LONG,
        "others": _LONG,
        "bytes_deleted": _LONG,
        "files": _STRINGS,
        "failed": pa.map_(_STRING, _STRING),
        "held_by": _STRINGS,
        "dry_run": pa.bool_(),
    }
)
_RESTORED = pa.schema({"version": _LONG, "files_restored": _LONG, "files_removed": _LONG})
# The columns have Delta's names, which programs read.
_DETAIL = pa.schema(
    {
        "format": _STRING,
        "id": _STRING,
        "name": _STRING,
        "description": _STRING,
        "location": _STRING,
        "createdAt": _MOMENT,
        "lastModified": _MOMENT,
        "partitionColumns": _STRINGS,
        "clusteringColumns": _STRINGS,
        "numFiles": _LONG,
        "sizeInBytes": _LONG,
        "properties": pa.map_(_STRING, _STRING),
        "minReaderVersion": pa.int32(),
        "minWriterVersion": pa.int32(),
        "tableFeatures": _STRINGS,
    }
)

_OLDER_THAN = Parameter(
    "older_than",
    (_TEXT, _TIME, DayTimeIntervalType()),
    "an age, such as '30 days' or INTERVAL 30 DAYS, or a TIMESTAMP; by default the retention of the table",
)
_DRY_RUN = Parameter("dry_run", (_FLAG,), "whether to report only what would be deleted", "false")
_TABLE = Parameter("table", (_TEXT,), "a path, or the name of a table", None)

PROCEDURES: Mapping[str, Procedure] = MappingProxyType(
    {
        "compact": Procedure(
            "Rewrites files without a change of rows, on the executors.",
            (
                _TABLE,
                Parameter("level", (_TEXT,), "minor, major or auto; by default minor, and major with the next ones"),
                Parameter("where", (_TEXT,), "a predicate over partition columns"),
                Parameter("cluster_by", (_TEXT, _NAMES), "columns, separated by commas or as an array"),
                Parameter("purge", (_FLAG,), "whether to rewrite each file that has a deleted row", "false"),
            ),
            _compact,
        ),
        "detail": Procedure("Describes the newest version of a table.", (_TABLE,), _detail),
        "expire": Procedure(
            "Deletes commits and checkpoints that no retained version needs.", (_TABLE, _OLDER_THAN, _DRY_RUN), _expire
        ),
        "history": Procedure(
            "Lists the retained commits, newest first.",
            (_TABLE, Parameter("limit", (LongType(),), "how many")),
            _history,
        ),
        "restore": Procedure(
            "Makes the rows of an older version the newest.",
            (
                _TABLE,
                Parameter("version", (LongType(),), "the version"),
                Parameter("timestamp", (_TIME,), "a time, instead of the version"),
            ),
            _restore,
        ),
        "vacuum": Procedure(
            "Deletes data files that no retained version needs.",
            (
                _TABLE,
                _OLDER_THAN,
                _DRY_RUN,
                Parameter("listing", (_FLAG,), "whether to list the table's folder, or only read the log", "true"),
            ),
            _vacuum,
        ),
    }
)


# --- calls ------------------------------------------------------------------------------------------------------------


def _procedure(request: Mapping[str, Any], _: Any) -> str:
    """What Spark shows of a procedure. Raises ConfigurationError if there is none of that name."""
    *above, name = request["names"]
    known = name.lower()
    if [part.lower() for part in above] != [_SCHEMA] or known not in PROCEDURES:
        shown = ".".join((*above, name))
        raise ConfigurationError(
            f"the catalog tidelog has no procedure {shown}",
            advice=f"{did_you_mean(known, PROCEDURES)}use one of {_SCHEMA}.{', '.join(PROCEDURES)}",
        )
    return json.dumps({"name": known, "description": PROCEDURES[known].about})


def _parameters(request: Mapping[str, Any], _: Any) -> str:
    """The parameters for the types of the arguments."""
    known = PROCEDURES[request["name"]].parameters
    types = _types(known, StructType.fromJson(json.loads(request["given"])))
    described = [
        {"name": each.name, "type": types[each.name].json(), "comment": each.comment, "default": each.default}
        for each in known
    ]
    return json.dumps({"parameters": described})


def _types(known: Sequence[Parameter], given: StructType) -> dict[str, DataType]:
    types = {each.name: each.types[0] for each in known}
    kinds = {each.name: tuple(map(type, each.types)) for each in known}
    for place, field in enumerate(given):
        unnamed = known[place].name if place < len(known) else ""
        name = field.name.lower() if field.metadata.get(_BY_NAME) else unnamed
        if name in kinds and isinstance(field.dataType, kinds[name]):
            types[name] = field.dataType
    return types


def call(spark: SparkSession, request: Mapping[str, Any]) -> Any:
    """Run a procedure for Spark: its result as a frame of the JVM."""
    frame: Any = run_procedure(
        spark, request["name"], {name: _decoded(value) for name, value in request["values"].items()}
    )
    return frame._jdf  # noqa: SLF001 - PySpark's only way to the JVM


def _decoded(value: Any) -> Any:
    """A value of the JVM. Times and intervals are numbers of microseconds."""
    if not isinstance(value, dict):
        return value
    length = timedelta(microseconds=value["micros"])
    return length if value["interval"] else _EPOCH + length


def run_procedure(spark: SparkSession, name: str, values: Values) -> DataFrame:
    """Run a procedure with some of its arguments.

    Raises ConfigurationError for an argument that does not fit, and the errors of the method of `Table`.
    """
    procedure = PROCEDURES[name]
    given = {each.name: values.get(each.name) for each in procedure.parameters}
    prepare_session(spark)
    path, storage_options = _place(spark, given["table"])
    for key, read in (("older_than", _cutoff), ("timestamp", _moment)):
        text = given.get(key)
        if isinstance(text, str):
            given[key] = read(spark, text)
    return spark.createDataFrame(procedure.run(spark, Table.open(path, storage_options=storage_options), given))


def _cutoff(spark: SparkSession, text: str) -> timedelta | datetime:
    try:
        return timedelta(milliseconds=properties.parse_duration_ms(text))
    except ValueError:
        return _moment(spark, text, "write an age, such as '30 days', or a time, such as '2026-01-31T12:00:00Z'")


def _moment(spark: SparkSession, text: str, advice: str = "write a time, such as '2026-01-31T12:00:00Z'") -> datetime:
    """A time, which without a zone is one of the session's."""
    try:
        moment = datetime.fromisoformat(text.strip())
    except ValueError as error:
        raise ConfigurationError(f"{brief(text)} is not a time", advice=advice) from error
    return moment if moment.tzinfo is not None else in_zone(moment, spark.conf.get(_ZONE) or "UTC")


def _place(spark: SparkSession, text: str | None) -> tuple[str, dict[str, str]]:
    """The path that a text means, and the storage options."""
    if not text:
        raise ConfigurationError("the argument table is empty", advice="give a path, or the name of a table")
    if "/" in text and "`" not in text:
        return table_place(spark, [text])
    names = _names(text)
    if len(names) > 1 and names[0].lower() == _CATALOG:
        return table_place(spark, names[1:])
    if is_connect(spark):
        raise ConfigurationError(
            f"the table {brief(text)} is a name of Spark's own catalog, which is not known on Spark Connect",
            advice="give the path, or a name below the catalog's warehouse: tidelog.sales.orders",
        )
    return _named_place(spark, text)


def _names(text: str) -> list[str]:
    """The parts of a name."""
    return [part[1:-1].replace("``", "`") if part[0] == "`" else part for part in _PART.findall(text)] or [text]


def _named_place(spark: SparkSession, text: str) -> tuple[str, dict[str, str]]:
    """The path of a table by its name in a classic session, and its storage options.

    Raises TableNotFoundError if there is none of that name, and ConfigurationError if it is not one of tidelog's.
    """
    jvm: Any = spark._jvm  # noqa: SLF001 - PySpark's only way to the JVM
    try:
        found = dict(jvm.tidelog.Procedures.found(spark._jsparkSession, text))  # noqa: SLF001 - as above
    except (PySparkException, Py4JError) as error:
        reason = str(error).strip().partition("\n")[0]
        raise TableNotFoundError(
            f"there is no table {text}: {reason}",
            advice="give a path, which begins with a slash or a scheme, or a name as in a query",
            path=text,
        ) from error
    if str(found.get("provider", "")).lower() != _CATALOG:
        raise ConfigurationError(
            f"{text} is not a table of tidelog's, but of {found.get('provider', 'another provider')}",
            advice="give the path of a table of tidelog's, or its name",
        )
    options = {key.removeprefix(_OPTION): value for key, value in found.items() if key.startswith(_OPTION)}
    path = str(found["location"]).removeprefix("file:")
    if not any(name.startswith("storageOption.") for name in options):
        options |= {f"storageOption.{name}": value for name, value in table_place(spark, [path])[1].items()}
    return changed_place({"options": {**options, "path": path}})


def is_own_table(spark: SparkSession, text: str | None) -> bool:
    """Whether a text is a path, a name of the catalog `tidelog`, or another name of a table of tidelog's."""
    if not text or "/" in text or (_names(text)[0].lower() == _CATALOG and len(_names(text)) > 1):
        return bool(text)
    try:
        _place(spark, text)
    except (ConfigurationError, TableNotFoundError):
        return False
    return True


OF_PROCEDURES: Mapping[str, Callable[[Mapping[str, Any], Any], Any]] = {
    "procedures": lambda _, __: "\n".join(PROCEDURES),
    "procedure": _procedure,
    "parameters": _parameters,
}
