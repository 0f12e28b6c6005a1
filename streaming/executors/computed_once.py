"""A frame that several jobs read, computed once."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from tidelog.streaming.executors.session import is_connect


@contextmanager
def computed_once(frame: DataFrame) -> Iterator[DataFrame]:
    """The frame's rows, which the executors compute now and keep within the block, on disk if memory is short.

    All that reads them gets the same rows, also if a function that is not deterministic made them. What reads rows of
    an executor that is lost fails: they are not computed again, as those of a persisted frame would be.
    """
    kept = frame.localCheckpoint(eager=True)
    try:
        yield kept
    finally:
        # On Spark Connect the server lets go of them with the frame.
        if not is_connect(frame.sparkSession):
            java: Any = kept._jdf  # noqa: SLF001 - PySpark cannot give up a local checkpoint; a test pins it
            with suppress(Py4JError, PySparkException):  # the query was stopped: Spark lets go of them with the frame
                java.queryExecution().logical().rdd().unpersist(False)  # noqa: FBT003 - does not wait
