"""Which micro-batch a batch function was called for: query, run, number, and a fingerprint of its source offsets.

All of it comes from Spark itself, in the batch's own thread; nothing has to be configured.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from tidelog.log.errors import NotInStreamError
from tidelog.streaming.executors.session import use_this_interpreter
from tidelog.streaming.sink.query_state import java_query

_QUERY_ID = "sql.streaming.queryId"
_BATCH_ID = "streaming.sql.batchId"
_MASK_63_BITS = 2**63 - 1
_ADVICE = "use it as df.writeStream.foreachBatch(Sink(path)).option('checkpointLocation', ...).start()"


@dataclass(frozen=True, slots=True)
class MicroBatch:
    """A micro-batch: `query_id` lives as long as the checkpoint, `run_id` until the query stops.

    `fingerprint` is 63 bits over the batch's source offsets: the same batch number with another fingerprint is another
    batch, of a checkpoint that was restored or rewritten.
    """

    query_id: str
    run_id: str
    batch_id: int
    fingerprint: int


def identify(batch: DataFrame, batch_id: int) -> MicroBatch:
    """The micro-batch whose function runs in this thread. Raises NotInStreamError where there is none."""
    session = batch.sparkSession
    try:
        context = session.sparkContext
    except (PySparkException, AttributeError) as error:
        raise NotInStreamError(
            "a Sink cannot tell its micro-batch on Spark Connect, which hides the streaming query from it",
            advice="run the stream in a classic session",
        ) from error
    query_id = context.getLocalProperty(_QUERY_ID)
    if query_id is None or context.getLocalProperty(_BATCH_ID) is None:
        raise NotInStreamError(
            "a Sink was called outside of a streaming query's own thread",
            advice=_ADVICE + "; a thread that you start yourself must be a pyspark.InheritableThread",
        )
    use_this_interpreter(context)
    run = _runs.of(session, query_id)
    files = StreamingCheckpoint(session, run.checkpoint)
    number = fingerprint(files.read(f"offsets/{batch_id}"), files.file_source_batch)
    return MicroBatch(query_id, run.run_id, batch_id, number)


def fingerprint(offsets: str, file_source_batch: Callable[[int, int], str]) -> int:
    """63 bits over the source lines of an offset log entry.

    The entry's first line is its version, the second is metadata that differs between attempts; then one line a source.
    A folder of files has a mere number for an offset; which files it stands for is in the checkpoint's own log of that
    source, which `file_source_batch` (source's number, offset) reads.
    """
    sources = offsets.splitlines()[2:]
    for number, line in enumerate(sources):
        log_offset = _file_log_offset(line)
        if log_offset is not None:
            sources[number] += file_source_batch(number, log_offset)
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
    """One run of a streaming query: the query as the JVM has it, the run's own id, and where its checkpoint lies."""

    query: Any
    run_id: str
    checkpoint: str


def _run_of(session: SparkSession, query_id: str) -> _Run:
    """The query's run, from the state that all sessions share; see `running.java_query`."""
    try:
        query = java_query(session, query_id)
        return _Run(query, str(query.runId().toString()), str(query.resolvedCheckpointRoot()))
    except (Py4JError, PySparkException, AttributeError, TypeError) as error:
        raise NotInStreamError(
            f"the checkpoint of the streaming query {query_id} cannot be found: {error}",
            advice="this Spark has moved the internal call that tidelog needs; use a pyspark that tidelog names",
        ) from error


class _Runs:
    """The newest runs, by query: a run's id and checkpoint never change, and asking for them takes a dozen calls."""

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
    """Whether the run goes on; one of a session that was stopped does not."""
    try:
        return bool(run.query.isActive())
    except (Py4JError, PySparkException):
        return False


_runs = _Runs()


class StreamingCheckpoint:
    """The files of one streaming checkpoint: read directly on this machine's disk, else by Hadoop's file systems."""

    def __init__(self, session: SparkSession, root: str) -> None:
        self._session = session
        self._root = root

    def read(self, name: str) -> str:
        """The text of a file. Raises FileNotFoundError."""
        local = re.sub(r"^file:(//)?", "", self._root)
        if local.startswith("/"):
            return Path(local, name).read_text(encoding="utf-8")
        return self._read_by_hadoop(f"{self._root}/{name}")

    def file_source_batch(self, source: int, log_offset: int) -> str:
        """The entries that a file source's log holds for one of its batches; empty where the log is of another kind."""
        for suffix in ("", ".compact"):
            try:
                lines = self.read(f"sources/{source}/{log_offset}{suffix}").splitlines()
            except FileNotFoundError:
                continue
            # A compacted entry holds all earlier batches as well.
            return "\n".join(sorted(line for line in lines if _is_of_batch(line, log_offset)))
        return ""

    def _read_by_hadoop(self, location: str) -> str:
        jvm: Any = self._session._jvm  # noqa: SLF001 - Hadoop's file systems have no Python API
        java_session: Any = self._session._jsparkSession  # noqa: SLF001
        path = jvm.org.apache.hadoop.fs.Path(location)
        system = path.getFileSystem(java_session.sessionState().newHadoopConf())
        if not system.exists(path):
            raise FileNotFoundError(location)
        stream = system.open(path)
        try:
            return bytes(jvm.org.apache.commons.io.IOUtils.toByteArray(stream)).decode("utf-8")
        finally:
            stream.close()


def _is_of_batch(line: str, log_offset: int) -> bool:
    try:
        return bool(json.loads(line).get("batchId") == log_offset)
    except (ValueError, AttributeError):  # the log's first line is its version
        return False
