"""tidelog as Spark ships it to Python workers: by `--py-files`, `spark.submit.pyFiles` or `addPyFile`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JError
from pyspark import SparkFiles
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tidelog.log.errors import PrerequisiteError
from tidelog.streaming.executors.session import is_connect

# Below the folder of shipped files, where the process of a Python stream reader looks for them.
_STREAM_READERS = "streaming_job"
_MISSING = re.compile(r"ModuleNotFoundError: No module named '(\w+)")
# What a task of tidelog imports.
NEEDED = frozenset({"fsspec", "msgspec", "numpy", "pyarrow", "pyroaring", "sqlglot", "tidelog", "xxhash"})


def link_for_stream_readers(spark: SparkSession) -> None:
    """Let the process of a stream reader, which runs beside the driver, import the shipped packages.

    Spark 4 adds a folder to that process's path but leaves it empty. This links the files that were shipped so far into
    it. It does nothing on Spark Connect, where the driver is another process.
    """
    if is_connect(spark):
        return
    root = Path(SparkFiles.getRootDirectory())
    for name in spark.sparkContext._python_includes or ():  # noqa: SLF001 - no public way to what was shipped
        link = root / _STREAM_READERS / name
        link.parent.mkdir(exist_ok=True)
        with suppress(FileExistsError):
            link.symlink_to(root / name)


@contextmanager
def imports_explained() -> Iterator[None]:
    """Raise PrerequisiteError for a Spark job that fails because its Python workers lack tidelog or what it needs."""
    try:
        yield
    except (PySparkException, Py4JError) as error:
        missing = missing_module(error)
        if missing is None:
            raise
        raise PrerequisiteError(
            f"the Python of Spark's workers cannot import {missing}",
            advice="install it there or ship it, as the guide 'Run on a cluster' shows; nothing was committed",
        ) from error


def missing_module(error: Any) -> str | None:
    """The package that a Python worker lacks, of those that tidelog's tasks need; None if that is not the reason."""
    found = _MISSING.search(str(error))
    return found[1] if found and found[1] in NEEDED else None
