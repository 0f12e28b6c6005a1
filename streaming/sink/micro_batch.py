"""Identify the micro-batch that a batch function was called for: query, run, number and source offsets.

All of it comes from Spark, in the batch's own thread; nothing has to be configured.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from threading import Lock
from typing import Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from tidelog.log.errors import NotInStreamError
from tidelog.streaming.executors.session import use_this_interpreter
from tidelog.streaming.sink.query_state import java_query
from tidelog.streaming.sink.streaming_checkpoint import StreamingCheckpoint

_QUERY_ID = "sql.streaming.queryId"
_BATCH_ID = "streaming.sql.batchId"
_MASK_63_BITS = 2**63 - 1
_ADVICE = "use it as df.writeStream.foreachBatch(Sink(path)).option('checkpointLocation', ...).start()"


@dataclass(frozen=True, slots=True)
class MicroBatch:
    """A micro-batch. `query_id` lasts as long as the checkpoint, `run_id` until the query stops.

    `fingerprint` is a 63-bit hash of the batch's source offsets. The same batch number with another fingerprint is
    another batch, from a checkpoint that was restored or rewritten.
    """

    query_id: str
    run_id: str
    batch_id: int
    fingerprint: int


def identify(batch: DataFrame, batch_id: int) -> MicroBatch:
    """The micro-batch whose function runs in this thread. Raises NotInStreamError if there is none."""
    session = batch.sparkSession
    try:
        context = session.sparkContext
    except (PySparkException, AttributeError) as error:
        raise NotInStreamError(
            "a Sink does not work on Spark Connect, which hides the streaming query from a batch function",
            advice="run the stream in a classic session: SparkSession.builder.master(...)",
        ) from error
    query_id = context.getLocalProperty(_QUERY_ID)
    if query_id is None or context.getLocalProperty(_BATCH_ID) is None:
        raise NotInStreamError(
            "a Sink was called outside a streaming query's own thread",
            advice=_ADVICE + "; a thread that you start yourself must be a pyspark.InheritableThread",
        )
    use_this_interpreter(context)
    run = _runs.of(session, query_id)
    checkpoint = StreamingCheckpoint(session, run.checkpoint)
    offsets = checkpoint.read(f"offsets/{batch_id}")
    return MicroBatch(query_id, run.run_id, batch_id, fingerprint(offsets, checkpoint.file_source_batch))


def fingerprint(offsets: str, file_source_batch: Callable[[int, int], str]) -> int:
    """A 63-bit hash of the source lines of an entry in the checkpoint's offset log.

    The entry's first line is a format version, the second is metadata that differs between attempts; then comes one
    line for each source. The offset of a file source is just a number: its files are listed in that source's log in the
    checkpoint, which `file_source_batch` reads, given the source's index and the offset.
    """
    sources = offsets.splitlines()[2:]
    for index, line in enumerate(sources):
        log_offset = _file_log_offset(line)
        if log_offset is not None:
            sources[index] += file_source_batch(index, log_offset)
    return digest_63("\n".join(sources))


def _file_log_offset(line: str) -> int | None:
    try:
        offset = json.loads(line)
    except ValueError:
        return None
    found = offset.get("logOffset") if isinstance(offset, dict) else None
    return found if isinstance(found, int) else None


def digest_63(text: str) -> int:
    """A stable non-negative number below 2**63, as a transaction's version must be."""
    digest = hashlib.blake2b(text.encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") & _MASK_63_BITS


@dataclass(frozen=True, slots=True)
class _Run:
    """One run of a streaming query: the JVM's query object, the run's id and the checkpoint's location."""

    query: Any
    run_id: str
    checkpoint: str


def _run_of(session: SparkSession, query_id: str) -> _Run:
    """The query's current run; see `query_state.java_query`."""
    try:
        query = java_query(session, query_id)
        return _Run(query, str(query.runId().toString()), str(query.resolvedCheckpointRoot()))
    except (Py4JError, PySparkException, AttributeError, TypeError) as error:
        raise NotInStreamError(
            f"cannot find the checkpoint of streaming query {query_id}: {error}",
            advice="this Spark lacks the internal call that tidelog uses; install a supported version of pyspark",
        ) from error


class _Runs:
    """A cache of runs by query id: a run's id and checkpoint never change, and getting them takes a dozen JVM calls."""

    _MAX_QUERIES = 64

    def __init__(self) -> None:
        self._known: dict[str, _Run] = {}
        self._lock = Lock()

    def of(self, session: SparkSession, query_id: str) -> _Run:
        """The run that the query is in."""
        with self._lock:
            found = self._known.get(query_id)
        if found is None or not _is_active(found):
            found = _run_of(session, query_id)
            with self._lock:
                while len(self._known) >= self._MAX_QUERIES:
                    del self._known[next(iter(self._known))]
                self._known[query_id] = found
        return found


def _is_active(run: _Run) -> bool:
    """Whether the run is still active; False if its session was stopped."""
    try:
        return bool(run.query.isActive())
    except (Py4JError, PySparkException):
        return False


_runs = _Runs()
