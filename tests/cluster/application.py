"""Run `program.py` on a cluster, in the ways in which people run a Spark application."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from examples.shared.small_spark import SETTINGS
from tests.cluster.shipping import CHECKOUT
from tests.cluster.standalone import JAVA_OPTIONS, PATIENCE_S, SPARK_HOME, Cluster, clean_environment

PROGRAM = Path(__file__).with_name("program.py")
_JAVA = " ".join(JAVA_OPTIONS)
_SETTINGS = {
    **SETTINGS,
    "spark.driver.memory": "1g",
    "spark.executor.memory": "512m",
    "spark.driver.extraJavaOptions": _JAVA,
    "spark.executor.extraJavaOptions": _JAVA,
}


def submitted(cluster: Cluster, folder: Path, parts: Sequence[str], *, python: Path | str, ship: Sequence[str]) -> None:
    """By `spark-submit`, with what `ship` says. The driver runs the workers' Python, too."""
    environment = clean_environment() | {"PYSPARK_PYTHON": str(python)}
    with _applied(cluster, folder) as arguments:
        program = [str(PROGRAM), cluster.url, str(folder), *parts]
        _run([str(SPARK_HOME / "bin" / "spark-submit"), *arguments, *ship, *program], environment, folder)


def plain(
    cluster: Cluster,
    folder: Path,
    parts: Sequence[str],
    *,
    python: Path,
    ship: Sequence[str] = (),
    path_for_planning: bool = True,
) -> None:
    """By this Python, which has tidelog; the workers run `python`.

    `path_for_planning`: the processes beside the driver that plan reads find tidelog as the driver does.
    """
    with start_plain(cluster, folder, parts, python=python, ship=ship, path_for_planning=path_for_planning) as process:
        code = process.wait(4 * PATIENCE_S)
    assert code == 0, log_of(folder)


@contextmanager
def start_plain(
    cluster: Cluster,
    folder: Path,
    parts: Sequence[str],
    *,
    python: Path,
    ship: Sequence[str] = (),
    path_for_planning: bool = True,
    program: Path = PROGRAM,
) -> Iterator[subprocess.Popen[bytes]]:
    """As `plain`, for a block that looks at the application while it runs."""
    environment = clean_environment() | {"PYSPARK_PYTHON": str(python)}
    command = [sys.executable, str(program)]
    if path_for_planning:
        environment["PYTHONPATH"] = str(CHECKOUT)
    else:
        start = (
            f"import runpy, sys; sys.path.insert(0, {str(CHECKOUT)!r}); runpy.run_path(sys.argv[0], None, '__main__')"
        )
        command = [sys.executable, "-c", f"import sys; sys.argv[0] = {str(program)!r}; {start}"]
    with _applied(cluster, folder) as arguments:
        environment["PYSPARK_SUBMIT_ARGS"] = shlex.join([*arguments, *ship, "pyspark-shell"])
        with _started([*command, cluster.url, str(folder), *parts], environment, folder) as process:
            yield process


def log_of(folder: Path) -> str:
    return (folder / "driver.log").read_text()


@contextmanager
def _applied(cluster: Cluster, folder: Path) -> Iterator[list[str]]:
    """The arguments of every application on the cluster, which must be whole and free."""
    cluster.repair()
    folder.mkdir(exist_ok=True)
    settings = _SETTINGS | {"spark.local.dir": str(folder / "spark"), "spark.sql.warehouse.dir": str(folder / "house")}
    yield ["--master", cluster.url, *(text for pair in settings.items() for text in ("--conf", "=".join(pair)))]


def _run(command: Sequence[str], environment: Mapping[str, str], folder: Path) -> None:
    with _started(command, environment, folder) as process:
        code = process.wait(4 * PATIENCE_S)
    assert code == 0, log_of(folder)


@contextmanager
def _started(command: Sequence[str], environment: Mapping[str, str], folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """The driver, whose JVM ends with it."""
    with (folder / "driver.log").open("wb") as log:
        process = subprocess.Popen(command, env=environment, cwd=folder, stdout=log, stderr=log, start_new_session=True)
    try:
        yield process
    finally:
        if process.poll() is None:
            os.killpg(process.pid, 9)
            process.wait()
