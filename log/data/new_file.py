"""A data file that is being written, row group by row group, as parquet that every reader supports."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.types as pt

from tidelog.log.data.blocks import repeated
from tidelog.log.data.dictionaries import leaves, with_dictionary
from tidelog.log.data.physical_schema import physical_field, physical_path, to_physical
from tidelog.log.format import partition_values, paths, properties, row_tracking, statistics
from tidelog.log.format.actions import AddFile, Metadata
from tidelog.log.format.schema import physical_name


@dataclass(frozen=True, slots=True)
class Layout:
    """How a data file is encoded, apart from its rows.

    `row_groups` are the lengths of the row groups, by default as long as Parquet writers usually make them.
    `dictionaries` are the leaf columns with a dictionary, by default all, and `dictionary_bytes` is how large the one
    of a column in a row group can become. With `sampled_dictionaries`, a sample of the first row group decides instead
    which columns have one. `encodings` maps top-level columns without a dictionary, by their physical names, to an
    encoding other than plain.
    """

    compression: str = "snappy"
    dictionary_bytes: int = 2**20
    row_groups: tuple[int, ...] = ()
    encodings: Mapping[str, str] = field(default_factory=dict)
    dictionaries: tuple[str, ...] | None = None
    sampled_dictionaries: bool = False


USUAL_LAYOUT = Layout()


class NewFile:
    """A data file that is being written; see DataWriter.new_file."""

    def __init__(self, metadata: Metadata, schema: pa.Schema, values: dict[str, str | None], layout: Layout) -> None:
        configuration = metadata.configuration
        named = properties.statistics_columns(configuration)
        self._partition_columns = metadata.partition_columns
        self._tracked = [field.name for field in row_tracking.tracked_fields(metadata)]
        self._schema = row_tracking.with_tracked(schema, metadata)
        self._values = values
        self._layout = layout
        self._statistics = statistics.Collector(
            indexed_columns=properties.indexed_columns(configuration),
            only=None if named is None else [physical_path(name, schema) for name in named],
        )
        self._size_bytes = 0
        self._sink: BinaryIO | None = None
        self._parquet: pq.ParquetWriter | None = None
        self._add: AddFile | None = None

    @property
    def add(self) -> AddFile:
        """The action for the written file."""
        assert self._add is not None, "the file is still being written"
        return self._add

    def append(self, rows: pa.Table) -> None:
        """Write rows (without the partition columns) as a row group, or as several if they are very many.

        Text may have codes (an Arrow dictionary) if it has codes in each table.
        """
        assert self._sink is not None, "the file has ended"
        physical = to_physical(without_void(rows), self._schema)
        tracked = [name for name in self._tracked if name in physical.column_names]
        # The columns of row tracking are not the table's, so readers know no statistics of them.
        self._statistics.add(physical.drop_columns(tracked))
        stored = self._with_partition(physical)
        if self._parquet is None:
            layout = self._layout
            if layout.sampled_dictionaries:
                layout = replace(layout, dictionaries=tuple(with_dictionary(stored)))
            if tracked:
                layout = _with_compact(layout, stored.schema, tracked)
            self._parquet = parquet_writer(self._sink, stored.schema, layout)
        self._parquet.write_table(stored)

    @contextmanager
    def written_to(self, sink: BinaryIO) -> Iterator[None]:
        """Write to `sink`, and complete the file when the block ends."""
        self._sink = sink
        try:
            yield
            assert self._parquet is not None, "nothing was appended"
            self._parquet.close()
            self._size_bytes = sink.tell()
        except BaseException:
            with suppress(Exception):  # of a file that is going to be removed
                if self._parquet is not None:
                    self._parquet.close()
            raise
        finally:
            self._sink = self._parquet = None

    def end(self, path: str, modification_time: int, *, data_change: bool) -> None:
        """Note that the file is complete, at `path` below the table."""
        self._add = AddFile(
            path=paths.to_uri(path),
            partition_values=self._values,
            size=self._size_bytes,
            modification_time=modification_time,
            data_change=data_change,
            stats=self._statistics.text(),
        )

    def _with_partition(self, physical: pa.Table) -> pa.Table:
        """The file's columns plus the partition columns, in the table's order.

        Partition values count only as the log has them, but Polars reads them from the files if they are not in the
        folders' names.
        """
        columns = {name: physical[name] for name in physical.column_names}
        fields = {field.name: field for field in physical.schema}
        for name in self._partition_columns:
            field = physical_field(self._schema.field(name))
            value = partition_values.from_text(self._values.get(field.name), field.type)
            columns[field.name] = repeated(pa.scalar(value, field.type), physical.num_rows)
            fields[field.name] = field
        order = [name for name in map(physical_name, self._schema) if name in fields]
        return pa.table([columns[name] for name in order], schema=pa.schema([fields[name] for name in order]))


def _with_compact(layout: Layout, schema: pa.Schema, names: Sequence[str]) -> Layout:
    """The layout with an encoding that suits columns of consecutive or equal integers."""
    wanted = leaves(schema) if layout.dictionaries is None else layout.dictionaries
    encodings = {**layout.encodings, **dict.fromkeys(names, "DELTA_BINARY_PACKED")}
    return replace(layout, dictionaries=tuple(name for name in wanted if name not in encodings), encodings=encodings)


def parquet_writer(file: BinaryIO, schema: pa.Schema, layout: Layout) -> pq.ParquetWriter:
    """A writer of parquet that every reader supports."""
    options: dict[str, Any] = {
        "compression": layout.compression,
        "dictionary_pagesize_limit": layout.dictionary_bytes,
        "store_schema": False,
        "data_page_version": "1.0",
        "version": "2.6",
        "write_page_checksum": True,
        "use_dictionary": True if layout.dictionaries is None else [*layout.dictionaries],
        "column_encoding": dict(layout.encodings) or None,
    }
    return pq.ParquetWriter(file, schema, **options)


def without_void(rows: pa.Table) -> pa.Table:
    """`rows` without void columns, which parquet cannot hold; readers see a missing column as null."""
    return rows.select([field.name for field in rows.schema if not pt.is_null(field.type)])
