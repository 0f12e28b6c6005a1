"""Debezium's PostgreSQL connector in Kafka Connect, as a child process; both come from Maven once per machine.

Connect runs in its distributed mode with one worker: then its offsets are in the broker, as in production, and not in a
file that a kill can cut.
"""

from __future__ import annotations

import json
import os
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from examples.cdc.postgres import DATABASE, USER, Postgres
from examples.kafka.jars import Artifact, jars, java
from examples.shared.child_process import ChildProcess
from examples.shared.ports import free_ports

NAME = "tidelog"
DEBEZIUM = (
    Artifact("io.debezium", "debezium-connector-postgres", "3.3.2.Final"),
    Artifact("org.apache.kafka", "connect-runtime", "4.1.0"),
    Artifact("org.apache.kafka", "connect-json", "4.1.0"),
    Artifact("org.slf4j", "slf4j-simple", "1.7.36", alone=True),
)
_LOOPBACK = "127.0.0.1"
_START_S = 90
_ANSWER_S = 30
_JVM = ["-Xmx384m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"]
_CONVERTER = "org.apache.kafka.connect.json.JsonConverter"


def debezium_jars() -> list[Path]:
    """The jars of Kafka Connect and of Debezium's connector. Raises FetchError."""
    return jars(DEBEZIUM)


class Worker:
    """A worker of Kafka Connect that has Debezium's connector, and answers at `url`."""

    def __init__(
        self, folder: Path, broker: str, *, name: str = NAME, port: int | None = None, with_schema: bool = True
    ) -> None:
        port = port or free_ports(1)[0]
        self.url = f"http://{_LOOPBACK}:{port}"
        # What it must accept before it counts as started; by itself it only has to answer.
        self._first: tuple[str, str, object] = ("GET", "/connectors", None)
        folder.mkdir(parents=True, exist_ok=True)
        settings = folder / f"{name}.properties"
        values = _worker(broker, port, name, with_schema=with_schema)
        settings.write_text("".join(f"{key}={value}\n" for key, value in values.items()), encoding="utf-8")
        classes = os.pathsep.join(map(str, debezium_jars()))
        program = "org.apache.kafka.connect.cli.ConnectDistributed"
        self._child = ChildProcess(name, [java(), *_JVM, "-cp", classes, program, str(settings)], folder)

    def start(self) -> None:
        """Start it; returns when it has accepted its first request."""
        self._child.start()
        deadline_s = time.monotonic() + _START_S
        while True:
            self._child.require_running()
            try:
                self.request(*self._first)
            except OSError as error:  # it does not listen yet, or has no leader yet
                if time.monotonic() > deadline_s:
                    detail = error.read().decode() if isinstance(error, urllib.error.HTTPError) else error
                    raise RuntimeError(f"Debezium did not start ({detail}), see {self._child.log}") from error
                time.sleep(0.2)
            else:
                return

    def request(self, method: str, path: str, body: object = None) -> Any:
        """What the worker answers to a request. Raises OSError."""
        request = urllib.request.Request(
            self.url + path,
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=_ANSWER_S) as answer:
            return json.loads(answer.read() or b"null")

    def has_ended(self) -> bool:
        """Whether it has ended unexpectedly."""
        return self._child.has_ended()

    def require_running(self) -> None:
        """Raise ChildEndedError if it has ended unexpectedly."""
        self._child.require_running()

    def crash(self) -> None:
        """SIGKILL it."""
        self._child.kill()

    def end(self) -> None:
        """Stop it."""
        self._child.end()


class Connector(Worker):
    """A worker that runs the connector for one database. It has started once it has accepted the configuration."""

    def __init__(
        self,
        folder: Path,
        broker: str,
        database: Postgres,
        *,
        prefix: str,
        name: str = NAME,
        with_schema: bool = True,
        options: Mapping[str, object] = MappingProxyType({}),
    ) -> None:
        super().__init__(folder, broker, name=name, with_schema=with_schema)
        self._name = name
        config = {**_connector(database, prefix, name), **{key: str(value) for key, value in options.items()}}
        self._first = ("PUT", f"/connectors/{name}/config", config)

    def states(self) -> list[str]:
        """The states of the connector and its task, such as RUNNING and FAILED; none while it does not answer."""
        try:
            status = self.request("GET", f"/connectors/{self._name}/status")
        except OSError:
            return []
        return [str(each["state"]) for each in (status["connector"], *status["tasks"])]

    def mend(self) -> bool:
        """Restart what has failed, as an operator does; whether anything had."""
        if "FAILED" not in self.states():
            return False
        try:
            self.request("POST", f"/connectors/{self._name}/restart?includeTasks=true&onlyFailed=true")
        except OSError:
            return False
        return True


def _worker(broker: str, port: int, name: str, *, with_schema: bool) -> dict[str, object]:
    """The properties of a worker of Connect, for one broker and short waits after a kill."""
    converters = {
        f"{side}.converter{option}": value
        for side in ("key", "value")
        for option, value in (("", _CONVERTER), (".schemas.enable", str(with_schema).lower()))
    }
    topics = {
        f"{kind}.storage.{option}": value
        for kind in ("config", "offset", "status")
        for option, value in (("topic", f"connect-{name}-{kind}"), ("replication.factor", 1))
    }
    return {
        "bootstrap.servers": broker,
        "group.id": f"connect-{name}",
        "listeners": f"http://{_LOOPBACK}:{port}",
        **converters,
        **topics,
        "offset.storage.partitions": 1,
        "status.storage.partitions": 1,
        "offset.flush.interval.ms": 1000,
        "session.timeout.ms": 6000,
        "heartbeat.interval.ms": 1000,
        "scheduled.rebalance.max.delay.ms": 0,
        "plugin.discovery": "hybrid_warn",
        "topic.creation.enable": "true",
    }


def _connector(database: Postgres, prefix: str, name: str) -> dict[str, str]:
    """The configuration of the connector: the topics are `PREFIX.SCHEMA.TABLE`, and the slot has its name."""
    return {
        "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
        "database.hostname": _LOOPBACK,
        "database.port": str(database.port),
        "database.user": USER,
        "database.password": database.password,
        "database.dbname": DATABASE,
        "plugin.name": "pgoutput",
        "slot.name": name.replace("-", "_"),
        "publication.name": name.replace("-", "_"),
        "topic.prefix": prefix,
        "schema.include.list": "public",
        "topic.creation.default.replication.factor": "1",
        "topic.creation.default.partitions": "1",
        # After a kill of the database or of the worker, try again at once.
        "slot.retry.delay.ms": "1000",
        "retriable.restart.connector.wait.ms": "1000",
        "poll.interval.ms": "100",
    }
