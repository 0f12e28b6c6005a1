"""The files of a streaming query's checkpoint."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession


class StreamingCheckpoint:
    """The files of one streaming checkpoint, read directly on a local disk, else through Hadoop's file systems."""

    def __init__(self, session: SparkSession, root: str) -> None:
        self._session = session
        self._root = root

    def read(self, name: str) -> str:
        """The text of a file. Raises FileNotFoundError."""
        local = re.sub(r"^file:(//)?", "", self._root)
        if local.startswith("/"):
            return Path(local, name).read_text(encoding="utf-8")
        return self._read_with_hadoop(f"{self._root}/{name}")

    def file_source_batch(self, source: int, log_offset: int) -> str:
        """The entries of a file source's log for one of its batches; empty if the source has no such log."""
        for suffix in ("", ".compact"):
            try:
                lines = self.read(f"sources/{source}/{log_offset}{suffix}").splitlines()
            except FileNotFoundError:
                continue
            # A compacted file also has the entries of all earlier batches.
            return "\n".join(sorted(line for line in lines if _is_of_batch(line, log_offset)))
        return ""

    def _read_with_hadoop(self, location: str) -> str:
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
