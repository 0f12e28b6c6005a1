"""The last section of the guide "Change data capture", run as it stands but for addresses and folders.

It needs PostgreSQL's programs, and fails without them, with the command that installs them.
"""

from __future__ import annotations

import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

import psycopg
import pytest
from typer.testing import CliRunner

from examples.cdc import services
from examples.cdc.compare import compare
from examples.cdc.postgres import Postgres, postgres
from examples.kafka.jars import cache
from examples.shared.child_process import ChildProcess
from examples.shared.ports import free_ports
from tests.test_readme import SPARK_DEFAULTS
from tidelog.cli import app
from tidelog.log import Table
from tidelog.log.errors import TableNotFoundError

ROOT = Path(__file__).parents[2]
HEADING = "## From an empty machine to a followed PostgreSQL table\n"
TABLES = ("customers", "orders")
# What the tests cannot call: it changes the machine.
OF_THE_SYSTEM = {"apt-get", "git", "cd", ".", "su", "service", "curl"}
CHANGES = """
INSERT INTO customers SELECT i, repeat('x', 3000), i, now() FROM generate_series(10, 500) AS i;
UPDATE customers SET balance = -balance WHERE id % 2 = 0;
UPDATE customers SET id = 1000 WHERE id = 10;
DELETE FROM customers WHERE id % 3 = 0;
TRUNCATE orders;
INSERT INTO orders VALUES (11, 1, NULL);
"""
WAIT_S = 180.0


def section() -> str:
    page = (ROOT / "docs" / "guides" / "change-data-capture.md").read_text()
    return page.partition(HEADING)[2]


def blocks(language: str) -> list[str]:
    found = re.findall(rf"^```{language}\n(.*?)^```", section(), flags=re.DOTALL | re.MULTILINE)
    assert found, language
    return found


def commands() -> list[str]:
    """The lines of the `sh` blocks; one that goes on after a backslash is one line."""
    return [line for block in blocks("sh") for line in block.replace("\\\n", "").splitlines()]


def replaced(text: str, values: Mapping[str, str]) -> str:
    """The text with other values; each of them must be there."""
    for old, new in values.items():
        assert old in text, f"{old} is not in: {text}"
        text = text.replace(old, new)
    return text


def test_the_commands_exist() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE))
    called = set()
    for line in commands():
        program, *arguments = shlex.split(line)
        called.add(program)
        if program == "make":
            assert set(arguments) <= targets, line
        elif program == "python":
            assert f"Save it as `{arguments[0]}`" in section(), line
        elif program == "tidelog":  # its options are tested in tests/test_docs.py
            assert arguments[0] in {"scan", "daemon"}, line
        else:
            assert program in OF_THE_SYSTEM, line
    assert called >= {"make", "python", "tidelog", "curl"}
    assert "-m examples.cdc.services" in (ROOT / "Makefile").read_text()


def test_a_port_that_is_taken_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        (free,) = map(str, free_ports(1))
        for kafka, connect, option in ((port, free, "--kafka-port"), (free, port, "--connect-port")):
            given = ["--folder", str(tmp_path), "--kafka-port", kafka, "--connect-port", connect]
            assert services.run(given) == 2
            assert capsys.readouterr().out == (
                f"services: the port {port} is taken: end what listens there, or choose another {option}\n"
            )


@pytest.mark.full
@pytest.mark.spark
@pytest.mark.server
def test_the_way_from_an_empty_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kafka, connect = free_ports(2)
    data = tmp_path / "data"
    with ExitStack() as stack:
        database = stack.enter_context(postgres(tmp_path / "postgres"))
        serve = partial(running_services, tmp_path / "services", kafka, connect)
        before, after = blocks("sql")
        connection = stack.enter_context(database.connect())
        for statement in re.findall(r'su postgres -c "psql -c \\"(.*)\\""', "\n".join(blocks("sh"))):
            connection.execute(statement.encode())
        connection.execute(before.encode())
        with serve():
            start_connector(tmp_path, database, connect)
            stack.enter_context(stream(tmp_path, kafka, data, monkeypatch))
            wait_until(lambda: not differences(connection, data, "customers"))
            connection.execute(after.encode())
            wait_until(lambda: not any(differences(connection, data, name) for name in TABLES))
        shown = [CliRunner().invoke(app, shlex.split(replaced(line, {"/data": str(data)}))[1:]) for line in scans()]
        assert [answer.exit_code for answer in shown] == [0, 0]
        assert "13.50" in shown[0].output
        assert "paid" in shown[1].output
        connection.execute(CHANGES.encode())
        with serve():  # where they were, with the connector
            wait_until(lambda: not any(differences(connection, data, name) for name in TABLES))
    further = [data / "dead-letters" / name for name in TABLES] + [data / "parked"]
    assert [rows_of(path) for path in further] == [0, 0, 0]


def rows_of(path: Path) -> int:
    try:
        return Table.open(str(path)).at().num_rows
    except TableNotFoundError:
        return 0


def scans() -> list[str]:
    return [line for line in commands() if line.startswith("tidelog scan")]


@contextmanager
def running_services(folder: Path, kafka: int, connect: int) -> Iterator[None]:
    """What `make cdc-services` runs, which ends by Ctrl-C with its children."""
    ports = ["--kafka-port", str(kafka), "--connect-port", str(connect)]
    command = [sys.executable, "-m", "examples.cdc.services", "--folder", str(folder), *ports]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout
            said = []
            for line in process.stdout:
                said.append(line)
                if line.startswith("ready"):
                    break
            assert f"Kafka: 127.0.0.1:{kafka}\n" in said, said
            assert f"Kafka Connect with Debezium: http://127.0.0.1:{connect}\n" in said
            yield
        finally:
            process.send_signal(signal.SIGINT)
            rest = process.communicate(timeout=60)[0]
    assert process.returncode == 128 + signal.SIGINT, rest
    assert all(map(services._is_free, (kafka, connect)))


def start_connector(folder: Path, database: Postgres, connect: int) -> None:
    """Send the page's configuration by the page's commands."""
    (configuration,) = blocks("json")
    (folder / "connector.json").write_text(replaced(configuration, {'"5432"': f'"{database.port}"'}))
    send, ask = (line for line in commands() if line.startswith("curl"))
    address = {"http://127.0.0.1:8083": f"http://127.0.0.1:{connect}"}

    def answer(line: str) -> str:
        call = shlex.split(replaced(line, address))
        done = subprocess.run(call, cwd=folder, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    assert '"name":"shop"' in answer(send)
    wait_until(lambda: answer(ask).count('"state":"RUNNING"') == len(("connector", "task")))


@contextmanager
def stream(folder: Path, kafka: int, data: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The page's program, in the environment that the page activates."""
    (program,) = blocks("py")
    values = {"127.0.0.1:9092": f"127.0.0.1:{kafka}", "/data/": f"{data}/"}
    (folder / "follow.py").write_text(replaced(program, values))
    packages = f"spark.jars.ivy {cache() / 'spark-packages'}\n"
    (folder / "spark-defaults.conf").write_text(f"{SPARK_DEFAULTS}{packages}")
    monkeypatch.setenv("SPARK_CONF_DIR", str(folder))
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    monkeypatch.delenv("PYSPARK_DRIVER_PYTHON", raising=False)
    with ChildProcess("stream", [sys.executable, str(folder / "follow.py")], folder) as running:
        try:
            yield
            running.require_running()
        except BaseException:
            print(running.log.read_text()[-5000:])
            raise


def differences(connection: psycopg.Connection[tuple[object, ...]], data: Path, name: str) -> list[str]:
    """What the database and the table that follows it do not have in common."""
    try:
        table = Table.open(str(data / "tables" / name))
    except TableNotFoundError:
        return ["there is no table"]
    return list(compare(connection, name, ["id"], table).differences)


def wait_until(holds: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + WAIT_S
    while not holds():
        assert time.monotonic() < deadline_s
        time.sleep(0.2)
