"""A Spark Connect server in a process of its own, as sessions of a cluster have it: `python -m` prints its port.

It ends when its standard input ends, so that no server outlives the test that started it.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from pyspark.sql import SparkSession

from examples.shared.small_spark import FEW_FORKS, SETTINGS

ROOT = Path(__file__).parents[3]
_READY = "port"
_PATIENCE_S = 120
_REGISTERED_S = 600
_EXAMPLE = ROOT / "examples" / "connect_server"


@contextmanager
def server(log: Path, settings: Mapping[str, str] | None = None) -> Iterator[str]:
    """The URL of a server that runs during the block; its output goes to `log`."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYSPARK_PYTHON": sys.executable}
    command = [sys.executable, "-m", __spec__.name, *(f"{name}={value}" for name, value in (settings or {}).items())]
    with log.open("w") as errors:
        process = subprocess.Popen(
            command, cwd=ROOT, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True
        )
    assert process.stdin
    assert process.stdout
    try:
        ready, _, _ = select.select([process.stdout], [], [], _PATIENCE_S)
        word, _, port = (process.stdout.readline() if ready else "").partition(" ")
        assert word == _READY, log.read_text()[-4000:]
        yield f"sc://localhost:{int(port)}"
    finally:
        process.stdin.close()
        process.stdout.close()
        try:
            process.wait(timeout=_PATIENCE_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise


@contextmanager
def registered(base: Path) -> Iterator[str]:
    """The URL of a server that has tidelog: the example as it stands, but for its folders, which are below `base`, its
    port, and what makes a small session start sooner. It must end well.
    """
    port, log = free_port(), base / "log"
    text = (_EXAMPLE / "spark-defaults.conf").read_text().replace("/data", str(base)).replace("15002", str(port))
    further = {**SETTINGS, **FEW_FORKS, "spark.master": "local[2]", "spark.driver.memory": "1g"}
    text = "\n".join([text, *(f"{name} {value}" for name, value in further.items())])
    (base / "spark-defaults.conf").write_text(text)
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "SPARK_CONF_DIR": str(base)}
    environment.pop("PYSPARK_PYTHON", None)
    command = [sys.executable, str(_EXAMPLE / "serve.py")]
    with log.open("w") as errors:
        process = subprocess.Popen(command, cwd=base, env=environment, stdout=subprocess.PIPE, stderr=errors, text=True)
    assert process.stdout
    try:
        ready, _, _ = select.select([process.stdout], [], [], _REGISTERED_S)
        assert ready, log.read_text()[-4000:]
        assert process.stdout.readline() == "ready\n", log.read_text()[-4000:]
        yield f"sc://localhost:{port}"
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=_REGISTERED_S) == 0, log.read_text()[-4000:]
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def session(url: str) -> SparkSession:
    """A new session of the server."""
    return SparkSession.builder.remote(url).create()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def serve(settings: Mapping[str, str]) -> None:
    # What Spark's Python processes print goes to the server's output, of which the caller reads only one line.
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    port = free_port()
    builder = (
        SparkSession.builder.master("local[2]")
        .config("spark.plugins", "org.apache.spark.sql.connect.SparkConnectPlugin")
        .config("spark.connect.grpc.binding.address", "127.0.0.1")
        .config("spark.connect.grpc.binding.port", str(port))
        .config("spark.driver.memory", "1g")
    )
    spark = builder.config(map={**SETTINGS, **FEW_FORKS, **settings}).getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    print(_READY, port, file=out, flush=True)
    sys.stdin.read()
    spark.stop()


if __name__ == "__main__":
    serve(dict(setting.split("=", 1) for setting in sys.argv[1:]))
