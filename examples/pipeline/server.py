"""The Spark Connect server that runs the pipeline, and the command `spark-pipelines`."""

from __future__ import annotations

import sys
import time
from pathlib import Path

from examples.pipeline.folder import Folder
from examples.shared.child_process import ChildEndedError, ChildProcess
from examples.shared.command import StuckError
from examples.shared.ports import free_ports
from examples.shared.small_spark import FEW_FORKS, SETTINGS

_SERVE = Path(__file__).parents[1] / "connect_server" / "serve.py"
_PROJECT = Path(__file__).with_name("project")
# A process of its own, since a client's session leaves settings for all sessions in the environment.
_CREATE = """
import sys
from pyspark.sql import SparkSession
spark = SparkSession.builder.remote(sys.argv[1]).getOrCreate()
spark.sql(f"CREATE SCHEMA IF NOT EXISTS {sys.argv[2]}").collect()
"""
_LOOK_S = 0.1
_STUCK_S = 600.0


class Server:
    """The server of `examples/connect_server`, in a process of its own that can be killed."""

    def __init__(self, folder: Folder) -> None:
        (port,) = free_ports(1)
        self.url = f"sc://localhost:{port}"
        folder.settings.mkdir()
        (folder.settings / "spark-defaults.conf").write_text(_settings(folder, port))
        serve = ["env", f"SPARK_CONF_DIR={folder.settings}", sys.executable, str(_SERVE)]
        self.process = ChildProcess("server", serve, folder.logs)
        self._logs = folder.logs
        self._starts = 0

    def start(self) -> None:
        """Start it, and wait until it takes clients. Raises StuckError, ChildEndedError."""
        self.process.start()
        self._starts += 1
        deadline_s = time.monotonic() + _STUCK_S
        while self.process.log.read_text(errors="replace").splitlines().count("ready") < self._starts:
            self.process.require_running()
            if time.monotonic() > deadline_s:
                raise StuckError(f"the server did not start within {_STUCK_S:.0f} seconds")
            time.sleep(_LOOK_S)

    def create_schema(self, name: str) -> None:
        """Make the schema that the pipeline writes into, which must exist. Raises ChildEndedError."""
        client = ChildProcess("client", [sys.executable, "-c", _CREATE, self.url, name], self._logs)
        client.start()
        code = client.wait(_STUCK_S)
        if code:
            raise ChildEndedError(f"the schema {name} could not be made: exit code {code}")


class Pipeline:
    """`spark-pipelines run`, as a process."""

    def __init__(self, folder: Folder, server: Server) -> None:
        self._server = server
        self._logs = folder.logs
        self._spec = folder.project / "spark-pipeline.yml"
        for file in _PROJECT.rglob("*"):
            if file.suffix in {".yml", ".py", ".sql"}:
                copy = folder.project / file.relative_to(_PROJECT)
                copy.parent.mkdir(parents=True, exist_ok=True)
                copy.write_text(file.read_text().replace("/data", str(folder.root)))

    def process(self, *options: str) -> ChildProcess:
        """The process of one run, not started yet."""
        environment = [f"SPARK_REMOTE={self._server.url}", "SPARK_CONNECT_MODE_ENABLED=1"]
        program = [sys.executable, "-m", "pyspark.pipelines.cli", "run", "--spec", str(self._spec), *options]
        return ChildProcess("pipeline", ["env", *environment, *program], self._logs)

    def run(self, *options: str) -> int:
        """Run it to its end, and return its exit code. Raises ChildEndedError if it does not end."""
        process = self.process(*options)
        process.start()
        try:
            return process.wait(_STUCK_S)
        finally:
            process.kill()


def _settings(folder: Folder, port: int) -> str:
    settings = {
        **SETTINGS,
        **FEW_FORKS,
        "spark.master": "local[2]",
        "spark.driver.memory": "1g",
        "spark.local.dir": str(folder.scratch),
        "spark.plugins": "org.apache.spark.sql.connect.SparkConnectPlugin",
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": str(port),
        "spark.sql.catalog.tidelog.warehouse": str(folder.lake),
        "spark.sql.warehouse.dir": str(folder.scratch / "warehouse"),
    }
    return "".join(f"{name} {value}\n" for name, value in settings.items())
