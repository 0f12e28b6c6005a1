"""Reading rows: a set of files, the columns wanted, a predicate; nothing is read before the rows are asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import Any

import pyarrow as pa

from tidelog.log import predicate
from tidelog.log.datafile import DataFile, read_batches, rows_without_columns
from tidelog.log.errors import PredicateError
from tidelog.log.storage import Store


class RowReader:
    """The ways in which rows are handed out, for scans and changes alike."""

    schema: pa.Schema

    def to_batches(self) -> Iterator[pa.RecordBatch]:
        """The rows as record batches of `schema`, read as they are consumed."""
        raise AssertionError

    def to_reader(self) -> pa.RecordBatchReader:
        """The rows as a stream."""
        return pa.RecordBatchReader.from_batches(self.schema, self.to_batches())

    def to_arrow(self) -> pa.Table:
        """All rows as one Arrow table."""
        return pa.Table.from_batches(self.to_batches(), schema=self.schema)

    def to_pandas(self) -> Any:
        """All rows as a pandas frame."""
        return self.to_arrow().to_pandas()

    def count(self) -> int:
        """How many rows there are."""
        return sum(batch.num_rows for batch in self.to_batches())

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """The Arrow PyCapsule protocol, by which Polars, DuckDB and pandas read without a copy."""
        return self.to_reader().__arrow_c_stream__(requested_schema)


class Selection:
    """Which columns are given out and which rows pass, over rows of `schema`.

    Raises PredicateError for a predicate that cannot be evaluated or a column that does not exist.
    """

    def __init__(self, schema: pa.Schema, where: str | None, columns: Sequence[str] | None) -> None:
        self.where = where
        chosen = list(schema.names if columns is None else columns)
        for name in chosen:
            if name not in schema.names:
                known = ", ".join(schema.names)
                raise PredicateError(f"there is no column {name!r}", advice=f"the columns are {known}", token=name)
        self.schema = pa.schema([schema.field(name) for name in chosen])
        self._tree = None if where is None else predicate.parse(where, schema)
        needed = set() if self._tree is None else predicate.columns(self._tree)
        self.read_schema = pa.schema([field for field in schema if field.name in needed or field.name in chosen])
        self._filter = None if self._tree is None else predicate.to_arrow(self._tree, self.read_schema)

    def apply(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """The chosen columns of the rows that pass; `batch` has the columns of `read_schema`."""
        if self._filter is None:
            yield _select(batch, self.schema)
            return
        try:
            passed = pa.Table.from_batches([batch]).filter(self._filter)
        except pa.ArrowException as error:
            raise PredicateError(
                f"the predicate {self.where!r} cannot be evaluated on all rows: {error}",
                advice="cast in the query instead",
                token=str(self.where),
            ) from error
        for piece in passed.to_batches():
            if piece.num_rows:
                yield _select(piece, self.schema)


def _select(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    if not schema.names:
        return rows_without_columns(batch.num_rows)
    return pa.RecordBatch.from_arrays([batch.column(name) for name in schema.names], schema=schema)


class Scan(RowReader):
    """The rows of one snapshot. The files are fixed when the scan is made; commits made later do not show."""

    def __init__(
        self,
        store: Store,
        files: Callable[[], list[DataFile]],
        schema: pa.Schema,
        where: str | None,
        columns: Sequence[str] | None,
    ) -> None:
        self._store = store
        self._load_files = files
        self._selection = Selection(schema, where, columns)
        self.schema = self._selection.schema

    @cached_property
    def _files(self) -> list[DataFile]:
        return self._load_files()

    def to_batches(self) -> Iterator[pa.RecordBatch]:
        """The rows as record batches of `schema`, read file by file as they are consumed."""
        for file in self._files:
            for batch in read_batches(self._store, file, self._selection.read_schema):
                yield from self._selection.apply(batch)

    def explain(self) -> str:
        """What would be read, in words."""
        columns = ", ".join(self._selection.read_schema.names) or "none"
        return f"files: {len(self._files)}\ncolumns read: {columns}\npredicate: {self._selection.where or 'none'}"
