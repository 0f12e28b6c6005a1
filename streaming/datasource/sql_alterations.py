"""ALTER TABLE and COMMENT ON of the SQL catalog `tidelog`: each statement is one commit of metadata.

What old rows have to meet, NOT NULL or a constraint, Spark looks up in the version that the statement is based on.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NoReturn

from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's convention
from pyspark.sql.types import StructField, StructType

from tidelog.log import Table, Transaction
from tidelog.log.errors import ConfigurationError
from tidelog.log.format.properties import CLUSTER_BY
from tidelog.log.operations.alter_table import (
    AddColumn,
    AddConstraint,
    Alteration,
    DropColumn,
    DropConstraint,
    MoveColumn,
    RenameColumn,
    SetComment,
    SetDefault,
    SetDescription,
    SetNullable,
    SetType,
)
from tidelog.streaming.datasource.sql_catalog import Request, place, refuse_change
from tidelog.streaming.datasource.sql_columns import arrow_columns
from tidelog.streaming.jvm_reading.jvm_rows import snapshot_rows

_COMMENT = "comment"
_IGNORED = {"owner", "provider"}


def alter(spark: SparkSession, request: Request) -> None:
    """Run an ALTER TABLE on a table of the catalog.

    Raises ConfigurationError for what is not supported, and the errors of `stage_alter`.
    """
    path, storage_options = place(request)
    changes: list[Alteration] = []
    properties: dict[str, str | None] = {}
    for given in request["changes"]:
        if given["kind"] in {"SetProperty", "RemoveProperty", "ClusterBy"}:
            _property(given, properties, changes)
        else:
            changes.append(_CHANGES.get(given["kind"], _unknown)(given))
    table = Table.open(path, storage_options=storage_options)
    if changes:
        table.statement(lambda transaction: transaction.alter(changes, partial(_violates, spark, table, transaction)))
    if properties:
        table.set_properties(properties)


def _violates(spark: SparkSession, table: Table, transaction: Transaction, condition: str) -> bool:
    """Whether the version has a row for which a condition is not true."""
    snapshot = table.at(version=transaction.base_version)
    rows = snapshot_rows(spark, table.store, snapshot, None, None)
    is_true = F.coalesce(F.expr(condition), F.lit(False))  # noqa: FBT003 - a value
    return not rows.where(~is_true).isEmpty()


def _property(given: Mapping[str, Any], properties: dict[str, str | None], changes: list[Alteration]) -> None:
    if given["kind"] == "ClusterBy":
        names = [".".join(parts) for parts in given["columns"]]
        properties[CLUSTER_BY] = ", ".join(names) or None
        return
    name, value = given["property"], given.get("value")
    if name == _COMMENT:
        changes.append(SetDescription(value))
    elif name in {"location", "collation"}:
        refuse_change("SetLocation" if name == "location" else "Collation")
    elif name not in _IGNORED:
        properties[name] = value


def _added(given: Mapping[str, Any]) -> Alteration:
    if len(given["names"]) != 1 or given["default"]:
        refuse_change("AddColumn")
    (name,) = given["names"]
    metadata = {"comment": given["comment"]} if given["comment"] else {}
    field = {"name": name, "type": json.loads(given["type"]), "nullable": given["nullable"], "metadata": metadata}
    (column,) = arrow_columns(StructType([StructField.fromJson(field)]))
    return AddColumn(column, given["after"])


def _typed(given: Mapping[str, Any]) -> Alteration:
    field = {"name": given["names"][-1], "type": json.loads(given["type"]), "nullable": True, "metadata": {}}
    (column,) = arrow_columns(StructType([StructField.fromJson(field)]))
    return SetType(tuple(given["names"]), column.type)


def _constraint(given: Mapping[str, Any]) -> Alteration:
    if given["constraint"] != "Check":
        raise ConfigurationError(
            f"a constraint of the kind {given['constraint']} is not supported",
            advice="use CHECK; for keys set the table property 'tidelog.primaryKey'",
        )
    return AddConstraint(given["name"], given["expression"])


def _unknown(given: Mapping[str, Any]) -> NoReturn:
    refuse_change(given["kind"])


_CHANGES: Mapping[str, Callable[[Mapping[str, Any]], Alteration]] = {
    "AddColumn": _added,
    "AddConstraint": _constraint,
    "DeleteColumn": lambda given: DropColumn(tuple(given["names"]), exists=given["exists"]),
    "DropConstraint": lambda given: DropConstraint(given["name"], exists=given["exists"]),
    "RenameColumn": lambda given: RenameColumn(tuple(given["names"]), given["name"]),
    "UpdateColumnComment": lambda given: SetComment(tuple(given["names"]), given["comment"]),
    "UpdateColumnDefaultValue": lambda given: SetDefault(tuple(given["names"]), given["expression"] or None),
    "UpdateColumnNullability": lambda given: SetNullable(tuple(given["names"]), given["nullable"]),
    "UpdateColumnPosition": lambda given: MoveColumn(tuple(given["names"]), given["after"]),
    "UpdateColumnType": _typed,
}
