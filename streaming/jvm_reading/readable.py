"""What Spark's own reader reads with the same result as tidelog's. All else is left to tidelog's reader."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pyarrow as pa
import pyarrow.types as pt

from tidelog.log.format import paths
from tidelog.log.format.schema import field_id, is_variant, physical_name
from tidelog.log.read.change_files import ChangeFile
from tidelog.log.storage import Store
from tidelog.log.storage.local import LocalStore


def are_columns_readable(schema: pa.Schema) -> bool:
    """Whether Spark's reader reads columns of these names and types as tidelog's does."""
    names = [physical_name(field) for field in schema]
    return _distinct(schema.names) and _distinct(names) and all(map(_is_readable, schema))


def is_store_readable(store: Store) -> bool:
    """Whether Spark's reader may follow the paths below the table's root."""
    # A confined store resolves each path before it opens it, since links can leave the folder.
    return not (isinstance(store, LocalStore) and store.is_confined)


def is_file_readable(change: Any) -> bool:
    """Whether the unit is one file, of known size, at a plain path below the table's root."""
    if not isinstance(change, ChangeFile) or change.size_bytes <= 0 or paths.is_absolute(change.file.path):
        return False
    parts = paths.to_storage_path(change.file.path).split("/")
    # Spark's scan leaves out files whose names begin in this way. Hadoop resolves parts such as `..`, which object
    # stores do not.
    return not parts[-1].startswith(("_", ".")) and not {"", ".", ".."}.intersection(parts)


def _distinct(names: Iterable[str]) -> bool:
    """Whether the names differ by more than case, which Spark ignores unless it is told otherwise."""
    lowered = [name.lower() for name in names]
    return len(set(lowered)) == len(lowered)


def _is_readable(field: pa.Field) -> bool:
    kind = field.type
    if is_variant(field) or pt.is_null(kind) or field_id(field) is not None:
        return False
    if pt.is_struct(kind):
        fields = list(kind)
        same = all(physical_name(inner) == inner.name for inner in fields)
        return same and _distinct(inner.name for inner in fields) and all(map(_is_readable, fields))
    if pt.is_map(kind):
        return _is_readable(kind.key_field) and _is_readable(kind.item_field)
    return _is_readable(kind.value_field) if pt.is_list(kind) else True
