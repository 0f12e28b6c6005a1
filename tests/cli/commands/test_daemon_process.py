"""`tidelog daemon` as a process: its file, its log, its page, and signals."""

from __future__ import annotations

import json
import select
import signal
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.cli.support import PROGRAM, run
from tests.compaction_daemon.support import SCHEMA, put
from tests.lanes import full_but
from tidelog.cli.daemon_process import DaemonOptions
from tidelog.compaction_daemon import DaemonConfig, TableSource
from tidelog.compaction_daemon.settings.config import ListenAddress
from tidelog.log import Table
from tidelog.log.errors import ConfigurationError

PATIENCE_S = 60


class Running:
    """A daemon that logs JSON."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.process = process
        self.seen: list[dict[str, Any]] = []
        self._awaited: set[int] = set()
        self._rest = b""

    def await_event(self, name: str, **facts: object) -> dict[str, Any]:
        """Read the log up to an event with these facts that was not awaited before."""
        deadline = time.monotonic() + PATIENCE_S
        place = 0
        while True:
            record = self.seen[place] if place < len(self.seen) else self._next(deadline)
            found = record.get("tidelog", {})
            if found.get("event") == name and facts.items() <= found.items() and place not in self._awaited:
                self._awaited.add(place)
                return record
            place += 1

    def _next(self, deadline: float) -> dict[str, Any]:
        assert self.process.stderr
        while b"\n" not in self._rest:
            wait_s = deadline - time.monotonic()
            assert wait_s > 0, self.seen
            if select.select([self.process.stderr], [], [], wait_s)[0]:
                more = self.process.stderr.read1(65536)  # type: ignore[attr-defined]
                assert more, ("the daemon ended", self.seen, self._rest)
                self._rest += more
        line, _, self._rest = self._rest.partition(b"\n")
        record: dict[str, Any] = json.loads(line)
        self.seen.append(record)
        return record

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def wait(self) -> int:
        return self.process.wait(PATIENCE_S)


@contextmanager
def started(*arguments: object) -> Iterator[Running]:
    """A daemon that has started; killed after the block if it still runs."""
    command = [PROGRAM, "daemon", *map(str, arguments), "--log-format", "json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        try:
            running = Running(process)
            running.await_event("started")
            yield running
        finally:
            process.kill()


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    """A folder with a table `a` of three small files."""
    fill(tmp_path / "lake" / "a")
    return tmp_path / "lake"


def fill(folder: Path) -> Table:
    table = Table.create(str(folder), SCHEMA, exist_ok=True)
    for number in range(3):
        put(table, number)
    return table


def write(file: Path, *sources: str, interval_s: object = 0.05, more: str = "") -> Path:
    tables = "".join(f'[[tables]]\npath = "{source}"\n' for source in sources)
    file.write_text(f"{tables}[daemon]\ninterval_s = {interval_s}\ndiscovery_interval_s = 0.1\n{more}")
    return file


# --- tables that come and go -----------------------------------------------------------------------------------------


def test_tables_appear_and_vanish_below_a_glob(lake: Path, tmp_path: Path) -> None:
    """And a table that is named is waited for."""
    config = write(tmp_path / "tidelog.toml", f"{lake}/*", str(tmp_path / "later"))
    with started("--config", config) as daemon:
        daemon.await_event("missing", table=str(tmp_path / "later"))
        compacted = daemon.await_event("compacted", table=str(lake / "a"), files_removed=3)
        assert compacted["tidelog"]["predicted"]["seconds"] > 0
        # At once: a search can find the folder of a table before its first commit, and then says that it is missing.
        fill(tmp_path / "made")
        (tmp_path / "made").rename(lake / "b")
        daemon.await_event("compacted", table=str(lake / "b"))
        fill(tmp_path / "later")
        daemon.await_event("compacted", table=str(tmp_path / "later"))
        (lake / "b").rename(tmp_path / "gone")
        daemon.await_event("gone", table=str(lake / "b"))
        daemon.signal(signal.SIGTERM)
        daemon.await_event("stopped")
        assert daemon.wait() == 0
    assert not any("exception" in record for record in daemon.seen)
    missing = [record["tidelog"]["table"] for record in daemon.seen if record["tidelog"]["event"] == "missing"]
    assert len(missing) == len(set(missing)), "once for each table"


# --- reload ----------------------------------------------------------------------------------------------------------


def test_sighup_applies_a_new_file_and_refuses_a_wrong_one(lake: Path, tmp_path: Path) -> None:
    config = write(tmp_path / "tidelog.toml", str(lake / "a"))
    fill(lake / "b")
    with started("--config", config) as daemon:
        daemon.await_event("compacted", table=str(lake / "a"))

        write(config, str(lake / "a"), interval_s='"soon"')
        daemon.signal(signal.SIGHUP)
        record = daemon.await_event("config_refused")
        assert record["level"] == "ERROR"
        assert f"{config}, line 4: daemon.interval_s is 'soon', which is not a number" in record["message"]

        write(config, str(lake / "b"), interval_s=0.07)
        daemon.signal(signal.SIGHUP)
        record = daemon.await_event("config_applied")
        assert record["tidelog"]["changes"] == [
            "daemon.interval_s: 0.05 -> 0.07",
            f"tables: + {lake}/b",
            f"tables: - {lake}/a",
        ]
        daemon.await_event("compacted", table=str(lake / "b"))

        daemon.signal(signal.SIGHUP)
        assert daemon.await_event("config_applied")["message"].endswith("nothing is different")
        config.unlink()
        daemon.signal(signal.SIGHUP)
        assert "cannot read the configuration file" in daemon.await_event("config_refused")["message"]

        write(config, str(lake / "b"), interval_s=0.07, more='[http]\nlisten = "127.0.0.1:0"\n')
        daemon.signal(signal.SIGHUP)
        daemon.await_event("restart_needed")
        daemon.signal(signal.SIGTERM)
        assert daemon.wait() == 0
    assert not any("exception" in record for record in daemon.seen)


def test_sighup_without_a_file_changes_nothing(lake: Path) -> None:
    with started(lake / "a", "--interval", "0.05") as daemon:
        daemon.signal(signal.SIGHUP)
        daemon.await_event("config_applied", changes=[])
        daemon.await_event("compacted")


# --- the end ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", full_but([signal.SIGTERM], [signal.SIGTERM, signal.SIGINT]))
def test_a_signal_ends_a_daemon_that_sleeps(lake: Path, number: signal.Signals) -> None:
    with started(lake / "a", "--interval", "3600") as daemon:
        daemon.await_event("compacted")
        daemon.signal(number)
        daemon.await_event("stopped")
        assert daemon.wait() == 0


_HANGS = """
import sys, threading
from tidelog import cli
from tidelog.compaction_daemon.process.table_step import TableStepper

def step(*_):
    print("step", flush=True)
    threading.Event().wait()

TableStepper.step = step
cli.main()
"""


def test_a_second_signal_ends_a_step_that_hangs(lake: Path, tmp_path: Path) -> None:
    import sys  # noqa: PLC0415 - only this test starts a program of its own

    program = tmp_path / "hangs.py"
    program.write_text(_HANGS)
    with subprocess.Popen([sys.executable, str(program), "daemon", str(lake / "a")], stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout
            assert process.stdout.readline() == b"step\n"
            process.send_signal(signal.SIGTERM)
            with pytest.raises(subprocess.TimeoutExpired):
                process.wait(0.5)
            process.send_signal(signal.SIGTERM)
            assert process.wait(PATIENCE_S) == -signal.SIGTERM
        finally:
            process.kill()


# --- the page --------------------------------------------------------------------------------------------------------


def test_the_page_is_served_while_the_daemon_runs(lake: Path) -> None:
    with started(lake / "a", "--listen", "127.0.0.1:0", "--interval", "0.05") as daemon:
        address = daemon.await_event("listening")["tidelog"]["address"]
        daemon.await_event("compacted")
        with urllib.request.urlopen(f"{address}/healthz", timeout=PATIENCE_S) as answer:
            assert answer.status == 200
        with urllib.request.urlopen(f"{address}/api/status", timeout=PATIENCE_S) as answer:
            assert [table["path"] for table in json.load(answer)["tables"]] == [str(lake / "a")]
        taken = run("daemon", lake / "a", "--listen", address.removeprefix("http://"))
        assert taken.exit_code == 1
        assert f"cannot listen on {address.removeprefix('http://')}" in taken.stderr
        daemon.signal(signal.SIGTERM)
        assert daemon.wait() == 0


# --- the settings ----------------------------------------------------------------------------------------------------


def test_options_take_precedence_over_the_file(tmp_path: Path) -> None:
    more = '[http]\nlisten = "127.0.0.1:1"\n[logging]\nformat = "json"\nlevel = "error"\n'
    file = write(tmp_path / "tidelog.toml", "/a", interval_s=7, more=more)
    from_file = DaemonOptions(config=str(file)).settings()
    assert (from_file.config.interval_s, from_file.listen, from_file.log_format, from_file.log_level) == (
        7,
        ListenAddress("127.0.0.1", 1),
        "json",
        "error",
    )
    options = DaemonOptions((TableSource("/b"),), str(file), 2.0, ListenAddress("::1", 2), "text", "debug")
    both = options.settings()
    assert both.sources == (TableSource("/a"), TableSource("/b"))
    assert both.config == DaemonConfig(interval_s=2.0, discovery_interval_s=0.1)
    assert (both.listen, both.log_format, both.log_level) == (ListenAddress("::1", 2), "text", "debug")


def test_a_file_without_tables_needs_a_path(tmp_path: Path) -> None:
    file = write(tmp_path / "tidelog.toml")
    with pytest.raises(ConfigurationError, match=r"has no \[\[tables\]\]; give a PATH"):
        DaemonOptions(config=str(file)).settings()


def test_check_config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET", "hunter22")
    file = tmp_path / "tidelog.toml"
    file.write_text('[[tables]]\npath = "s3://bucket/*"\nstorage_options = { secret = "${SECRET}" }\n')
    shown = run("daemon", "--config", file, "--check-config", "--listen", "[::1]:80")
    assert (shown.exit_code, shown.stderr) == (0, "")
    assert "hunter22" not in shown.output
    assert "s3://bucket/*" in shown.output
    assert shown.output.endswith(f"{file}: valid\n")
    found = json.loads(run("daemon", "--config", file, "/b", "--check-config", "--json").stdout)
    assert (found["valid"], found["tables"], found["interval_s"], found["listen"]) == (
        True,
        ["s3://bucket/*", "/b"],
        1.0,
        None,
    )
    file.write_text("[daemon]\nintervall_s = 1\n")
    refused = run("daemon", "--config", file, "--check-config")
    assert (refused.exit_code, refused.stdout) == (2, "")
    assert f"{file}, line 2: daemon.intervall_s is not known; did you mean 'interval_s'?" in refused.stderr


def test_once_with_a_glob(lake: Path, tmp_path: Path) -> None:
    fill(lake / "b")
    ended = run("daemon", f"{lake}/*", "--once", "--json")
    assert (ended.exit_code, ended.stderr) == (0, "")
    assert {json.loads(line)["path"] for line in ended.stdout.splitlines()} == {f"{lake}/a", f"{lake}/b"}
    nothing = run("daemon", f"{tmp_path}/none/*", "--once")
    assert (nothing.exit_code, nothing.stdout, nothing.stderr) == (0, "", "no table was found\n")


@pytest.mark.parametrize("path", ["foo://x/y", "s3://", "foo://x/*", "s3://AKIA:x@bucket/*"])
def test_a_file_with_which_no_daemon_starts_is_not_valid(path: str, tmp_path: Path) -> None:
    file = write(tmp_path / "tidelog.toml", path)
    assert run("daemon", "--config", file, "--check-config").exit_code != 0
