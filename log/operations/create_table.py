"""Create a table: its first commit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

import msgspec
import pyarrow as pa
import pyarrow.types as pt

from tidelog.log.commit import loop
from tidelog.log.commit.result import Result
from tidelog.log.conflict.operation_class import OperationClass
from tidelog.log.conflict.staged import Staged
from tidelog.log.data.writer import check_partition_columns, check_statistics_columns
from tidelog.log.errors import (
    CommitStateUnknownError,
    ConfigurationError,
    CorruptLogError,
    TableNotFoundError,
    TidelogError,
    UnsupportedFeatureError,
)
from tidelog.log.format import commit_info, filenames
from tidelog.log.format import properties as table_properties
from tidelog.log.format.actions import Format, Metadata
from tidelog.log.format.clustering import require_clusterable
from tidelog.log.format.column_mapping import asks_for_mapping, mapped_by_name
from tidelog.log.format.properties import FIRST_VERSION
from tidelog.log.format.protocol import for_new_table, is_dropped, requested, with_feature
from tidelog.log.format.schema import DEFAULT, own_names, require_depth, table_schema, to_schema_string
from tidelog.log.read.absent_table import require_unused
from tidelog.log.read.changes import change_schema
from tidelog.log.read.keys import check_primary_key, order_columns
from tidelog.log.state.checkpointing import checkpoint
from tidelog.log.state.commits import is_there
from tidelog.log.state.loader import LogState, load
from tidelog.log.storage import Store
from tidelog.log.system import System, logger

_LOGGER = logger(__name__)
_NONE: Mapping[str, str] = MappingProxyType({})


def create(
    store: Store,
    schema: pa.Schema,
    partition_by: Sequence[str],
    properties: Mapping[str, object] | None,
    system: System,
    description: str | None = None,
    defaults: Mapping[str, str] | None = None,
) -> LogState | None:
    """Write the first version of a new, empty table, and return its state. None if the path holds a table already.

    That is version 0 or, where a table was dropped, the next one. Raises SchemaMismatchError for a schema that Delta
    cannot hold, ConfigurationError for an invalid property, or if the path holds rows of something else.
    """
    staged = staged_creation(schema, partition_by, properties or {}, system, description, defaults or _NONE)
    try:
        state = load(store)
    except TableNotFoundError:
        require_unused(store)
        return put_first(store, staged, system)
    except (CorruptLogError, UnsupportedFeatureError):
        return None
    if not is_dropped(state.head.protocol):
        return None
    return _create_again(store, staged, state, system)


def put_first(store: Store, staged: Staged, system: System) -> LogState | None:
    """Put version 0 of a new table, and return its state. None if another writer was first."""
    return _created(store, staged, loop.put_first_version(store, staged, system))


def _created(store: Store, staged: Staged, result: Result | None) -> LogState | None:
    """The state of the new table; None if there is none. After the commit no error may say that it was not made."""
    if result is None or result.commit is None or staged.metadata is None:
        return None
    version = result.commit.version
    try:
        state = load(store)
        is_other = state.head.metadata.id != staged.metadata.id
        if is_other and state.head.first_version <= version and not is_there(store, version + 1):
            # Another table's first versions were cleaned up, so the name was free, and no reader looks there. A table
            # that began later says nothing: this one can have been dropped before it.
            store.delete(filenames.commit_path(version))
            return None
        return load(store, version)
    except (TidelogError, OSError) as error:
        raise CommitStateUnknownError(
            f"the table at {store.url} was created as version {version}, but cannot be read: {error}",
            advice="open it with Table.open once the store answers",
            path=store.url,
            version=version,
            txn_id=commit_info.txn_id(result.commit.info) or "",
        ) from error


def _create_again(store: Store, staged: Staged, dropped: LogState, system: System) -> LogState | None:
    """Write the version after the drop of another table."""
    if staged.metadata is None:
        raise AssertionError(staged)
    configuration = {**staged.metadata.configuration, FIRST_VERSION: str(dropped.head.version + 1)}
    metadata = msgspec.structs.replace(staged.metadata, configuration=configuration)
    staged = replace(staged, metadata=metadata)
    state = _created(store, staged, loop.put_first_version(store, staged, system, dropped))
    if state is None:
        return None
    try:
        # Other engines would go on from the old table's transaction ids. They forget them with this checkpoint.
        checkpoint(store, state, system)
    except (TidelogError, OSError) as error:
        _LOGGER.warning("could not write the first checkpoint of the new table at %s: %s", store.url, error)
    return state


def staged_creation(
    schema: pa.Schema,
    partition_by: Sequence[str],
    properties: Mapping[str, object],
    system: System,
    description: str | None = None,
    defaults: Mapping[str, str] = _NONE,
) -> Staged:
    """The first commit of an empty table. Raises SchemaMismatchError, ConfigurationError, as `create` does."""
    if isinstance(partition_by, str):
        raise ConfigurationError(
            "partition_by must be a list of column names, not a string", advice=f"pass [{partition_by!r}]"
        )
    if not isinstance(partition_by, Sequence):
        raise ConfigurationError(
            f"partition_by must be a list of column names, not {type(partition_by).__name__}",
            advice="leave it out for a table without partitions",
        )
    texts = table_properties.validate(properties)
    own = {key: text for key, text in texts.items() if not table_properties.asks_for_protocol(key)}
    configuration = {**table_properties.NEW_TABLE_DEFAULTS, **own}
    if isinstance(schema, pa.Schema):
        require_depth(schema)
    require_columns(schema)
    columns = table_schema(schema)
    if table_properties.flag(configuration, table_properties.ENABLE_CHANGE_DATA_FEED):
        change_schema(columns, "cdc")
    check_partition_columns(columns, list(partition_by))
    check_statistics_columns(columns, list(partition_by), configuration)
    check_primary_key(columns, configuration)
    order_columns(None, columns, configuration)
    clusters_by = own_names(table_properties.cluster_by(configuration), columns)
    require_clusterable(columns, list(partition_by), clusters_by)
    metadata = Metadata(
        id=system.uuid(),
        format=Format(),
        schema_string=_with_defaults(to_schema_string(columns), defaults),
        partition_columns=tuple(partition_by),
        configuration=configuration,
        description=description,
        created_time=system.now_ms(),
    )
    if asks_for_mapping(configuration):
        metadata = mapped_by_name(metadata)
    protocol = requested(for_new_table(columns, configuration), texts)
    return Staged(
        operation="CREATE TABLE",
        operation_class=OperationClass.NONE,
        protocol=with_feature(protocol, "allowColumnDefaults") if defaults else protocol,
        metadata=metadata,
    )


def _with_defaults(schema_string: str, defaults: Mapping[str, str]) -> str:
    """The schema with the defaults of new rows. Raises ConfigurationError for a default of no column."""
    if not defaults:
        return schema_string
    schema = msgspec.json.decode(schema_string)
    fields = {field["name"]: field for field in schema["fields"]}
    for name, expression in defaults.items():
        if name not in fields:
            raise ConfigurationError(
                f"there is a default for {name!r}, and the columns are {', '.join(fields)}", advice="name a column"
            )
        if not isinstance(expression, str):
            raise ConfigurationError(
                f"the default of {name!r} must be SQL as a text, not {type(expression).__name__}",
                advice='write it as in SQL, for example "\'new\'" or "0"',
            )
        fields[name]["metadata"] = {**(fields[name].get("metadata") or {}), DEFAULT: expression}
    return msgspec.json.encode(schema).decode()


def require_columns(schema: object) -> None:
    """Raise ConfigurationError unless it is an Arrow schema with columns of distinct names."""
    if not isinstance(schema, pa.Schema):
        raise ConfigurationError(
            f"the schema must be a pyarrow.Schema, not {type(schema).__name__}",
            advice='pass one such as pa.schema([("id", pa.int64())])',
        )
    if not schema.names:
        raise ConfigurationError("the schema has no columns", advice="add at least one")
    require_distinct(list(schema), "the schema")


def require_distinct(fields: Sequence[pa.Field], where: str) -> None:
    """Raise ConfigurationError if two names at the same level differ in case only, or not at all."""
    lowered = [field.name.lower() for field in fields]
    for field in fields:
        if lowered.count(field.name.lower()) > 1:
            raise ConfigurationError(
                f"{where} has {field.name!r} more than once (case does not matter)", advice="rename one"
            )
        kind = field.type
        inner = [kind.field(index) for index in range(kind.num_fields)] if pt.is_nested(kind) else []
        if inner:
            require_distinct(inner, f"the column {field.name!r}")
