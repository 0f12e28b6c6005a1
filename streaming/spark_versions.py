"""What differs between the versions of Spark. Nothing else asks for a version, or tries what a version has.

| since | what it has |
|---|---|
| 4.0 | Python data sources; the oldest that works |
| 4.1 | `ArrowConverters.fromIPCStream` needs no task |
| 4.2 | Python sources are told the limits of a micro-batch, and take part in `Trigger.AvailableNow` |
| 4.2 | `to_arrow_schema` takes a time zone; it was always UTC before |
| 4.2 | `from_arrow_schema` makes a timestamp without a zone TIMESTAMP_NTZ unless told otherwise |
"""

from __future__ import annotations

import re
from typing import Any

import pyarrow as pa

from tidelog.log.errors import PrerequisiteError

_INSTALL = "pip install 'tidelog[spark]', which brings a PySpark that works, from 4.0 on"

try:
    import pyspark
    from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
    from pyspark.sql.types import StructType
except ModuleNotFoundError as _error:
    raise PrerequisiteError(f"tidelog.streaming needs PySpark: {_error}", advice=_INSTALL) from _error

OLDEST = (4, 0)


def version_of(text: str) -> tuple[int, ...]:
    """Major and minor version: (4, 2) for `4.2.0`, and for a vendor's `4.2.0-amzn-1`."""
    return tuple(int(part) for part in re.findall(r"\d+", text)[:2])


INSTALLED = version_of(pyspark.__version__)

if INSTALLED < OLDEST:
    raise PrerequisiteError(f"PySpark {pyspark.__version__} is too old for tidelog.streaming", advice=_INSTALL)

SOURCES_TAKE_LIMITS = INSTALLED >= (4, 2)
"""Whether Spark tells a Python source where a micro-batch begins, how large it may be, and that a run ends.

If not, the source bounds each micro-batch itself, and `Trigger.AvailableNow` and `Trigger.Once` run one of them.
"""


def columns_to_arrow(schema: StructType) -> pa.Schema:
    """Spark's columns as Arrow's. Timestamps with a zone are in UTC."""
    return to_arrow_schema(schema, timezone="UTC") if INSTALLED >= (4, 2) else to_arrow_schema(schema)


def columns_from_arrow(schema: pa.Schema) -> StructType:
    """Arrow's columns as Spark's. A timestamp without a zone is a TIMESTAMP_NTZ."""
    return from_arrow_schema(schema, prefer_timestamp_ntz=True)


def rows_of_stream(arrow_converters: Any, content: bytes) -> Any:
    """The JVM's iterator over the rows of an Arrow stream, by Spark's object `ArrowConverters`."""
    if INSTALLED >= (4, 1):
        return arrow_converters.fromIPCStream(content).productElement(0)
    # None stands for the task that would end the iterator early; on the driver there is none.
    return arrow_converters.fromIPCStream(content, None).productElement(0)
