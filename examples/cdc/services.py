"""Kafka, and Kafka Connect with Debezium's connector, for the guide "Change data capture": they run until Ctrl-C.

    make cdc-services
    .venv/bin/python -m examples.cdc.services --folder FOLDER --kafka-port 9092 --connect-port 8083

Both listen on loopback only. Their files and logs are in the folder, from which they go on when they are started again.
Exit codes: 1 failed, 2 wrong use or a missing prerequisite, 130 Ctrl-C, 143 SIGTERM.
"""

from __future__ import annotations

import argparse
import socket
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from examples.shared.interrupts import Interrupted, raise_interrupts

_FOLDER = Path("demo-data") / "cdc-services"
_LOOK_S = 0.5
_FAILED, _WRONG_USE = 1, 2


def run(arguments: Sequence[str]) -> int:
    """Run both until they are interrupted or one of them ends; return the exit code of the process."""
    # Slow imports, so that Ctrl-C is quiet during them as well.
    from examples.kafka.jars import FetchError, cache  # noqa: PLC0415
    from examples.shared.child_process import ChildEndedError  # noqa: PLC0415
    from examples.shared.working_folder import WorkingFolder, WrongUseError  # noqa: PLC0415
    from tidelog.log.errors import ConfigurationError  # noqa: PLC0415

    options = argparse.ArgumentParser(prog="services", description="Run Kafka, and Kafka Connect with Debezium.")
    options.add_argument("--folder", type=Path, default=_FOLDER, help=f"their files and logs (default: {_FOLDER})")
    options.add_argument("--kafka-port", type=int, default=9092, help="the broker's port (default: 9092)")
    options.add_argument("--connect-port", type=int, default=8083, help="the port of Connect's REST (default: 8083)")
    given = options.parse_args(arguments)
    for option, port in (("--kafka-port", given.kafka_port), ("--connect-port", given.connect_port)):
        if not _is_free(port):
            return _failed(f"the port {port} is taken: end what listens there, or choose another {option}", _WRONG_USE)
    folder = WorkingFolder(given.folder.absolute())
    try:
        with folder.locked():
            return _serve(folder.root, given.kafka_port, given.connect_port)
    except FetchError as error:
        return _failed(
            f"{error}\nrun it again with access to Maven Central (repo1.maven.org), or copy {cache()} from a machine "
            "where it has run",
            _WRONG_USE,
        )
    except (WrongUseError, ConfigurationError) as error:
        return _failed(str(error), _WRONG_USE)
    except (ChildEndedError, RuntimeError, OSError) as error:
        return _failed(f"{error} (more in {folder.root})", _FAILED)


def _serve(folder: Path, kafka_port: int, connect_port: int) -> int:
    """Start both, say where they are, and watch them. Raises ChildEndedError as soon as one of them ends."""
    from examples.cdc.connector import Worker  # noqa: PLC0415
    from examples.kafka.broker import ProcessBroker  # noqa: PLC0415

    _say(f"starting in {folder}; the first start downloads Kafka and Debezium")
    with ExitStack() as stack:
        broker = ProcessBroker(folder / "kafka", kafka_port)
        stack.callback(broker.end)
        broker.start()
        _say(f"Kafka: {broker.address}")
        worker = Worker(folder / "connect", broker.address, name="worker", port=connect_port)
        stack.callback(worker.end)
        worker.start()
        _say(f"Kafka Connect with Debezium: {worker.url}")
        _say("ready; Ctrl-C ends both")
        while True:
            broker.require_running()
            worker.require_running()
            time.sleep(_LOOK_S)


def _is_free(port: int) -> bool:
    with socket.socket() as found:
        # As servers do: a connection that was closed a moment ago does not count.
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            found.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def _failed(text: str, code: int) -> int:
    _say(f"services: {text}")
    return code


def _say(text: str) -> None:
    """Print one line without buffering."""
    print(text, flush=True)


def main() -> int:
    raise_interrupts()
    try:
        return run(sys.argv[1:])
    except Interrupted as interrupted:
        _say(str(interrupted))
        return interrupted.exit_code


if __name__ == "__main__":
    sys.exit(main())
