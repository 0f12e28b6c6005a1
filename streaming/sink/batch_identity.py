"""Identify the micro-batch that a batch function was called for.

In a classic session Spark says which query runs in the thread, and where its checkpoint is. That needs internal calls
of Spark's. Spark Connect says neither, so there, and wherever a Sink has a `checkpoint`, the batch is identified by the
files of that checkpoint. Spark writes `metadata` and `offsets/<n>` before it calls the function for batch n, and
`commits/<n>` after it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from threading import Lock
from typing import Any
from uuid import UUID

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from tidelog.log.errors import ConfigurationError, NotInStreamError
from tidelog.log.storage import Store, open_store
from tidelog.streaming.executors.session import (
    BATCH_ID,
    QUERY_ID,
    is_active,
    is_connect,
    java_query,
    use_this_interpreter,
)
from tidelog.streaming.sink.micro_batch import MicroBatch, fingerprint

# Spark groups the jobs of a query under the id of its run.
_JOB_GROUP = "spark.jobGroup.id"
# The folder of a checkpoint with the state of the query's operators.
_STATE = "state"
_ADVICE = "use it as df.writeStream.foreachBatch(Sink(path)).option('checkpointLocation', ...).start()"
# The name that Spark gives to the checkpoint of a query without a location.
_TEMPORARY = re.compile(r"/temporary-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}/?$")
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
        query_id = context.getLocalProperty(QUERY_ID)
        if query_id is None or context.getLocalProperty(BATCH_ID) is None:
            raise NotInStreamError(
                "a Sink was called outside a streaming query's own thread",
                advice=_ADVICE + "; a thread that you start yourself must be a pyspark.InheritableThread",
            )
        use_this_interpreter(context)
        if self._checkpoint is not None:
            self._require_query(self._checkpoint, lambda found: found == query_id, f"the batch is of query {query_id}")
            return _by_files(self._checkpoint, query_id, _run_in_thread(session, query_id), batch_id)
        run = known_runs.of(session, query_id)
        _require_kept(run.checkpoint)
        checkpoint = StreamingCheckpoint.of_session(session, run.checkpoint)
        return MicroBatch(query_id, run.run_id, batch_id, _fingerprint(checkpoint, batch_id), run.name)

    def run(self, session: SparkSession) -> Run | None:
        """What Spark knows of the run whose batch function is in this thread; None where it does not say."""
        query_id = None if is_connect(session) else session.sparkContext.getLocalProperty(QUERY_ID)
        if query_id is not None:
            with suppress(NotInStreamError):
                return known_runs.of(session, query_id)
        return None

    def compute_skipped(self, batch: DataFrame) -> None:
        """Compute a batch whose rows nobody needs, if its query keeps state.

        Spark expects that each batch writes the state that the next one reads. Since Spark 4.1 it says so.
        """
        session = batch.sparkSession
        run = self.run(session) if self._checkpoint is None else None
        checkpoint = self._checkpoint if run is None else StreamingCheckpoint.of_session(session, run.checkpoint)
        if checkpoint is None or checkpoint.has_state():
            batch.write.format("noop").mode("overwrite").save()

    def _of_connect(self, session: SparkSession, batch_id: int) -> MicroBatch:
        if self._checkpoint is None:
            raise NotInStreamError(
                "on Spark Connect a Sink cannot ask Spark for the query's checkpoint", advice=_CONNECT_ADVICE
            )
        active = {query.id: query for query in session.streams.active}
        runs = {found: query.runId for found, query in active.items()}
        if not runs:
            # Since Spark 4.3 a batch function has a session of its own, which knows no queries. The files say enough.
            return _by_files(self._checkpoint, self._checkpoint.query_id(), "", batch_id)
        query_id = self._require_query(
            self._checkpoint, runs.__contains__, f"the queries that run in this session are {', '.join(sorted(runs))}"
        )
        return replace(
            _by_files(self._checkpoint, query_id, runs[query_id], batch_id), query_name=active[query_id].name
        )

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


def _require_kept(location: str) -> None:
    """Raise ConfigurationError for the checkpoint that Spark makes up for a query without a location."""
    if _TEMPORARY.search(location):
        raise ConfigurationError(
            f"the query has no checkpointLocation, so Spark keeps its progress in {location} and deletes that when the "
            "query stops: a restarted query would begin again, and its rows would come twice or not at all",
            advice='add .option("checkpointLocation", "/a/folder/of/its/own") before .start(), or set '
            "spark.sql.streaming.checkpointLocation",
        )


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
        with suppress(NotInStreamError):
            return known_runs.of(session, query_id).run_id
        return ""
    return group


@dataclass(frozen=True, slots=True)
class Run:
    """One run of a streaming query.

    The JVM's query object, the run's id, the checkpoint's location, the query's output mode, such as `complete`, and
    its name.
    """

    query: Any
    run_id: str
    checkpoint: str
    output_mode: str
    name: str | None


def run_of(session: SparkSession, query_id: str) -> Run:
    """The query's current run; see `java_query`. Raises NotInStreamError."""
    try:
        query = java_query(session, query_id)
        mode, name = str(query.outputMode().toString()).lower(), query.name()
        checkpoint = str(query.resolvedCheckpointRoot())
        return Run(query, str(query.runId().toString()), checkpoint, mode, None if name is None else str(name))
    except (Py4JError, PySparkException, AttributeError, TypeError) as error:
        raise NotInStreamError(
            f"cannot find the checkpoint of streaming query {query_id}: {error}",
            advice="this Spark lacks the internal call that tidelog uses; pass the checkpoint's location to the Sink, "
            "Sink(path, checkpoint=...), or install a supported version of pyspark",
        ) from error


class Runs:
    """A cache of runs by query id: a run's id and checkpoint never change, and getting them takes a dozen JVM calls."""

    _MAX_QUERIES = 64

    def __init__(self) -> None:
        self._known: dict[str, Run] = {}
        self._lock = Lock()

    def of(self, session: SparkSession, query_id: str) -> Run:
        """The run that the query is in."""
        with self._lock:
            found = self._known.get(query_id)
        if found is None or not is_active(found.query):
            found = run_of(session, query_id)
            with self._lock:
                while len(self._known) >= self._MAX_QUERIES:
                    del self._known[next(iter(self._known))]
                self._known[query_id] = found
        return found


known_runs = Runs()


class StreamingCheckpoint:
    """The files of one streaming checkpoint.

    `read` returns the text of a file, given its name below the checkpoint. It raises FileNotFoundError. `folders` lists
    the names of the folders in one.
    """

    def __init__(self, location: str, read: Callable[[str], str], folders: Callable[[str], Sequence[str]]) -> None:
        self.location = location
        self.read = read
        self._folders = folders

    @classmethod
    def of_session(cls, session: SparkSession, root: str) -> StreamingCheckpoint:
        """The checkpoint at `root`, read directly on a local disk, else through Hadoop's file systems."""
        local = re.sub(r"^file:(//)?", "", root)
        if local.startswith("/"):
            return cls.of_store(open_store(local))
        return cls(root, partial(_read_with_hadoop, session, root), partial(_folders_with_hadoop, session, root))

    @classmethod
    def of_store(cls, store: Store) -> StreamingCheckpoint:
        """The checkpoint at the root of a store."""
        return cls(store.url, lambda name: store.read(name).decode(), store.folders)

    def query_id(self) -> str:
        """The query that the checkpoint belongs to.

        Raises ConfigurationError if there is none, as at the location of another thing, or before the query began.
        """
        try:
            found = json.loads(self.read("metadata"))
        except FileNotFoundError as error:
            raise ConfigurationError(
                f"there is no streaming checkpoint at {self.location}",
                advice="pass the query's own checkpointLocation as checkpoint=; as a URL if Spark's default file "
                "system is not the local disk",
            ) from error
        except (ValueError, OSError):  # it is no JSON, or no regular file
            found = None
        query_id = found.get("id") if isinstance(found, dict) else None
        if not isinstance(query_id, str):
            raise ConfigurationError(
                f"the file metadata of the streaming checkpoint {self.location} does not name a query",
                advice="pass the query's own checkpointLocation as checkpoint=, or restore the file",
            )
        return query_id

    def has_state(self) -> bool:
        """Whether the query keeps state, such as that of an aggregation.

        Spark makes the state's folder before it calls the function for the first batch.
        """
        return _STATE in self._folders("")

    def has(self, name: str) -> bool:
        """Whether the file exists."""
        try:
            self.read(name)
        except FileNotFoundError:
            return False
        return True

    def file_source_batch(self, source: str, log_offset: int) -> str:
        """The entries of a file source's log for one of its batches; empty if the source has no such log.

        `source` is the source's name, or its index. If the user named the sources, the first format of the offset log
        does not say which source has which name. Then the entries are those of all sources.
        """
        found = self._file_source_log(source, log_offset)
        if found is None and source.isdecimal():
            logs = (self._file_source_log(name, log_offset) for name in sorted(self._folders("sources")))
            found = "\n".join(filter(None, logs))
        return found or ""

    def _file_source_log(self, source: str, log_offset: int) -> str | None:
        for suffix in ("", ".compact"):
            try:
                lines = self.read(f"sources/{source}/{log_offset}{suffix}").splitlines()
            except FileNotFoundError:
                continue
            # A compacted file also has the entries of all earlier batches.
            return "\n".join(sorted(line for line in lines if _is_of_batch(line, log_offset)))
        return None


def _read_with_hadoop(session: SparkSession, root: str, name: str) -> str:
    system, path, jvm = _in_hadoop(session, f"{root}/{name}")
    if not system.exists(path):
        raise FileNotFoundError(str(path))
    stream = system.open(path)
    try:
        return bytes(jvm.org.apache.commons.io.IOUtils.toByteArray(stream)).decode("utf-8")
    finally:
        stream.close()


def _folders_with_hadoop(session: SparkSession, root: str, name: str) -> list[str]:
    system, path, _ = _in_hadoop(session, f"{root}/{name}")
    if not system.exists(path):
        return []
    return [str(entry.getPath().getName()) for entry in system.listStatus(path) if entry.isDirectory()]


def _in_hadoop(session: SparkSession, location: str) -> tuple[Any, Any, Any]:
    """Hadoop's file system for a location, the location as its path, and the JVM."""
    jvm: Any = session._jvm  # noqa: SLF001 - Hadoop's file systems have no Python API
    java_session: Any = session._jsparkSession  # noqa: SLF001
    path = jvm.org.apache.hadoop.fs.Path(location)
    return path.getFileSystem(java_session.sessionState().newHadoopConf()), path, jvm


def _is_of_batch(line: str, log_offset: int) -> bool:
    try:
        return bool(json.loads(line).get("batchId") == log_offset)
    except (ValueError, AttributeError):  # the log's first line is its version
        return False
