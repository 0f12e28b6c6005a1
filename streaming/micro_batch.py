"""Which micro-batch a batch function was called for: query, run, number, and a fingerprint of its source offsets.

All of it comes from Spark itself, in the batch's own thread; nothing has to be configured.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from tidelog.log.errors import NotInStreamError

_QUERY_ID = "sql.streaming.queryId"
_BATCH_ID = "streaming.sql.batchId"
_RUN_ID = "spark.jobGroup.id"
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
    checkpoint = _checkpoint_root(session, query_id)
    offsets = _read_text(session, f"{checkpoint}/offsets/{batch_id}")
    return MicroBatch(query_id, context.getLocalProperty(_RUN_ID) or "", batch_id, fingerprint(offsets))


def fingerprint(offsets: str) -> int:
    """63 bits over the source lines of an offset log entry.

    The entry's first line is its version, the second is metadata that differs between attempts; then one line a source.
    """
    sources = "\n".join(offsets.splitlines()[2:])
    return digest_63(sources)


def digest_63(text: str) -> int:
    """A stable non-negative number below 2**63, as a transaction's version must be."""
    digest = hashlib.blake2b(text.encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") & _MASK_63_BITS


def _checkpoint_root(session: SparkSession, query_id: str) -> str:
    """Where the query's checkpoint lies.

    Spark's public API does not tell inside a batch function (the session there is a clone without active queries), so
    this asks the state that all sessions share.
    """
    try:
        java_session: Any = session._jsparkSession  # noqa: SLF001 - see above; a test pins it
        jvm: Any = session._jvm  # noqa: SLF001
        queries = java_session.sharedState().activeStreamingQueries()
        query = queries.get(jvm.java.util.UUID.fromString(query_id))
        return str(query.resolvedCheckpointRoot())
    except (Py4JError, AttributeError, TypeError) as error:
        raise NotInStreamError(
            f"the checkpoint of the streaming query {query_id} cannot be found: {error}",
            advice="this Spark has moved the internal call that tidelog needs; use a pyspark that tidelog names",
        ) from error


def _read_text(session: SparkSession, location: str) -> str:
    local = location.removeprefix("file://").removeprefix("file:")
    if local.startswith("/"):
        return Path(local).read_text(encoding="utf-8")
    jvm: Any = session._jvm  # noqa: SLF001 - Hadoop's file systems have no Python API
    path = jvm.org.apache.hadoop.fs.Path(location)
    stream = path.getFileSystem(session._jsparkSession.sessionState().newHadoopConf()).open(path)  # noqa: SLF001
    try:
        return bytes(jvm.org.apache.commons.io.IOUtils.toByteArray(stream)).decode("utf-8")
    finally:
        stream.close()
