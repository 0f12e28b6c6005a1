"""Object stores to test against: servers that the tests start on loopback, installed into a cache on first use."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tidelog.log.storage.object_store import ObjectStore

CACHE = Path(os.environ.get("TIDELOG_TEST_CACHE", "~/.cache/tidelog-tests")).expanduser()
VERSITYGW = "github.com/versity/versitygw/cmd/versitygw@v1.8.0"
FAKE_GCS = "github.com/fsouza/fake-gcs-server@v1.56.1"
AZURITE = "azurite@3.35.0"
INSTALL_TIMEOUT_S = 420
START_TIMEOUT_S = 30

# Emulators accept any credentials, or publish theirs.
KEY, SECRET = "tidelogtests", "not-a-real-secret"
AZURITE_ACCOUNT = "devstoreaccount1"
AZURITE_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="

# moto checks for an object and writes it in two steps, so two of its threads could both write.
# Serving one request at a time makes it as atomic as S3.
_MOTO = """
import sys
from werkzeug.serving import make_server
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
application = DomainDispatcherApplication(create_backend_app)
make_server("127.0.0.1", int(sys.argv[1]), application, threaded=False).serve_forever()
"""


class UnavailableError(Exception):
    """The server is not available here; the message says why."""


@dataclass(frozen=True)
class Server:
    """A server with one bucket, its URL and storage options."""

    name: str
    url: str
    options: dict[str, Any] = field(repr=False)
    endpoint: str = ""

    def store(self, prefix: str | None = None) -> ObjectStore:
        """A store at a new prefix."""
        return ObjectStore(f"{self.url}/{prefix or uuid.uuid4()}", self.options)


@contextmanager
def moto(folder: Path) -> Iterator[Server]:
    """S3 with moto: in Python, on one thread."""
    port = _free_port()
    with _running(folder, port, [sys.executable, "-c", _MOTO, str(port)]):
        yield _s3("moto", f"http://127.0.0.1:{port}")


@contextmanager
def versitygw(folder: Path) -> Iterator[Server]:
    """The Versity gateway: S3 backed by a local folder."""
    program = _from_go("versitygw", VERSITYGW)
    port = _free_port()
    root = folder / "root"
    root.mkdir()
    command = [program, "--port", f"127.0.0.1:{port}", "--quiet", "posix", str(root)]
    secrets = {"ROOT_ACCESS_KEY_ID": KEY, "ROOT_SECRET_ACCESS_KEY": SECRET}
    with _running(folder, port, command, secrets):
        yield _s3("versitygw", f"http://127.0.0.1:{port}")


@contextmanager
def minio(folder: Path) -> Iterator[Server]:
    """MinIO in a container, if a Docker engine answers."""
    del folder
    socket_path = os.environ.get("DOCKER_HOST", "unix:///var/run/docker.sock").removeprefix("unix://")
    if socket_path.startswith("/"):
        with socket.socket(socket.AF_UNIX) as probe:
            if probe.connect_ex(socket_path):
                raise UnavailableError("no Docker engine answers")
    from testcontainers.core.container import DockerContainer  # noqa: PLC0415 - slow to import, and most machines have no Docker

    container = DockerContainer("minio/minio:latest").with_exposed_ports(9000).with_command("server /data")
    container = container.with_env("MINIO_ROOT_USER", KEY).with_env("MINIO_ROOT_PASSWORD", SECRET)
    with container:
        host, port = container.get_container_host_ip(), int(container.get_exposed_port(9000))
        _wait_for(host, port)
        yield _s3("minio", f"http://{host}:{port}")


@contextmanager
def fake_gcs(folder: Path) -> Iterator[Server]:
    """Google Cloud Storage in memory. The first use compiles the server, which takes minutes."""
    program = _from_go("fake-gcs-server", FAKE_GCS)
    port = _free_port()
    endpoint = f"http://127.0.0.1:{port}"
    command = [program, "-backend", "memory", "-scheme", "http", "-host", "127.0.0.1", "-port", str(port)]
    with _running(folder, port, [*command, "-external-url", endpoint, "-log-level", "error"]):
        options = {"endpoint_url": endpoint, "token": "anon"}
        server = Server("fake-gcs-server", "gs://bucket", options, endpoint)
        file_system = server.store()._cloud._fs
        file_system.call("POST", "b", json={"name": "bucket"})
        yield server


@contextmanager
def azurite(folder: Path) -> Iterator[Server]:
    """Azurite: Azure's blob storage in memory."""
    program = _from_npm("azurite-blob", AZURITE)
    port = _free_port()
    endpoint = f"http://127.0.0.1:{port}/{AZURITE_ACCOUNT}"
    command = [program, "--inMemoryPersistence", "--silent", "--disableTelemetry", "--skipApiVersionCheck"]
    with _running(folder, port, [*command, "--blobHost", "127.0.0.1", "--blobPort", str(port)]):
        connection = f"AccountName={AZURITE_ACCOUNT};AccountKey={AZURITE_KEY};BlobEndpoint={endpoint};"
        options = {"connection_string": f"DefaultEndpointsProtocol=http;{connection}"}
        server = Server("azurite", "abfs://container", options, endpoint)
        server.store()._cloud._fs.mkdir("container")
        yield server


SERVERS: dict[str, Callable[[Path], contextlib.AbstractContextManager[Server]]] = {
    "moto": moto,
    "versitygw": versitygw,
    "minio": minio,
    "fake-gcs-server": fake_gcs,
    "azurite": azurite,
}


def _s3(name: str, endpoint: str) -> Server:
    # As text, as a command line and Spark's options give them.
    options = {"endpoint_url": endpoint, "key": KEY, "secret": SECRET}
    options["client_kwargs"] = json.dumps({"region_name": "us-east-1"})
    server = Server(name, "s3://bucket", options, endpoint)
    server.store()._cloud._fs.call_s3("create_bucket", Bucket="bucket")
    return server


# --- processes -------------------------------------------------------------------------------------------------------


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@contextmanager
def _running(folder: Path, port: int, command: list[str], more: dict[str, str] | None = None) -> Iterator[None]:
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, cwd=folder, env={**os.environ, **(more or {})}
        )
    try:
        _wait(process, port, folder / "log")
        yield
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _wait(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    try:
        _wait_for("127.0.0.1", port, lambda: process.poll() is not None)
    except TimeoutError as error:
        raise AssertionError(f"the server did not start: {log.read_text(errors='replace')[-2000:]}") from error


def _wait_for(host: str, port: int, ended: Callable[[], bool] = lambda: False) -> None:
    deadline = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < deadline and not ended():
        with contextlib.suppress(OSError), socket.create_connection((host, port), timeout=1):
            return
        time.sleep(0.05)
    raise TimeoutError(host, port)


# --- installing ------------------------------------------------------------------------------------------------------


def _from_go(name: str, module: str) -> str:
    """Build in a separate folder, because a half-copied program would look complete."""
    target, made = CACHE / "bin" / name, CACHE / "bin" / "partial" / name
    more = {"GOBIN": str(made.parent), "GOPATH": str(CACHE / "go"), "GOFLAGS": "-mod=mod -modcacherw"}
    _install(target, "go", ["go", "install", module], more, made)
    return str(target)


def _from_npm(name: str, package: str) -> str:
    target = CACHE / "azurite" / "node_modules" / ".bin" / name
    command = ["npm", "install", "--no-audit", "--no-fund", "--prefix", str(CACHE / "azurite"), package]
    _install(target, "npm", command, {})
    return str(target)


def _install(target: Path, tool: str, command: list[str], more: dict[str, str], made: Path | None = None) -> None:
    """Run the command unless its result exists; one process at a time on this machine.

    If the command creates the file `made`, it is renamed to `target` afterwards.
    """
    if target.exists():
        return
    if shutil.which(tool) is None:
        raise UnavailableError(
            f"{target.name} is not in {CACHE} and {tool!r}, which would install it, is not installed"
        )
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / ".installing").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if target.exists():
            return
        (CACHE / "bin").mkdir(exist_ok=True)
        (CACHE / "azurite").mkdir(exist_ok=True)
        try:
            subprocess.run(
                command, check=True, capture_output=True, timeout=INSTALL_TIMEOUT_S, env={**os.environ, **more}
            )
        except subprocess.SubprocessError as error:
            output = getattr(error, "stderr", None) or b""
            reason = output.decode(errors="replace").strip().splitlines()[-1:] or [type(error).__name__]
            raise UnavailableError(f"{' '.join(command)} failed: {reason[0]}") from error
        if made is not None:
            made.rename(target)
