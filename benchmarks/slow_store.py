"""An S3 server on this machine whose answers take as long as those of a real one."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from benchmarks.harness import DELTALAKE, TIDELOG
from tests.log.storage.servers import SERVERS

_CHUNK = 2**18


@contextmanager
def slow_s3(work: Path, table: Path, latency_s: float) -> Iterator[tuple[str, dict[str, dict[str, str]]]]:
    """A copy of a table: its URL, and the storage options of each engine. Raises UnavailableError."""
    folder = work / "s3"
    folder.mkdir()
    with SERVERS["versitygw"](folder) as server, _delayed(_port(server.endpoint), latency_s) as port:
        store = server.store("table")
        for path in sorted(table.rglob("*")):
            if path.is_file() and not path.name.endswith(".crc"):
                store.put_if_absent(str(path.relative_to(table)), path.read_bytes())
        endpoint = f"http://127.0.0.1:{port}"
        key, secret = server.options["key"], server.options["secret"]
        yield (
            store.url,
            {
                TIDELOG: {**server.options, "endpoint_url": endpoint},
                DELTALAKE: {
                    "aws_access_key_id": key,
                    "aws_secret_access_key": secret,
                    "aws_region": "us-east-1",
                    "aws_endpoint_url": endpoint,
                    "aws_allow_http": "true",
                },
            },
        )


def _port(endpoint: str) -> int:
    return int(endpoint.rsplit(":", 1)[1])


@contextmanager
def _delayed(target: int, latency_s: float) -> Iterator[int]:
    """The port of a relay that keeps each piece of a request for `latency_s`.

    It has a process of its own, because an engine in this one can hold Python's lock while it waits for an answer.
    """
    command = [sys.executable, "-m", "benchmarks.slow_store", str(target), str(latency_s)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as relay:
        assert relay.stdout
        try:
            yield int(relay.stdout.readline())
        finally:
            relay.kill()


def serve(target: int, latency_s: float) -> None:
    """Relay connections to the port `target`, and print the port that they come in at."""
    with socket.create_server(("127.0.0.1", 0), backlog=256) as listener:
        print(listener.getsockname()[1], flush=True)
        while True:
            client, _ = listener.accept()
            server = socket.create_connection(("127.0.0.1", target))
            for pair in ((client, server, latency_s), (server, client, 0.0)):
                threading.Thread(target=_relay, args=pair, daemon=True).start()


def _relay(source: socket.socket, target: socket.socket, latency_s: float) -> None:
    with suppress(OSError):
        while content := source.recv(_CHUNK):
            if latency_s:
                time.sleep(latency_s)
            target.sendall(content)
    with suppress(OSError):
        target.shutdown(socket.SHUT_WR)


if __name__ == "__main__":
    serve(int(sys.argv[1]), float(sys.argv[2]))
