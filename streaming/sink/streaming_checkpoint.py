"""The files of a streaming query's checkpoint."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from pyspark.sql import SparkSession

from tidelog.log.errors import ConfigurationError
from tidelog.log.storage import Store, open_store


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
