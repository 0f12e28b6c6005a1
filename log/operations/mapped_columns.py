"""Columns that get another name, or go: only the metadata of a table that maps its columns changes.

Data files, statistics, partition values, runs of keys and tombstones have the physical names of columns, which stay.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import msgspec

from tidelog.log.data.writer import check_partition_columns
from tidelog.log.errors import ConfigurationError, UnsupportedFeatureError
from tidelog.log.format import properties
from tidelog.log.format.actions import Metadata
from tidelog.log.format.clustering import clustering_columns
from tidelog.log.format.column_mapping import Field
from tidelog.log.format.protocol import has_change_data_feed
from tidelog.log.format.row_tracking import require_names_stay_free
from tidelog.log.format.schema import columns_of
from tidelog.log.operations.schema_evolution import reads_column
from tidelog.log.operations.set_properties import require_columns_of_properties
from tidelog.log.predicate import backquoted
from tidelog.log.presentable import did_you_mean
from tidelog.log.read.changes import change_schema
from tidelog.log.rules.declared import declared
from tidelog.log.state.head import Head

# Properties whose columns are separated by commas, and are not nested.
_NAMED_BY = (properties.PRIMARY_KEY, properties.ORDER_BY, properties.CLUSTER_BY)


def renamed_column(head: Head, path: str, column: Sequence[str], name: str) -> Metadata:
    """The table's metadata with another name for a column, or for a field of structs.

    Raises ConfigurationError if the column does not exist, the new name is taken, or a constraint or generated column
    reads it; UnsupportedFeatureError if the table does not map its columns.
    """
    _require_mapped(head.metadata, path, column, "renamed")
    _require_unread(head.metadata, path, column, "renamed")
    *above, old = column

    def with_name(fields: list[Field]) -> list[Field]:
        place = place_of(fields, old, path)
        taken = next((field["name"] for field in fields if field["name"].lower() == name.lower()), None)
        if taken is not None and taken != fields[place]["name"]:
            raise ConfigurationError(
                f"the table already has a column {'.'.join([*above, taken])!r} (case does not matter)",
                advice="choose another name",
            )
        return [*fields[:place], {**fields[place], "name": name}, *fields[place + 1 :]]

    if not name:
        raise ConfigurationError("the new name of a column cannot be empty", advice="choose another name")
    metadata = with_fields(head.metadata, path, above, with_name)
    if not above:
        own = tuple(name if known.lower() == old.lower() else known for known in metadata.partition_columns)
        metadata = msgspec.structs.replace(metadata, partition_columns=own)
    configuration = _renamed_in_properties(metadata.configuration, column, name)
    metadata = msgspec.structs.replace(metadata, configuration=configuration)
    require_columns_of_properties(configuration, metadata, path)
    if has_change_data_feed(head.protocol, metadata):
        change_schema(columns_of(metadata, path), "cdc")
    require_names_stay_free(head.metadata, metadata)
    return metadata


def without_column(head: Head, path: str, column: Sequence[str]) -> Metadata:
    """The table's metadata without a column, or without a field of structs.

    Raises ConfigurationError if the column does not exist, or the table needs it; UnsupportedFeatureError if the table
    does not map its columns.
    """
    _require_mapped(head.metadata, path, column, "dropped")
    _require_unread(head.metadata, path, column, "dropped")
    _require_unnamed(head, path, column)
    *above, last = column

    def without(fields: list[Field]) -> list[Field]:
        place = place_of(fields, last, path)
        if len(fields) == 1:
            raise ConfigurationError(
                f"the column {'.'.join(column)!r} of {path} cannot be dropped: it is the last one",
                advice="drop the struct that it is in" if above else "drop the table",
            )
        return [*fields[:place], *fields[place + 1 :]]

    metadata = with_fields(head.metadata, path, above, without)
    check_partition_columns(columns_of(metadata, path), list(metadata.partition_columns))
    return metadata


def with_fields(
    metadata: Metadata, path: str, above: Sequence[str], change: Callable[[list[Field]], list[Field]]
) -> Metadata:
    """The metadata with other columns, or with other fields in the struct that `above` leads to.

    Raises ConfigurationError if that struct does not exist.
    """

    def within(fields: list[Field], names: Sequence[str]) -> list[Field]:
        if not names:
            return change(fields)
        place = place_of(fields, names[0], path)
        kind = fields[place]["type"]
        if not isinstance(kind, dict) or "fields" not in kind:
            raise ConfigurationError(
                f"{'.'.join(above)} is not a struct, and only columns and fields of structs can be changed",
                advice="make a new table for other types of elements, keys and values",
            )
        inner = {**kind, "fields": within(kind["fields"], names[1:])}
        return [*fields[:place], {**fields[place], "type": inner}, *fields[place + 1 :]]

    schema = msgspec.json.decode(metadata.schema_string)
    changed = {**schema, "fields": within(schema["fields"], above)}
    if changed == schema:
        return metadata
    return msgspec.structs.replace(metadata, schema_string=msgspec.json.encode(changed).decode())


def place_of(fields: Sequence[Field], name: str, path: str) -> int:
    """The place of a field. Raises ConfigurationError if there is none of this name; case does not matter."""
    for place, field in enumerate(fields):
        if field["name"].lower() == name.lower():
            return place
    known = [field["name"] for field in fields]
    raise ConfigurationError(
        f"there is no column {name!r} in {path}",
        advice=f"{did_you_mean(name, known)}the columns are {', '.join(known)}",
    )


def has_column(metadata: Metadata, column: Sequence[str]) -> bool:
    """Whether the table has a column, or a field of structs; case does not matter."""
    fields = msgspec.json.decode(metadata.schema_string)["fields"]
    for name in column:
        found = next((field for field in fields if field["name"].lower() == name.lower()), None)
        if found is None:
            return False
        kind = found["type"]
        fields = kind.get("fields", ()) if isinstance(kind, dict) else ()
    return True


def _require_mapped(metadata: Metadata, path: str, column: Sequence[str], doing: str) -> None:
    if metadata.configuration.get(properties.COLUMN_MAPPING_MODE, "none") == "none":
        raise UnsupportedFeatureError(
            f"the column {'.'.join(column)!r} cannot be {doing}: the data files of {path} have its name, because the "
            "table does not map its columns",
            advice=f"set the table property {properties.COLUMN_MAPPING_MODE!r} to 'name' first; clients that do not "
            "support column mapping can then no longer use the table",
            path=path,
            features="columnMapping",
        )


def _require_unread(metadata: Metadata, path: str, column: Sequence[str], doing: str) -> None:
    """Raise ConfigurationError for a column that an expression of the table may read."""
    rules = declared(metadata, path)
    texts = [(f"the {rule.kind} {rule.name!r}", rule.expression) for rule in rules.checks]
    texts += [(f"the generated column {rule.column!r}", rule.expression) for rule in rules.generated]
    for what, expression in texts:
        if all(reads_column(expression, name) for name in column):
            raise ConfigurationError(
                f"the column {'.'.join(column)!r} of {path} cannot be {doing}: {what} reads it ({expression})",
                advice="drop the constraint first, or make a new table",
            )


def _require_unnamed(head: Head, path: str, column: Sequence[str]) -> None:
    """Raise ConfigurationError for a column that the table is partitioned or clustered by, or a property names."""
    metadata, wanted = head.metadata, [name.lower() for name in column]
    schema = columns_of(metadata, path)
    named = {
        "a partition column": [(name,) for name in metadata.partition_columns],
        "a column that the table is clustered by": [(name,) for name in clustering_columns(head.domains, schema)],
        f"named by the table property {properties.STATISTICS_COLUMNS!r}": properties.statistics_columns(
            metadata.configuration
        )
        or (),
    }
    for key in _NAMED_BY:
        named[f"named by the table property {key!r}"] = [(name,) for name in _names(metadata.configuration, key)]
    for what, columns in named.items():
        if any(_begins(known, wanted) for known in columns):
            raise ConfigurationError(
                f"the column {'.'.join(column)!r} of {path} cannot be dropped: it is {what}",
                advice="change the property first" if "property" in what else "make a new table",
            )


def _names(configuration: Mapping[str, str], key: str) -> tuple[str, ...]:
    try:
        return properties.parse_names(configuration[key]) if key in configuration else ()
    except ValueError:  # another writer's value
        return ()


def _renamed_in_properties(configuration: Mapping[str, str], column: Sequence[str], name: str) -> dict[str, str]:
    """The properties with the new name of a column. Raises ConfigurationError for one that cannot have the name."""
    found = dict(configuration)
    old = [part.lower() for part in column]
    for key in _NAMED_BY:
        names = _names(configuration, key)
        if len(old) == 1 and old[0] in [known.lower() for known in names]:
            text = properties.spell_names([name if known.lower() == old[0] else known for known in names])
            if text is None:
                raise ConfigurationError(
                    f"the table property {key!r} names the column, and cannot have the name {name!r}",
                    advice="choose a name without commas, and without spaces at its ends",
                )
            found[key] = text
    statistics = properties.statistics_columns(configuration) or ()
    if any(_begins(known, old) for known in statistics):
        found[properties.STATISTICS_COLUMNS] = ", ".join(
            ".".join(
                backquoted(part)
                for part in ([*known[: len(old) - 1], name, *known[len(old) :]] if _begins(known, old) else known)
            )
            for known in statistics
        )
    return found


def _begins(column: Sequence[str], lowered: Sequence[str]) -> bool:
    return [part.lower() for part in column[: len(lowered)]] == list(lowered)
