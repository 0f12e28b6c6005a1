"""Which columns rows can be clustered by."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.types as pt

from tidelog.log.errors import ConfigurationError


def require_clusterable(schema: pa.Schema, partition_by: Sequence[str], names: Sequence[str]) -> None:
    """Raise ConfigurationError unless these are distinct columns of the table that its rows can be clustered by."""
    for name in names:
        fault = None
        if name not in schema.names:
            fault = f"there is no column {name!r}"
        elif names.count(name) > 1:
            fault = f"column {name!r} is named twice"
        elif name in partition_by:
            fault = f"{name!r} is a partition column, which has one value per file"
        elif pt.is_nested(schema.field(name).type) or pt.is_null(schema.field(name).type):
            fault = f"column {name!r} has the type {schema.field(name).type}, which cannot be sorted"
        if fault:
            raise ConfigurationError(f"cannot cluster: {fault}", advice="choose distinct columns that are not nested")
