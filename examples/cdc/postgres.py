"""A PostgreSQL server in a folder of its own, with logical decoding, for the demo, the tests and the benchmark.

It listens on loopback only, on a free port that it keeps across restarts, and asks for a password.
"""

from __future__ import annotations

import os
import pwd
import secrets
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import MappingProxyType
from typing import Any

import psycopg

from examples.shared.child_process import ChildProcess
from examples.shared.ports import free_ports
from examples.shared.working_folder import WrongUseError

USER, DATABASE = "tidelog", "postgres"
_LOOPBACK = "127.0.0.1"
# Debian keeps one folder for each major version, and none of them is on PATH.
_DEBIAN = Path("/usr/lib/postgresql")
_OLDEST = 12
_INIT_S = 60
_START_S = 60
_SETTINGS: Mapping[str, object] = MappingProxyType(
    {
        "wal_level": "logical",
        "listen_addresses": _LOOPBACK,
        "unix_socket_directories": "",
        "max_connections": 30,
        "shared_buffers": "64MB",
        "timezone": "UTC",
        # What a killed server wrote is safe in the page cache; only a machine without power would lose it.
        "fsync": "off",
    }
)
# The server refuses to run as root, so it runs as one of these users then.
_USERS = ("postgres", "nobody")


def programs() -> Path:
    """The folder with PostgreSQL's newest programs. Raises WrongUseError if there are none."""
    on_path = shutil.which("postgres")
    if on_path is not None:
        return Path(on_path).parent
    found = [path for path in _DEBIAN.glob("*/bin/postgres") if path.parts[-3].isdigit()]
    if not found:
        raise WrongUseError(
            "PostgreSQL's server is missing: `apt-get install postgresql` on Debian and Ubuntu, "
            "`brew install postgresql@17` on macOS, with its `bin` folder on PATH"
        )
    newest = max(found, key=lambda path: int(path.parts[-3]))
    if int(newest.parts[-3]) < _OLDEST:
        raise WrongUseError(f"PostgreSQL {newest.parts[-3]} is too old: Debezium needs {_OLDEST} or newer")
    return newest.parent


class Postgres:
    """A PostgreSQL server as a child process; `start`, `crash` and `end` may follow each other in any order."""

    def __init__(self, folder: Path, settings: Mapping[str, object] = MappingProxyType({})) -> None:
        (self.port,) = free_ports(1)
        self.password = secrets.token_hex(16)
        self._data = folder / "data"
        folder.mkdir(parents=True, exist_ok=True)
        self._initialise(folder)
        values = {**_SETTINGS, "port": self.port, **settings}
        with (self._data / "postgresql.conf").open("a", encoding="utf-8") as conf:
            conf.writelines(f"{name} = '{value}'\n" for name, value in values.items())
        command = [*_as_user(), str(programs() / "postgres"), "-D", str(self._data)]
        self._child = ChildProcess("postgres", command, folder)

    def connect(self, **options: Any) -> psycopg.Connection[tuple[Any, ...]]:
        """A connection in autocommit mode, with times in UTC."""
        return psycopg.connect(
            host=_LOOPBACK,
            port=self.port,
            user=USER,
            password=self.password,
            dbname=DATABASE,
            autocommit=True,
            connect_timeout=10,
            **options,
        )

    def start(self) -> None:
        """Start the server; returns when it takes connections. Raises RuntimeError if it does not in time."""
        deadline_s = time.monotonic() + _START_S
        self._child.start()
        while True:
            try:
                self.connect().close()
            except psycopg.OperationalError as error:
                if time.monotonic() > deadline_s:
                    raise RuntimeError(f"PostgreSQL did not start, see {self._child.log}") from error
                if self._child.has_ended():
                    # After a crash the children of the old server may need a moment to notice that it is gone.
                    self._child.restart()
                time.sleep(0.1)
            else:
                return

    def has_ended(self) -> bool:
        """Whether it has ended unexpectedly."""
        return self._child.has_ended()

    def crash(self) -> None:
        """SIGKILL the server. Its children end as soon as they notice."""
        self._child.kill()

    def end(self) -> None:
        """Stop the server, without waiting for its clients."""
        with suppress(OSError, ValueError):
            # What the child process gets, SIGTERM, would wait until the last client has gone.
            pid = int((self._data / "postmaster.pid").read_text().splitlines()[0])
            if self._child.pid is not None and os.getpgid(pid) == self._child.pid:
                os.kill(pid, signal.SIGINT)
        self._child.end()

    def _initialise(self, folder: Path) -> None:
        secret = folder / "password"
        secret.touch(mode=0o600)
        secret.write_text(self.password, encoding="utf-8")
        self._data.mkdir(mode=0o700)
        if _as_user():
            for path in (self._data, secret):
                shutil.chown(path, *_user())
        how = ["--username", USER, "--auth=scram-sha-256", f"--pwfile={secret}", "--encoding=UTF8", "--locale=C.UTF-8"]
        done = subprocess.run(
            [*_as_user(), str(programs() / "initdb"), "--pgdata", str(self._data), "--no-sync", *how],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_INIT_S,
            check=False,
        )
        if done.returncode:
            raise RuntimeError(f"could not create a database: {(done.stdout + done.stderr)[-2000:]}")


@contextmanager
def postgres(folder: Path, settings: Mapping[str, object] = MappingProxyType({})) -> Iterator[Postgres]:
    """A running server with its files and its log in `folder`, which ends with the block."""
    server = Postgres(folder, settings)
    try:
        server.start()
        yield server
    finally:
        server.end()


def _user() -> tuple[str, str | int]:
    """The user and the group that the server runs as, if this process is root."""
    known = {entry.pw_name: entry for entry in pwd.getpwall()}
    for name in _USERS:
        if name in known:
            return name, known[name].pw_gid
    raise WrongUseError("PostgreSQL does not run as root: run the demo as another user, or add the user `postgres`")


def _as_user() -> Sequence[str]:
    """The words before a command that run it as another user, if this process is root.

    The capability lets that user reach its folder below folders that belong to root.
    """
    if os.geteuid():
        return ()
    user, group = _user()
    if shutil.which("setpriv") is None:
        raise WrongUseError("PostgreSQL does not run as root: run the demo as another user, or install `setpriv`")
    capability = ("--inh-caps=+dac_override", "--ambient-caps=+dac_override")
    return "setpriv", f"--reuid={user}", f"--regid={group}", "--clear-groups", *capability
