"""`tidelog adopt`."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import msgspec
import pyarrow as pa
import typer

from tidelog.cli import output, parameters
from tidelog.cli.app import FAILED, NOTHING_TO_DO
from tidelog.cli.schema_text import parse_schema
from tidelog.cli.spinner import Progress
from tidelog.compaction_daemon import plan
from tidelog.log import OperationClass, Table
from tidelog.log.adoption import Adoption, Placement, PropertyChange, adoption_of, placement_of
from tidelog.log.commit.result import committed
from tidelog.log.errors import (
    ConfigurationError,
    MetadataChangedException,
    TableNotFoundError,
    TidelogError,
    UnsupportedFeatureError,
)
from tidelog.log.operations.convert import convert as convert_folder
from tidelog.log.operations.convert import survey as survey_folder
from tidelog.log.state.head import Head
from tidelog.log.state.loader import LogState, load
from tidelog.log.storage import Store, open_store
from tidelog.log.system import REAL_SYSTEM

# The columns of a list: a comma in a type, or in a name in backquotes, is no separator.
_PIECE = re.compile(r"(?:`(?:[^`]|``)*`|\([^)]*\)|[^,])+")
_QUOTED = re.compile(r"`((?:[^`]|``)+)`")
# How many commits to look at for their writers.
_COMMITS = 100


def adopt_command(
    path: Annotated[str, typer.Argument(metavar="PATH", help="A Delta table, or a folder of parquet files.")],
    apply: Annotated[bool, typer.Option("--apply", help="Do it. Without this, only say what would be done.")] = False,
    allow_protocol_upgrade: Annotated[
        bool,
        typer.Option(
            "--allow-protocol-upgrade",
            help="Also set properties that need another table feature; some other engines then refuse the table.",
        ),
    ] = False,
    skip: Annotated[
        list[str] | None, typer.Option(metavar="K", help="Leave this property as it is. Repeatable.")
    ] = None,
    partition_by: Annotated[
        list[str] | None,
        typer.Option(
            metavar="COLUMNS",
            help='For a folder: its partition columns, such as "day, month int"; without a type it follows from the '
            "values.",
        ),
    ] = None,
    storage_option: parameters.StorageOptions = None,
    as_json: parameters.AsJson = False,
) -> None:
    """Say what adopting another engine's table means, or do it.

    Prints what is in the way, the properties to set and why, who else writes to the table, and how to continue the
    streams of other engines. A folder of parquet files becomes a table, without rewriting a file. Nothing is changed
    without --apply. Exit code 1 if something is in the way of tidelog's reads, writes or inserts, 4 if there is nothing
    to do.

    Example:
      tidelog adopt /data/events
      tidelog adopt /data/events --apply --skip tidelog.cleanUp
      tidelog adopt /data/parquet --partition-by "day, month int" --apply
    """
    with Progress(f"looking at {path}"):
        storage_options = parameters.parse_storage_options(storage_option)
        store = open_store(path, storage_options)
        try:
            head = load(store).head
        except TableNotFoundError:
            if not any(True for _ in store.walk()):
                raise _nothing_there(store) from None
            found = _folder(store, _columns(partition_by), apply=apply)
        else:
            _require_partitions(_columns(partition_by), head, path)
            found = _table(store, head, skip or (), storage_options, apply=apply, upgrade=allow_protocol_upgrade)
    if as_json:
        output.write_json(found)
    else:
        output.write_fields(_as_text(found))
    if found["obstacles"]:
        raise typer.Exit(FAILED)
    if found["kind"] == "table" and not any(entry["set"] for entry in found["properties"]):
        raise typer.Exit(NOTHING_TO_DO)


def _nothing_there(store: Store) -> TableNotFoundError:
    return TableNotFoundError(
        f"there is no table at {store.url}",
        advice="check the path, as there is no folder of files either, or create the table with tidelog create",
        path=store.url,
    )


def _require_partitions(partition_by: Sequence[str | pa.Field], head: Head, path: str) -> None:
    """Accept what a folder was converted with, so that the command can run again."""
    names = tuple(column if isinstance(column, str) else column.name for column in partition_by)
    if names and names != head.metadata.partition_columns:
        has = ", ".join(head.metadata.partition_columns) or "none"
        raise ConfigurationError(
            f"--partition-by is for folders of parquet files, and {path} is a table with other partition columns "
            f"({has})",
            advice="leave it out",
        )


# --- a table ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Judged:
    """What adopting means for a version, and which of the changes are to be made."""

    version: int
    adoption: Adoption
    chosen: tuple[PropertyChange, ...]


def _table(
    store: Store,
    head: Head,
    skip: Sequence[str],
    storage_options: Mapping[str, str] | None,
    *,
    apply: bool,
    upgrade: bool,
) -> dict[str, Any]:
    table: Table | None
    try:
        table = Table.open(store.url, storage_options=storage_options)
    except UnsupportedFeatureError:
        table = None
    judged = _judged(head if table is None else table.head, table, store.url, skip, upgrade=upgrade)
    unknown = set(skip) - {change.key for change in judged.adoption.changes}
    if unknown:
        raise ConfigurationError(
            f"--skip names {', '.join(sorted(unknown))}, which would not be set anyway", advice="leave it out"
        )
    version = judged.version
    if apply and judged.chosen and table is not None:
        version = _applied(table, judged, skip, upgrade=upgrade)
    return {
        "path": store.url,
        "kind": "table",
        "version": version,
        "applied": version > judged.version,
        "obstacles": msgspec.to_builtins(judged.adoption.obstacles),
        "properties": [_property(change, judged.chosen, skip) for change in judged.adoption.changes],
        "streams": _streams(judged.adoption, store.url),
        "writers": msgspec.to_builtins(judged.adoption.writers),
        "notes": list(judged.adoption.notes),
        **(_debt(table) if table is not None else {"debt": None, "first": None}),
        "placement": None if table is None else msgspec.to_builtins(_placement(table)),
    }


def _placement(table: Table) -> Placement | None:
    snapshot = table.at()
    return placement_of(
        snapshot.state.head.metadata, snapshot.files(), in_folders=snapshot.state.uses_partition_folders()
    )


def _judged(head: Head, table: Table | None, path: str, skip: Sequence[str], *, upgrade: bool) -> _Judged:
    """Judge a version; `table` is None if it cannot be opened."""
    engines = [] if table is None else [(record.version, record.engine) for record in table.history(_COMMITS)]
    progress = {app_id: entry.version for app_id, entry in head.transactions.items()}
    adoption = adoption_of(head.protocol, head.metadata, progress, engines, path)
    chosen = [change for change in adoption.changes if change.key not in skip and (upgrade or change.upgrade is None)]
    return _Judged(head.version, adoption, tuple(chosen))


def _applied(table: Table, judged: _Judged, skip: Sequence[str], *, upgrade: bool) -> int:
    """Set the properties in one commit, if the version that it follows is judged the same. Returns the new version.

    Raises ConflictError if it is not: the owner may have just decided otherwise. Nothing is set then.
    """
    transaction = table.begin()
    now = _judged(table.head, table, table.path, skip, upgrade=upgrade)
    if now.chosen != judged.chosen:
        keys = sorted({change.key for change in {*now.chosen} ^ {*judged.chosen}})
        raise MetadataChangedException(
            f"another writer changed what decides about {', '.join(keys)} of {table.path} after it was looked at; "
            "nothing was set",
            advice="look at what adopting means now, without --apply",
            path=table.path,
            base_version=judged.version,
            winning_version=now.version,
            policy=None,
            earlier=OperationClass.NONE.value,
            later=OperationClass.NONE.value,
            scope=None,
            evidence=", ".join(keys),
        )
    values = {change.key: change.value for change in judged.chosen}
    return committed(transaction.set_properties(values, allow_protocol_upgrade=upgrade).commit()).version


def _property(change: PropertyChange, chosen: Sequence[PropertyChange], skip: Sequence[str]) -> dict[str, Any]:
    why_not = None
    if change.key in skip:
        why_not = "skipped"
    elif change not in chosen:
        why_not = "needs --allow-protocol-upgrade"
    return {**msgspec.to_builtins(change), "set": change in chosen, "why_not": why_not}


def _streams(adoption: Adoption, path: str) -> list[dict[str, Any]]:
    return [
        {
            "app_id": stream.app_id,
            "batch": stream.batch,
            "continue_with": f"Sink({path!r}, adopt_txn={stream.app_id!r})",
        }
        for stream in adoption.streams
    ]


def _debt(table: Table) -> dict[str, Any]:
    """The table's debt, and what a daemon would do about it first, in words."""
    debt = table.debt()
    found = plan(table, "auto")
    first = None
    if found.groups:
        group = found.groups[0]
        rewritten = output.counted(len(group.inputs), "file")
        first = f"rewrite {rewritten} of {found.num_files:,}, the first of {output.counted(len(found.groups), 'group')}"
    return {"debt": msgspec.to_builtins(debt), "first": first}


# --- a folder --------------------------------------------------------------------------------------------------------


def _folder(store: Store, partition_by: Sequence[str | pa.Field], *, apply: bool) -> dict[str, Any]:
    """What a conversion took over, or would take over."""
    state: LogState | None = None
    if apply:
        state, folder = convert_folder(store, partition_by, {}, REAL_SYSTEM)
    else:
        folder = survey_folder(store, partition_by, {}, REAL_SYSTEM)
    return {
        "path": store.url,
        "kind": "folder",
        "version": None if state is None else state.head.version,
        "applied": apply,
        "obstacles": [],
        "files": len(folder.adds),
        "rows": folder.num_rows,
        "bytes": folder.num_bytes,
        "left_out": folder.left_out,
        "newest_batch": folder.newest_batch,
        "partition_by": list(folder.partition_by),
        "schema": output.schema_fields(folder.schema),
    }


def _columns(texts: Sequence[str] | None) -> list[str | pa.Field]:
    """Names, and fields where a type is given: ``day, month int, `my price` decimal(5, 2)``."""
    found: list[str | pa.Field] = []
    for text in (piece.strip() for part in texts or () for piece in _PIECE.findall(part)):
        name = _QUOTED.fullmatch(text)
        try:
            if name:
                found.append(name[1].replace("``", "`"))
            elif text:
                found.append(parse_schema(text).field(0) if " " in text else text)
        except TidelogError as error:
            raise ConfigurationError(
                f"--partition-by cannot be {text!r}: {error.message}",
                advice='write names, or "month int"; a name that is not a plain word in backquotes',
            ) from error
    return found


# --- for people ------------------------------------------------------------------------------------------------------


def _as_text(found: dict[str, Any]) -> dict[str, Any]:
    if found["kind"] == "folder":
        return _folder_text(found)
    done = "set" if found["applied"] else "would set"
    texts: dict[str, Any] = {"path": found["path"], "version": found["version"]}
    if found["obstacles"]:
        texts["in the way"] = [
            f"cannot {entry['doing']}: {entry['what']}: {entry['reason']}; {entry['advice']}"
            for entry in found["obstacles"]
        ]
    for entry in found["properties"]:
        value = "nothing" if entry["value"] is None else entry["value"]
        change = f"{entry['key']} = {value} (now {entry['present'] or 'not set'})"
        headline = f"{done} {change}" if entry["set"] else f"left as it is, {entry['why_not']}: {change}"
        texts[entry["key"]] = [
            output.coloured(headline, "green" if entry["set"] else "yellow"),
            f"why: {entry['reason']}",
            f"others: {entry['effect']}",
            f"protocol: {entry['upgrade'] or 'stays'}",
        ]
    texts["streams of others"] = [
        f"{entry['app_id']}, batch {entry['batch']}: stop it, then {entry['continue_with']} on the same checkpoint"
        for entry in found["streams"]
    ]
    texts["other writers"] = [_writer_text(entry) for entry in found["writers"]]
    if found["debt"] is not None:
        debt = found["debt"]
        texts["small files"] = f"{debt['small_files']:,} of {debt['files']:,}"
        texts["the daemon first"] = found["first"] or "nothing to compact"
    if found["placement"] is not None:
        texts["new files"] = _placement_text(found["placement"], found["path"])
    texts["notes"] = found["notes"]
    return texts


def _writer_text(entry: dict[str, Any]) -> str:
    text = f"{entry['engine']}: {output.counted(entry['commits'], 'commit')}, the newest {entry['last_version']}"
    locked = entry["locked_out_by"]
    if locked is None:
        return f"{text}; find out whether it writes such tables before you allow a protocol upgrade"
    return f"{text}; could no longer write with {', '.join(locked)}" if locked else text


def _placement_text(placement: dict[str, Any], path: str) -> list[str]:
    where = "partition folders" if placement["in_folders"] else "folders with random names"
    texts = [f"go into {where}: {placement['reason']}"]
    if placement["outside"]:
        texts.append(
            f"{placement['outside']:,} of {output.counted(placement['files'], 'file')} are outside of them, and Polars "
            f"cannot read such a table: tidelog compact {path} --level major puts those into the folders"
        )
    return texts


def _folder_text(found: dict[str, Any]) -> dict[str, Any]:
    done = "converted" if found["applied"] else "would become a table (--apply)"
    texts = {
        "path": found["path"],
        done: f"{output.counted(found['files'], 'file')}, {found['rows']:,} rows, {found['bytes']:,} bytes",
        "partition by": ", ".join(found["partition_by"]) or "none",
        "columns": [f"{field['name']}  {field['type']}" for field in found["schema"]],
    }
    if found["partition_by"]:
        texts["new files"] = "go into partition folders, as the folder has them"
    if found["newest_batch"] is not None:
        texts["file sink"] = [
            f"batch {found['newest_batch']} is the newest; {output.counted(found['left_out'], 'file')} not committed",
            f"Sink({found['path']!r}, adopt_txn='_spark_metadata') continues the query on its checkpoint",
        ]
    return texts
