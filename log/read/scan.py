"""Read rows from a set of files, with a predicate and a choice of columns. Reading is lazy."""

from __future__ import annotations

import html
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property, partial
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tidelog.log import predicate
from tidelog.log.data.indexed_key import IndexedKey
from tidelog.log.data.reader import DataFile, read_batches, rows_without_columns
from tidelog.log.errors import ConfigurationError, PrerequisiteError
from tidelog.log.presentable import did_you_mean, presentable, printable
from tidelog.log.pruning.file_pruning import Pruned, prune_state, wholly_matching
from tidelog.log.read.key_index import Narrowed, narrowed
from tidelog.log.read.read_ahead import read_ahead
from tidelog.log.state.files import FileValues, to_adds
from tidelog.log.state.loader import LogState
from tidelog.log.storage import Store

# A notebook shows the beginning of a very wide table's columns.
_HTML_COLUMNS = 100


def columns_text(schema: pa.Schema) -> str:
    """The columns for a `repr`: `[id: int64, name: string]`."""
    return printable(f"[{', '.join(f'{field.name}: {field.type}' for field in schema)}]")


class ArrowReader:
    """The ways to get rows out that tables, snapshots, scans and changes share. Each call reads again."""

    schema: pa.Schema

    def to_reader(self) -> pa.RecordBatchReader:
        """Read the rows as a `pyarrow.RecordBatchReader`, as they are consumed."""
        raise AssertionError

    def to_arrow(self) -> pa.Table:
        """Read all rows into a `pyarrow.Table`."""
        return self.to_reader().read_all()

    def to_pandas(self) -> Any:
        """Read all rows into a pandas DataFrame.

        Raises:
            PrerequisiteError: pandas is not installed.
        """
        _require("pandas", "to_pandas")
        return self.to_arrow().to_pandas()

    def to_polars(self) -> Any:
        """Read all rows into a Polars DataFrame.

        Raises:
            PrerequisiteError: Polars is not installed.
        """
        return _require("polars", "to_polars").from_arrow(self.to_arrow())

    def to_duckdb(self, connection: Any = None) -> Any:
        """A relation of DuckDB, which reads the rows in batches each time that a query needs them.

        Args:
            connection: The connection of DuckDB that the relation belongs to; None for DuckDB's default.

        Raises:
            PrerequisiteError: DuckDB is not installed.

        Example:
            >>> table.scan("amount > 10").to_duckdb().aggregate("day, sum(amount)").show()
        """
        duckdb = _require("duckdb", "to_duckdb")
        return duckdb.from_arrow(self, connection=connection or duckdb.default_connection())

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Export a stream through Arrow's PyCapsule interface, which Polars, DuckDB and pandas read without a copy."""
        return self.to_reader().__arrow_c_stream__(requested_schema)

    def _repr_html_(self) -> str:
        """What a notebook shows: what this is, and its columns. No row is read."""
        facts = "".join(
            f"<tr><th>{_html(name)}</th><td>{_html(value)}</td></tr>" for name, value in self._facts().items()
        )
        shown = list(self.schema)[:_HTML_COLUMNS]
        columns = "".join(f"<tr><td>{_html(field.name)}</td><td>{_html(field.type)}</td></tr>" for field in shown)
        more = len(self.schema) - len(shown)
        return (
            f"<table><caption>{type(self).__name__}</caption>{facts}</table>"
            f"<table><tr><th>column</th><th>type</th></tr>{columns}</table>{f'<p>and {more} more</p>' if more else ''}"
        )

    def _facts(self) -> dict[str, object]:
        """What to show of this beside its columns."""
        raise AssertionError


def _html(value: object) -> str:
    return html.escape(presentable(str(value)))


def _require(package: str, method: str) -> Any:
    """An optional package that a method needs. Raises PrerequisiteError."""
    if find_spec(package) is None:
        raise PrerequisiteError(f"{method} needs {package}, which is not installed", advice=f"pip install {package}")
    return import_module(package)


class RowReader(ArrowReader):
    """What scans and changes can do beside that."""

    def to_batches(self) -> Iterator[pa.RecordBatch]:
        """Read the rows as record batches of `schema`, as they are consumed."""
        raise AssertionError

    def to_reader(self) -> pa.RecordBatchReader:
        """Read the rows as a `pyarrow.RecordBatchReader`, as they are consumed."""
        return pa.RecordBatchReader.from_batches(self.schema, self.to_batches())

    def to_arrow(self) -> pa.Table:
        """Read all rows into a `pyarrow.Table`."""
        return pa.Table.from_batches(self.to_batches(), schema=self.schema)

    def count(self) -> int:
        """Count the rows."""
        return sum(batch.num_rows for batch in self.to_batches())


class Selection:
    """A filter and a projection over rows of `schema`.

    Raises PredicateError for a predicate that cannot be evaluated, ConfigurationError for a column that does not exist.
    """

    def __init__(self, schema: pa.Schema, where: str | None, columns: Sequence[str] | None) -> None:
        self.where = where
        if isinstance(columns, str):
            raise ConfigurationError(
                "columns must be a list of column names, not a string", advice=f"pass columns=[{columns!r}]"
            )
        if columns is not None and not isinstance(columns, Iterable):
            raise ConfigurationError(
                f"columns must be a list of column names, not {type(columns).__name__}",
                advice=f"pass, for example, columns={schema.names[:2]}",
            )
        chosen = list(schema.names if columns is None else columns)
        present = set(schema.names)
        for name in chosen:
            if name not in present:
                known = ", ".join(schema.names)
                raise ConfigurationError(
                    f"there is no column {name!r}",
                    advice=f"{did_you_mean(name, schema.names)}the columns are {known}",
                )
        self.schema = pa.schema([schema.field(name) for name in chosen])
        self.tree = None if where is None else predicate.parse(where, schema)
        needed = {*chosen, *(() if self.tree is None else predicate.columns(self.tree))}
        self.read_schema = pa.schema([field for field in schema if field.name in needed])
        self._filter = None if self.tree is None else predicate.Condition(self.tree, self.read_schema)
        self.row_schema = schema

    def without_columns(self) -> Selection:
        """The same filter, for readers that only count: nothing but the columns of the predicate is read."""
        return Selection(self.row_schema, self.where, [])

    def apply(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Filter and project a batch that has the columns of `read_schema`. Raises PredicateError."""
        if self._filter is None:
            yield _select(batch, self.schema)
            return
        passed = batch.filter(self._filter.mask(batch))
        if passed.num_rows:
            yield _select(passed, self.schema)


def _select(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    if not schema.names:
        return rows_without_columns(batch.num_rows)
    return pa.RecordBatch.from_arrays([batch.column(name) for name in schema.names], schema=schema)


class Scan(RowReader):
    """The rows of one version of a table; made by `Table.scan` and `Snapshot.scan`.

    The set of files is fixed when the scan is made, so later commits do not show. Nothing is read before the rows are
    requested, and every call reads again. Files that the predicate rules out by partition values and statistics are
    not opened.

    Use `to_arrow`, `to_batches`, `to_reader`, `to_pandas`, `to_polars`, `to_duckdb` or `count`, or pass the scan to
    anything that takes an Arrow stream.

    Attributes:
        schema: The chosen columns, in the order in which they were chosen.

    Raises:
        PredicateError: While reading, if the predicate cannot be evaluated on a row, for example on overflow.
        CorruptLogError: While reading, if a file is damaged or missing (DataFileMissingError).

    Example:
        >>> scan = table.scan("price > 100", columns=["id", "price"])
        >>> scan.to_arrow()
        >>> print(scan.explain())

    """

    def __init__(
        self,
        store: Store,
        state: LogState,
        schema: pa.Schema,
        where: str | None,
        columns: Sequence[str] | None,
    ) -> None:
        self._store = store
        self._state = state
        self._metadata = state.head.metadata
        self._table_schema = schema
        self._selection = Selection(schema, where, columns)
        self.schema = self._selection.schema

    @cached_property
    def _pruned(self) -> Pruned:
        tree = self._selection.tree
        if tree is None:
            values = self._state.files().values
            return Pruned(values.files, values.files.num_rows, values)
        return prune_state(self._state, tree, self._table_schema, self._metadata)

    @property
    def files(self) -> pa.Table:
        """The files that can hold rows of the scan, with the columns of the `add` action."""
        return self._narrowed.files

    @cached_property
    def _narrowed(self) -> Narrowed:
        tree, files = self._selection.tree, self._pruned.files
        if tree is None:
            return Narrowed(files, {})
        key = IndexedKey.of(self._metadata, self._table_schema)
        return narrowed(self._store, key, files, tree, self._table_schema)

    def to_batches(self) -> Iterator[pa.RecordBatch]:
        """Read the rows as record batches of `schema`, file by file as they are consumed."""
        yield from self._read(self.files, self._selection)

    def count(self) -> int:
        """Count the rows, without opening files whose statistics have the count.

        Statistics count all live rows of a file. They suffice if there is no predicate, or if partition values and
        statistics show that all of the file's rows match. Of the other files, only the columns of the predicate are
        read.
        """
        files, tree = self.files, self._selection.tree
        values = self._pruned.values
        if values.files is not files:
            values = FileValues(files)
        rows = values.live_rows()
        if tree is not None:
            whole = wholly_matching(values, tree, self._table_schema, self._metadata)
            rows = pc.if_else(whole, rows, pa.scalar(None, rows.type))
        rest = files.filter(pc.is_null(rows)) if rows.null_count else files.slice(0, 0)
        counted: int = pc.sum(rows).as_py() or 0
        for batch in self._read(rest, self._selection.without_columns()):
            counted += batch.num_rows
        return counted

    def explain(self) -> str:
        """Describe what a read would open, and how many files are left out and why."""
        pruned, totals = self._pruned, self._state.head.totals
        total = self._state.files().adds.num_rows if totals is None else totals.num_files
        columns = printable(", ".join(self._selection.read_schema.names) or "none")
        missed = pruned.files.num_rows - self.files.num_rows
        by_index = [f"dropped by the key index: {missed}"] if missed else []
        return "\n".join(
            [
                f"files: {self.files.num_rows} of {total}",
                f"dropped by partition values: {total - pruned.in_partitions}",
                f"dropped by statistics: {pruned.in_partitions - pruned.files.num_rows}",
                *by_index,
                f"columns read: {columns}",
                f"predicate: {printable(self._selection.where or 'none')}",
            ]
        )

    def __repr__(self) -> str:
        where = f", where={self._selection.where!r}" if self._selection.where else ""
        return f"Scan({self._store.url!r}, columns={columns_text(self.schema)}{where})"

    def _facts(self) -> dict[str, object]:
        return {"path": self._store.url, "where": self._selection.where or "all rows"}

    def _read(self, files: pa.Table, selection: Selection) -> Iterator[pa.RecordBatch]:
        readings = (partial(self._read_file, DataFile.of(add), selection) for add in to_adds(files))
        return read_ahead(readings, self._store.reads_at_once)

    def _read_file(self, file: DataFile, selection: Selection) -> Iterator[pa.RecordBatch]:
        only = self._narrowed.positions.get(file.path)
        for batch in read_batches(self._store, file, selection.read_schema, only=only):
            yield from selection.apply(batch)
