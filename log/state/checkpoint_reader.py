"""Read checkpoints of every kind: classic, multi-part, and V2 (parquet or JSON, with or without sidecars)."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Container, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any, TypeAlias, TypeVar

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pyarrow.types as pt

from tidelog.log.errors import CorruptLogError, UnsupportedFeatureError
from tidelog.log.format import filenames, seal, statistics
from tidelog.log.format.actions import (
    AddFile,
    Commit,
    DomainMetadata,
    Metadata,
    Protocol,
    RemoveFile,
    SetTransaction,
    Sidecar,
    decode_commit,
    decode_sidecars,
)
from tidelog.log.format.schema import columns_of
from tidelog.log.state import files
from tidelog.log.state.files import FileState
from tidelog.log.state.head import PartialHead, Totals, fold
from tidelog.log.state.segment import CheckpointFiles
from tidelog.log.storage import MAX_WHOLE_BYTES, Store, read_whole

# --- columns of its parquet files -------------------------------------------------------------------------------------
#
# A file can be damaged and can have a million rows. They are decoded in slices, straight from a local file. So the
# memory holds what was decoded and little more: not the file, and no column twice, as when a whole row group is decoded
# at once. Other engines write one row group.

# A file may unpack to at most this many times its size (statistics repeat) plus this many bytes.
_MAX_PACKING = 1000
_MIN_UNPACKED_BOUND = 2**26
# Few enough rows that a slice stays in the processor's cache, many enough that a million rows are few chunks.
_SLICE_ROWS = 2**16
# A larger local file is not read whole but a piece of each column at a time. The decoder then believes what a page says
# of its size, up to 2 GiB; of a whole file it takes what is there. So a small damaged file costs little memory.
_WHOLE_BYTES = 2**26
_PIECE_BYTES = 2**20


_T = TypeVar("_T")
_U = TypeVar("_U")
BOUNDS_KEY = "tidelog.partitionBounds"
"""In the footer: for each row group the statistics of its files' partition values as JSON, null if it has none."""
# A file on an object store up to this size is read whole: a request takes as long as that.
_WHOLE_REMOTE_BYTES = 2**23
# If more of the row groups can matter, all are read: the whole state is worth keeping.
_MOST_GROUPS = 0.25

MatchBounds: TypeAlias = Callable[[Sequence[str]], Sequence[bool]]
"""Tells of each statistics text of partition values whether a file within these bounds can matter."""


# Tags of sidecars that tidelog wrote: for which version, how many live files it has, and the statistics of their
# partition values.
VERSION_TAG, FILES_TAG, BOUNDS_TAG = "tidelog.version", "tidelog.files", "tidelog.partitionBounds"
HEAD_KEY = "tidelog.head"
"""In the footer, as JSON: what the head knows of the files (`FilesKnown`)."""


class FilesKnown(msgspec.Struct, frozen=True, rename="camel"):
    """What a checkpoint says of its live files, so that a reader of the head need not read them."""

    num_files: int
    size_bytes: int
    partition_folders: bool | None = None


def read_structs(
    source: Any, version: int, names: Sequence[str], *, size: int | None = None
) -> tuple[dict[str, pa.ChunkedArray], FilesKnown | None]:
    """Read the structs of the columns `names` of an open file of `version`, in order and without nulls.

    The result lacks a column that the file does not have. From a sealed file, columns and row groups without any value
    are skipped: reading a column costs time for every row even if all are null, and a large checkpoint has a million
    rows. Such a file may also say what it knows of its files. Raises ValueError, OSError and Arrow's errors for damage,
    and ValueError if the file is not of `size` bytes.
    """
    _require_size(source.size(), size)
    # A file of Python's is on an object store: one request reads it whole.
    whole = isinstance(source, pa.PythonFile) or source.size() <= _WHOLE_BYTES
    if whole:
        source = pa.BufferReader(read_whole(source))  # noqa: TID251 - the buffer is Arrow's
    sealed = _require_intact(source, version, groups=())
    # Spark's pages have checksums. `pre_buffer` would keep the whole file in memory.
    options = {"pre_buffer": False, "page_checksum_verification": True, "buffer_size": 0 if whole else _PIECE_BYTES}
    with pq.ParquetFile(source, **options) as parquet:
        _require_plausible(parquet.metadata, source.size())
        kinds = {name: _struct(parquet.schema_arrow, name) for name in names if name in parquet.schema_arrow.names}
        groups = list(range(parquet.num_row_groups))
        if sealed is None:
            return _read_groups(parquet, groups, kinds, sealed=False), None
        held = [_held(parquet.metadata, group, kinds) for group in groups]
        groups = [group for group, found in zip(groups, held, strict=True) if found]
        kinds = {name: kind for name, kind in kinds.items() if any(name in found for found in held)}
        if not sealed.is_intact(groups):
            raise ValueError("its checksum is wrong")
        known = (parquet.metadata.metadata or {}).get(HEAD_KEY.encode())
        files_known = None if known is None else msgspec.json.decode(known, type=FilesKnown)
        return _read_groups(parquet, groups, kinds, sealed=True), files_known


def read_matching_adds(source: Any, version: int, matches: MatchBounds) -> pa.ChunkedArray | None:
    """Read the structs of the column `add` in the row groups of an open file of `version` that can matter.

    None if the file does not say which can, or if too many do. Raises what `read_structs` raises.
    """
    if isinstance(source, pa.PythonFile) and source.size() <= _WHOLE_REMOTE_BYTES:
        return None
    _require_size(source.size(), None)
    with pq.ParquetFile(source, pre_buffer=False, buffer_size=_PIECE_BYTES) as parquet:
        listed = (parquet.metadata.metadata or {}).get(BOUNDS_KEY.encode())
        if listed is None:
            return None
        sealed = _require_intact(source, version, groups=())
        bounds: list[str | None] = msgspec.json.decode(listed)
        if sealed is None or len(bounds) != parquet.num_row_groups or len(bounds) != len(sealed.parts):
            return None
        _require_plausible(parquet.metadata, source.size())
        numbers = [number for number, text in enumerate(bounds) if text is not None]
        found = matches([text for text in bounds if text is not None])
        groups = [number for number, matching in zip(numbers, found, strict=True) if matching]
        if len(groups) > _MOST_GROUPS * len(numbers):
            return None
        if not sealed.is_intact(groups):
            raise ValueError("its checksum is wrong")
        kinds = {"add": _struct(parquet.schema_arrow, "add")}
        return _read_groups(parquet, groups, kinds, sealed=True)["add"]


def _read_groups(
    parquet: pq.ParquetFile, groups: list[int], kinds: Mapping[str, pa.StructType], *, sealed: bool
) -> dict[str, pa.ChunkedArray]:
    """The structs of some columns in some row groups, without nulls."""
    chunks: dict[str, list[pa.StructArray]] = {name: [] for name in kinds}
    for rows in parquet.iter_batches(_SLICE_ROWS, groups, list(kinds), use_threads=False) if kinds and groups else ():
        for name, found in chunks.items():
            values = _present(rows.column(name))
            if not sealed:
                _validate(values)
            found.append(values)
    return {name: pa.chunked_array(found, kinds[name]) for name, found in chunks.items()}


def _struct(schema: pa.Schema, name: str) -> pa.StructType:
    kind = schema.field(name).type
    if not pt.is_struct(kind):
        raise ValueError(f"{name} is not a struct")
    return kind


def _present(values: pa.StructArray) -> pa.StructArray:
    """The values that are not null, in order; no copy if they are contiguous, as in most writers' checkpoints."""
    if not values.null_count:
        return values
    count = len(values) - values.null_count
    if not count:
        # Not a slice, which would keep the nulls in memory.
        return pa.array([], values.type)
    valid = values.is_valid()
    # Not `pc.index`, with which pyarrow imports pandas.
    run = values.slice(pc.indices_nonzero(valid)[0].as_py(), count)
    return run if not run.null_count else values.filter(valid)


def _validate(values: pa.StructArray) -> None:
    """Detect damage that neither page checksums nor the decoder catch: invalid UTF-8, overlapping lists.

    Statistics are skipped: they are most of a large checkpoint and are checked when they are used.
    """
    for index, field in enumerate(values.type):
        if not field.name.startswith("stats"):
            values.field(index).validate(full=True)


def _require_size(found: int, expected: int | None) -> None:
    """Raise ValueError if the file does not have the expected size, or is too large to be read whole."""
    if expected is not None and found != expected:
        raise ValueError(f"it has {found} bytes instead of {expected}")
    if found > MAX_WHOLE_BYTES:
        raise ValueError(f"it has {found} bytes, which are too many to read at once")


def _require_intact(source: Any, version: int, groups: Sequence[int] | None) -> seal.ParquetSeal | None:
    """The file's seal, if it has one. Raises ValueError if it is broken, in these row groups, or for None anywhere."""
    found = seal.seal_of_parquet(source, version)
    if found is not None and not found.is_intact(groups):
        raise ValueError("its checksum is wrong")
    return found


def _require_sealed(source: Any, version: int) -> None:
    """Raise ValueError unless the whole file is as its seal says."""
    if _require_intact(source, version, groups=None) is None:
        raise ValueError("it has no checksum")


def _require_plausible(metadata: pq.FileMetaData, size: int) -> None:
    """Refuse a footer that would make the decoder allocate more than such a small file can hold."""
    groups = [metadata.row_group(index) for index in range(metadata.num_row_groups)]
    rows, unpacked = sum(group.num_rows for group in groups), sum(group.total_byte_size for group in groups)
    # A row is an action, usually with a unique path, which takes more than a byte even when compressed.
    if rows != metadata.num_rows or not 0 <= rows <= size:
        raise ValueError(f"its footer claims {metadata.num_rows} rows")
    if not 0 <= unpacked <= _MIN_UNPACKED_BOUND + _MAX_PACKING * size:
        raise ValueError(f"its footer claims {unpacked} bytes")


def _held(metadata: pq.FileMetaData, group: int, names: Container[str]) -> set[str]:
    """The columns among `names` that may have a value in a row group, judging by its statistics."""
    held = set()
    columns = metadata.row_group(group)
    for index in range(columns.num_columns):
        column = columns.column(index)
        name = column.path_in_schema.split(".", 1)[0]
        if name in names and name not in held:
            found = column.statistics
            if found is None or not found.has_null_count or found.null_count < column.num_values:
                held.add(name)
    return held


# --- checkpoints ------------------------------------------------------------------------------------------------------

_HEAD_KINDS: dict[str, type[Any]] = {
    "protocol": Protocol,
    "metaData": Metadata,
    "txn": SetTransaction,
    "domainMetadata": DomainMetadata,
}
# Days from 1970 to the ends of Python's calendar. The first day is excluded, because fractions in it round up.
_FIRST_DAY, _LAST_DAY = -719_162, 2_932_896
_TICKS_A_DAY = {"s": 86_400, "ms": 86_400_000, "us": 86_400_000_000, "ns": 86_400_000_000_000}
_VECTOR_FIELDS = ("storageType", "pathOrInlineDv", "sizeInBytes", "cardinality")
_TEXT_MAPS = ("configuration", "options", "tags")


class UnreadableCheckpointError(CorruptLogError):
    """A checkpoint cannot be read; an older one or the commits can do instead."""


def read_partial_head(store: Store, checkpoint: CheckpointFiles) -> PartialHead:
    """Read everything in a checkpoint except its files. Raises UnreadableCheckpointError."""
    actions: list[Any] = []
    known: FilesKnown | None = None
    for name in checkpoint.names:
        if name.endswith(".json"):
            actions += [
                action for action in _json_actions(store, name) if not isinstance(action, (AddFile, RemoveFile))
            ]
            continue
        columns, known = _read_columns(store, f"{filenames.LOG_FOLDER}/{name}", checkpoint.version, list(_HEAD_KINDS))
        for kind_name, kind in _HEAD_KINDS.items():
            actions += [_convert(store, row, kind) for row in _rows(store, columns, kind_name)]
    # A checkpoint without protocol or metadata was truncated.
    _require_head(store, [type(action) for action in actions])
    nothing = PartialHead(partition_folders=None)
    commit = Commit(version=checkpoint.version, info={}, actions=tuple(actions))
    (found,), _ = fold([nothing], [commit], lambda _: 0)
    if known is None or len(checkpoint.names) > 1:
        return found
    return replace(found, totals=Totals(known.num_files, known.size_bytes), partition_folders=known.partition_folders)


def read_files(store: Store, checkpoint: CheckpointFiles) -> FileState:
    """Read the live files and tombstones of a checkpoint, in its own order. Raises UnreadableCheckpointError.

    Does not check for truncation: callers always call `read_partial_head` too, which does.
    """
    pieces: list[FileState] = []
    sidecars: list[Sidecar] = []
    for name in checkpoint.names:
        if name.endswith(".json"):
            actions = _json_actions(store, name)
            pieces.append(_from_actions(store, actions))
            sidecars += [action for action in actions if isinstance(action, Sidecar)]
            continue
        path = f"{filenames.LOG_FOLDER}/{name}"
        columns, _ = _read_columns(store, path, checkpoint.version, ["add", "remove", "sidecar"])
        pieces.append(_from_columns(store, columns))
        sidecars += [_convert(store, row, Sidecar) for row in _rows(store, columns, "sidecar")]
    try:
        _require_distinct([sidecar.path for sidecar in sidecars])
    except ValueError as error:
        raise _unreadable(store, "its sidecars", error) from error
    pieces += for_each(store, lambda sidecar: read_sidecar(store, sidecar, checkpoint.version), sidecars)
    return FileState(
        pa.concat_tables([piece.adds for piece in pieces]), pa.concat_tables([piece.removes for piece in pieces])
    )


def read_matching_files(
    store: Store, checkpoint: CheckpointFiles, matches: MatchBounds, *, has_sidecars: bool
) -> FileState | None:
    """Read the live files of a checkpoint that can matter, and perhaps others, but no tombstones.

    `has_sidecars` is whether it may have any. None if the checkpoint cannot be read in part. Raises
    UnreadableCheckpointError.
    """
    if len(checkpoint.names) != 1 or not checkpoint.names[0].endswith(".parquet"):
        return None
    path = f"{filenames.LOG_FOLDER}/{checkpoint.names[0]}"
    try:
        found = read_matching_adds(store.open_input(path), checkpoint.version, matches)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise _unreadable(store, path, error) from error
    if found is None:
        return _matching_sidecars(store, checkpoint, matches) if has_sidecars else None
    return _from_columns(store, {"add": found})


def _matching_sidecars(store: Store, checkpoint: CheckpointFiles, matches: MatchBounds) -> FileState | None:
    """The live files in the sidecars that can matter; None if the checkpoint does not say which, or if too many can."""
    sidecars = read_sidecars(store, checkpoint)
    if not sidecars or any(sidecar.tags is None or FILES_TAG not in sidecar.tags for sidecar in sidecars):
        return None
    bounds = [tags[BOUNDS_TAG] for sidecar in sidecars if (tags := sidecar.tags or {}).get(BOUNDS_TAG)]
    answers = dict(zip(bounds, matches([text for text in bounds if text]), strict=True))
    chosen = [
        sidecar
        for sidecar in sidecars
        if (tags := sidecar.tags or {})[FILES_TAG] != "0" and answers.get(tags.get(BOUNDS_TAG), True)
    ]
    if len(chosen) > _MOST_GROUPS * len(sidecars):
        return None
    found = for_each(store, lambda sidecar: read_sidecar(store, sidecar, checkpoint.version).adds, chosen)
    return FileState(pa.concat_tables([files.EMPTY.adds, *found]), files.EMPTY.removes)


def for_each(store: Store, work: Callable[[_T], _U], items: Sequence[_T]) -> list[_U]:
    """What `work` makes of each of the items, in their order. Side by side, if that suits the store."""
    threads = min(len(items), max(store.reads_at_once, store.small_reads_at_once))
    if threads <= 1:
        return list(map(work, items))
    with ThreadPoolExecutor(threads, "tidelog-sidecars") as pool:
        return list(pool.map(work, items))


def read_sidecars(store: Store, checkpoint: CheckpointFiles) -> list[Sidecar]:
    """The sidecars of a checkpoint in one parquet file. Raises UnreadableCheckpointError."""
    path = f"{filenames.LOG_FOLDER}/{checkpoint.names[0]}"
    columns, _ = _read_columns(store, path, checkpoint.version, ["sidecar"])
    return [_convert(store, row, Sidecar) for row in _rows(store, columns, "sidecar")]


def read_live_paths(store: Store, sidecar: Sidecar, version: int) -> pa.ChunkedArray:
    """The paths of the live files in a sidecar that tidelog wrote. Raises UnreadableCheckpointError."""
    path = _sidecar_path(sidecar.path)
    try:
        source = store.open_input(path)
        if isinstance(source, pa.PythonFile):
            source = pa.BufferReader(read_whole(source))  # noqa: TID251 - the buffer is Arrow's
        _require_sealed(source, sealed_version(sidecar, version))
        with pq.ParquetFile(source, pre_buffer=False) as parquet:
            adds = parquet.read(columns=["add.path"], use_threads=False)["add"]
            return pc.struct_field(adds, "path").drop_null()
    except (pa.ArrowException, OSError, ValueError) as error:
        raise _unreadable(store, path, error) from error


def sealed_version(sidecar: Sidecar, version: int) -> int:
    """The version that a sidecar was written for, if it is one of tidelog's; else that of the checkpoint."""
    text = (sidecar.tags or {}).get(VERSION_TAG)
    return int(text) if text is not None and text.isdecimal() and int(text) <= filenames.MAX_VERSION else version


def sidecar_names(store: Store, checkpoint: CheckpointFiles) -> list[str]:
    """The paths of a checkpoint's sidecars, as written in it. Raises UnreadableCheckpointError."""
    names: list[str] = []
    for name in checkpoint.names:
        if name.endswith(".json"):
            names += [action.path for action in _json_actions(store, name) if isinstance(action, Sidecar)]
            continue
        columns, _ = _read_columns(store, f"{filenames.LOG_FOLDER}/{name}", checkpoint.version, ["sidecar"])
        names += [row["path"] for row in _rows(store, columns, "sidecar")]
    return names


def read_through(store: Store, checkpoint: CheckpointFiles) -> None:
    """Read all columns and rows, even those that only other engines use. Raises UnreadableCheckpointError."""
    sidecars = [_sidecar_path(path) for path in sidecar_names(store, checkpoint)]
    for path in [*(f"{filenames.LOG_FOLDER}/{name}" for name in checkpoint.names), *sidecars]:
        if path.endswith(".json"):
            continue
        try:
            for _ in pq.ParquetFile(store.open_input(path)).iter_batches(use_threads=False):
                pass
        except (pa.ArrowException, OSError) as error:
            raise _unreadable(store, path, error) from error


def require_schema(store: Store, head: PartialHead) -> None:
    """Detect a damaged schema while an older checkpoint can still be used. Raises UnreadableCheckpointError."""
    try:
        if head.metadata is not None:
            columns_of(head.metadata, store.url)
    except CorruptLogError as error:
        raise _unreadable(store, "its schema", error) from error
    except UnsupportedFeatureError:
        return


def _require_head(store: Store, kinds: Sequence[type[Any]]) -> None:
    missing = {Protocol, Metadata}.difference(kinds)
    if missing:
        names = ", ".join(sorted(kind.__name__.lower() for kind in missing))
        raise _unreadable(store, "its rows", ValueError(f"it has no {names} action"))


def _sidecar_path(path: str) -> str:
    """The path of a sidecar. The protocol asks for a bare file name; some writers give a path relative to the table."""
    return f"{filenames.SIDECAR_FOLDER}/{path.rsplit('/', 1)[-1]}"


def read_sidecar(store: Store, sidecar: Sidecar, version: int) -> FileState:
    """The files in a sidecar of a checkpoint of `version`. Raises UnreadableCheckpointError."""
    path = _sidecar_path(sidecar.path)
    written = sealed_version(sidecar, version)
    columns, _ = _read_columns(store, path, written, ["add", "remove"], size=sidecar.size_in_bytes)
    return _from_columns(store, columns)


def _json_actions(store: Store, name: str) -> list[Any]:
    try:
        content = store.read(f"{filenames.LOG_FOLDER}/{name}")
        return [*decode_commit(0, content).actions, *decode_sidecars(content)]
    except (OSError, ValueError, RecursionError) as error:
        raise _unreadable(store, name, error) from error


def _from_actions(store: Store, actions: Sequence[Any]) -> FileState:
    adds = [action for action in actions if isinstance(action, AddFile)]
    removes = [action for action in actions if isinstance(action, RemoveFile)]
    try:
        _require_distinct([action.key for action in adds])
        return FileState(files.add_table(adds), files.remove_table(removes))
    except (pa.ArrowException, ValueError, OverflowError) as error:
        raise _unreadable(store, "its files", error) from error


def _require_distinct(names: Sequence[object]) -> None:
    if len(set(names)) < len(names):
        raise ValueError("it lists a file twice")


def _from_columns(store: Store, columns: Mapping[str, pa.ChunkedArray]) -> FileState:
    try:
        return FileState(
            _unnest(columns, "add", files.ADD, ("path", "size", "modificationTime", "dataChange")),
            _unnest(columns, "remove", files.REMOVE, ("path", "dataChange")),
        )
    except (pa.ArrowException, ValueError) as error:
        raise _unreadable(store, "its columns", error) from error


def _read_columns(
    store: Store, path: str, version: int, names: Sequence[str], *, size: int | None = None
) -> tuple[dict[str, pa.ChunkedArray], FilesKnown | None]:
    try:
        return read_structs(store.open_input(path), version, names, size=size)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise _unreadable(store, path, error) from error


def _rows(store: Store, columns: Mapping[str, pa.ChunkedArray], name: str) -> list[Any]:
    if name not in columns:
        return []
    try:
        return columns[name].to_pylist()  # type: ignore[no-any-return]
    except ValueError as error:
        raise _unreadable(store, name, error) from error


def _convert(store: Store, row: Any, kind: type[Any]) -> Any:
    """Convert a row of a checkpoint to an action. Arrow returns a map as a list of pairs."""
    try:
        return msgspec.convert(_without_nulls(row), kind)
    except (ValueError, TypeError) as error:
        raise _unreadable(store, "a row", error) from error


def _without_nulls(row: dict[str, Any]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for key, value in row.items():
        if isinstance(value, dict):
            values[key] = _without_nulls(value)
        elif key in _TEXT_MAPS and isinstance(value, list):
            values[key] = dict(value)
        elif value is not None:
            values[key] = value
    return values


def _unnest(found: Mapping[str, pa.ChunkedArray], name: str, schema: pa.Schema, required: Sequence[str]) -> pa.Table:
    """The rows of one kind of action, with exactly the columns of `schema`. Raises ValueError if a value is missing."""
    if name not in found:
        return schema.empty_table()
    values = found[name]
    fields = pa.schema(list(values.type))
    # Not RecordBatch.from_struct_array: below pyarrow 23 it takes too many rows of a slice from the beginning.
    rows = pa.Table.from_batches(
        [pa.RecordBatch.from_arrays(chunk.flatten(), schema=fields) for chunk in values.chunks], fields
    )
    columns = {field.name: _column(rows, field) for field in schema}
    vectors = columns["deletionVector"].drop_null()
    needed = [columns[column] for column in required]
    needed += [pc.struct_field(vectors, column) for column in _VECTOR_FIELDS] if len(vectors) else []
    if any(values.null_count for values in needed):
        raise ValueError(f"a row of {name} lacks a required value")
    if "stats" in columns and columns["stats"].null_count and "stats_parsed" in rows.column_names:
        columns["stats"] = pc.coalesce(columns["stats"], _stats_texts(rows["stats_parsed"]))
    return pa.table(list(columns.values()), schema=schema)


def _column(rows: pa.Table, field: pa.Field) -> pa.ChunkedArray:
    if field.name not in rows.column_names:
        return pa.chunked_array([pa.nulls(rows.num_rows, field.type)])
    values = rows[field.name]
    return values if values.type.equals(field.type) else values.cast(field.type)


def _stats_texts(parsed: pa.ChunkedArray) -> pa.ChunkedArray:
    """Convert statistics that a writer stored only as columns to JSON texts as in the rest of the log."""
    rows = itertools.chain.from_iterable(_within_calendar(chunk).to_pylist() for chunk in parsed.chunks)
    texts = [None if row is None else statistics.from_struct(row) for row in rows]
    return pa.chunked_array([pa.array(texts, pa.string())])


def _within_calendar(values: pa.Array) -> pa.Array:
    """The values with dates and times outside Python's calendar (years 1 to 9999) replaced by null."""
    kind = values.type
    if pt.is_struct(kind):
        inner = [_within_calendar(values.field(index)) for index in range(kind.num_fields)]
        return pa.StructArray.from_arrays(inner, fields=list(kind), mask=values.is_null()) if inner else values
    if not (pt.is_date32(kind) or pt.is_timestamp(kind)):
        return values
    if pt.is_timestamp(kind):
        days = pc.divide(values.cast(pa.int64()), _TICKS_A_DAY[kind.unit])
    else:
        days = values.cast(pa.int32())
    inside = pc.and_(pc.greater(days, _FIRST_DAY), pc.less_equal(days, _LAST_DAY))
    return pc.if_else(inside, values, pa.scalar(None, kind))


def _unreadable(store: Store, what: str, error: Exception) -> UnreadableCheckpointError:
    return UnreadableCheckpointError(
        f"a checkpoint of {store.url} cannot be read ({what}): {error}",
        advice="delete that checkpoint if the commits before it still exist, or restore it from a backup",
        path=store.url,
    )
