"""The partitions of files as typed values: `01` and `1` of an integer column are one partition."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import pyarrow as pa
import pyarrow.types as pt

from tidelog.log.format.actions import Metadata
from tidelog.log.format.schema import columns_of, physical_name
from tidelog.log.state.files import FileValues

# One value for each partition column, so that equal partitions are equal tuples.
Partition: TypeAlias = tuple[Any, ...]

_NAN = "NaN"


class Placed(Protocol):
    """A file with its partition values."""

    @property
    def partition_values(self) -> Mapping[str, str | None] | None:
        """The `partitionValues` of the action; None if the writer left them out."""


@dataclass(frozen=True, slots=True)
class Place:
    """The partition values of a file, without its statistics."""

    partition_values: Mapping[str, str | None] | None
    stats: str | None = None


def partitions_of(files: Sequence[Placed], metadata: Metadata) -> list[Partition | None]:
    """Each file's partition; None if the log does not say. A table without partitions has one partition, `()`."""
    maps = [None if file.partition_values is None else list(file.partition_values.items()) for file in files]
    return decoded(
        FileValues(pa.table({"partitionValues": pa.array(maps, pa.map_(pa.string(), pa.string()))})), metadata
    )


def decoded(values: FileValues, metadata: Metadata) -> list[Partition | None]:
    """Like `partitions_of`, for files whose partition values are already decoded columns."""
    schema = columns_of(metadata, "")
    fields = [schema.field(name) for name in metadata.partition_columns]
    if not fields:
        return [()] * values.files.num_rows
    found = [values.partition(physical_name(field), field.type) for field in fields]
    rows = zip(*(_comparable(column) for column, _ in found), strict=True)
    known = zip(*(flags.to_pylist() for _, flags in found), strict=True)
    return [row if all(flags) else None for row, flags in zip(rows, known, strict=True)]


def partitions_in(table: pa.Table, metadata: Metadata) -> set[Partition]:
    """The partitions of rows. The columns of `table` have the names of the schema."""
    return set(zip(*(_comparable(table[name]) for name in metadata.partition_columns), strict=True))


def describe_partition(file: Placed, metadata: Metadata) -> str:
    """A file's partition in words, such as `day=2026-01-31`."""
    if not metadata.partition_columns:
        return "the whole table"
    schema = columns_of(metadata, "")
    values = file.partition_values or {}
    texts = (f"{name}={values.get(physical_name(schema.field(name)))}" for name in metadata.partition_columns)
    return f"the partition {', '.join(texts)}"


def _comparable(column: pa.ChunkedArray) -> Iterable[Any]:
    values = column.to_pylist()
    if pt.is_floating(column.type):
        return [_NAN if value != value else value for value in values]  # noqa: PLR0124 - NaN is not itself
    # The log stores an empty string as null.
    return [None if value in ("", b"") else value for value in values]
