"""Share work out to Spark's executors: each task does its part and returns a small value.

Spark runs a failed task again and can run a slow one twice, but only one run returns a value. No value, and so no
commit, names the files of the other runs, so no reader sees them. A tidelog error is returned as a value, too, and
raised here: a second attempt would raise it again.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import ArrayLike
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from tidelog.log.arrays import Int64Array
from tidelog.log.commit.discard import delete_unnamed
from tidelog.log.data.writer import DataWriter
from tidelog.log.errors import ConfigurationError, SchemaMismatchError, TidelogError
from tidelog.log.format import paths, properties
from tidelog.log.format.actions import AddCDCFile, AddFile
from tidelog.log.storage import Store
from tidelog.log.storage.memory import MemoryStore
from tidelog.streaming import spark_versions
from tidelog.streaming.executors.session import imports_explained, is_connect

# A task's Python worker costs some tens of milliseconds, so small files share one task. A task that writes holds its
# changed rows in memory and writes at least one file, so larger parts take more memory but make fewer small files.
TASK_BYTES = 64 * 2**20
TASK_FILES = 64
# A core reads this number of bytes in about a second.
_READ_BYTES = 32 * 2**20
_READ_FILES = 32

_Part = TypeVar("_Part")
_Value = TypeVar("_Value")


class _Unit(Protocol):
    """What is read as a whole: a file, or the files that a commit rewrote."""

    @property
    def size_bytes(self) -> int: ...

    @property
    def num_files(self) -> int: ...


_Read = TypeVar("_Read", bound=_Unit)


@dataclass(frozen=True, slots=True)
class FilePart:
    """Some rows of a table. Pickled, it is only them: pyarrow pickles a slice with all rows of the whole."""

    table: pa.Table
    place: slice

    @property
    def rows(self) -> pa.Table:
        """The rows themselves, not copied."""
        return self.table.slice(self.place.start, self.place.stop - self.place.start)

    def __reduce__(self) -> tuple[Any, ...]:
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, self.table.schema) as stream:
            stream.write_table(self.rows)
        return _unpickled, (sink.getvalue().to_pybytes(),)


def _unpickled(rows: bytes) -> FilePart:
    table = pa.ipc.open_stream(rows).read_all()
    return FilePart(table, slice(0, table.num_rows))


def file_parts(files: pa.Table) -> list[FilePart]:
    """Split a table with the schema ADD as `task_parts` splits files. Millions cost no object each."""
    return [FilePart(files, place) for place in _places(files["size"].to_numpy(), None, TASK_BYTES, TASK_FILES)]


def task_parts(adds: Sequence[AddFile]) -> list[Sequence[AddFile]]:
    """Split files whose rows are changed, in their order, into parts of a bounded number of files and bytes."""
    return task_parts_by(adds, lambda add: add)


def task_parts_by(items: Sequence[_Part], file: Callable[[_Part], AddFile]) -> list[Sequence[_Part]]:
    """Split what belongs to files as `task_parts` splits the files."""
    return [items[place] for place in _places([file(item).size for item in items], None, TASK_BYTES, TASK_FILES)]


def read_parts(units: Sequence[_Read]) -> list[Sequence[_Read]]:
    """Split what is read, in its order, into parts of a bounded number of files and bytes."""
    sizes, counts = [unit.size_bytes for unit in units], [unit.num_files for unit in units]
    return [units[place] for place in _places(sizes, counts, _READ_BYTES, _READ_FILES)]


def _places(sizes: ArrayLike, counts: ArrayLike | None, most_bytes: int, most_files: int) -> Iterator[slice]:
    """Where parts of items with a size and a number of files (None: 1) lie. One item is always taken, and whole."""
    bytes_until = np.cumsum(np.asarray(sizes, dtype=np.int64))
    total = len(bytes_until)
    files_until = np.arange(1, total + 1) if counts is None else np.cumsum(np.asarray(counts, dtype=np.int64))
    start = 0
    while start < total:
        stop = min(_reach(bytes_until, start, most_bytes), _reach(files_until, start, most_files))
        yield slice(start, max(stop, start + 1))
        start = max(stop, start + 1)


def _reach(until: Int64Array, start: int, most: int) -> int:
    """The end of the items from `start` on that come to at most `most`."""
    before = until[start - 1] if start else 0
    return int(np.searchsorted(until, before + most, side="right"))


def run(spark: SparkSession, work: Callable[[_Part], _Value], parts: Sequence[_Part]) -> list[_Value]:
    """The results of `work` for each part, in order, one task each. `work` and its results must be picklable.

    Raises PrerequisiteError if the Python of Spark's workers lacks tidelog.
    """
    if not parts:
        return []
    with imports_explained():
        if not is_connect(spark):
            return _values(spark.sparkContext.parallelize(parts, len(parts)).map(partial(_outcome, work)).collect())
        frame = shared_out(spark, parts).mapInArrow(partial(_pickled_outcomes, work), "place long, value binary")
        rows = sorted(frame.collect(), key=lambda row: row.place)
    return _values(pickle.loads(row.value) for row in rows)  # noqa: S301 - our own tasks made it


def shared_out(spark: SparkSession, parts: Sequence[object]) -> DataFrame:
    """A frame whose tasks have one part each, pickled, as the columns `place` and `part`; there is at least one part.

    For Spark Connect, where a frame is all that a task can be given.
    """
    rows = pa.table({"place": pa.array(range(len(parts)), pa.int64()), "part": [pickle.dumps(part) for part in parts]})
    # From a single task Spark deals the rows out one by one.
    return spark.createDataFrame(rows).coalesce(1).repartition(len(parts))


def run_on_rows(
    data: DataFrame,
    work: Callable[[Iterator[pa.RecordBatch]], Iterator[_Value]],
    undo: Callable[[_Value], object] | None = None,
) -> list[_Value]:
    """The values that `work` yields for the rows of each partition of the data.

    If one of them is a tidelog error, `undo` is called with each of the other values before the error is raised.
    Raises PrerequisiteError if the Python of Spark's workers lacks tidelog.
    """
    # Renamed on the way, since PySpark looks columns up as if a dot or a backtick in a name were syntax.
    plain = data.toDF(*(f"c{place}" for place in range(len(data.columns))))
    pickled = plain.mapInArrow(partial(_pickled, work, data.columns), "value binary")
    with imports_explained():
        outcomes = [pickle.loads(row.value) for row in pickled.collect()]  # noqa: S301 - our own tasks made it
    if undo is not None and any(isinstance(outcome, TidelogError) for outcome in outcomes):
        for outcome in outcomes:
            if not isinstance(outcome, TidelogError):
                undo(outcome)
    return _values(outcomes)


def in_tasks(
    spark: SparkSession,
    parts: Sequence[_Part],
    work: Callable[[_Part], Iterator[pa.RecordBatch]],
    schema: pa.Schema,
) -> DataFrame:
    """The rows that `work` yields for the parts, one task each, when the frame is computed.

    The batches have exactly `schema`. `work` and the parts must be picklable; they are not shown in plans.
    """
    if is_connect(spark):
        tasks = shared_out(spark, parts).select("part")
    else:
        pickled = spark.sparkContext.parallelize([(pickle.dumps(part),) for part in parts], len(parts))
        tasks = spark.createDataFrame(pickled, "part binary")
    return from_arrow(tasks, partial(_worked, work), schema)


def from_arrow(
    frame: DataFrame, work: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]], schema: pa.Schema
) -> DataFrame:
    """`frame.mapInArrow`, also for a schema without columns: Spark 4.0 forgets how many rows such batches have."""
    if schema.names:
        return frame.mapInArrow(work, spark_schema(schema))
    return frame.mapInArrow(partial(_with_a_column, work), "row boolean").select()


def spark_schema(schema: pa.Schema) -> StructType:
    """The Spark types of Arrow columns, without the metadata of the fields."""
    return spark_versions.columns_from_arrow(pa.schema([_plain(field) for field in schema]))


def require_frame(data: object) -> None:
    """Raise SchemaMismatchError for data that is not a Spark DataFrame."""
    if not isinstance(data, DataFrame):
        raise SchemaMismatchError(
            f"a Spark DataFrame is needed, not {type(data).__name__}",
            advice="use spark.createDataFrame(...), or the methods of Table for data in this process",
            column="",
        )


def require_reachable(store: Store) -> None:
    """Raise ConfigurationError for a store in this process's memory."""
    if isinstance(store, MemoryStore):
        raise ConfigurationError(
            f"{store.url} is in this process's memory, which Spark's executors cannot reach",
            advice="use a table on a disk or in an object store, or the methods of Table",
        )


def pieces(batches: Iterator[pa.RecordBatch], size_bytes: int) -> Iterator[pa.Table]:
    """Combine batches into tables of at least this size in memory; the last one can be smaller."""
    held: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        held.append(batch)
        size += batch.nbytes
        if size >= size_bytes:
            yield pa.Table.from_batches(held)
            held, size = [], 0
    if held:
        yield pa.Table.from_batches(held)


def delete_written(writer: DataWriter, written: Iterable[AddFile | AddCDCFile]) -> None:
    """Delete files of the writer's table that no commit names."""
    delete_unnamed(writer.store, [paths.to_storage_path(file.path) for file in written])


@contextmanager
def cleared(writer: DataWriter) -> Iterator[None]:
    """Delete the files that a task writes within the block if the block raises a tidelog error."""
    before = len(writer.written)
    try:
        yield
    except TidelogError:
        delete_unnamed(writer.store, writer.written[before:])
        raise


def file_size(writer: DataWriter) -> int:
    """The target size of the table's files, in bytes."""
    return properties.size_bytes(writer.metadata.configuration, properties.TARGET_FILE_SIZE)


def _outcome(work: Callable[[_Part], _Value], part: _Part) -> _Value | TidelogError:
    try:
        return work(part)
    except TidelogError as error:
        return error


def _pickled_outcomes(work: Callable[[_Part], _Value], batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for place, part in zip(batch.column(0), batch.column(1).to_pylist(), strict=True):
            outcome = pickle.dumps(_outcome(work, pickle.loads(part)))  # noqa: S301 - made by `shared_out`
            yield pa.RecordBatch.from_pydict(
                {"place": pa.array([place.as_py()], pa.int64()), "value": pa.array([outcome], pa.binary())}
            )


def _pickled(
    work: Callable[[Iterator[pa.RecordBatch]], Iterator[_Value]],
    columns: Sequence[str],
    batches: Iterator[pa.RecordBatch],
) -> Iterator[pa.RecordBatch]:
    values = work(batch.rename_columns(list(columns)) for batch in batches)
    while True:
        try:
            value: object = next(values)
        except StopIteration:
            return
        except TidelogError as error:
            value = error
        yield pa.RecordBatch.from_pydict({"value": pa.array([pickle.dumps(value)], pa.binary())})
        if isinstance(value, TidelogError):
            return


def _values(outcomes: Iterable[_Value | TidelogError]) -> list[_Value]:
    """The values. Raises the first error among them."""
    values = []
    for outcome in outcomes:
        if isinstance(outcome, TidelogError):
            raise outcome
        values.append(outcome)
    return values


def _with_a_column(
    work: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]], batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    for batch in work(batches):
        yield pa.RecordBatch.from_arrays([pa.nulls(batch.num_rows, pa.bool_())], ["row"])


def _worked(
    work: Callable[[_Part], Iterator[pa.RecordBatch]], batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for part in batch.column(0):
            yield from work(pickle.loads(part.as_py()))  # noqa: S301 - made by `in_tasks`


def _plain(field: pa.Field) -> pa.Field:
    kind = field.type
    if pa.types.is_struct(kind):
        kind = pa.struct([_plain(inner) for inner in kind])
    elif pa.types.is_map(kind):
        kind = pa.map_(_plain(kind.key_field), _plain(kind.item_field))
    elif pa.types.is_list(kind):
        kind = pa.list_(_plain(kind.value_field))
    return pa.field(field.name, kind, field.nullable)
