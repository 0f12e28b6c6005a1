"""Parquet files that no table has written, described by their footers: columns in a table's types, rows, statistics.

The types are those that every engine reads in a Delta table. The rest are refused by name: unsigned numbers, half
floats, timestamps in nanoseconds, binary of a fixed length, times, and columns without a type (all null). An int96 is a
timestamp in UTC, as Spark and Hive mean it.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.types as pt

from tidelog.log.data.reader import DataFile, read_footer
from tidelog.log.errors import DataFileDamagedError, DataFileMissingError, SchemaMismatchError
from tidelog.log.format import footer_statistics, paths, properties
from tidelog.log.format.footer_statistics import FooterLeaf
from tidelog.log.format.schema import TIMESTAMP, TIMESTAMP_NTZ
from tidelog.log.storage import FileStatus, Store

_MOST_DIGITS = 38
_SAME = frozenset(
    {pa.bool_(), pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.float32(), pa.float64(), pa.string(), pa.binary()}
)
_PLAIN: Mapping[pa.DataType, pa.DataType] = {
    **{kind: kind for kind in _SAME},
    pa.large_string(): pa.string(),
    pa.string_view(): pa.string(),
    pa.large_binary(): pa.binary(),
    pa.binary_view(): pa.binary(),
    pa.date32(): pa.date32(),
    pa.date64(): pa.date32(),
}
# What a parquet file begins with. Writers need not give it the usual ending.
_MAGIC = b"PAR1"
_ENDING = ".parquet"
# From 1.10 on, it leaves the bounds of a column with a NaN out.
_EXACT_FLOATS = re.compile(rb"parquet-mr version (?:1\.[1-9][0-9]|[2-9]|[1-9][0-9])")
_SPARK_SCHEMA = b"org.apache.spark.sql.parquet.row.metadata"


@dataclass(frozen=True, slots=True)
class PlainFile:
    """What a file's footer says: the columns in a table's types, and the text of the statistics."""

    schema: pa.Schema
    stats: str


class PlainFiles:
    """Describes the files of one folder. Files with equal columns share one schema. Thread-safe.

    Args:
        store: Where the files are.
        leave_out: Columns to leave out, in any case: the partition columns, whose values are in the paths.
        configuration: The table's properties, which choose the columns that get statistics.
    """

    def __init__(self, store: Store, leave_out: Collection[str], configuration: Mapping[str, str]) -> None:
        self._store = store
        self._leave_out = {name.lower() for name in leave_out}
        self._indexed_columns = properties.indexed_columns(configuration)
        self._only = properties.statistics_columns(configuration)
        self._known: dict[tuple[pa.Schema, tuple[str, ...]], tuple[pa.Schema, list[FooterLeaf]]] = {}

    def describe(self, path: str, status: FileStatus) -> PlainFile:
        """Describe the file at `path`, which has this status in a listing.

        Raises DataFileMissingError, DataFileDamagedError if it is not a parquet file that can be read, and
        SchemaMismatchError for a column that a table cannot hold.
        """
        footer = self._footer(path, status)
        found = footer.schema.to_arrow_schema().remove_metadata()
        physical = tuple(footer.schema.column(index).physical_type for index in range(footer.num_columns))
        known = self._known.get((found, physical))
        if known is None:
            known = self._columns(found, physical, footer, path)
            known = self._known.setdefault((found, physical), known)
        schema, leaves = known
        exact = _EXACT_FLOATS.match(str(footer.created_by).encode()) is not None
        return PlainFile(schema, footer_statistics.collect_leaves(footer, leaves, float_bounds=exact))

    def _footer(self, path: str, status: FileStatus) -> pq.FileMetaData:
        try:
            return read_footer(self._store, DataFile(paths.to_uri(path), {}, None))
        except DataFileMissingError as error:
            raise DataFileMissingError(
                f"the file {path} of {self._store.url} vanished while the folder was looked at",
                advice="let no other program change the folder meanwhile, and try again",
                path=self._store.url,
            ) from error
        except DataFileDamagedError as error:
            if not path.endswith(_ENDING) and not self._begins_as_parquet(path):
                other = f"_{path.rpartition('/')[2]}"
                raise DataFileDamagedError(
                    f"{path} of {self._store.url} is not a parquet file, and a table takes all files of its folder",
                    advice=f"move it away, or rename it to {other}: names with _ or . in front are left out",
                    path=self._store.url,
                    file=path,
                ) from error
            raise DataFileDamagedError(
                f"{path} of {self._store.url} ({status.size_bytes} bytes) cannot be read as a parquet file: "
                f"{error.__cause__ or error.message}",
                advice="move it out of the folder, or restore it; names that begin with _ or . are left out",
                path=self._store.url,
                file=path,
            ) from error

    def _begins_as_parquet(self, path: str) -> bool:
        try:
            return self._store.read_start(path, len(_MAGIC)).startswith(_MAGIC)
        except OSError:
            return True  # nothing is known of it

    def _columns(
        self, found: pa.Schema, physical: tuple[str, ...], footer: pq.FileMetaData, path: str
    ) -> tuple[pa.Schema, list[FooterLeaf]]:
        """The columns of files with these ones in a table's types, and those of them that get statistics."""
        _refuse_variants(footer, path)
        columns = _Columns(physical, path)
        fields = columns.of(list(found), "")
        leave_out = {field.name for field in fields if field.name.lower() in self._leave_out}
        leaves = footer_statistics.chosen_leaves(
            pa.schema(fields), leave_out=leave_out, indexed_columns=self._indexed_columns, only=self._only
        )
        schema = pa.schema([field for field in fields if field.name not in leave_out])
        return schema, [leaf for leaf in leaves if leaf.column not in columns.without_bounds]


class _Columns:
    """Turns the columns of one file into those of a table."""

    def __init__(self, physical: tuple[str, ...], path: str) -> None:
        self.without_bounds: set[int | None] = set()
        self._physical = enumerate(physical)
        self._path = path

    def of(self, fields: list[pa.Field], above: str) -> list[pa.Field]:
        """The fields of one level. Raises SchemaMismatchError if two names differ in case only, or not at all."""
        lowered = [field.name.lower() for field in fields]
        for field in fields:
            if lowered.count(field.name.lower()) > 1:
                raise SchemaMismatchError(
                    f"{self._path} has the column {above + field.name!r} more than once (case does not matter)",
                    advice="write the file again with other names",
                    column=above + field.name,
                )
        return [pa.field(field.name, self._kind(field.type, above + field.name)) for field in fields]

    def _kind(self, kind: pa.DataType, where: str) -> pa.DataType:
        if pt.is_struct(kind):
            return pa.struct(self.of([kind.field(index) for index in range(kind.num_fields)], f"{where}."))
        if pt.is_map(kind):
            key = self._kind(kind.key_type, f"{where}.key")
            return pa.map_(key, pa.field("value", self._kind(kind.item_type, f"{where}.value")))
        if pt.is_nested(kind) and hasattr(kind, "value_type"):
            return pa.list_(pa.field("element", self._kind(kind.value_type, f"{where}.element")))
        number, physical = next(self._physical)
        if pt.is_dictionary(kind):
            kind = kind.value_type
        if pt.is_timestamp(kind) and physical == "INT96":
            self.without_bounds.add(number)
            return TIMESTAMP
        if pt.is_timestamp(kind) and kind.unit != "ns":
            return TIMESTAMP if kind.tz else TIMESTAMP_NTZ
        if pt.is_decimal(kind) and kind.precision <= _MOST_DIGITS and kind.scale >= 0:
            return pa.decimal128(kind.precision, kind.scale)
        if kind in _PLAIN:
            return _PLAIN[kind]
        raise SchemaMismatchError(
            f"column {where!r} of {self._path} has the type {kind}, which not all engines read in a Delta table",
            advice=_advice(kind),
            column=where,
        )


def _advice(kind: pa.DataType) -> str:
    if pt.is_null(kind):
        return "all its values are null, so it has no type: write the file again with the column's type, or without it"
    if pt.is_timestamp(kind):
        return "write the file again with microseconds (pandas and pyarrow: coerce_timestamps='us')"
    return "write the file again with string, long, double, decimal, boolean, binary, date or timestamp instead"


def _refuse_variants(footer: pq.FileMetaData, path: str) -> None:
    """Raise SchemaMismatchError for a file with a variant, which Arrow shows as a struct like any other."""
    spark = (footer.metadata or {}).get(_SPARK_SCHEMA, b"")
    if b'"type":"variant"' in spark.replace(b" ", b"") or "(Variant" in str(footer.schema):
        raise SchemaMismatchError(
            f"{path} has a column of type variant, which cannot be taken over",
            advice="write the rows to a new table with an engine that has the type",
        )
