"""Rows of live files with their addresses, for a statement that changes some of them.

Spark's own parquet reader gives each row its position, and tidelog's reader where Spark's cannot read a file.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial, reduce

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's convention

from tidelog.log.data.reader import DataFile, read_numbered_batches
from tidelog.log.data.writer import DataWriter
from tidelog.log.format import paths
from tidelog.log.format.row_tracking import ROW_ID, kind_of
from tidelog.log.predicate import Expression
from tidelog.log.read.change_files import ChangeFile
from tidelog.log.state.files import to_adds
from tidelog.streaming.executors import hadoop
from tidelog.streaming.executors.changed_rows import RowColumns
from tidelog.streaming.executors.plain_frame import quoted
from tidelog.streaming.executors.session import is_connect
from tidelog.streaming.executors.tasks import in_tasks, read_parts, spark_schema
from tidelog.streaming.jvm_reading import dead_rows, file_scan
from tidelog.streaming.jvm_reading.file_scan import FileList
from tidelog.streaming.jvm_reading.jvm_rows import (
    are_columns_readable,
    are_plain,
    columns_in_files,
    constant_columns,
    constant_names,
    constants_of,
    is_file_readable,
    is_store_readable,
    named_columns,
)
from tidelog.streaming.jvm_reading.spark_conditions import condition


@dataclass(frozen=True, slots=True)
class _Numbered:
    """A live file and its number."""

    change: ChangeFile
    number: int

    @property
    def size_bytes(self) -> int:
        return self.change.size_bytes

    @property
    def num_files(self) -> int:
        return 1


def addressed_rows(
    spark: SparkSession,
    writer: DataWriter,
    files: pa.Table,
    numbers: pa.Array,
    names: Sequence[str],
    columns: RowColumns,
    where: Expression | None,
) -> DataFrame:
    """The columns `names` of the live rows of files with the schema ADD, among them some of `columns`.

    The addresses have the `numbers` of the files. Rows for which `where` is false may be left out. Files without a
    deletion vector cost no Python object each.
    """
    return _Reading(spark, writer, names, columns, where).rows(files, numbers)


class _Reading:
    def __init__(
        self,
        spark: SparkSession,
        writer: DataWriter,
        names: Sequence[str],
        columns: RowColumns,
        where: Expression | None,
    ) -> None:
        self._spark = spark
        self._writer = writer
        self._names = names
        self._columns = columns
        buried = [field.name for field in columns.fields] if columns.buried in names else []
        wanted = {*names, *buried}
        own = [field for field in writer.schema if field.name in wanted]
        self._condition = None
        if where is not None:
            self._condition = condition(where, writer.schema)
        self.schema = pa.schema(own if self._condition is None else [*writer.schema])
        self.has_ids = columns.row_id in names
        # Like the columns of an address, but of the scan only.
        self._listed = f"{columns.file}_listed"
        while self._listed in {field.name.lower() for field in writer.schema}:
            self._listed += "_"

    def rows(self, files: pa.Table, numbers: pa.Array) -> DataFrame:
        """The rows of files with these numbers."""
        frames: list[DataFrame] = []
        uses_spark = self._uses_spark()
        if uses_spark:
            values, is_known = constants_of(files, self.schema, of_snapshot=True)
            is_listed = pc.and_(are_plain(files), is_known)
            if pc.any(is_listed).as_py() and columns_in_files(self.schema, list(values)) is not None:
                listed = files.select(["path", "size"]).filter(is_listed)
                constants = {name: column.filter(is_listed) for name, column in values.items()}
                frames.append(self._scan(listed["path"], listed["size"], constants, numbers.filter(is_listed)))
                files, numbers = files.filter(pc.invert(is_listed)), numbers.filter(pc.invert(is_listed))
        groups, rest = self._grouped(files, numbers, uses_spark=uses_spark)
        for names, group in groups.items():
            frame = self._with_vectors(group, names)
            if frame is None:
                rest += group
            else:
                frames.append(frame)
        if rest or not frames:
            frames.append(self._by_tidelog(rest))
        return reduce(DataFrame.unionAll, frames)

    def _grouped(
        self, files: pa.Table, numbers: pa.Array, *, uses_spark: bool
    ) -> tuple[dict[tuple[str, ...], list[_Numbered]], list[_Numbered]]:
        """The files with vectors that Spark's reader reads, by their constants, and those that it cannot read."""
        groups: dict[tuple[str, ...], list[_Numbered]] = defaultdict(list)
        rest: list[_Numbered] = []
        blocks = 0
        for add, number in zip(to_adds(files), numbers.to_pylist(), strict=True):
            change = ChangeFile(DataFile.of(add), 0, 0, add.size, None, stats=add.stats)
            unit, of_file = _Numbered(change, number), dead_rows.max_blocks(change)
            if not uses_spark or not is_file_readable(change) or blocks + of_file > dead_rows.MAX_BLOCKS:
                rest.append(unit)
                continue
            blocks += of_file
            names = constant_names(self.schema, tuple(change.file.partition_values), False, of_snapshot=True)  # noqa: FBT003
            groups[names].append(unit)
        return groups, rest

    def _uses_spark(self) -> bool:
        return (
            not self.has_ids
            and not is_connect(self._spark)
            and are_columns_readable(self.schema)
            and is_store_readable(self._writer.store)
            and hadoop.can_read(self._spark, self._writer.store)
            and file_scan.is_available(self._spark)
        )

    def _with_vectors(self, group: list[_Numbered], names: Sequence[str]) -> DataFrame | None:
        """The rows by Spark's reader of files that may have vectors; None if it cannot read the files."""
        values = constant_columns([unit.change for unit in group], names, self.schema, of_snapshot=True)
        if values is None or columns_in_files(self.schema, names) is None:
            return None
        dead = [(unit.number, unit.change) for unit in group if dead_rows.has_positions(unit.change)]
        return self._scan(
            pa.array([paths.to_storage_path(unit.change.file.path) for unit in group], pa.string()),
            pa.array([unit.size_bytes for unit in group], pa.int64()),
            dict(zip(names, values, strict=True)),
            pa.array([unit.number for unit in group], pa.int32()),
            dead_rows.bitmaps(self._spark, self._writer.store, dead) if dead else None,
        )

    def _scan(
        self,
        files: pa.Array | pa.ChunkedArray,
        sizes: pa.Array | pa.ChunkedArray,
        constants: Mapping[str, pa.Array | pa.ChunkedArray],
        numbers: pa.Array | pa.ChunkedArray,
        dead: DataFrame | None = None,
    ) -> DataFrame:
        """The rows by Spark's reader of files at these paths, without the rows that are `dead`."""
        store, columns, schema = self._writer.store, self._columns, self.schema
        data = columns_in_files(self.schema, list(constants))
        assert data is not None
        fields = [schema.field(name).with_metadata(None) for name in constants]
        fields.append(pa.field(columns.file, pa.int32(), nullable=False))
        values = [*constants.values(), numbers]
        if dead is not None:
            # The rows of vectors are those that do not count.
            fields.append(pa.field(self._listed, pa.int8()))
            values.append(pa.array([0] * len(files), pa.int8()))
        listed = FileList.of(files, sizes, pa.table(values, schema=pa.schema(fields)))
        url = hadoop.hadoop_url(store.url, store.storage_options)
        frame = file_scan.scan(self._spark, url, listed, data, hadoop.write_options(store.storage_options, url))
        frame = frame.withColumn(columns.row, frame.metadataColumn("_metadata")["row_index"])
        if dead is not None:
            frame = dead_rows.counting(frame, dead, frame[columns.file], frame[self._listed], frame[columns.row])
        named = named_columns(schema, list(constants))
        frame = frame.selectExpr(*named.values(), quoted(columns.file), quoted(columns.row))
        return self._chosen(frame if self._condition is None else frame.where(self._condition))

    def _chosen(self, frame: DataFrame) -> DataFrame:
        """The columns that were asked for, of a frame with those of the table that they need."""
        buried = F.struct(*(F.col(quoted(field.name)) for field in self._columns.fields))
        return frame.select(
            *(
                buried.alias(name) if name == self._columns.buried else F.col(quoted(name)).alias(name)
                for name in self._names
            )
        )

    def _by_tidelog(self, units: Sequence[_Numbered]) -> DataFrame:
        """The rows by tidelog's reader, in Python tasks."""
        columns, writer = self._columns, self._writer
        ids = [field for field in writer.tracked if kind_of(field) == ROW_ID] if self.has_ids else []
        fields = [*self.schema, *(field for field in columns.schema if field.name in (columns.file, columns.row))]
        fields += [pa.field(str(columns.row_id), pa.int64()) for _ in ids]
        out = pa.schema(fields)
        if not units:
            return self._chosen(self._spark.createDataFrame([], spark_schema(out)))
        work = partial(_read, writer, self.schema, ids, out)
        return self._chosen(in_tasks(self._spark, read_parts(units), work, out))


def _read(
    writer: DataWriter, own: pa.Schema, ids: Sequence[pa.Field], out: pa.Schema, units: Sequence[_Numbered]
) -> Iterator[pa.RecordBatch]:
    for unit in units:
        for positions, batch in read_numbered_batches(writer.store, unit.change.file, pa.schema([*own, *ids])):
            number = pa.repeat(pa.scalar(unit.number, pa.int32()), batch.num_rows)
            address = [number, pa.array(positions, pa.int64())]
            columns = [*batch.columns[: len(own)], *address, *batch.columns[len(own) :]]
            yield pa.RecordBatch.from_arrays(columns, schema=out)
