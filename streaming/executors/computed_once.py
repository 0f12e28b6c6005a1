"""A frame that several jobs read, computed once."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from threading import Lock
from typing import Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from tidelog.streaming.executors.session import BATCH_ID, QUERY_ID, is_connect

# Queries whose kept rows are given up at their next batch; those of others are left to Spark.
_MOST_QUERIES = 1000


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
            with suppress(Py4JError, PySparkException):  # the query was stopped: Spark lets go of them with the frame
                _rdd(kept).unpersist(False)  # noqa: FBT003 - does not wait


def computed_once_in_batch(frame: DataFrame) -> DataFrame:
    """The same for what returns a frame that is read later: the rows are kept until the next batch of the query.

    Spark gives up those of the last batch, and those outside of a batch function, when no frame refers to them any
    more. A frame of rows that are kept already is returned as it is.
    """
    session = frame.sparkSession
    if is_connect(session):
        return frame.localCheckpoint(eager=True)
    if _is_kept(frame):
        return frame
    kept = frame.localCheckpoint(eager=True)
    query, batch = (session.sparkContext.getLocalProperty(name) for name in (QUERY_ID, BATCH_ID))
    if query is None:
        return kept
    with _lock:
        before, numbers = _of_query.pop(query, (batch, []))
        own = numbers if before == batch else []
        _of_query[query] = batch, [*own, int(_rdd(kept).id())]
        while len(_of_query) > _MOST_QUERIES:
            _of_query.popitem(last=False)
    if before != batch:
        with suppress(Py4JError, PySparkException):
            _give_up(session.sparkContext, numbers)
    return kept


# The batch of each query that keeps rows, and the numbers of what it keeps. To refer to the rows themselves would keep
# those of a query that has ended.
_of_query: OrderedDict[str, tuple[str | None, list[int]]] = OrderedDict()
_lock = Lock()


def _give_up(context: Any, numbers: list[int]) -> None:
    persistent = context._jsc.getPersistentRDDs()  # noqa: SLF001 - PySpark has no list of them
    for number in numbers:
        if number in persistent:
            persistent[number].unpersist(False)  # noqa: FBT003 - does not wait


def _rdd(kept: DataFrame) -> Any:
    """What holds the rows of a local checkpoint."""
    java: Any = kept._jdf  # noqa: SLF001 - PySpark cannot give up a local checkpoint; a test pins it
    return java.queryExecution().logical().rdd()


def _is_kept(frame: DataFrame) -> bool:
    """Whether each look at the frame finds the same rows, because it is made of kept ones and nothing by chance."""
    java: Any = frame._jdf  # noqa: SLF001 - PySpark does not show a plan's leaves
    plan = java.queryExecution().analyzed()
    leaves = plan.collectLeaves()
    found = [leaves.apply(place) for place in range(leaves.size())]
    is_checkpoint = all(
        leaf.getClass().getSimpleName() == "LogicalRDD" and leaf.rdd().isCheckpointed() for leaf in found
    )
    return is_checkpoint and bool(plan.deterministic())
