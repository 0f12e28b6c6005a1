"""The daemon and the clean-up, as separate processes, on a table in S3."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from tests.log.storage.servers import SECRET, Server
from tests.log.support import NUMBERS, numbers, read_numbers
from tidelog.log import Table

PROGRAM = str(Path(sys.executable).parent / "tidelog")


def run(s3: Server, command: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    given = [part for name, text in s3.options.items() for part in ("--storage-option", f"{name}={text}")]
    return subprocess.run(
        [PROGRAM, command, *arguments, *given], capture_output=True, text=True, timeout=120, check=False
    )


def test_the_daemon_and_the_clean_up_from_the_command_line(s3: Server) -> None:
    url = s3.store("from the shell").url
    table = Table.create(url, NUMBERS, storage_options=s3.options)
    for number in range(3):
        table.insert(numbers([number]))
    done = run(s3, "daemon", url, "--once", "--json")
    assert (done.returncode, done.stderr) == (0, "")
    (step,) = map(json.loads, done.stdout.splitlines())
    assert (step["version"], step["files_removed"], step["files_added"]) == (4, 3, 1)
    assert read_numbers(table.refresh()) == [0, 1, 2]
    young = run(s3, "vacuum", url, "--json")
    assert young.returncode == 4
    assert json.loads(young.stdout)["files"] == []
    assert SECRET not in done.stdout + young.stdout + young.stderr
