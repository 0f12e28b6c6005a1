"""Make a table of a folder of parquet files, in one commit that names them. No file is read beyond its footer.

The files are listed, described in threads, listed again, and named by version 0. What another program adds to the
folder meanwhile is not in the table; what it changes or takes away is an error, and nothing is committed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice
from typing import Any, TypeAlias

import pyarrow as pa

from tidelog.log.conflict.operation_class import OperationClass
from tidelog.log.conflict.staged import Staged
from tidelog.log.data import file_sink_log
from tidelog.log.data.plain_files import PlainFile, PlainFiles
from tidelog.log.errors import (
    ConfigurationError,
    CorruptLogError,
    DataFileMissingError,
    SchemaMismatchError,
    StoreAccessError,
    TableExistsError,
    TableNotFoundError,
    TidelogError,
    UnsupportedFeatureError,
)
from tidelog.log.format import filenames, hive_paths, partition_values, paths, properties, statistics
from tidelog.log.format.actions import AddFile, SetTransaction
from tidelog.log.format.protocol import is_dropped
from tidelog.log.format.schema import table_schema
from tidelog.log.format.schema_union import SchemaUnion
from tidelog.log.format.text import is_unicode
from tidelog.log.operations import create_table
from tidelog.log.state.checkpointing import checkpoint
from tidelog.log.state.loader import LogState, load
from tidelog.log.state.segment import find_segment
from tidelog.log.storage import FileStatus, Store, open_store
from tidelog.log.system import System, logger

_LOGGER = logger(__name__)

_Files: TypeAlias = Mapping[str, FileStatus]
PartitionColumns: TypeAlias = Sequence[str | pa.Field]

SINK_TXN = file_sink_log.SINK_FOLDER
"""The application id under which the newest batch of Spark's file sink becomes a `txn` of the table."""

# Footers that are read or wait to be taken up, for each thread.
_AHEAD = 4
# A commit of so many files is slow to read, and the next checkpoint is far off.
_MANY = 1000
# Unlike Table.create: other programs may still write to the folder, and clean-up deletes what no commit names.
_DEFAULTS: Mapping[str, object] = {properties.CLEAN_UP: False}


@dataclass(frozen=True, slots=True)
class Folder:
    """What a conversion takes over.

    Attributes:
        schema: The columns of the table; the partition columns come last.
        partition_by: The partition columns.
        adds: The files, sorted by path.
        left_out: How many parquet files Spark's file sink has not committed.
        newest_batch: The newest batch of that sink; None if the folder has no such log.
        creation: The first commit of the table, without its files.
    """

    schema: pa.Schema
    partition_by: tuple[str, ...]
    adds: tuple[AddFile, ...]
    left_out: int
    newest_batch: int | None
    creation: Staged

    @property
    def num_rows(self) -> int:
        """The rows in all files."""
        return sum(statistics.num_records(add.stats) or 0 for add in self.adds)

    @property
    def num_bytes(self) -> int:
        """The size of all files."""
        return sum(add.size for add in self.adds)


def survey(store: Store, partition_by: PartitionColumns, configuration: Mapping[str, object], system: System) -> Folder:
    """Look at a folder as `convert` does, and change nothing. Raises the errors of `Table.convert`."""
    wanted = _wanted(partition_by)
    texts = {**_DEFAULTS, **properties.validate(configuration)}
    _require_outside_tables(store)
    found, inside = _listed(store)
    sink = file_sink_log.read_sink_log(store)
    chosen = found if sink is None else sink.committed(store, found)
    _require_files(store, chosen, inside)
    kinds, values = _partitions(store, sorted(chosen), wanted)
    union = SchemaUnion()
    adds = []
    files = PlainFiles(store, list(wanted), {key: str(text) for key, text in texts.items()})
    for path, file in _described(store, files, chosen):
        union.add(file.schema, path)
        adds.append(_add(path, chosen[path], values[path], file))
    _require_unchanged(store, chosen)
    schema = pa.schema([*union.schema, *(pa.field(name, kinds[name]) for name in wanted)])
    newest = None if sink is None else sink.newest_batch
    creation = create_table.staged_creation(schema, tuple(wanted), {**_DEFAULTS, **configuration}, system)
    return Folder(schema, tuple(wanted), tuple(adds), len(found) - len(chosen), newest, creation)


def convert(
    store: Store, partition_by: PartitionColumns, configuration: Mapping[str, object], system: System
) -> tuple[LogState, Folder]:
    """Commit version 0 with the files of a folder, and return it with what it took over. See `Table.convert`."""
    if _holds_table(store):
        raise _exists(store)
    folder = survey(store, partition_by, configuration, system)
    # A crash of the machine must not take a file from the table that another program has just written.
    store.sync([paths.to_storage_path(add.path) for add in folder.adds])
    state = create_table.put_first(store, _with_files(folder, system), system)
    if state is None:
        raise _exists(store)
    if len(folder.adds) >= _MANY:
        try:
            checkpoint(store, state, system)
        except (TidelogError, OSError) as error:
            _LOGGER.warning("could not write the first checkpoint of %s: %s", store.url, error)
    return state, folder


def _exists(store: Store) -> TableExistsError:
    return TableExistsError(
        f"there is already a table at {store.url}",
        advice="open it with Table.open, or convert a folder without a table",
        path=store.url,
    )


def _with_files(folder: Folder, system: System) -> Staged:
    """The first commit of the table with the files of the folder."""
    batch = folder.newest_batch
    progress = [] if batch is None else [SetTransaction(app_id=SINK_TXN, version=batch, last_updated=system.now_ms())]
    return Staged(
        operation="CONVERT",
        operation_class=OperationClass.INSERT,
        adds=folder.adds,
        transactions=tuple(progress),
        protocol=folder.creation.protocol,
        metadata=folder.creation.metadata,
        parameters={"numFiles": str(len(folder.adds)), "sourceFormat": "parquet"},
        metrics={
            "numFiles": len(folder.adds),
            "numConvertedFiles": len(folder.adds),
            "numOutputRows": folder.num_rows,
            "numOutputBytes": folder.num_bytes,
        },
    )


# --- which files -----------------------------------------------------------------------------------------------------


def _holds_table(store: Store) -> bool:
    """Whether the path holds a table, readable or not. Raises ConfigurationError for the log of a dropped one."""
    try:
        state = load(store)
    except TableNotFoundError:
        return False
    except (CorruptLogError, UnsupportedFeatureError):
        return True
    if is_dropped(state.head.protocol):
        raise ConfigurationError(
            f"a table was dropped at {store.url}, and its log is still there",
            advice="move the parquet files to a folder of their own",
            path=store.url,
        )
    return True


def _require_outside_tables(store: Store) -> None:
    """Raise ConfigurationError for a partition folder of another table, whose clean-up would delete the files there."""
    above = store.url
    while "=" in above.rpartition("/")[2]:
        above = above.rpartition("/")[0]
    if above == store.url:
        return
    try:
        find_segment(open_store(above, store.storage_options))
    except (TableNotFoundError, ConfigurationError, StoreAccessError):  # the root of a store, or not ours to look at
        return
    raise ConfigurationError(
        f"{store.url} is a partition folder of the table at {above}, whose log says which of the files count, and "
        "whose clean-up deletes the others",
        advice="use that table, or copy the files to a folder of their own",
        path=store.url,
    )


def _listed(store: Store) -> tuple[_Files, str]:
    """The files that a reader of the folder reads, and a file of another table's format inside it, if there is one."""
    found, inside = {}, ""
    for path, status in store.walk():
        if f"/{filenames.LOG_FOLDER}/" in path or path.startswith(".hoodie/") or _is_iceberg(path):
            inside = path
        elif not hive_paths.is_left_out(path):
            _require_unicode(store, path)
            found[path] = status
    return found, inside


def _is_iceberg(path: str) -> bool:
    return path.startswith("metadata/") and path.endswith(".metadata.json")


def _require_unicode(store: Store, path: str) -> None:
    if not is_unicode(path):
        raise ConfigurationError(
            f"the file {path!r} of {store.url} has a name that is not UTF-8, which the log cannot hold",
            advice="rename it",
            path=store.url,
        )


def _require_files(store: Store, files: _Files, inside: str) -> None:
    if inside:
        inner, log, _ = f"/{inside}".partition(f"/{filenames.LOG_FOLDER}/")
        advice = "convert a folder of plain parquet files only"
        raise ConfigurationError(
            f"the folder {store.url} holds another table ({inside}), whose files must not be read without its log",
            advice=f"open that one with Table.open({store.url + inner!r}); {advice}" if log else advice,
            path=store.url,
        )
    if not files:
        raise ConfigurationError(
            f"there is neither a table nor a parquet file at {store.url}",
            advice="check the path, or create an empty table with Table.create",
            path=store.url,
        )


def _require_unchanged(store: Store, files: _Files) -> None:
    """Raise DataFileMissingError if one of the files has changed or is gone since it was listed."""
    now = dict(store.walk())
    for path, status in files.items():
        if now.get(path) != status:
            what = "changed" if path in now else "vanished"
            raise DataFileMissingError(
                f"the file {path} of {store.url} {what} while the folder was looked at; nothing was committed",
                advice="let no other program change the folder meanwhile, and try again",
                path=store.url,
            )


def _described(store: Store, files: PlainFiles, chosen: _Files) -> Iterator[tuple[str, PlainFile]]:
    """The files in order of their paths, each with what its footer says; read in threads, a bounded number ahead."""
    rest = iter(sorted(chosen))
    threads = max(store.reads_at_once, store.small_reads_at_once)
    with ThreadPoolExecutor(threads, "tidelog-convert") as pool:

        def begin(number: int) -> list[tuple[str, Future[PlainFile]]]:
            return [(path, pool.submit(files.describe, path, chosen[path])) for path in islice(rest, number)]

        waiting = begin(threads * _AHEAD)
        try:
            while waiting:
                path, future = waiting.pop(0)
                yield path, future.result()
                waiting += begin(1)
        finally:
            for _, future in waiting:
                future.cancel()


def _add(path: str, status: FileStatus, values: dict[str, str | None], file: PlainFile) -> AddFile:
    return AddFile(
        path=paths.to_uri(path),
        partition_values=values,
        size=status.size_bytes,
        modification_time=status.modified_ms,
        data_change=True,
        stats=file.stats,
    )


# --- partitions ------------------------------------------------------------------------------------------------------


def _wanted(partition_by: PartitionColumns) -> dict[str, pa.DataType | None]:
    """The partition columns in order, with their types if they are given."""
    if isinstance(partition_by, str) or not isinstance(partition_by, Sequence):
        raise ConfigurationError(
            "partition_by must be a list of column names or Arrow fields", advice="pass, for example, ['day']"
        )
    wanted: dict[str, pa.DataType | None] = {}
    for column in partition_by:
        name = column.name if isinstance(column, pa.Field) else column
        if not isinstance(name, str) or name in wanted:
            raise ConfigurationError(
                f"partition_by cannot have {column!r}", advice="name each partition column once, by name or Arrow field"
            )
        wanted[name] = table_schema(pa.schema([column])).field(0).type if isinstance(column, pa.Field) else None
    return wanted


def _partitions(
    store: Store, files: Sequence[str], wanted: Mapping[str, pa.DataType | None]
) -> tuple[dict[str, pa.DataType], dict[str, dict[str, str | None]]]:
    """The types of the partition columns, and the partition values of each file as the log holds them."""
    texts = {path: _texts(store, path, wanted) for path in files}
    distinct: dict[str, dict[str | None, str]] = defaultdict(dict)
    for path, found in texts.items():
        for name, text in found.items():
            distinct[name].setdefault(text, path)
    kinds: dict[str, pa.DataType] = {}
    spelled: dict[str, dict[str | None, str | None]] = {}
    for name, kind in wanted.items():
        kinds[name] = hive_paths.type_of_texts(distinct[name]) if kind is None else kind
        spelled[name] = {text: _spelled(text, name, kinds[name], path) for text, path in distinct[name].items()}
    return kinds, {path: {name: spelled[name][text] for name, text in found.items()} for path, found in texts.items()}


def _texts(store: Store, path: str, wanted: Mapping[str, Any]) -> dict[str, str | None]:
    try:
        found = hive_paths.partition_texts(path)
    except ValueError as error:
        raise ConfigurationError(
            f"the file {path} of {store.url} is not where the files of a folder are: {error}",
            advice="move it up, or convert the folder that it is in as a table of its own",
            path=store.url,
        ) from error
    if set(found) == set(wanted):
        return found
    if found:
        advice = f"pass partition_by={list(found)!r}"
    elif path.endswith(".parquet"):
        advice = "leave partition_by out"
    else:
        advice = f"leave partition_by out; if the file is no data, move it away, or rename it to _{path}"
    has, asked = (", ".join(map(repr, names)) or "none" for names in (found, wanted))
    raise ConfigurationError(
        f"the partition columns in the path {path} of {store.url} are {has}, not {asked}",
        advice=advice,
        path=store.url,
    )


def _spelled(text: str | None, name: str, kind: pa.DataType, path: str) -> str | None:
    """A partition value as the log holds it. Raises SchemaMismatchError if it is not of that type."""
    try:
        value = pa.scalar(partition_values.from_text(text, kind), kind).as_py()
        return partition_values.to_text(value, kind)
    except (CorruptLogError, pa.ArrowException, ValueError, OverflowError, TypeError) as error:
        # It is the path that is wrong, not a log.
        why = "" if isinstance(error, CorruptLogError) else f": {error}"
        raise SchemaMismatchError(
            f"the partition value {text!r} of {name!r}, in the path {path}, is not of the type {kind}{why}",
            advice="pass another type for the column in partition_by, such as pyarrow.field(name, pyarrow.string())",
            column=name,
        ) from error
