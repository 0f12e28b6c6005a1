"""A Kafka broker for the demo and the tests: in Docker if an engine is running, otherwise Apache Kafka as a process.

Both listen on loopback only, on a free port, and keep the port and the records when they are killed and restarted.
"""

from __future__ import annotations

import importlib.util
import os
import secrets
import shutil
import socket
import subprocess
import time
import warnings
from base64 import urlsafe_b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

from kafka import KafkaAdminClient
from kafka.errors import KafkaError

from examples.kafka.jars import broker_jars, java
from examples.shared.child_process import ChildProcess
from examples.shared.ports import free_ports

_LOOPBACK = "127.0.0.1"
_START_S = 90
_FORMAT_S = 60
_DOCKER_S = 20
_IMAGE = "confluentinc/cp-kafka:7.6.0"
# Small and quick to start: it serves thousands of records, not millions.
_JVM = ["-Xmx384m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"]


class Broker(Protocol):
    """A running broker. `address` is for clients and never changes."""

    address: str

    def crash(self) -> None:
        """Kill it without clean-up."""

    def start(self) -> None:
        """Start it again; returns when it responds."""


@contextmanager
def broker(folder: Path) -> Iterator[Broker]:
    """A broker with its files and its log in `folder`, which ends with the block."""
    with docker_broker() if docker_engine() else process_broker(folder) as started:
        yield started


def docker_engine() -> bool:
    """Whether a Docker engine responds and testcontainers is installed; a client on PATH does not imply an engine."""
    if not shutil.which("docker") or importlib.util.find_spec("testcontainers") is None:
        return False
    command = ["docker", "version", "--format", "{{.Server.Version}}"]
    try:
        answer = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_DOCKER_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return answer.returncode == 0 and answer.stdout.strip() != ""


@contextmanager
def process_broker(folder: Path) -> Iterator[Broker]:
    """Apache Kafka, downloaded with the Ivy that PySpark ships, as its own controller (KRaft)."""
    started = ProcessBroker(folder)
    try:
        started.start()
        yield started
    finally:
        started.end()


class ProcessBroker:
    """Apache Kafka as a child process."""

    def __init__(self, folder: Path, port: int | None = None) -> None:
        free_port, controller_port = free_ports(2)
        port = port or free_port
        self.address = f"{_LOOPBACK}:{port}"
        folder.mkdir(parents=True, exist_ok=True)
        settings = folder / "server.properties"
        settings.write_text(_settings(folder / "records", port, controller_port), encoding="utf-8")
        run = [java(), *_JVM, "-cp", os.pathsep.join(map(str, broker_jars()))]
        if not (folder / "records" / "meta.properties").exists():  # else it goes on with the folder's records
            _format([*run, "kafka.tools.StorageTool"], settings)
        self._child = ChildProcess("broker", [*run, "kafka.Kafka", str(settings)], folder)

    def start(self) -> None:
        self._child.start()
        _wait_until_it_responds(self.address, self._child)

    def require_running(self) -> None:
        """Raise ChildEndedError if it has ended unexpectedly."""
        self._child.require_running()

    def crash(self) -> None:
        self._child.kill()

    def end(self) -> None:
        """Stop it for good."""
        self._child.end()


def _settings(records: Path, port: int, controller_port: int) -> str:
    values: dict[str, object] = {
        "process.roles": "broker,controller",
        "node.id": 1,
        "controller.quorum.voters": f"1@{_LOOPBACK}:{controller_port}",
        "controller.listener.names": "CONTROLLER",
        "listeners": f"PLAINTEXT://{_LOOPBACK}:{port},CONTROLLER://{_LOOPBACK}:{controller_port}",
        "log.dirs": records,
        "auto.create.topics.enable": "false",
        # There is only one broker, so only one replica.
        "offsets.topic.replication.factor": 1,
        "offsets.topic.num.partitions": 1,
        "transaction.state.log.replication.factor": 1,
        "transaction.state.log.min.isr": 1,
        "transaction.state.log.num.partitions": 1,
        "group.initial.rebalance.delay.ms": 0,
        # A killed broker comes back as a new one only when the controller has given the old one up.
        "broker.session.timeout.ms": 3000,
        "broker.heartbeat.interval.ms": 500,
    }
    return "".join(f"{name}={value}\n" for name, value in values.items())


def _format(tool: list[str], settings: Path) -> None:
    cluster = urlsafe_b64encode(secrets.token_bytes(16)).decode().rstrip("=")
    # As one argument, since an id that starts with a dash would be parsed as an option.
    command = [*tool, "format", f"--cluster-id={cluster}", "--config", str(settings)]
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_FORMAT_S, check=False
    )
    if done.returncode:
        raise RuntimeError(f"could not format the broker's storage: {(done.stdout + done.stderr)[-2000:]}")


def _wait_until_it_responds(address: str, child: ChildProcess | None = None) -> None:
    """Raises RuntimeError if it does not in time, ChildEndedError if it has ended."""
    deadline_s = time.monotonic() + _START_S
    while True:
        if child is not None:
            child.require_running()
        try:
            # Wait for the port first, since a client that finds it closed logs a lot.
            host, port = address.split(":")
            socket.create_connection((host, int(port)), timeout=1).close()
            client = KafkaAdminClient(bootstrap_servers=address, request_timeout_ms=5_000)
            try:
                client.list_topics()
            finally:
                client.close()
        except (OSError, KafkaError) as error:
            if time.monotonic() > deadline_s:
                raise RuntimeError(f"the broker at {address} did not respond within {_START_S} seconds") from error
            time.sleep(0.2)
        else:
            return


@contextmanager
def docker_broker() -> Iterator[Broker]:
    """Kafka in a container, started with testcontainers."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a deprecation warning about the module's name
        from testcontainers.kafka import KafkaContainer  # noqa: PLC0415 - only if there is an engine
    container: Any = KafkaContainer(_IMAGE).with_kraft()
    # A fixed port, since Docker would choose another one at a restart.
    container.ports[container.port] = (_LOOPBACK, *free_ports(1))
    with container:
        yield DockerBroker(container)


class DockerBroker:
    """Kafka in a running container."""

    def __init__(self, container: Any) -> None:
        self.address = str(container.get_bootstrap_server())
        self._container = container
        _wait_until_it_responds(self.address)

    def start(self) -> None:
        self._container.get_wrapped_container().start()
        _wait_until_it_responds(self.address)

    def crash(self) -> None:
        self._container.get_wrapped_container().kill()
