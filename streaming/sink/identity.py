"""Identify the micro-batch that a batch function was called for.

In a classic session Spark says which query runs in the thread, and where its checkpoint is. Spark Connect says neither,
so there, and wherever a Sink has a `checkpoint`, the batch is identified by the files of that checkpoint. Spark writes
`metadata` and `offsets/<n>` before it calls the function for batch n, and `commits/<n>` after it.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from uuid import UUID

from pyspark.sql import DataFrame, SparkSession

from tidelog.log.errors import ConfigurationError, NotInStreamError
from tidelog.streaming.executors.session import is_connect, use_this_interpreter
from tidelog.streaming.sink.micro_batch import MicroBatch, fingerprint
from tidelog.streaming.sink.streaming_checkpoint import StreamingCheckpoint

_QUERY_ID = "sql.streaming.queryId"
_BATCH_ID = "streaming.sql.batchId"
# Spark groups the jobs of a query under the id of its run.
_JOB_GROUP = "spark.jobGroup.id"
_ADVICE = "use it as df.writeStream.foreachBatch(Sink(path)).option('checkpointLocation', ...).start()"
_CONNECT_ADVICE = "pass the same location twice: Sink(path, checkpoint=c) and .option('checkpointLocation', c)"


class Identifier:
    """Identifies the batches of one sink; `checkpoint` is the one that the user named, None if there is none."""

    def __init__(self, checkpoint: StreamingCheckpoint | None) -> None:
        self._checkpoint = checkpoint
        # The query that the checkpoint belongs to, once it has been read.
        self._query_id: str | None = None

    def identify(self, batch: DataFrame, batch_id: int) -> MicroBatch:
        """The micro-batch whose function runs in this thread.

        Raises NotInStreamError if there is none, and ConfigurationError if the checkpoint is not that of its query, or
        not at this batch.
        """
        session = batch.sparkSession
        if is_connect(session):
            return self._of_connect(session, batch_id)
        context = session.sparkContext
        query_id = context.getLocalProperty(_QUERY_ID)
        if query_id is None or context.getLocalProperty(_BATCH_ID) is None:
            raise NotInStreamError(
                "a Sink was called outside a streaming query's own thread",
                advice=_ADVICE + "; a thread that you start yourself must be a pyspark.InheritableThread",
            )
        use_this_interpreter(context)
        if self._checkpoint is not None:
            self._require_query(self._checkpoint, lambda found: found == query_id, f"the batch is of query {query_id}")
            return _by_files(self._checkpoint, query_id, _run_in_thread(session, query_id), batch_id)
        from tidelog.streaming.sink.java_query import known_runs  # noqa: PLC0415 - needs Spark's internals

        run = known_runs.of(session, query_id)
        checkpoint = StreamingCheckpoint.of_session(session, run.checkpoint)
        return MicroBatch(query_id, run.run_id, batch_id, _fingerprint(checkpoint, batch_id))

    def _of_connect(self, session: SparkSession, batch_id: int) -> MicroBatch:
        if self._checkpoint is None:
            raise NotInStreamError(
                "on Spark Connect a Sink cannot ask Spark for the query's checkpoint", advice=_CONNECT_ADVICE
            )
        runs = {query.id: query.runId for query in session.streams.active}
        if not runs:
            # Since Spark 4.3 a batch function has a session of its own, which knows no queries. The files say enough.
            return _by_files(self._checkpoint, self._checkpoint.query_id(), "", batch_id)
        query_id = self._require_query(
            self._checkpoint, runs.__contains__, f"the queries that run in this session are {', '.join(sorted(runs))}"
        )
        return _by_files(self._checkpoint, query_id, runs[query_id], batch_id)

    def _require_query(self, checkpoint: StreamingCheckpoint, is_own: Callable[[str], bool], others: str) -> str:
        """The checkpoint's query; `others` says in the error what else it would have to be."""
        if self._query_id is None or not is_own(self._query_id):
            # Another checkpoint may have taken the place of the one that was read before.
            self._query_id = checkpoint.query_id()
        if not is_own(self._query_id):
            raise ConfigurationError(
                f"the streaming checkpoint {checkpoint.location} belongs to query {self._query_id}, but {others}",
                advice=_CONNECT_ADVICE,
            )
        return self._query_id


def _by_files(checkpoint: StreamingCheckpoint, query_id: str, run_id: str, batch_id: int) -> MicroBatch:
    """The batch, if the checkpoint's files show that it is the one in progress."""
    try:
        found = _fingerprint(checkpoint, batch_id)
    except FileNotFoundError as error:
        raise _not_at(checkpoint, batch_id, f"has no offsets/{batch_id}") from error
    if checkpoint.has(f"commits/{batch_id}"):
        raise _not_at(checkpoint, batch_id, f"has commits/{batch_id}, so Spark has completed that batch there")
    if checkpoint.has(f"offsets/{batch_id + 1}"):
        raise _not_at(checkpoint, batch_id, f"has offsets/{batch_id + 1}, so it is at a later batch")
    return MicroBatch(query_id, run_id, batch_id, found)


def _not_at(checkpoint: StreamingCheckpoint, batch_id: int, reason: str) -> ConfigurationError:
    return ConfigurationError(
        f"the streaming checkpoint {checkpoint.location} is not at batch {batch_id}, which the Sink was called for: it "
        + reason,
        advice=_CONNECT_ADVICE + ", and call the Sink in the batch function only",
    )


def _fingerprint(checkpoint: StreamingCheckpoint, batch_id: int) -> int:
    try:
        return fingerprint(checkpoint.read(f"offsets/{batch_id}"), checkpoint.file_source_batch)
    except ValueError as error:
        raise ConfigurationError(
            f"offsets/{batch_id} of the streaming checkpoint {checkpoint.location} is damaged: {error}",
            advice="restore the checkpoint from a copy, or continue with a new one and on_reset='adopt'",
        ) from error


def _run_in_thread(session: SparkSession, query_id: str) -> str:
    """The id of the run that owns this thread; empty if this Spark does not say.

    Without it, a batch that is replayed in the same process is taken for a second call.
    """
    group = session.sparkContext.getLocalProperty(_JOB_GROUP) or ""
    try:
        UUID(group)
    except ValueError:
        # The batch function has put its jobs into a group of its own.
        from tidelog.streaming.sink.java_query import known_runs  # noqa: PLC0415 - as above

        with suppress(NotInStreamError):
            return known_runs.of(session, query_id).run_id
        return ""
    return group
