"""A standalone Spark cluster on loopback: a master and workers, from the jars of the installed pyspark.

Each process leads its own session, so that a worker's executors and their Python processes can be killed with it. They
end with the `with` block, and also if the process that started them dies.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from urllib.request import urlopen

import pyspark

# Starting takes a few seconds; a machine under load can take this many.
PATIENCE_S = 120
SPARK_HOME = Path(pyspark.__file__).parent
_DEPLOY = "org.apache.spark.deploy"
# Short-lived processes gain nothing from the second compiler. The variable is for the class archive, which the Makefile
# gives to Spark's scripts.
JAVA_OPTIONS = (
    "-XX:TieredStopAtLevel=1",
    "-XX:+UseSerialGC",
    *os.environ.get("SPARK_SUBMIT_OPTS", "").split(),
)
# Runs a command that ends when the pipe to this process closes, and kills all that it started.
_WITH_PARENT = Path(__file__).parents[2] / "examples" / "shared" / "exit_with_parent.py"


class Process:
    """A command in its own session, with its output in a file."""

    def __init__(self, name: str, command: Sequence[str], folder: Path) -> None:
        self.name = name
        self.log = folder / f"{name}.log"
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, str(_WITH_PARENT), *command],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                start_new_session=True,
                cwd=folder,
                env=clean_environment(),
            )

    @property
    def session(self) -> int:
        """The session of the process and of all that it started."""
        return self._process.pid

    def kill(self) -> None:
        """SIGKILL the process and everything that it started, and wait until all of it is gone."""
        wait_until(lambda: not self._killed(), f"{self.name} is gone")
        self._process.wait(PATIENCE_S)
        assert self._process.stdin
        self._process.stdin.close()

    def _killed(self) -> list[int]:
        """Kill the processes of the session, which were alive. PySpark's daemon leads a group of its own there."""
        alive = processes_of_session(self._process.pid)
        for process in alive:
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        return alive

    def logged(self, pattern: str) -> str:
        """The first group of the pattern, once the log has it."""

        def found() -> re.Match[str] | None:
            assert self._process.poll() is None, f"{self.name} ended:\n{self.log.read_text()}"
            return re.search(pattern, self.log.read_text())

        wait_until(lambda: found() is not None, f"{self.log} has {pattern}")
        match = found()
        assert match
        return match.group(1)


class Cluster:
    """The cluster's master and workers. `url` is the master's, for `--master`."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self._folder = folder
        self._stack = stack
        self.workers: list[Process] = []
        self._started = 0
        options = ("--host", "127.0.0.1", "--port", "0", "--webui-port", "0")
        master = self._start("master", f"{_DEPLOY}.master.Master", *options)
        self.url = master.logged(r"Starting Spark master at (spark://127\.0\.0\.1:\d+)")
        self._page = master.logged(r"MasterWebUI .* started at (http://\S+)")

    def add_worker(self) -> None:
        """Start a worker of one core and 1 GB. `await_workers` waits for it."""
        self._started += 1
        name = f"worker-{self._started}"
        size = ("--cores", "1", "--memory", "1g", "--work-dir", str(self._folder / name))
        options = ("--host", "127.0.0.1", "--port", "0", "--webui-port", "0", *size)
        self.workers.append(self._start(name, f"{_DEPLOY}.worker.Worker", *options, self.url))

    def await_workers(self) -> None:
        """Wait until the master knows all workers, and no application has their cores."""

        def ready() -> bool:
            state = self.state()
            return state["aliveworkers"] == len(self.workers) and not state["coresused"]

        wait_until(ready, f"{len(self.workers)} workers are free")

    def state(self) -> dict[str, int]:
        """What the master says of itself."""
        with urlopen(f"{self._page}/json/", timeout=PATIENCE_S) as answer:
            found: dict[str, int] = json.load(answer)
        return found

    def kill_worker(self, worker: Process) -> None:
        """SIGKILL a worker with its executors and their Python processes."""
        worker.kill()
        self.workers.remove(worker)

    def repair(self) -> None:
        """Start a worker for each one that was killed."""
        while len(self.workers) < 2:
            self.add_worker()
        self.await_workers()

    def _start(self, name: str, main: str, *arguments: str) -> Process:
        java = (
            str(Path(os.environ["JAVA_HOME"]) / "bin" / "java") if "JAVA_HOME" in os.environ else shutil.which("java")
        )
        assert java, "Java was not found"
        # In the order of Spark's scripts: a class archive is for one class path.
        (slf4j,) = (SPARK_HOME / "jars").glob("slf4j-api-*.jar")
        class_path = f"{SPARK_HOME}/conf:{slf4j}:{SPARK_HOME}/jars/*"
        command = [java, "-cp", class_path, "-Xmx256m", *JAVA_OPTIONS, main, *arguments]
        process = Process(name, command, self._folder)
        self._stack.callback(process.kill)
        return process


@contextmanager
def cluster_of_two(folder: Path) -> Iterator[Cluster]:
    """A master and two workers, ready for an application; their logs and work are in `folder`."""
    with ExitStack() as stack:
        cluster = Cluster(folder, stack)
        cluster.repair()
        yield cluster


def clean_environment() -> dict[str, str]:
    """The environment of this process, without what would show Spark the checkout, its Python, or a store's access."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PYTHON", "PYSPARK_", "SPARK_", "AWS_")) and name != "VIRTUAL_ENV"
    }
    # A worker starts its executors as Spark's scripts would, which name the Scala version of the jars.
    (core,) = (SPARK_HOME / "jars").glob("spark-core_*.jar")
    scala = core.name.removeprefix("spark-core_").partition("-")[0]
    return kept | {"SPARK_HOME": str(SPARK_HOME), "SPARK_LOCAL_IP": "127.0.0.1", "SPARK_SCALA_VERSION": scala}


def processes_of_session(session: int) -> list[int]:
    """The processes of a session, without those that have ended and were not waited for."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError):
                # After the name, which can have spaces: state, parent, group, session.
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
                if int(fields[3]) == session and fields[0] != "Z":
                    found.append(int(entry.name))
    return found


def wait_until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, f"timed out waiting until {what}"
        time.sleep(0.05)
